"""What the jobs on Spark say, as the page shows it. The messages are as mqks.pipeline makes them."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from mqks.pipeline.deliveries import message as queue_message
from mqks.pipeline.place import PROGRESS_EVENT, STATS_EVENT
from mqks.pipeline.progress import Figures
from mqks.web.pipeline import (
    EFFORT,
    LONGEST_SAID,
    MOST_JOBS,
    MOST_MINUTES,
    MOST_NAMES,
    MOST_SAID,
    PROGRESS,
    SHOWN,
    STATS,
    TOLL,
    Pipeline,
)
from tests.web.stage import BEGAN, Stage

NOW = BEGAN
MINUTE = "2027-01-15T08:00:00Z"  # the minute of NOW


def progress(**figures: Any) -> bytes:
    given: dict[str, Any] = {
        "job": "archive",
        "state": "running",
        "batch": 7,
        "rows": 1000,
        "rows_per_second": 50.5,
        "position": 5000,
        "latest": 6000,
        "lag_positions": 1000,
        "lag_seconds": 2.5,
        "time": "2027-01-15T08:00:00.000+00:00",
    }
    return Figures(**(given | figures)).json.encode()


def minute(name: str, count: int, **row: Any) -> bytes:
    given = {"minute": MINUTE, "kind": "event", "name": name, "count": count, "bytes": 9, "rate": 1.5, "final": False}
    return json.dumps(given | row).encode()


def test_the_events_are_those_of_the_pipeline() -> None:
    assert (PROGRESS_EVENT.encode(), STATS_EVENT.encode()) == (PROGRESS, STATS)


def test_a_job_is_shown_as_it_told() -> None:
    pipeline = Pipeline(NOW)
    pipeline.take(PROGRESS, progress(), NOW + 1)
    [row] = pipeline.state(NOW + 4, {})["jobs"]
    told = asdict(Figures(**json.loads(progress())))
    assert row == told | {"age": 3.0, "level": "ok", "why": None}


def test_a_job_without_a_stream_has_no_position() -> None:
    pipeline = Pipeline(NOW)
    none = dict.fromkeys(("batch", "position", "latest", "lag_positions", "lag_seconds"))
    pipeline.take(PROGRESS, progress(job="replay", **none), NOW)
    [sample] = pipeline.jobs.samples(NOW + 100)
    assert (sample.job, sample.lag_seconds) == ("replay", None)


def test_silence_counts_from_the_last_word_but_not_from_before_the_broker_began() -> None:
    pipeline = Pipeline(began=NOW)
    pipeline.take(PROGRESS, progress(), NOW - 500)
    [sample] = pipeline.jobs.samples(NOW + 3)
    assert (sample.silent, sample.stuck, sample.since_start) == (3, 3, True)
    pipeline.take(PROGRESS, progress(), NOW + 5)
    [sample] = pipeline.jobs.samples(NOW + 7)
    assert (sample.silent, sample.stuck, sample.since_start) == (2, 2, False)  # it begins where it was


def test_a_job_that_ran_before_the_broker_began_has_its_time_to_start() -> None:
    stage = Stage()
    stage.figures._pipeline.take(PROGRESS, progress(), BEGAN - 100)
    stage.wait(60)
    assert stage.phrases["job"] == "Spark archive has not been heard since the start."
    stage.say(stage.connect(), b"m1 publish mqks.pipeline.progress " + progress())
    stage.wait()
    assert stage.phrases["job"] == "Spark archive is 2 s behind."
    stage.wait(10)
    assert stage.phrases["stalled"] == "Spark archive has said nothing for 10 s."


def test_a_job_is_stuck_while_its_position_stays_though_there_is_more() -> None:
    pipeline = Pipeline(NOW)
    for second in range(0, 30, 5):
        pipeline.take(PROGRESS, progress(position=5000), NOW + second)
    assert pipeline.jobs.samples(NOW + 26)[0].stuck == 26
    pipeline.take(PROGRESS, progress(position=5001), NOW + 30)
    assert pipeline.jobs.samples(NOW + 31)[0].stuck == 1


def test_a_job_with_nothing_to_do_is_not_stuck() -> None:
    pipeline = Pipeline(NOW)
    for second in range(0, 60, 5):
        pipeline.take(PROGRESS, progress(position=6000, lag_positions=0, lag_seconds=0.0), NOW + second)
    assert pipeline.jobs.samples(NOW + 56)[0].stuck == 1


def test_what_is_read_back_is_as_old_as_it_says_and_never_overtakes() -> None:
    pipeline = Pipeline(began=NOW - 1000)
    pipeline.take(PROGRESS, progress(rows=2), NOW + 50)
    pipeline.take(PROGRESS, progress(rows=1), NOW + 60, old=True)
    [row] = pipeline.state(NOW + 60, {})["jobs"]
    assert (row["rows"], row["age"]) == (2, 10)
    pipeline.take(PROGRESS, progress(job="stats"), NOW + 60, old=True)
    assert pipeline.state(NOW + 60, {})["jobs"][1]["age"] == 60


def test_a_job_of_yesterday_is_forgotten() -> None:
    pipeline = Pipeline(NOW)
    pipeline.take(PROGRESS, progress(), NOW)
    assert pipeline.jobs.samples(NOW + 86_000)
    assert not pipeline.jobs.samples(NOW + 90_000)


def test_the_newest_minute_has_the_largest_of_each_kind() -> None:
    pipeline = Pipeline(NOW)
    for number in range(2 * SHOWN):
        pipeline.take(STATS, minute(f"e{number:02}", 100 + number), NOW)
    pipeline.take(STATS, minute("e.*", 5, kind="mask"), NOW)
    row = {"minute": MINUTE, "kind": "queue", "name": "q", "count": 3, "delivered": 2, "rate": 0.1, "final": False}
    pipeline.take(STATS, queue_message(row)[1].encode(), NOW)
    newest = pipeline.state(NOW, {})["minute"]
    assert newest["minute"] == MINUTE
    assert not newest["final"]
    assert [row["name"] for row in newest["rows"] if row["kind"] == "event"] == [
        f"e{number:02}" for number in reversed(range(SHOWN, 2 * SHOWN))
    ]
    assert newest["rows"][-2] == {"kind": "mask", "name": "e.*", "count": 5, "bytes": 9, "rate": 1.5}
    assert newest["rows"][-1] == {"kind": "queue", "name": "q", "count": 3, "bytes": None, "rate": 0.1}


def test_the_last_word_on_a_row_stays() -> None:
    pipeline = Pipeline(NOW)
    pipeline.take(STATS, minute("e", 10), NOW)
    pipeline.take(STATS, minute("e", 12, final=True), NOW + 1)
    pipeline.take(STATS, minute("e", 11), NOW + 2)
    state = pipeline.state(NOW + 2, {})
    assert state["minute"]["rows"][0]["count"] == 12
    assert state["minute"]["final"]
    pipeline.take(STATS, minute("f", 5), NOW)
    pipeline.take(STATS, minute("f", 3), NOW)  # it was overtaken
    assert [row["count"] for row in pipeline.state(NOW + 2, {})["minute"]["rows"]] == [12, 5]
    assert state["minutes"] == [{"minute": MINUTE, "count": 12}]


def test_an_hour_of_minutes_is_kept_oldest_first() -> None:
    pipeline = Pipeline(NOW)
    for number in reversed(range(100)):
        when = f"2027-01-15T{6 + number // 60:02}:{number % 60:02}:00Z"
        pipeline.take(STATS, minute("a", number, minute=when), NOW)
        pipeline.take(STATS, minute("b", 1, minute=when), NOW)
        pipeline.take(STATS, minute("m", 1, minute=when, kind="mask"), NOW)
    minutes = pipeline.state(NOW, {})["minutes"]
    assert [one["count"] for one in minutes] == [number + 1 for number in range(100 - MOST_MINUTES, 100)]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[" * 10_000,
        b"[]",
        b"{}",
        b'"text"',
        b'{"job": 1, "state": "running"}',
        b'{"job": "", "state": "running"}',
        b'{"job": "%s", "state": "running"}' % (b"x" * 2000),
        minute("e", 1, minute="yesterday"),
        minute("e", 1, minute="2027-01-15T08:00:00"),  # in no zone
        minute("e", 1, minute="2027-01-15T08:00:01Z"),  # no minute
        minute("e", 1, minute="9999-12-31T23:59:00Z"),  # to come
        minute("e", 1, minute="0001-01-01T00:00:00+23:59"),
        minute("e", 1, kind="x"),
        minute("", 1),
        b'{"minute": "%s", "kind": "event", "name": "e", "count": 1e400}' % MINUTE.encode(),
        b'{"minute": "%s", "kind": "event", "name": "e", "count": 1%s}' % (MINUTE.encode(), b"0" * 400),
        b'{"minute": "%s", "kind": "event", "name": "e", "count": true}' % MINUTE.encode(),
        b'{"minute": "%s", "kind": "event", "name": "e", "count": "1"}' % MINUTE.encode(),
    ],
)
def test_what_makes_no_sense_is_passed_over(data: bytes) -> None:
    pipeline = Pipeline(NOW)
    pipeline.take(PROGRESS, data, NOW)
    pipeline.take(STATS, data, NOW)
    assert pipeline.state(NOW, {}) == {"jobs": [], "minute": None, "minutes": []}


def test_figures_that_make_no_sense_are_none() -> None:
    pipeline = Pipeline(NOW)
    pipeline.take(PROGRESS, b'{"job": "a", "state": "running", "rows": "many", "position": {}, "time": 5}', NOW)
    [row] = pipeline.state(NOW, {})["jobs"]
    assert (row["rows"], row["position"], row["time"]) == (None, None, None)


@pytest.mark.parametrize("number", ["1" + "0" * 400, "-1" + "0" * 400, "1e400", "1e18", "NaN", "-Infinity"])
@pytest.mark.parametrize(
    "said",
    [
        'mqks.pipeline.progress {"job": "a", "state": "running", "batch": NUMBER}',
        'mqks.stats.minute {"minute": "2027-01-15T08:00:00Z", "kind": "event", "name": "e", "count": NUMBER}',
        'mqks.stats.minute {"minute": "2027-01-15T08:00Z", "kind": "queue", "name": "q", "count": 1, "rate": NUMBER}',
    ],
)
def test_a_number_of_any_size_stops_nothing(said: str, number: str, caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    stage.say(stage.connect(), b"m publish " + said.replace("NUMBER", number).encode())
    stage.say(stage.connect(), b"m publish mqks.pipeline.progress " + progress())
    stage.wait()
    assert "archive" in [job["job"] for job in stage.figures.state()["pipeline"]["jobs"]]
    assert not caplog.records


def test_nobody_can_make_it_keep_too_much() -> None:
    pipeline = Pipeline(NOW)
    for number in range(2 * MOST_JOBS):
        pipeline.take(PROGRESS, progress(job=f"job{number}"), NOW)
    for number in range(MOST_NAMES + 10):
        pipeline.take(STATS, minute(f"e{number}", 1), NOW)
    state = pipeline.state(NOW, {})
    assert len(state["jobs"]) == MOST_JOBS
    assert state["minutes"] == [{"minute": MINUTE, "count": MOST_NAMES}]


def test_what_a_text_may_not_be_is_escaped() -> None:
    pipeline = Pipeline(NOW)
    pipeline.take(PROGRESS, rb'{"job": "\ud800", "state": "\udfff", "time": "\udc80"}', NOW)
    pipeline.take(STATS, minute("\ud83d", 1), NOW)
    state = pipeline.state(NOW, {})
    json.dumps(state, ensure_ascii=False).encode()
    assert (state["jobs"][0]["job"], state["minute"]["rows"][0]["name"]) == (r"\ud800", r"\ud83d")
    [sample] = pipeline.jobs.samples(NOW)
    assert sample.key == "%5Cud800"


def test_only_so_much_is_looked_at_in_a_second() -> None:
    pipeline = Pipeline(NOW)
    said = [minute(f"e{number}", 1) for number in range(2 * EFFORT // TOLL)]
    for data in said:
        pipeline.hear(STATS, data)
    pipeline.hear(PROGRESS, progress())
    pipeline.step(NOW)
    state = pipeline.state(NOW, {})
    assert [job["job"] for job in state["jobs"]] == ["archive"]  # jobs first
    assert 0 < state["minutes"][0]["count"] <= EFFORT // TOLL
    for second in range(1, 10):
        pipeline.step(NOW + second)
    assert pipeline.state(NOW, {})["minutes"][0]["count"] == len(said)


def test_nobody_can_make_it_hear_too_much() -> None:
    pipeline = Pipeline(NOW)
    pipeline.hear(PROGRESS, progress(job="x") + b" " * LONGEST_SAID)
    for number in range(10 * MOST_SAID[PROGRESS]):
        pipeline.hear(PROGRESS, progress(rows=number))
    for second in range(10):
        pipeline.step(NOW + second)
    [job] = pipeline.state(NOW + 9, {})["jobs"]
    assert (job["job"], job["rows"]) == ("archive", 10 * MOST_SAID[PROGRESS] - 1)
    assert sum(len(said) for said in pipeline._said.values()) == 0


def test_what_is_published_is_heard_and_other_events_are_not() -> None:
    stage = Stage()
    client = stage.connect()
    stage.say(client, b"m1 publish mqks.pipeline.progress " + progress())
    stage.say(client, b"m2 publish mqks.pipeline.other " + progress(job="other"))
    stage.say(client, b"m3 publish mqks.stats.minute " + minute("e", 3))
    stage.wait()
    state = stage.figures.state()["pipeline"]
    assert [job["job"] for job in state["jobs"]] == ["archive"]
    assert state["minutes"] == [{"minute": MINUTE, "count": 3}]
    assert stage.figures.state()["totals"]["queues"] == 0
