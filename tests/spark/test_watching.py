"""Jobs as they are watched: restarts, giving up, figures, lines and events, with queries that are made up."""

import io
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import mqks
from mqks.journal.format import build_batch, dtid_floor
from mqks.pipeline import progress, watching
from mqks.pipeline.holding import Hold
from mqks.pipeline.place import OWN, PROGRESS_EVENT, Place
from mqks.pipeline.progress import Figures, Lines, Meter, Publishing, Tail, simply
from mqks.pipeline.watching import Job, JobFailed, reason, started, watch
from mqks.testing import broker
from tests.journal.making import TIME, Making

PATIENCE = 60.0
AWAY = "mqks://127.0.0.1:1"
SPARK = cast(SparkSession, SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))))


STREAM_FAILED = """\
[STREAM_FAILED] Query [id = 1] terminated with exception: [X] Reason: Traceback (most recent call last):
  File "x.py", line 1, in f
pyspark.errors.exceptions.captured.UnsupportedOperationException: Not implemented
 SQLSTATE: 39000 SQLSTATE: XXKST
=== Streaming Query ===
Current State: ValueError: none
"""


class Query:
    """As much of a streaming query as is looked at."""

    def __init__(self, *, fails: str = "", ends: bool = False, run: str = "r1") -> None:
        self.isActive = not (fails or ends)
        self.runId = run
        self.recentProgress: list[SimpleNamespace] = []
        self._fails = fails

    @property
    def lastProgress(self) -> SimpleNamespace | None:
        return self.recentProgress[-1] if self.recentProgress else None

    def exception(self) -> str | None:
        return self._fails or None

    def stop(self) -> None:
        self.isActive = False

    def did(self, batch: int, rows: int, position: int) -> "Query":
        sources = [{"endOffset": json.dumps({"position": position})}, {"endOffset": None}]
        told = {"batchId": batch, "numInputRows": rows, "processedRowsPerSecond": rows / 2, "sources": sources}
        self.recentProgress.append(SimpleNamespace(json=json.dumps(told)))
        return self


def job_of(*queries: Query, name: str = "j", close: Callable[[], object] | None = None) -> Job:
    """Each start takes the next query; the last one goes on."""
    left = list(queries)
    return Job(name, lambda: cast(Any, [left.pop(0) if len(left) > 1 else left[0]]), close=close)


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LOOK", 0.001)
    monkeypatch.setattr(watching, "TELL", 0.001)


def watched(*jobs: Job, stopping: threading.Event | None = None, place: Place | None = None) -> str:
    out = io.StringIO()
    place = place or Place(AWAY)
    watch(SPARK, place, jobs, out=out, publish=False, stopping=stopping, backoff=(0.0,))
    return out.getvalue()


# ── jobs ──


def test_a_job_that_ends_by_itself_is_closed() -> None:
    closed: list[str] = []
    assert "j: 0 rows, 0 rows/s, stopped" in watched(job_of(Query(ends=True), close=lambda: closed.append("j")))
    assert closed == ["j"]


def test_a_job_that_fails_is_started_again() -> None:
    told = watched(job_of(Query(fails="ValueError: no"), Query(fails="ValueError: no"), Query(ends=True)))
    assert told.count("j: failed, is started again in 0 s: no") == 2
    assert "stopped" in told


def test_a_job_that_only_fails_is_given_up_and_the_others_go_on() -> None:
    stopping = threading.Event()
    other = job_of(Query(), name="other")
    closed: list[str] = []
    running = Query()
    bad = Job("bad", lambda: cast(Any, [Query(fails="ValueError: no"), running]), close=lambda: closed.append("bad"))

    class Out(io.StringIO):
        def write(self, text: str) -> int:
            if "bad" in text and "failed" in text and "given up" not in text and "again" not in text:
                assert other.active and not running.isActive and closed == ["bad"]
                stopping.set()
            return super().write(text)

    out = Out()
    with pytest.raises(JobFailed, match=r"^bad: no$"):
        watch(SPARK, Place(AWAY), [bad, other], out=out, publish=False, stopping=stopping, backoff=(0.0,))
    assert "bad: given up after 6 failures: no" in out.getvalue()
    assert not other.active


def test_failures_with_progress_between_them_do_not_add_up() -> None:
    queries = [Query(fails="ValueError: no", run=f"r{n}").did(n, 1, n) for n in range(6)]
    job = job_of(*queries, Query(ends=True))
    watched_job = watching.Watched(job, Tail(Place(AWAY)), (0.0,))
    lines = Lines(io.StringIO())
    for _ in queries:
        watched_job.meter.read(job.queries, "running")  # as the teller does meanwhile
        assert watched_job.look(lines)  # it failed
        assert watched_job.look(lines)  # it is started again
    assert not watched_job.look(lines)
    assert watched_job.state == "stopped"


def test_a_query_that_only_fails_is_given_up_whatever_the_others_do() -> None:
    batches = iter(range(100))
    job = Job("j", lambda: cast(Any, [Query().did(next(batches), 1, 1), Query(fails="ValueError: no")]))
    with pytest.raises(JobFailed, match=r"^j: no$"):
        watched(job)


def test_one_that_does_not_stop_keeps_no_other_from_it(caplog: pytest.LogCaptureFixture) -> None:
    class Stubborn(Query):
        def stop(self) -> None:
            raise ValueError("it is stuck")

    stopping, closed = threading.Event(), []
    stopping.set()
    beside = Query()
    stubborn = Job("a", lambda: cast(Any, [Stubborn(), beside]), close=lambda: closed.append("a"))
    other = job_of(Query(), name="b")
    assert "b: 0 rows, 0 rows/s, stopped" in watched(stubborn, other, stopping=stopping)
    assert not other.active and not beside.isActive and closed == ["a"]
    assert "a did not stop as it should: it is stuck" in caplog.text


def test_queries_start_all_or_none() -> None:
    first = Query()

    def fails() -> Any:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        started([lambda: cast(Any, first), fails])
    assert not first.isActive
    assert started([lambda: cast(Any, first)]) == cast(Any, [first])


def test_a_first_start_that_fails_leaves_nothing_and_is_told_in_a_line() -> None:
    closed: list[str] = []

    def start() -> Any:
        raise AnalysisException("no such jar\n\tat java")

    with pytest.raises(JobFailed, match=r"^j: no such jar$"):
        Job("j", start, close=lambda: closed.append("j"))
    assert closed == ["j"]


def test_a_start_that_fails_counts_as_a_failure() -> None:
    starts = iter([[Query(fails="ValueError: no")]])

    def start() -> Any:
        try:
            return next(starts)
        except StopIteration:
            raise ConnectionError("the lake is away") from None

    with pytest.raises(JobFailed, match=r"^j: the lake is away$"):
        watched(Job("j", start))


def test_stopping_stops_all() -> None:
    stopping = threading.Event()
    stopping.set()
    jobs = [job_of(Query(), name=name) for name in ("a", "b")]
    assert watched(*jobs, stopping=stopping).count("stopped") == 2
    assert not any(job.active for job in jobs)


def test_wait_answers_whether_it_ended_and_raises_why_it_failed() -> None:
    assert job_of(Query(ends=True)).wait()
    assert not job_of(Query()).wait(0)
    with pytest.raises(JobFailed, match=r"^j: no$"):
        job_of(Query(fails="ValueError: no")).wait()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("plain", "plain"),
        ("An error occurred while calling o1.start.\n: java.io.IOException: no disk\n\tat x.y(z)", "no disk"),
        ("", "no reason is told"),
        (STREAM_FAILED, "Not implemented"),
        ("x\nmqks.pipeline.batches.BatchFailed: builtins.OSError: disk full", "disk full"),
        ("mqks_x.loss.DataLoss: positions 1 to 2 are gone SQLSTATE: 38000", "positions 1 to 2 are gone"),
    ],
)
def test_the_reason_is_one_line(text: str, why: str) -> None:
    assert reason(text) == why


# ── figures ──


def test_figures_add_up_over_batches_and_restarts(tmp_path: Path) -> None:
    made = Making(tmp_path)
    made.batch(b"m1 publish e1 d1")
    middle = made.batch(b"m2 publish e1 d2")
    made.sync()
    meter = Meter("j", Tail(Place(AWAY, data=str(tmp_path))))
    query = Query()
    before = meter.read(cast(Any, [query]), "running")
    assert (before.batch, before.rows, before.position, before.lag_positions) == (None, 0, None, None)
    query.did(0, 10, 1).did(1, 20, 2).did(2, 30, middle)
    figures = meter.read(cast(Any, [query]), "running")
    assert (figures.batch, figures.rows, figures.rows_per_second, figures.position) == (2, 60, 15, middle)
    assert figures.latest is not None
    assert figures.lag_positions == figures.latest - middle > 0
    assert figures.lag_seconds is not None
    assert figures.lag_seconds > 0
    again = Query(run="r2").did(3, 5, figures.latest)
    ended = meter.read(cast(Any, [again]), "stopped")
    assert (ended.rows, ended.rows_per_second, ended.lag_positions, ended.lag_seconds) == (65, 0, 0, 0)
    assert json.loads(ended.json)["job"] == "j"


def test_a_batch_counts_once_however_often_it_is_looked_at() -> None:
    """Also where one of no rows comes after it before the next look, as it does when only the pipeline speaks."""
    meter = Meter("j", Tail(Place(AWAY)))
    query = Query()

    def looked() -> list[int]:
        return [meter.read(cast(Any, [query]), "running").rows for _ in range(3)]

    query.did(0, 310_938, 1).did(1, 0, 2)
    assert looked() == [310_938] * 3
    query.did(1, 50, 3)  # the one before was not begun yet: Spark says so now and then while it waits
    assert looked() == [310_988] * 3
    query.did(2, 0, 4).did(3, 8, 5).did(4, 0, 6).did(5, 0, 7)
    assert looked() == [310_996] * 3


def test_what_is_told_between_two_questions_counts_once() -> None:
    class Busy(Query):
        """It does one more batch after each question for the last one."""

        @property
        def lastProgress(self) -> SimpleNamespace | None:
            last = super().lastProgress
            batch = len(self.recentProgress)
            self.did(batch, 10, batch)
            return last

    query = Busy().did(0, 10, 0).did(1, 10, 1)
    meter = Meter("j", Tail(Place(AWAY)))
    for _ in range(5):
        figures = meter.read(cast(Any, [query]), "running")
        assert figures.batch is not None
        assert figures.rows == 10 * (figures.batch + 1)


def test_rows_that_several_queries_read_are_counted_once() -> None:
    meter = Meter("j", Tail(Place(AWAY)))
    queries = [Query(run="a").did(0, 10, 1), Query(run="b").did(0, 4, 1).did(1, 8, 1)]
    figures = meter.read(cast(Any, queries), "running")
    assert (figures.rows, figures.rows_per_second) == (12, 5)


def test_the_tail_is_told_by_the_broker_too(tmp_path: Path) -> None:
    with broker(data=tmp_path) as running:
        tail = Tail(Place(running.url))
        with mqks.connect(running.url) as mq:
            mq.publish("e1", "d1", confirm=True)
            mq.publish("e1", "d2", confirm=True)
            positions = [record.position for record in mq.history()]
        latest, lag, seconds = tail.look(positions[1])
        assert latest is not None
        assert lag == latest - positions[1] > 0
        assert seconds is not None
        assert 0 <= seconds < PATIENCE
        assert tail.look(latest) == (latest, 0, 0.0)
        assert tail.look(None) == (latest, None, None)
    assert tail.look(None) == (None, None, None)


@pytest.mark.parametrize("through_the_broker", [False, True])
def test_what_the_pipeline_itself_says_is_no_lag(tmp_path: Path, through_the_broker: bool) -> None:
    """Nor are the lines that keep what became of queues. A real one is counted from its first event on."""
    with broker(data=tmp_path, fsync="never") as running, mqks.connect(running.url) as mq:
        tail = Tail(Place(running.url, data=None if through_the_broker else str(tmp_path)))
        mq.publish("e1", "done", confirm=True)
        done, lag, seconds = tail.look(0)
        assert lag and seconds is not None
        for _ in range(3):
            for event in OWN:
                mq.publish(event, "{}", confirm=True)
            mq.rebind("q1", ["e1"])
            mq.hold("archive", position=0, seconds=60)
            latest, *lags = tail.look(done)
            assert latest and done and latest > done
            assert lags == [0, 0.0]
        mq.publish("e1", "not done", confirm=True)
        *_, last = mq.history()
        for _ in range(3):
            mq.publish(PROGRESS_EVENT, "{}", confirm=True)
            now, lag, seconds = tail.look(done)
            assert latest and now and lag and seconds
            assert latest <= now - lag <= last.position
        assert tail.look(now) == (now, 0, 0.0)
        assert tail.look(done)[1:2] == (lag,)  # one that begins again has as much to do again


def test_a_history_that_breaks_off_does_not_tell_that_there_is_no_lag() -> None:
    """What was not read may be anything: it is looked at again."""
    own = build_batch(dtid_floor(TIME), 0, b"m1 publish %s {}\n" % PROGRESS_EVENT.encode(), 0, 0)
    others = build_batch(dtid_floor(TIME), len(own), b"m2 publish e1 d1\n", 0, 0)
    latest = len(own) + len(others)
    end = b"r ok --end %d\n" % latest
    sent = [own, own + others[:50], own + b"r error no\n", own + others + end, end]

    def serve() -> None:
        for history in sent:
            with server.accept()[0] as client, client.makefile("rb") as lines:
                client.sendall(b"%s ok hello\n" % lines.readline().split()[0])
                for answer in (b"l ok --end %d\n" % latest, history):
                    lines.readline()
                    client.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        tail = Tail(Place(f"mqks://127.0.0.1:{server.getsockname()[1]}"))
        lags = [tail.look(0)[1] for _ in sent]
        serving.join()
    assert lags == [None, None, None, len(others), 0]


# ── lines and events ──


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def figures(state: str = "running", **given: Any) -> Figures:
    return Figures(
        **{
            "job": "j",
            "state": state,
            "batch": 1,
            "rows": 1_234_567,
            "rows_per_second": 500_000.4,
            "position": 1,
            "latest": 2001,
            "lag_positions": 2000,
            "lag_seconds": 1.25,
            "time": "now",
            **given,
        }
    )


NOW = "2026-11-18 12:00:00"


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "clock", lambda: NOW)


@pytest.mark.usefixtures("stopped_clock")
def test_lines_where_there_is_no_terminal() -> None:
    out = io.StringIO()
    lines = Lines(out, every=0)
    for state in ("running", "running", "stopped"):
        lines.tell(figures(state))
    lines.tell(figures("stopped", lag_seconds=7.0))  # the same, only later
    lines.tell(figures("stopped", rows=1_234_568))
    lines.end()
    line = "rows, 500,000 rows/s, lag 2,000 positions, 1.2 s"
    assert out.getvalue().splitlines() == [
        f"{NOW} j: 1,234,567 {line}",
        f"{NOW} j: 1,234,567 {line}, stopped",
        f"{NOW} j: 1,234,568 {line}, stopped",
    ]


@pytest.mark.usefixtures("stopped_clock")
def test_a_line_that_changes_on_a_terminal() -> None:
    out = Terminal()
    lines = Lines(out)
    for _ in range(2):  # the second one says nothing new
        lines.tell(simply("a", "running", 1, 2.0))
    lines.tell(simply("b", "running", 3, 4.0))
    lines.say("b: failed")
    lines.end()
    assert out.getvalue() == (
        f"\r{NOW} a: 1 rows, 2 rows/s\x1b[K\r{NOW} a: 1 rows, 2 rows/s | b: 3 rows, 4 rows/s\x1b[K"
        f"\r{NOW} b: failed\x1b[K\n\n"
    )


def test_progress_is_published_at_each_change_and_not_more_often_than_wanted() -> None:
    with broker() as running, mqks.connect(running.url) as mq:
        publishing = Publishing(Place(running.url))
        for state in ("running", "running", "stopped"):
            publishing.publish(figures(state))
        publishing.close()
        told = [record.json for record in mq.history(events=[PROGRESS_EVENT])]
    assert [one["state"] for one in told] == ["running", "stopped"]
    assert told[0]["lag_positions"] == 2000


def test_a_broker_that_is_away_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    publishing = Publishing(Place(AWAY), every=0)
    with caplog.at_level(logging.WARNING, "mqks.pipeline"):
        for _ in range(3):
            publishing.publish(figures())
    publishing.close()
    assert len(caplog.records) == 1
    assert "publishing progress did not work and will be tried again" in caplog.text


# ── holds ──


def holds(url: str) -> Iterator[dict[str, Any]]:
    """Asked again and again."""
    with mqks.connect(url) as mq:
        while True:
            yield mq.stats()["journal"]["holds"]


def test_a_hold_moves_is_renewed_and_comes_back_with_the_broker(tmp_path: Path) -> None:
    with broker(data=tmp_path) as running:
        with mqks.connect(running.url) as mq:
            mq.publish_many([("e1", "d1"), ("e1", "d2")])
            end = list(mq.history())[-1].position
        hold = Hold(running.url, "archive", seconds=0.5, retry=0.01)
        hold.move(0)
        seen = holds(running.url)
        assert next(held for held in seen if held)["archive"]["position"] == 0
        hold.move(end)
        next(held for held in seen if held["archive"]["position"] == end)
        left = (held["archive"]["seconds"] for held in seen)
        next(True for before, after in pairwise(left) if after > before)  # renewed, by itself
        running.stop()
        hold.move(0)  # nobody hears it
        running.start()
        next(held for held in holds(running.url) if held.get("archive", {}).get("position") == 0)
        hold.close()
        assert "archive" in next(holds(running.url))  # it outlives the job, until it expires
