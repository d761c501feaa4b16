"""However long names are and however many there are of anything, what is shown stays small, and is safe text."""

import gc
import json
from heapq import nsmallest
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mqks.broker import Broker
from mqks.broker.persistence.persistence import LONGEST_HOLD
from mqks.broker.queues.queue import Queue
from mqks.journal.disk import RealDisk
from mqks.names import text
from mqks.web import flow, metrics, rows, sampling, state
from mqks.web.metrics import Metrics
from mqks.web.state import Figures
from mqks.web.words import LONGEST_KEY, MOST_SHOWN, key, named, shown
from tests.web.stage import HOST, Stage

LONG = b"x" * 100_000


def size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())


# ── names ──


def test_two_names_stay_two() -> None:
    parts = [b"\\", b"\xff", b"x", b"f", b"\\xff", b"\xc3\xbc"]
    names = {b"".join((a, b, c, d)) for a in parts for b in parts for c in parts for d in parts}
    assert len({text(name) for name in names}) == len(names)
    assert text(rb"a\b\n") == r"a\b\n"


@pytest.mark.parametrize("character", ["x", "ü", "\U0001f600", "\\"])
def test_of_a_long_name_the_beginning_is_shown(character: str) -> None:
    assert named((character * MOST_SHOWN).encode()) == character * MOST_SHOWN
    assert named((character * (MOST_SHOWN + 1)).encode()) == character * (MOST_SHOWN - 1) + "…"
    assert named((character * 10_000).encode()) == character * (MOST_SHOWN - 1) + "…"
    assert shown(character * 10_000) == character * (MOST_SHOWN - 1) + "…"


def test_keys_of_long_names_are_short_differ_and_lead_to_the_queue() -> None:
    stage = Stage()
    names = [b"q", b"y" * LONGEST_KEY, b"y" * LONGEST_KEY + b"a", b"y" * LONGEST_KEY + b"b"]
    stage.say(stage.connect(), *(b"r rebind %s e" % name for name in names))
    keys = [key(name) for name in names]
    assert len(set(keys)) == 4
    assert max(map(len, keys)) == LONGEST_KEY
    for name, one in zip(names, keys, strict=True):
        assert stage.figures.find(unquote_to_bytes(one)) is stage.broker.queues.by_name[name]
    assert stage.figures.find(b"no such") is stage.figures.find(b"none") is None


def test_long_names_make_no_large_state() -> None:
    stage = Stage(max_line=1 << 20)
    client = stage.connect()
    for number in range(20):
        name = b"%s%d" % (LONG, number)
        stage.say(client, b"r rebind q%s e%s" % (name, name), b"c%s consume m%s f%s --manual-ack" % (name, name, name))
        stage.say(client, b"m publish e%s x" % name, b"m publish f%s x" % name, b"m publish f%s x" % name)
    stage.say(client, b"c1 consume slow s --manual-ack --prefetch=1", *[b"m publish s x"] * 3)
    stage.wait(5)
    figures = stage.figures
    assert size(figures.state()) < 200_000
    assert size(figures.queue(stage.broker.queues.by_name[b"m" + LONG + b"7"])) < 10_000
    for made in (figures.consumers(100), figures.events(100), figures.queue_rows("name", 0, 100)[1], figures.spark()):
        assert size(made) < 100_000
    assert max(len(phrase["text"]) for phrase in figures.state()["health"]["phrases"]) < 500
    assert len(Metrics(figures).text()[0]) < 50_000


def test_a_pattern_is_text_on_the_queues_page_only_and_cut() -> None:
    stage = Stage(max_line=1 << 20)
    client = stage.connect()
    stage.say(client, rb'r1 recv {"queue": "x", "pattern": {"a": "\udc80", "b": "\u00fc"}}')
    stage.say(client, b'r2 recv {"queue": "y", "pattern": {"a": "%s", "b": {"c": [%s]}}}' % (LONG, b"1," * 90 + b"1"))
    assert stage.queue("x")["pattern"] == '{\n  "a": "\\udc80",\n  "b": "ü"\n}'
    long = stage.queue("y")["pattern"]
    assert (len(long), long[:10], long[-1]) == (2000, '{\n  "a": "', "…")
    state = json.dumps(stage.figures.state(), ensure_ascii=False).encode()
    assert b"udc80" not in state
    assert b"xxx" not in state


def test_a_hold_has_the_name_that_it_was_given(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    broker = Broker(disk=disk, max_line=1 << 20)
    broker.recover()
    client = broker.connect("127.0.0.1:5000")
    broker.feed(client, "h hold ü 0 --for=60\n".encode() + b"h hold %s 0 --for=60\n" % LONG[:LONGEST_HOLD])
    broker.turn()
    figures = Figures(broker, HOST)
    figures.sample()
    assert [hold["name"] for hold in figures.journal()["holds"]] == ["x" * (MOST_SHOWN - 1) + "…", "ü"]
    assert len(Metrics(figures).text()[0]) < 50_000
    broker.disconnect(client)
    broker.close()
    disk.stop()


# ── numbers ──


def test_rows_are_made_no_further_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    for number in range(30):
        stage.say(stage.connect(), b"c1 consume q%d e" % (number % 7), b"c2 consume q%d e" % (number % 5))
    made = 0
    for name in ("consumer_row", "connection_row"):
        make = getattr(rows, name)

        def counted(*given: Any, make: Any = make) -> Any:
            nonlocal made
            made += 1
            return make(*given)

        monkeypatch.setattr(rows, name, counted)
    assert len(stage.figures.consumers(4)) == len(stage.figures.connections(4)) == 4
    assert made == 8
    assert len(stage.figures.consumers(100)) == 60


def test_with_very_many_queues_lists_and_sums_are_made_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "CHOSEN_FROM", 10)
    stage = Stage()
    client = stage.connect()
    stage.say(client, *(b"r rebind q%02d e%d" % (number, number) for number in range(30)))
    looked = 0
    figure = rows.SORTS["ready"]

    def counted(queue: Queue, known: Any) -> float:
        nonlocal looked
        looked += 1
        return figure(queue, known)

    monkeypatch.setitem(rows.SORTS, "ready", counted)
    for part in ("", "q1", "q1", "q2"):
        total, found = stage.figures.queue_rows("ready", 0, 5, part)
        assert [row["name"] for row in found] == [f"{part or 'q0'}{n}" for n in range(5)]
        assert total == (10 if part else 30)
    assert looked == 30
    stage.say(client, b"d delete_queue q00", b"m publish e29 x")
    assert [row["name"] for row in stage.figures.queue_rows("ready", 0, 2)[1]] == ["q01"]  # what is gone is not shown
    assert looked == 30
    stage.wait(3)
    assert [row["name"] for row in stage.figures.queue_rows("ready", 0, 2)[1]] == ["q29", "q01"]
    assert looked == 59
    assert stage.figures.totals()["ready"] == 1


@pytest.mark.parametrize("sort", sorted(rows.SORTS))
def test_who_types_a_part_of_a_name_has_names_looked_at_once(monkeypatch: pytest.MonkeyPatch, sort: str) -> None:
    monkeypatch.setattr(state, "CHOSEN_FROM", 10)
    stage = Stage()
    stage.say(stage.connect(), *(b"r rebind q%02d e%d" % (number, number) for number in range(30)))
    looked: list[bytes] = []

    def counted(name: bytes) -> str:
        looked.append(name)
        return text(name)

    monkeypatch.setattr(state, "text", counted)
    for _ in range(3):
        assert stage.figures.queue_rows(sort, 0, 5, "q1")[0] == 10
    assert len(looked) == 30


def test_queues_that_are_gone_are_not_kept_by_what_somebody_once_asked_for() -> None:
    stage = Stage()
    client = stage.connect()
    stage.say(client, b"r rebind gone e")
    gone = [stage.broker.queues.by_name[b"gone"]]
    Metrics(stage.figures).text()
    for sort in rows.SORTS:
        stage.figures.queue_rows(sort, 0, 10, "go")
    stage.say(client, b"d delete_queue gone")
    stage.wait(2 * state.LONGEST_MADE)
    assert not [held for held in gc.get_referrers(gone[0]) if held is not gone]


def test_events_of_a_queue_are_sorted_when_they_change_and_not_each_second(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    client = stage.connect()
    names = [f"e{number:03}" for number in range(100)]
    stage.say(client, b"r rebind q " + " ".join(names).encode())
    made = 0

    def counted(*given: Any) -> Any:
        nonlocal made
        made += 1
        return nsmallest(*given)

    monkeypatch.setattr(sampling, "nsmallest", counted)
    for _ in range(5):
        stage.wait()
        told = stage.figures.state()
        assert told["queues"][0]["events"] == names[: sampling.FIRST_EVENTS]
        assert [node["name"] for node in told["flow"]["events"]] == names[: flow.MOST]
    assert made == 1
    stage.say(client, b"r rebind q " + " ".join(names[1:]).encode() + b" z")
    stage.wait()
    assert stage.figures.state()["queues"][0]["events"] == names[1 : sampling.FIRST_EVENTS + 1]


def of_queues(figures: Figures, name: str) -> dict[str, float]:
    families = text_string_to_metric_families(Metrics(figures).text()[0].decode())
    return {
        sample.labels["queue"]: sample.value
        for family in families
        for sample in family.samples
        if sample.name == f"mqks_queue_{name}"
    }


def test_of_very_many_queues_those_in_trouble_are_scraped_and_the_others_are_summed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics, "MOST_QUEUES", 3)
    stage = Stage()
    client = stage.connect()
    stage.say(client, *(b"c%d consume q%d e%d --manual-ack" % (n, n, n) for n in range(8)), b"r rebind bad e")
    stage.say(client, b"r rebind %s e" % LONG, b"m publish e x", *[b"m publish e5 x"] * 3, *[b"m publish e2 x"] * 2)
    stage.say(client, b"m publish e7 x")
    stage.wait(3)
    figures = stage.figures
    assert of_queues(figures, "ready") == {"bad": 1, "q5": 0, "q2": 0, metrics.OTHERS: 1}
    assert of_queues(figures, "unacked") == {"bad": 0, "q5": 3, "q2": 2, metrics.OTHERS: 1}
    assert of_queues(figures, "consumers") == {"bad": 0, "q5": 1, "q2": 1, metrics.OTHERS: 6}
    assert of_queues(figures, "published_total").keys() == {"bad", "q5", "q2"}  # a sum of others would jump
    assert of_queues(figures, "oldest_seconds").keys() == {"bad", "q5", "q2"}
