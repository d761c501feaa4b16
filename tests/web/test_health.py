"""Each thing that can be wrong: found from made-up figures, told in words, logged once."""

import logging
from typing import Any

import pytest

from mqks.web.detectors import (
    DeafClient,
    Found,
    JobSample,
    Limits,
    QueueSample,
    Situation,
    SlowConsumer,
    about_all,
    about_queue,
)
from mqks.web.health import CALM, TOLD_ONE_BY_ONE, Incidents, health

MAIL = QueueSample("mail", "mail", ready=1204, consumers=0)
SLOW = SlowConsumer("c1", "127.0.0.1:5001", 4.0, 7)
GROWING: dict[str, Any] = {"consumers": 1, "in_rate": 1200.0, "out_rate": 80.25, "grown": 5000, "age": 12.0}


# ── made-up figures ──


@pytest.mark.parametrize(
    ("sample", "kind", "text"),
    [
        (MAIL._replace(alone=180), "no-consumer", "`mail` has had no consumer for 3 min, 1,204 messages wait."),
        (MAIL._replace(alone=2, ready=1), "no-consumer", "`mail` has had no consumer for 2 s, 1 message waits."),
        (
            MAIL._replace(alone=180, since_start=True),
            "no-consumer",
            "`mail` has had no consumer since the start 3 min ago, 1,204 messages wait.",
        ),
        (
            MAIL._replace(consumers=1, retrying=12),
            "poison",
            "`mail` gives the same messages again and again: one came back 12 times.",
        ),
        (
            MAIL._replace(consumers=1, slow=[SLOW]),
            "slow",
            "`mail` has a slow consumer: `c1` of 127.0.0.1:5001 has settled nothing for 4 s and has 7 messages.",
        ),
        (
            MAIL._replace(**GROWING),
            "behind",
            "`mail` falls behind: 1,200/s come and 80/s go, the oldest of 1,204 messages has waited for 12 s.",
        ),
    ],
)
def test_found_in_a_queue(sample: QueueSample, kind: str, text: str) -> None:
    [found] = about_queue(sample)
    assert (found.kind, found.level, found.text, found.link) == (kind, "warning", text, "#/queue/mail")
    assert found.queue == "mail"


@pytest.mark.parametrize(
    "sample",
    [
        MAIL,
        MAIL._replace(alone=1.9),
        MAIL._replace(alone=5, ready=0),
        MAIL._replace(alone=5, consumers=1),
        MAIL._replace(consumers=1, retrying=4),
        MAIL._replace(consumers=1, slow=[SLOW._replace(seconds=2.9)]),
        MAIL._replace(consumers=1, slow=[SLOW], ready=0),
        MAIL._replace(**GROWING | {"age": 1.9}),
        MAIL._replace(**GROWING | {"age": None}),
        MAIL._replace(**GROWING | {"grown": 0}),
        MAIL._replace(**GROWING | {"out_rate": 1200.0}),
        MAIL._replace(**GROWING | {"consumers": 0}),
    ],
)
def test_nothing_to_find_in_a_queue(sample: QueueSample) -> None:
    assert about_queue(sample) == []


def test_a_queue_is_not_said_to_fall_behind_when_its_slow_consumer_is_named() -> None:
    assert [found.kind for found in about_queue(MAIL._replace(**GROWING, slow=[SLOW]))] == ["slow"]


GB = 1 << 30
DISK = Situation(disk_free=50 * GB, disk_total=100 * GB)


@pytest.mark.parametrize(
    ("now", "kind", "level", "text"),
    [
        (
            Situation(broken="a sync has failed"),
            "broken",
            "trouble",
            "The journal has failed and the broker stops: a sync has failed.",
        ),
        (DISK._replace(full="the disk is full"), "disk", "trouble", "No messages are taken: the disk is full."),
        (
            DISK._replace(disk_free=4 * GB),
            "disk",
            "warning",
            "The disk is nearly full: 4 GiB are left, 4.0 % of it.",
        ),
        (DISK._replace(days_left=0.5), "disk", "warning", "The disk will be full in 12 h."),
        (
            Situation(memory=95 * GB, max_memory=100 * GB),
            "memory",
            "warning",
            "95 % of the memory is used, 95 GiB: beyond the limit messages are refused.",
        ),
        (
            Situation(reached={"max_connections": 1}),
            "refused",
            "warning",
            "1 client was turned away: --max-connections is reached.",
        ),
        (
            Situation(reached={"max_connections_per_address": 1500}),
            "refused",
            "warning",
            "1,500 clients were turned away: --max-connections-per-address is reached.",
        ),
        (
            Situation(reached={"max_queues": 1, "max_line": 7}),
            "limited",
            "warning",
            "A limit was reached 1 time: --max-queues is reached: delete some queue first.",
        ),
        (
            Situation(reached={"max_length": 2}, latest={"max_length": "'mail'"}),
            "limited",
            "warning",
            "A limit was reached 2 times: a queue is full: its --max-length is reached, the last time by 'mail'.",
        ),
        (
            Situation(deaf=[DeafClient("127.0.0.1:5001", 3.0, 262144)]),
            "deaf",
            "trouble",
            "Client 127.0.0.1:5001 has read nothing for 3 s, 256 KiB wait for it.",
        ),
        (
            Situation(jobs=[JobSample("archive", "running", 9.5, 0)]),
            "stalled",
            "warning",
            "Spark archive has said nothing for 9 s.",
        ),
        (
            Situation(jobs=[JobSample("archive", "running", 1, 16, 40.0)]),
            "stalled",
            "warning",
            "Spark archive has got nowhere for 16 s, and is 40 s behind.",
        ),
        (
            Situation(jobs=[JobSample("archive", "running", 1, 16, 0.5)]),
            "stalled",
            "warning",
            "Spark archive has got nowhere for 16 s.",
        ),
        (
            Situation(jobs=[JobSample("archive", "running", 91, 91, since_start=True)]),
            "stalled",
            "warning",
            "Spark archive has said nothing since the start 91 s ago.",
        ),
        (Situation(jobs=[JobSample("stats", "failed", 100, 0)]), "stalled", "warning", "Spark stats has failed."),
        (
            Situation(jobs=[JobSample("s", "failed", 1, 0, since_start=True)]),
            "stalled",
            "warning",
            "Spark s has failed.",
        ),
    ],
)
def test_found_elsewhere(now: Situation, kind: str, level: str, text: str) -> None:
    [found] = about_all(now)
    assert (found.kind, found.level, found.text) == (kind, level, text)


@pytest.mark.parametrize(
    "now",
    [
        Situation(),
        DISK,
        DISK._replace(disk_free=5 * GB, days_left=1.0),
        Situation(memory=90, max_memory=100),
        Situation(deaf=[DeafClient("a", 2.9, 1)]),
        Situation(jobs=[JobSample("archive", "running", 9.0, 15.0), JobSample("replay", "stopped", 1000, 1000)]),
        Situation(jobs=[JobSample("archive", "running", 90, 90, since_start=True)]),  # Spark takes its time to start
    ],
)
def test_nothing_to_find_elsewhere(now: Situation) -> None:
    assert about_all(now) == []


def test_each_limit_can_be_another() -> None:
    never = Limits(1e9, 10**9, 1e9, 1e9, 1e9, 0.0, 0.0, 1e9, 1e9, 1e9, 2.0)
    sample = MAIL._replace(**GROWING, alone=180, retrying=12, slow=[SLOW])
    assert about_queue(sample, never) == []
    full = DISK._replace(disk_free=1, days_left=0.1, memory=99, max_memory=100)
    jobs = [JobSample("archive", "running", 99, 99), JobSample("stats", "running", 99, 99, since_start=True)]
    silent = full._replace(deaf=[DeafClient("a", 99, 1)], jobs=jobs)
    assert about_all(silent, never) == []


# ── the sentence ──


def sentence(*found: Found, queues: int = 14, jobs: tuple[JobSample, ...] = (), durability: str = "always") -> str:
    return str(health(found, queues, jobs, durability)["sentence"])


def test_all_is_well() -> None:
    assert sentence() == "All 14 queues keeping up."
    assert sentence(queues=1) == "The only queue is keeping up."
    assert sentence(queues=0) == "No queues yet."
    jobs = (JobSample("archive", "running", 1, 0, 2.5), JobSample("stats", "running", 1, 0, 0.2))
    assert sentence(jobs=jobs) == ("All 14 queues keeping up. Spark archive is 2 s behind. Spark stats is up to date.")
    unheard = JobSample("archive", "running", 5, 5, 2.5, since_start=True)
    assert sentence(jobs=(unheard,)) == "All 14 queues keeping up. Spark archive has not been heard since the start."
    assert sentence(durability="memory") == "All 14 queues keeping up. Messages are in memory only."


def test_what_is_wrong_is_told_worst_first_each_with_its_link() -> None:
    [alone] = about_queue(MAIL._replace(alone=180))
    [deaf] = about_all(Situation(deaf=[DeafClient("10.0.0.1:99", 5, 2048)]))
    told = health([alone, deaf], 14, [JobSample("archive", "running", 1, 0)], "always")
    assert told["level"] == "trouble"
    assert told["sentence"] == (
        "13 of 14 queues keeping up. Client 10.0.0.1:99 has read nothing for 5 s, 2 KiB wait for it. "
        "`mail` has had no consumer for 3 min, 1,204 messages wait. Spark archive runs."
    )
    assert [(phrase["kind"], phrase["level"], phrase["link"]) for phrase in told["phrases"]] == [
        ("queues", "ok", "#/queues"),
        ("deaf", "trouble", "#/connections"),
        ("no-consumer", "warning", "#/queue/mail"),
        ("job", "ok", "#/pipeline"),
    ]


def test_of_many_alike_some_are_named() -> None:
    samples = [QueueSample(f"q{number}", f"q{number}", number + 1, 0, alone=60) for number in range(100)]
    found = [one for sample in samples for one in about_queue(sample)]
    told = health(found, 200, [], "always")
    assert len(told["phrases"]) == 1 + TOLD_ONE_BY_ONE + 1
    assert told["phrases"][0]["text"] == "100 of 200 queues keeping up."
    assert told["phrases"][1]["text"] == "`q99` has had no consumer for 60 s, 100 messages wait."  # the worst first
    assert told["phrases"][-1]["text"] == "97 more queues have messages and no consumer."


def test_a_job_that_is_stalled_is_not_also_said_to_run() -> None:
    jobs = (JobSample("archive", "running", 30, 0, 2.0),)
    assert sentence(*about_all(Situation(jobs=jobs)), jobs=jobs) == (
        "All 14 queues keeping up. Spark archive has said nothing for 30 s."
    )


# ── the log ──


def test_an_incident_is_logged_when_it_begins_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mqks.web.health")
    incidents = Incidents()
    before: list[Found] = []
    for second in range(60):
        found = about_queue(MAIL._replace(alone=second + 2)) if second < 30 else []
        incidents.take(before, found, second)
        incidents.tell(second)
        before = found
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "incident no-consumer: `mail` has had no consumer for 2 s, 1,204 messages wait."),
        (
            "INFO",
            (
                "incident no-consumer has not been seen for 10 s; it lasted 30 s: `mail` has had no consumer for 31 s, "
                "1,204 messages wait."
            ),
        ),
    ]
    fields = getattr(caplog.records[0].msg, "fields", {})
    assert (fields["kind"], fields["queue"]) == ("no-consumer", "mail")


def test_one_that_comes_and_goes_is_one_incident(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mqks.web.health")
    incidents = Incidents()
    before: list[Found] = []
    for second in range(100):
        found = about_queue(MAIL._replace(alone=5)) if second % int(CALM) == 0 else []
        incidents.take(before, found, second)
        incidents.tell(second)
        before = found
    assert len(caplog.records) == 1


def test_one_that_is_over_may_be_calm_again() -> None:
    incidents = Incidents()
    found = about_queue(MAIL._replace(alone=5))
    incidents.take([], found, 0)
    incidents.take(found, [], 1)
    incidents.tell(1 + CALM)
    incidents.take(found, [], 2 + CALM)
    incidents.tell(2 + 2 * CALM)
