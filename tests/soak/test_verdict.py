"""The judge is judged: what must be found is found, and what is allowed is not."""

import asyncio
import dataclasses
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.crash.ledger import Ledger
from tests.soak.counted import QUEUES
from tests.soak.crowd import ACTIONS, ONE, Member
from tests.soak.fan import MANY, Fan
from tests.soak.link import Door, Findings, Stage
from tests.soak.run import Plan, Run
from tests.soak.verdict import (
    GROWTH,
    MEMORY_LEFT,
    Deeds,
    Sample,
    climb,
    counters,
    files_at_end,
    files_in_calm,
    memory_at_end,
    memory_in_calm,
    memory_over_lives,
    second_half,
)
from tests.soak.watching import compare

MIB = 1 << 20
RNG = random.Random(1)


def samples(
    grow: float = 0.0, files: float = 0.0, lives: int = 1, per_life: float = 0.0, waiting: float = 0.0
) -> list[Sample]:
    """Twenty seconds of each life, with noise as malloc makes it."""
    return [
        Sample(
            at=life * 100 + second,
            life=life,
            memory=int((50 + per_life * life + (grow + waiting) * second / 20 + RNG.uniform(-0.5, 0.5)) * MIB),
            files=int(30 + files * second / 20),
            connections=10,
            figures={"memory": 10 + waiting * second / 20 * MIB, "published": 1000.0 * second},
        )
        for life in range(lives)
        for second in range(21)
    ]


@pytest.mark.parametrize(("grow", "is_broken"), [(0, False), (3, False), (-20, False), (12, True), (100, True)])
def test_memory_that_climbs_in_the_calm_is_found(grow: float, is_broken: bool) -> None:
    grown, broken = memory_in_calm(samples(grow=grow))
    assert bool(broken) == is_broken == (grown > GROWTH)


@pytest.mark.parametrize("grow", [0, 12])
def test_messages_that_wait_take_their_room(grow: float) -> None:
    assert bool(memory_in_calm(samples(grow=grow, waiting=50))[1]) == bool(grow)


@pytest.mark.parametrize(("more", "is_broken"), [(-MIB, False), (0, False), (MEMORY_LEFT, False), (8 * MIB, True)])
def test_memory_that_is_counted_for_nobody_is_found(more: int, is_broken: bool) -> None:
    assert bool(memory_at_end(base=2 * MIB, end=2 * MIB + more)) == is_broken


@pytest.mark.parametrize(("per_life", "is_broken"), [(0, False), (0.5, False), (5, True)])
def test_memory_that_climbs_from_life_to_life_is_found(per_life: float, is_broken: bool) -> None:
    assert bool(memory_over_lives(samples(lives=12, per_life=per_life))) == is_broken


@pytest.mark.parametrize(("files", "is_broken"), [(0, False), (3, False), (20, True)])
def test_files_that_are_left_open_are_found(files: float, is_broken: bool) -> None:
    assert bool(files_in_calm(samples(files=files))) == is_broken
    assert bool(files_at_end(base=20, end=int(20 + files))) == is_broken


def test_connections_that_come_are_no_files_left_open() -> None:
    busy = [dataclasses.replace(sample, files=30 + at, connections=10 + at) for at, sample in enumerate(samples())]
    assert not files_in_calm(busy)


def test_climb() -> None:
    assert climb([(0, 1), (1, 3), (2, 5)]) == pytest.approx(4)
    assert climb([(0, 1)]) == climb([]) == climb([(1, 1), (1, 9)]) == 0


def test_second_half() -> None:
    assert [sample.at for sample in second_half(samples(), 0, 20)] == list(range(10, 21))


QUEUE = {"ready": 0, "unacked": 0, "published": 10, "acked": 9}


@pytest.mark.parametrize(
    ("queue", "deeds", "is_broken"),
    [
        (QUEUE, Deeds(confirmed=10, sent=10, acked=9, acks=9), False),
        (QUEUE, Deeds(confirmed=8, sent=12, acked=8, acks=10), False),
        (QUEUE, Deeds(confirmed=11, sent=12, acked=9, acks=9), True),
        (QUEUE, Deeds(confirmed=9, sent=9, acked=9, acks=9), True),
        (QUEUE, Deeds(confirmed=10, sent=10, acked=10, acks=10), True),
        (QUEUE, Deeds(confirmed=10, sent=10, acked=8, acks=8), True),
        (QUEUE | {"ready": 1}, Deeds(confirmed=10, sent=10, acked=9, acks=9), True),
        (QUEUE | {"unacked": 1}, Deeds(confirmed=10, sent=10, acked=9, acks=9), True),
    ],
)
def test_counters_go_with_what_clients_know(queue: dict[str, int], deeds: Deeds, is_broken: bool) -> None:
    assert bool(counters({"q": queue}, {"q": deeds})) == is_broken


def test_a_queue_that_is_gone_is_found() -> None:
    assert counters({}, {"q": Deeds()})


@pytest.mark.parametrize(
    ("times", "kind"), [(b"\1\1\0", ""), (b"\1\1\1", ""), (b"\1", "not in history"), (b"\1\2", "twice in history")]
)
def test_history_has_what_is_safe_once(times: bytes, kind: str) -> None:
    ledger, findings = Ledger(), Findings()
    ledger.connected(b"p")
    for safe in (True, True, False):
        number = ledger.sent(b"p", ())
        if safe:
            ledger.is_safe(b"p", number)
    compare({b"p": bytearray(times)}, ledger, findings)
    assert list(findings.count) == [kind] * bool(kind)


# ---- A run that cannot tell


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(Plan(1.0, 1, 1, 1.0, ("plain",), ("kill",), tmp_path / "ground", tmp_path))


def test_a_run_without_samples_has_proved_nothing(run: Run) -> None:
    run.outcome.samples, run.outcome.calm = samples()[:5], (0.0, 20.0)
    run._judge([])
    assert list(run.stage.findings.count) == ["memory"]


def test_enough_samples_are_enough(run: Run) -> None:
    run.outcome.samples = samples()
    run.outcome.calm = (0.0, 20.0)
    run._judge([])
    assert run.outcome.clean


def test_a_sampler_that_ends_is_found(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def stats() -> dict[str, Any]:
        return {}

    async def sampled() -> None:
        monkeypatch.setattr("tests.soak.run.EVERY", 0.0)
        monkeypatch.setattr(run.watcher, "stats", stats)
        monkeypatch.setattr(run.process, "memory_and_files", lambda: (1, 1))
        await asyncio.wait([run._started("the sampler", run._sample())])

    asyncio.run(sampled())
    assert list(run.stage.findings.count) == ["harness"]


def test_clients_that_the_broker_does_not_forget_are_found(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def until(*_: object) -> bool:
        return False

    async def ask(_: str) -> str:
        return "ok [['127.0.0.1:5', 1, 0]]"

    monkeypatch.setattr(run.watcher, "until", until)
    monkeypatch.setattr(run.watcher, "ask", ask)
    asyncio.run(run._alone())
    assert list(run.stage.findings.count) == ["files"]


@pytest.mark.parametrize(("counted", "kinds"), [((9, 8), []), ((50, 8), ["memory"])])
def test_what_the_broker_counts_for_nobody_is_found(
    run: Run, monkeypatch: pytest.MonkeyPatch, counted: tuple[int, int], kinds: list[str]
) -> None:
    """The queues that are not counted go first: what waits in them is no fault."""
    queues = {queue.name: {"ready": 0} for queue in QUEUES} | {"noise-1": {"ready": 5}, "many-1": {"ready": 0}}
    memory, asked = iter((counted[0], *counted)), list[str]()

    async def stats() -> dict[str, Any]:
        return {"queues": queues, "memory": next(memory) * MIB}

    async def ask(request: str) -> str:
        asked.append(request)
        return "ok "

    async def done(*_: object) -> int:
        return 0

    monkeypatch.setattr(run, "_alone", done)
    monkeypatch.setattr(run.watcher, "stats", stats)
    monkeypatch.setattr(run.watcher, "ask", ask)
    monkeypatch.setattr(run.process, "files", Counter)
    monkeypatch.setattr(run.process, "memory_and_files", lambda: (0, 0))
    monkeypatch.setattr(run.process, "start", done)
    monkeypatch.setattr(run.process, "stop", done)
    monkeypatch.setattr("tests.soak.run.CLOSING", 0.0)
    asyncio.run(run._ended())
    assert list(run.stage.findings.count) == kinds
    assert sorted(asked[:-1]) == ["delete_queue --confirm many-1", "delete_queue --confirm noise-1"]


def test_what_was_left_out_is_told_with_the_verdict(run: Run) -> None:
    run.outcome.left_out = ["full disk: not allowed"]
    assert run.outcome.verdict == "all held, without full disk"


# ---- One of the crowd, who must tell what is wrong


def member() -> Member:
    one = Member(Stage(Door()), "m", random.Random(1), 1.0)
    one.begin()
    one.pending[b"m-1"] = 1
    one.asked = {b"m-1": "m-1 ping x", b"m-2": "m-2 history latest"}
    return one


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b"m-1 ok x", ""),
        (b"c-noise-1 ok m7 event=e d", ""),
        (b"c-noise-1 ok --update noise-1", ""),
        (b"m-1 error 2026", "error"),
        (b"m-9 ok ", "unexpected"),
        (b"rubbish", "unexpected"),
    ],
)
def test_the_crowd_tells_what_it_should_not_hear(line: bytes, kind: str) -> None:
    one = member()
    one.line(line)
    assert list(one.stage.findings.count) == [kind] * bool(kind)


def test_a_history_is_answered_by_its_end() -> None:
    one = member()
    one.pending = type(one.pending)({b"m-2": 1})
    one.line(b"m-2 ok 17 x event=e d")
    assert one.pending
    one.line(b"m-2 ok --end 99")
    assert not one.pending
    assert not one.stage.findings.count


@pytest.mark.parametrize("action", ACTIONS)
def test_only_messages_to_queues_that_reject_may_be_refused(action: str) -> None:
    one = member()
    one._taken = "c-noise-1 m1"
    one.asked = {b"m-1": one.fill(ACTIONS[action][2])}
    one.line(b"m-1 error 2026")
    assert list(one.stage.findings.count) == ["error"] * ("to a full queue" not in action)
    assert not one.pending


def fan() -> Fan:
    one = Fan(Stage(Door()), "fan", random.Random(1))
    one.begin()
    one.publish()
    return one


def test_what_many_queues_want_comes_from_each_of_them() -> None:
    one = fan()
    for at in range(MANY):
        assert not one.answered.is_set()
        one.line(b"c-many-%d ok fan-1 event=many x" % at)
    assert one.answered.is_set()
    assert not one.stage.findings.count
    one.line(b"c-many-7 ok fan-1 event=many x")
    assert list(one.stage.findings.count) == ["duplicated"]


def test_what_many_queues_want_may_be_refused_by_a_full_disk_only() -> None:
    one = fan()
    one.line(b"fan-1 error 2026")
    assert one.answered.is_set()
    assert list(one.stage.findings.count) == ["error"]


@pytest.mark.parametrize("action", ACTIONS)
def test_forms_are_filled(action: str) -> None:
    one = member()
    one._taken = "c-noise-1 m1"
    _, answers, form = ACTIONS[action]
    for _ in range(20):
        line = one.fill(form)
        assert action.partition(",")[0].split()[0] == line.split()[1]
        assert line.count("{") == line.count("}")
        assert ("--confirm" not in form) or answers == ONE
