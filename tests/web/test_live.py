"""Streams of events: what they tell, that they end with the broker and with their reader, and that they cost little."""

import asyncio
import errno
import itertools
import signal
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from starlette.types import Message

import mqks.testing
from mqks.broker.actions.history import MOST_MASKS
from mqks.broker.persistence.history import STREAM_COST
from mqks.client.errors import Refused
from mqks.web.live import EventStream
from mqks.web.memory import CONNECTION_COST
from mqks.web.tail import Tail
from tests.running import PATIENCE, Connection, RunningBroker, running_broker
from tests.server.test_connections import reset
from tests.web.asking import Stream, address, ask, inner, stream, until

STREAMS = ["/api/live", "/api/tail"]


def wait_until_no_one_is_inside(broker: mqks.testing.Broker) -> None:
    until(
        lambda: not any(client.inside for client in list(inner(broker).connections.clients)),
        "no connection from inside is left",
    )


def test_who_may_no_more_gets_nothing_more() -> None:
    """Not only when the next look would find out."""
    sent: list[bytes] = []
    may = True

    async def source() -> AsyncGenerator[bytes, None]:
        nonlocal may
        yield b"before"
        may = False
        yield b"after"

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("it stays")

    async def send(message: Message) -> None:
        sent.append(message.get("body", b""))

    async def streamed() -> None:
        async with asyncio.timeout(PATIENCE):
            await EventStream(source(), asyncio.Event(), lambda: may)({"method": "GET"}, receive, send)

    asyncio.run(streamed())
    assert sent == [b"", b"before", b""]


# ── the state ──


def test_live_begins_with_all_and_goes_on_each_second(web: mqks.testing.Broker) -> None:
    with stream(web, "/api/live") as live:
        first, second = live.next(), live.next()
        assert first and first.name == "spark" and first.data["step"] == 10
        assert second and second.name == "state" and second.data["queues"] == []
        with mqks.connect(web.url) as client:
            client.rebind("q1", ["e1"])
        while not (state := live.wait_for("state"))["queues"]:
            pass
        assert state["queues"][0]["name"] == "q1"


def test_live_is_one_for_all(web: mqks.testing.Broker) -> None:
    with stream(web, "/api/live") as one, stream(web, "/api/live") as other:
        times = {one.wait_for("state")["time"] for _ in range(3)}
        assert times & {other.wait_for("state")["time"] for _ in range(3)}


def test_live_begins_again_for_the_next_one(web: mqks.testing.Broker) -> None:
    for _ in range(2):
        with stream(web, "/api/live") as live:
            assert live.wait_for("state") and live.wait_for("state")


# ── the tail ──


@pytest.fixture(params=["memory", "journal"])
def tailed(request: pytest.FixtureRequest) -> Iterator[mqks.testing.Broker]:
    broker: mqks.testing.Broker = request.getfixturevalue("web" if request.param == "memory" else "durable")
    yield broker


def begun(broker: mqks.testing.Broker, tail: Stream) -> None:
    """The tail shows what comes from now on."""
    with mqks.connect(broker.url) as client:
        client.publish("is.begun", "", id="begun")
    while tail.wait_for("message")["id"] != "begun":
        pass


def test_tail_shows_messages_as_they_come(tailed: mqks.testing.Broker) -> None:
    with closing(Connection(tailed.port)) as wire, stream(tailed, "/api/tail") as tail:
        begun(tailed, tail)
        wire.ask("m1 publish --confirm user.1 hello")
        message = tail.wait_for("message")
        assert message["time"].endswith("Z")
        assert {name: message[name] for name in message if name not in ("position", "time", "nc")} == {
            "id": "m1",
            "action": "publish",
            "event": "user.1",
            "key": "user.1",
            "data": "hello",
            "bytes": 5,
            "truncated": False,
            "retry": 0,
        }
        assert message["nc"] == "m1 publish user.1 hello"
        wire.ask('m2 send {"event": "e 2", "x": 1}')
        message = tail.wait_for("message")
        assert (message["action"], message["event"], message["data"]) == ("send", "", '{"event": "e 2", "x": 1}')
        assert message["nc"] == 'm2 send {"event": "e 2", "x": 1}'


def test_tail_with_masks(tailed: mqks.testing.Broker) -> None:
    with (
        stream(tailed, "/api/tail?mask=is.*&mask=user.*.paid&mask=exact") as tail,
        mqks.connect(tailed.url) as client,
    ):
        begun(tailed, tail)
        for event in ("user.1.paid", "user.1.left", "exact", "exacter", "user.2.paid"):
            client.publish(event, "")
        assert [tail.wait_for("message")["event"] for _ in range(3)] == ["user.1.paid", "exact", "user.2.paid"]


def test_tail_says_that_it_lives(web: mqks.testing.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqks.web.tail.SILENCE", 0.01)
    with stream(web, "/api/tail") as tail:
        while tail.response.readline() != b": \n":
            pass


@pytest.mark.parametrize("query", ["", "?mask=", "?mask=*", "?mask=&mask=*"])
def test_tail_of_all(web: mqks.testing.Broker, query: str) -> None:
    with stream(web, f"/api/tail{query}") as tail:
        begun(web, tail)


@pytest.mark.parametrize("query", ["?mask=--x", "?mask=a%20b", "?mask=a,%7Bb", "?mask=a%00", "?masks=a"])
def test_tail_of_nonsense(web: mqks.testing.Broker, query: str) -> None:
    answer = ask(web, f"/api/tail{query}")
    assert answer.status == 400 and answer.error


def test_tail_of_too_many_masks(web: mqks.testing.Broker) -> None:
    many = ",".join(f"e{number}.*" for number in range(MOST_MASKS + 1))
    answer = ask(web, f"/api/tail?mask={many}")
    assert (answer.status, answer.error) == (400, "mask: give at most 100 names or masks")
    with stream(web, f"/api/tail?mask=is.*,{many.split(',', 2)[2]}") as tail:
        begun(web, tail)


def test_tail_that_the_broker_refuses(web: mqks.testing.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(_: object) -> None:
        raise Refused("h history 0", "20261116022655731811kT3a")

    monkeypatch.setattr("mqks.web.tail.Tail._go_on", refused)
    with stream(web, "/api/tail") as tail:
        assert tail.wait_for("refused") == {"error": "20261116022655731811kT3a"}
        assert tail.next() is None


def test_tail_cuts_long_data(durable: mqks.testing.Broker) -> None:
    with closing(Connection(durable.port)) as wire, stream(durable, "/api/tail") as tail:
        begun(durable, tail)
        wire.ask("m1 publish --confirm e1 " + "ü" * 30_000)
        message = tail.wait_for("message")
        assert (message["data"], message["bytes"]) == ("ü" * 2000, 60_000)
        assert message["truncated"] and message["nc"] is None
        whole = ask(durable, f"/api/messages/{message['position']}").json
        assert (whole["data"], whole["truncated"]) == ("ü" * 30_000, False)


@pytest.mark.parametrize(("id_size", "event_size"), [(2, 20_000), (20_000, 2), (20_000, 20_000)])
def test_tail_goes_on_after_names_longer_than_what_is_kept(
    durable: mqks.testing.Broker, monkeypatch: pytest.MonkeyPatch, id_size: int, event_size: int
) -> None:
    monkeypatch.setattr("mqks.web.tail.COUNTED", 3)
    seconds = itertools.count(1)
    monkeypatch.setattr("mqks.web.tail.Tail._now", lambda _: next(seconds))
    with closing(Connection(durable.port)) as wire, stream(durable, "/api/tail") as tail:
        begun(durable, tail)
        for number in range(9):
            wire.ask(f"{number}{'i' * id_size} publish --confirm {'e' * event_size} x")
            message = tail.wait_for("message")
            assert message["id"].startswith(f"{number}i") and message["truncated"]


def test_what_was_not_even_counted_is_told_though_nothing_more_comes(
    web: mqks.testing.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def left_out(tail: Tail) -> None:
        while not tail._news._waiters:
            await asyncio.sleep(0)
        tail._jump(-1000, 1.0)
        await asyncio.Event().wait()

    monkeypatch.setattr("mqks.web.tail.SILENCE", 3600.0)
    monkeypatch.setattr("mqks.web.tail.Tail._go_on", left_out)
    with stream(web, "/api/tail") as tail:
        assert tail.wait_for("skipped")["about"]


def test_a_tail_that_ends_by_a_fault_says_so(
    web: mqks.testing.Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr("mqks.web.tail.Tail._go_on", fail)
    with stream(web, "/api/tail") as tail:
        assert tail.rest() == []
    assert "a tail ends by a fault of its own" in caplog.text


def test_tail_counts_what_it_leaves_out(tailed: mqks.testing.Broker) -> None:
    total = 900
    with stream(tailed, "/api/tail?mask=many.*&mask=is.*") as tail, mqks.connect(tailed.url) as client:
        begun(tailed, tail)
        client.publish_many(("many.x", "", f"m{n}") for n in range(total))
        shown = skipped = 0
        while shown + skipped < total:
            event = tail.next()
            assert event
            if event.name == "message":
                shown += 1
            else:
                assert event.name == "skipped" and not event.data["about"]
                skipped += event.data["count"]
        assert shown + skipped == total
        assert skipped and shown >= 199  # one has been shown in that second


def test_tail_tells_about_how_many_it_did_not_even_count(durable: mqks.testing.Broker) -> None:
    """Beyond so many in a second it goes on with the newest ones. (Memory alone may have let some go unseen.)"""
    total = 20_000
    with stream(durable, "/api/tail?mask=many.*&mask=is.*") as tail, mqks.connect(durable.url) as client:
        begun(durable, tail)
        client.publish_many(("many.x", "", f"m{n:05}") for n in range(total))
        shown = skipped = 0
        about = False
        while shown + skipped < total / 2:
            event = tail.next()
            assert event
            if event.name == "message":
                shown += 1
            else:
                skipped += event.data["count"]
                about = about or event.data["about"]
        assert about and shown + skipped < total * 2


def test_tail_goes_on_after_many_that_came_slowly(tailed: mqks.testing.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is shown twice and none is missed when it asks for more."""
    monkeypatch.setattr("mqks.web.tail.COUNTED", 3)
    seconds = itertools.count(1)
    monkeypatch.setattr("mqks.web.tail.Tail._now", lambda _: next(seconds))
    with stream(tailed, "/api/tail") as tail, mqks.connect(tailed.url) as client:
        begun(tailed, tail)
        for n in range(20):
            client.publish("e1", "", id=f"m{n}")
            assert tail.wait_for("message")["id"] == f"m{n}"


def test_tail_without_a_connection_ends(
    web: mqks.testing.Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("mqks.web.inside.socket.socketpair", fail)
    with stream(web, "/api/tail") as tail:
        assert tail.rest() == []
    assert "a tail ends" in caplog.text and "Too many open files" in caplog.text


def test_tail_that_is_not_read_costs_little(durable: mqks.testing.Broker) -> None:
    data = "x" * 10_000
    with stream(durable, "/api/tail") as tail, mqks.connect(durable.url) as client:
        begun(durable, tail)
        for _ in range(5):
            client.publish_many(("e1", data) for _ in range(1000))
            assert sum(client.pending_size for client in list(inner(durable).connections.clients)) < 4 << 20
        assert ask(durable, "/healthz").status == 200
        assert tail.wait_for("skipped")["count"] > 0


# ── ends ──


@pytest.mark.parametrize("path", STREAMS)
def test_who_goes_is_forgotten(web: mqks.testing.Broker, path: str) -> None:
    with stream(web, path) as reader:
        assert reader.response.readline()
    wait_until_no_one_is_inside(web)


@pytest.mark.parametrize("hang_up", [socket.socket.close, reset], ids=["closes", "resets"])
def test_a_tail_whose_reader_hangs_up_leaves_nothing_behind(
    tailed: mqks.testing.Broker, hang_up: Callable[[socket.socket], None]
) -> None:
    """Nothing is sent to it after that: the broker learns of it from the connection alone."""
    broker = inner(tailed)
    with socket.create_connection(address(tailed), PATIENCE) as wire:
        wire.sendall(b"GET /api/tail HTTP/1.1\r\nHost: localhost\r\n\r\n")
        said = b""
        while b"\n\n" not in said:  # it tells when to come again, and has begun
            said += wire.recv(1 << 16)
        with mqks.connect(tailed.url) as client:
            client.publish("e1", "told")
        while b"told" not in said:
            said += wire.recv(1 << 16)
        [reading] = [client for client in list(broker.connections.clients) if client.inside]
        assert broker.histories.is_reading(reading)
        used = broker.core.account.used
        hang_up(wire)
        wait_until_no_one_is_inside(tailed)
        assert not broker.histories.is_reading(reading)
        until(lambda: broker.core.account.used <= used - CONNECTION_COST - STREAM_COST, "its memory is released")


def test_streams_end_when_the_broker_stops(tailed: mqks.testing.Broker) -> None:
    with ExitStack() as stack:
        readers = [stack.enter_context(stream(tailed, path)) for path in STREAMS * 2]
        for reader in readers:
            assert reader.response.readline()
        stopping = threading.Thread(target=tailed.stop)
        stopping.start()
        for reader in readers:
            reader.rest()
        stopping.join(PATIENCE)
        assert not stopping.is_alive()


def test_it_stops_though_a_reader_is_deaf(durable: mqks.testing.Broker) -> None:
    with ExitStack() as stack:
        wires = []
        for path in STREAMS * 2:
            wire = stack.enter_context(socket.socket())
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.connect(address(durable))
            wire.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            wires.append(wire)
        for wire in wires:
            assert wire.recv(1) == b"H"
        with mqks.connect(durable.url) as client:
            client.publish_many(("e1", "x" * 3000) for _ in range(1000))
        durable.stop()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_ends_all(number: signal.Signals) -> None:
    with running_broker("--http", "--http-port=0", fsync="always") as broker, ExitStack() as stack:
        found = broker.wait_for_log(r"info dashboard at http://127\.0\.0\.1:(\d+)/")
        assert found
        wires = []
        for path in STREAMS:
            wire = stack.enter_context(socket.create_connection(("127.0.0.1", int(found[1])), PATIENCE))
            wire.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            wires.append(wire)
            assert b" 200 OK" in wire.recv(1000)
        broker.process.send_signal(number)
        assert ended(broker) == 0
        assert broker.wait_for_log("info stopped")
        assert "Traceback" not in broker.log and "error" not in broker.log, broker.log


def ended(broker: RunningBroker) -> int:
    return broker.process.wait(PATIENCE)
