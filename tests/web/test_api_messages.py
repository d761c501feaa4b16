"""Messages over the API: to look at them takes none, and costs little; purge and delete are kept."""

import asyncio
import threading
from contextlib import closing
from unittest.mock import Mock

import pytest
from starlette.exceptions import HTTPException

import mqks.testing
from mqks.broker.queues.queue import Queue
from mqks.web.api import Api
from mqks.web.messages import KEPT, Parts, parts, show
from tests.running import PATIENCE, Connection
from tests.web.asking import ask, inner


@pytest.mark.parametrize("kind", ["web", "durable"])
def test_peeking_changes_nothing(request: pytest.FixtureRequest, kind: str) -> None:
    broker: mqks.testing.Broker = request.getfixturevalue(kind)
    with closing(Connection(broker.port)) as wire:
        wire.ask("r1 rebind --confirm q1 e1")
        for n in range(5):
            wire.ask(f"m{n} publish --confirm --once e1 d{n}")
        wire.ask('s1 send {"event": "e1", "x": 1}')
        before = ask(broker, "/api/queues/q1").json
        for _ in range(2):
            told = ask(broker, "/api/queues/q1/messages").json
            assert told["ready"] == 6
            assert [message["data"] for message in told["messages"]][:5] == [f"d{n}" for n in range(5)]
        first, last = told["messages"][0], told["messages"][-1]
        assert (first["id"], first["action"], first["event"], first["retry"]) == ("m0", "publish", "e1", 0)
        assert first["nc"] == "m0 publish e1 d0"
        assert (last["id"], last["action"], last["event"]) == ("s1", "send", "e1")
        assert last["data"] == '{"event": "e1", "x": 1}'
        assert (first["time"] is None) == (kind == "web")
        after = ask(broker, "/api/queues/q1").json
        assert {**before, "age": None, "spark": None} == {**after, "age": None, "spark": None}
        assert len(ask(broker, "/api/queues/q1/messages?limit=2").json["messages"]) == 2
        assert ask(broker, f"/api/messages/{first['position']}").json == {**first, "retry": 0}
        wire.send(b"c1 consume q1\n")
        assert wire.line() == b"c1 ok m0 event=e1 d0"


def test_retries_are_told(web: mqks.testing.Broker, wire: Connection) -> None:
    wire.ask("c1 consume --confirm q1 e1 --manual-ack")
    wire.send(b"m1 publish e1 d1\n")
    wire.line()
    wire.ask("d1 delete_consumer --confirm c1")
    [message] = ask(web, "/api/queues/q1/messages").json["messages"]
    assert message["retry"] == 1


@pytest.mark.parametrize(
    ("line", "typed"),
    [
        (b"m1 publish --once=s e1 a b", "m1 publish e1 a b"),
        (b'm1 send {"event": "e1"}', 'm1 send {"event": "e1"}'),
        ("m1 publish é ü".encode(), "m1 publish é ü"),
        (b"m1 publish e1 x\rm2 delete_queue q1", None),
        (b"m1 publish e1 \x1b[2J", None),
        ("m1 publish e1 \x9b2J".encode(), None),
        (b"m1 publish e1 \xff", None),
    ],
)
def test_what_one_may_type_into_nc(line: bytes, typed: str | None) -> None:
    message = parts(line, len(line))
    assert message and show(0, None, message)["nc"] == typed


@pytest.mark.parametrize("position", ["1", "999999999", str((1 << 63) - 1)])
def test_no_such_message(durable: mqks.testing.Broker, position: str) -> None:
    ask(durable, "/api/publish", "POST", {"event": "e1", "data": "x1 publish e2 d2"})
    assert "no message begins" in ask(durable, f"/api/messages/{position}").error


@pytest.mark.parametrize("position", ["x", "-1", "1.5", str(1 << 63), "%31"])
def test_no_position(web: mqks.testing.Broker, position: str) -> None:
    assert ask(web, f"/api/messages/{position}").status == 400


def test_purge_is_kept(durable: mqks.testing.Broker) -> None:
    with closing(Connection(durable.port)) as wire:
        wire.ask("r1 rebind --confirm q1 e1")
        for n in range(10):
            wire.ask(f"m{n} publish --confirm e1 d{n}")
        assert ask(durable, "/api/queues/q1/purge", "POST").json == {"purged": 10}
        assert ask(durable, "/api/queues/q1/purge", "POST", {}).json == {"purged": 0}
        wire.ask("m10 publish --confirm e1 d10")
    durable.restart()
    told = ask(durable, "/api/queues/q1/messages").json
    assert [message["id"] for message in told["messages"]] == ["m10"]


@pytest.mark.parametrize("consumer_id", ["w", "h", "hello"])
def test_purge_does_not_meet_consumers_of_others(web: mqks.testing.Broker, consumer_id: str) -> None:
    """Whatever they are called: a confirmed ack of another connection's consumer would be an error."""
    with closing(Connection(web.port)) as wire:
        wire.ask("r1 rebind --confirm q1 e1")
        wire.ask(f"{consumer_id} consume --confirm q2 e2 --manual-ack")
        wire.ask("m1 publish --confirm e1 d1")
        assert ask(web, "/api/queues/q1/purge", "POST").json == {"purged": 1}


def test_purge_leaves_what_came_meanwhile(web: mqks.testing.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes in pieces, and others have their turn: who publishes as fast as it purges does not keep it going."""
    monkeypatch.setattr("mqks.web.api.PURGED_AT_ONCE", 10)
    broker = inner(web)
    purge = broker.queues.purge

    with closing(Connection(web.port)) as wire:
        wire.ask("r1 rebind --confirm q1 e1")
        wire.send(b"".join(b"m publish e1 d\n" for _ in range(1000)))
        wire.ask("p1 ping")
        heard = []

        def purge_and_publish(queue: Queue, most: int) -> int:
            heard.append(queue.ready_count)
            wire.send(b"n publish e1 d\n" * 10)
            return purge(queue, most)

        monkeypatch.setattr(broker.queues, "purge", purge_and_publish)
        assert ask(web, "/api/queues/q1/purge", "POST").json == {"purged": 1000}
        monkeypatch.undo()
        wire.ask("p2 ping")
    assert len(heard) == 101 and min(heard) > 10
    assert ask(web, "/api/queues/q1").json["ready"] == 1010


@pytest.mark.parametrize("kind", ["web", "durable"])
def test_peeking_takes_the_beginning_of_long_messages(
    request: pytest.FixtureRequest, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker: mqks.testing.Broker = request.getfixturevalue(kind)
    with closing(Connection(broker.port)) as wire:
        wire.ask("r1 rebind --confirm q1 e1")
        for n in range(50):
            wire.ask(f"m{n} publish --confirm e1 " + "é" * 30_000)
        wire.ask(f's1 send {{"event": "e1", "x": "{"x" * 60_000}"}}')
    seen: list[int] = []

    def noted(line: bytes, size: int) -> Parts | None:
        seen.append(len(line))
        return parts(line, size)

    monkeypatch.setattr("mqks.web.api.parts", noted)
    messages = ask(broker, "/api/queues/q1/messages?limit=200").json["messages"]
    assert len(messages) == len(seen) == 51 and max(seen) == KEPT
    assert {(one["data"], one["bytes"], one["truncated"], one["nc"]) for one in messages[:50]} == {
        ("é" * 2000, 60_000, True, None)
    }
    assert (messages[50]["action"], messages[50]["event"], messages[50]["bytes"]) == ("send", "", 60_024)
    whole = ask(broker, f"/api/messages/{messages[50]['position']}").json
    assert (whole["event"], len(whole["data"]), whole["truncated"]) == ("e1", 60_024, False)


def test_one_peeks_at_a_time() -> None:
    """What is read meanwhile is memory that --max-memory does not know of."""
    go_on = threading.Event()
    broker = Mock()
    broker.persistence.lines.return_value = broker.persistence.read_lines.return_value = {}
    broker.persistence.read_lines.side_effect = lambda *_: {} if go_on.wait(PATIENCE) else None

    async def peek() -> None:
        api = Api(broker, Mock(), Mock(), asyncio.Event(), Mock())
        asked = [asyncio.create_task(api.message(Mock(), 1)) for _ in range(8)]
        for _ in range(100):  # turns, in which the others could begin
            await asyncio.sleep(0)
        assert broker.persistence.lines.call_count == 1
        go_on.set()
        assert {type(error) for error in await asyncio.gather(*asked, return_exceptions=True)} == {HTTPException}
        assert broker.persistence.lines.call_count == broker.persistence.read_lines.call_count == 8

    asyncio.run(peek())


def test_delete_is_kept(durable: mqks.testing.Broker) -> None:
    with closing(Connection(durable.port)) as wire:
        wire.ask("r1 rebind --confirm q1 e1")
    assert ask(durable, "/api/queues/q1", "DELETE").json == {"deleted": "q1"}
    durable.restart()
    assert ask(durable, "/api/queues").json["total"] == 0
