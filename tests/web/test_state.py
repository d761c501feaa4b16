"""The state as a whole: its shape, that it is made only when asked for, and that it is true on a real broker."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest

import mqks
import mqks.testing
from mqks.broker import Broker
from mqks.web.flow import MOST
from mqks.web.rows import SORTS
from mqks.web.server import WebServer
from mqks.web.state import MOST_QUEUES, Figures
from tests.web.stage import HOST, Stage


def filled() -> Stage:
    """Two publishers, three queues, three consumers of two clients, ten seconds."""
    stage = Stage()
    consumer, publisher, other = stage.connect(), stage.connect(), stage.connect()
    stage.say(consumer, b"c1 consume mail e1 e2", b"c2 consume mail", b"c3 consume audit e1 --manual-ack")
    stage.say(other, b"c1 consume audit --manual-ack", b"r rebind lone e3")
    for _ in range(10):
        lines = [b"m publish e1 x"] * 4 + [b"m publish e2 x"] * 2 + [b"m publish e4 x"] * 3
        stage.say(publisher, *lines)
        stage.say(consumer, b"a ack c3 --all")
        stage.say(other, b"a ack c1 --all")
        stage.wait()
    return stage


def test_the_whole_is_json_and_has_all_parts() -> None:
    state = filled().figures.state()
    assert json.loads(json.dumps(state, allow_nan=False)) == state
    assert list(state) == [
        *("time", "version", "uptime", "host", "health", "totals", "queues", "flow", "journal", "pipeline"),
    ]
    assert state["host"] == HOST
    assert state["version"] == mqks.__version__
    assert state["uptime"] == 10
    assert state["time"] == "2027-01-15T08:00:10.000Z"


def test_totals() -> None:
    totals = filled().figures.state()["totals"]
    assert {name: totals[name] for name in ("published", "delivered", "acked", "rejected", "errors")} == {
        "published": 90,
        "delivered": 100,
        "acked": 40,
        "rejected": 0,
        "errors": 0,
    }
    assert (totals["connections"], totals["consumers"], totals["queues"]) == (3, 4, 3)
    assert totals["rates"]["published"] == 9
    assert totals["rates"]["delivered"] == 10
    assert totals["received_bytes"] > totals["rates"]["received_bytes"] > 9 * len(b"m publish e1 x\n")


def test_a_row_of_a_queue() -> None:
    stage = filled()
    [row] = [row for row in stage.figures.state()["queues"] if row["name"] == "mail"]
    assert row == {
        "name": "mail",
        "key": "mail",
        "events": ["e1", "e2"],
        "event_count": 2,
        "ready": 0,
        "unacked": 0,
        "returned": 0,
        "retries": 0,
        "retrying": 0,
        "consumers": 2,
        "age": None,
        "in_rate": 6.0,
        "out_rate": 6.0,
        "published": 60,
        "delivered": 60,
        "acked": 0,
        "rejected": 0,
        "dropped": 0,
        "max_length": 0,
        "max_bytes": 0,
        "delete_when_unused": None,
        "level": "ok",
        "why": None,
    }
    page = stage.queue("mail")
    assert page.keys() - row.keys() == {"all_events", "pattern", "consumers_list", "spark"}
    assert page["all_events"] == ["e1", "e2"]
    assert [(one["id"], one["client"]) for one in page["consumers_list"]] == [
        ("c1", "127.0.0.1:5001"),
        ("c2", "127.0.0.1:5001"),
    ]


def test_the_flow() -> None:
    flow = filled().figures.state()["flow"]
    assert {node["name"]: node["rate"] for node in flow["events"]} == {"e1": 4, "e2": 2, "e3": 0, "other": 3}
    assert [node["name"] for node in flow["queues"]] == ["mail", "audit", "lone"]
    assert {(node["label"], node["queue"]): node["count"] for node in flow["consumers"]} == {
        ("127.0.0.1:5001", "mail"): 2,
        ("127.0.0.1:5001", "audit"): 1,
        ("127.0.0.1:5003", "audit"): 1,
    }
    links = {(link["from"], link["to"]): link["rate"] for link in flow["links"]}
    assert links["event:e1", "queue:mail"] == links["event:e1", "queue:audit"] == 4
    assert links["event:e2", "queue:mail"] == 2
    assert links["queue:mail", "consumer:127.0.0.1%3A5001/mail"] == 6
    assert links["queue:audit", "consumer:127.0.0.1%3A5001/audit"] == 2
    ends = {f"{kind}:{node['key']}" for kind in ("event", "queue", "consumer") for node in flow[f"{kind}s"]}
    assert {end for link in links for end in link} <= ends
    assert flow["more"] == {"events": 0, "queues": 0, "consumers": 0}


def test_the_flow_draws_the_busiest_and_says_how_many_more_there_are() -> None:
    stage = Stage()
    client = stage.connect()
    stage.say(client, *(b"c%d consume q%d e%d" % (n, n, n) for n in range(40)))
    stage.wait()
    stage.say(client, *(b"m publish e%d x" % n for n in range(40) for _ in range(n)))
    stage.wait()
    flow = stage.figures.state()["flow"]
    assert [node["name"] for node in flow["queues"]] == [f"q{n}" for n in range(39, 39 - MOST, -1)]
    assert [node["name"] for node in flow["events"]] == [f"e{n}" for n in range(39, 39 - MOST, -1)]
    assert flow["more"] == dict.fromkeys(("queues", "events", "consumers"), 40 - MOST)


def test_rates_of_consumers_are_their_own() -> None:
    stage = Stage()
    busy, idle, publisher = stage.connect(), stage.connect(), stage.connect()
    stage.say(busy, b"c1 consume q e")
    stage.say(idle, b"c1 consume q", b"p1 pause c1")
    for _ in range(8):
        stage.say(publisher, *[b"m publish e x"] * 10)
        stage.wait()
        flow = stage.figures.state()["flow"]
    assert [(node["label"], node["rate"]) for node in flow["consumers"]] == [
        ("127.0.0.1:5001", 10),
        ("127.0.0.1:5002", 0),
    ]


def test_names_of_any_bytes_are_shown_and_have_keys() -> None:
    stage = Stage()
    stage.say(stage.connect(), b"c/\xff consume q/\xff e%\xfe")
    row = stage.figures.state()["queues"][0]
    assert (row["name"], row["key"], row["events"]) == ("q/\\xff", "q%2F%FF", ["e%\\xfe"])
    json.dumps(stage.figures.consumers(10))


def test_those_from_inside_are_in_no_figure() -> None:
    stage = Stage()
    inside = stage.broker.connect("inside", inside=True)
    stage.say(inside, b"c1 consume q e", b"m publish e x")
    stage.wait(5)
    state = stage.figures.state()
    assert (state["totals"]["connections"], state["totals"]["consumers"]) == (0, 0)
    assert (state["totals"]["received_bytes"], state["totals"]["sent_bytes"]) == (0, 0)
    assert stage.figures.connections(10) == stage.figures.consumers(10) == []
    assert state["flow"]["consumers"] == []


def test_at_most_so_many_queues_and_those_in_trouble_first() -> None:
    stage = Stage()
    client = stage.connect()
    stage.say(client, *(b"c%d consume q%03d e%d --manual-ack" % (n, n, n) for n in range(MOST_QUEUES + 50)))
    stage.say(client, *(b"m publish e%d x" % n for n in range(7) for _ in range(n)))  # all are unacked
    stage.say(client, b"r rebind z e", b"m publish e x")
    stage.wait(5)
    names = [row["name"] for row in stage.figures.state()["queues"]]
    assert len(names) == MOST_QUEUES
    assert names[:9] == ["z", "q006", "q005", "q004", "q003", "q002", "q001", "q000", "q007"]


@pytest.mark.parametrize("sort", sorted(SORTS))
def test_queues_sorted_by_anything_page_by_page(sort: str) -> None:
    rng = random.Random(sort)
    stage = Stage()
    client = stage.connect()
    for number in range(30):
        flags = b" --manual-ack" if rng.random() < 0.5 else b""
        verb = b"c%d consume" % number if rng.random() < 0.6 else b"r rebind"
        stage.say(client, b"%s q%02d e%d%s" % (verb, number, number, flags if verb != b"r rebind" else b""))
    for _ in range(20):
        stage.say(client, *(b"m%d publish e%d x" % (n, n) for n in range(30) if rng.random() < 0.4))
        stage.say(client, *(b"j reject c%d m%d" % (n, n) for n in range(30) if rng.random() < 0.3))
        stage.wait()
    figures = stage.figures
    pages = [row for offset in range(0, 30, 7) for row in figures.queue_rows(sort, offset, 7)[1]]
    assert len({row["name"] for row in pages}) == 30
    if sort == "name":
        assert [row["name"] for row in pages] == sorted(row["name"] for row in pages)
    elif sort == "trouble":
        assert [row["level"] for row in pages] == sorted((row["level"] for row in pages), reverse=True)
    else:
        values = [row[sort] or 0 for row in pages]
        assert values == sorted(values, reverse=True)
        assert len(set(values)) > 1


def test_queues_with_a_part_of_a_name() -> None:
    stage = Stage()
    stage.say(stage.connect(), b"r rebind Mail.in e", b"r rebind e-MAIL e", b"r rebind log e")
    total, found = stage.figures.queue_rows("name", 0, 10, "mAil")
    assert (total, [row["name"] for row in found]) == (2, ["Mail.in", "e-MAIL"])
    assert stage.figures.queue_rows("name", 0, 1)[0] == 3


def test_a_state_is_made_once_for_each_sample_and_only_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    made = 0
    make = Figures._state

    def counted(figures: Figures) -> dict[str, Any]:
        nonlocal made
        made += 1
        return make(figures)

    monkeypatch.setattr(Figures, "_state", counted)
    stage.wait(10)
    assert made == 0
    assert stage.figures.state() is stage.figures.state()
    assert made == 1
    stage.wait()
    assert stage.figures.state()["uptime"] == 11
    assert made == 2


def test_sparklines_are_those_of_the_queues_in_the_state() -> None:
    stage = filled()
    stage.wait(20)
    spark = stage.figures.spark()
    assert spark["step"] == 10
    assert spark["queues"].keys() == {"mail", "audit", "lone"}
    assert spark["queues"]["mail"] == {"ready": [0, 0, 0], "in": [6, 0, 0], "out": [6, 0, 0]}
    assert spark["queues"]["lone"] == {"ready": [], "in": [], "out": []}
    assert spark["totals"] == {"in": [9, 0, 0], "out": [10, 0, 0]}


def test_events_and_connections() -> None:
    stage = filled()
    assert stage.figures.events(2) == [
        {"name": "e1", "key": "e1", "count": 40, "rate": 4.0, "queues": ["audit", "mail"], "queue_count": 2},
        {"name": "e2", "key": "e2", "count": 20, "rate": 2.0, "queues": ["mail"], "queue_count": 1},
    ]
    assert stage.figures.event_count() == 3
    first, publisher, _ = stage.figures.connections(10)
    assert (first["client"], first["consumers"], first["since"], first["level"]) == ("127.0.0.1:5001", 3, 10.0, "ok")
    assert first["publishes"] is False
    assert publisher["publishes"] is True


# ── faults ──


@pytest.mark.parametrize(
    "reader", ["_ages.note", "_totals.step", "_events.step", "_clients.step", "_disk.step", "_pipeline.step"]
)
def test_what_one_cannot_read_hides_nothing_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, reader: str
) -> None:
    def fail(*_: Any) -> None:
        raise OSError("a fault")

    stage = Stage()
    name, method = reader.split(".")
    monkeypatch.setattr(getattr(stage.figures, name), method, fail)
    stage.say(stage.connect(), b"r rebind lone e", b"m publish e x")
    stage.wait(5)
    assert "`lone` has had no consumer" in stage.phrases["no-consumer"]
    assert "incident no-consumer" in caplog.text and "some figures could not be read" in caplog.text


def test_a_fault_never_hinders_a_stop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("a fault")

    stop_web = WebServer.stop

    async def stop(web: WebServer) -> None:
        await stop_web(web)
        fail()

    stopped: list[str] = []
    monkeypatch.setattr("mqks.web.state.LastWords.write", lambda _: stopped.append("words"))
    monkeypatch.setattr("mqks.web.server.WebServer.stop", stop)
    close = Broker.close

    def closed(broker: Broker) -> None:
        stopped.append("broker")
        close(broker)

    monkeypatch.setattr(Broker, "close", closed)
    with mqks.testing.broker(http=True, data=tmp_path / "data"):
        monkeypatch.setattr("mqks.web.state.Pipeline.step", fail)
    assert stopped == ["words", "broker"]


# ── in the loop ──


def test_samples_are_taken_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqks.web.state.EVERY", 0.001)
    broker = Broker()
    figures = Figures(broker, HOST)
    reached = asyncio.Event()
    taken = 0
    sample = figures.sample

    def counted() -> None:
        nonlocal taken
        taken += 1
        sample()
        if taken == 3:
            raise RuntimeError("one that fails is logged, and the next is taken")
        if taken == 5:
            reached.set()

    monkeypatch.setattr(figures, "sample", counted)

    async def run() -> None:
        figures.start()
        await reached.wait()
        figures.stop()
        assert figures._timer is None

    asyncio.run(asyncio.wait_for(run(), 10))
