"""The original client's functions: what its users rely on, by the names and in the order they know."""

import inspect
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from mqks.client import functions as mqks
from mqks.testing import Broker
from tests.running import PATIENCE

SIGNATURES = {
    "publish": ["event", "data", "confirm"],
    "consume": [
        "queue",
        "events",
        "on_msg",
        "on_disconnect",
        "on_reconnect",
        "delete_queue_when_unused",
        "manual_ack",
        "add_events",
        "confirm",
    ],
    "rebind": ["queue", "replace", "remove", "add", "remove_mask", "confirm"],
    "ack": ["consumer_id", "msg_id", "confirm"],
    "ack_all": ["consumer_id", "confirm"],
    "reject": ["consumer_id", "msg_id", "confirm"],
    "reject_all": ["consumer_id", "confirm"],
    "delete_consumer": ["consumer_id", "confirm"],
    "delete_queue": ["queue", "confirm"],
    "ping": ["worker", "data", "confirm"],
    "disconnect": [],
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_arguments_keep_their_order(name: str) -> None:
    assert list(inspect.signature(getattr(mqks, name)).parameters) == SIGNATURES[name]


@pytest.fixture(autouse=True)
def connected(durable: Broker) -> Iterator[Broker]:
    mqks.connect(durable.url)
    yield durable
    mqks.disconnect()


def taken(messages: "SimpleQueue[Any]") -> Any:
    return messages.get(timeout=PATIENCE)


def test_messages_are_dicts() -> None:
    got: SimpleQueue[Any] = SimpleQueue()
    mqks.consume("q1", ["e1"], got.put, confirm=True)
    mqks.publish("e1", "d1")
    msg = taken(got)
    assert (msg["event"], msg["data"], msg["retry"]) == ("e1", "d1", 0)
    assert len(msg["id"]) == 24


def test_ack_and_reject() -> None:
    got: SimpleQueue[Any] = SimpleQueue()
    consumer_id = mqks.consume("q1", ["e1"], got.put, manual_ack=True, confirm=True)
    mqks.publish("e1", "d1", confirm=True)
    taken(got)["reject"](confirm=True)
    again = taken(got)
    assert again["retry"] == 1
    mqks.reject(consumer_id, again["id"], confirm=True)
    assert taken(got)["retry"] == 2
    mqks.reject_all(consumer_id, confirm=True)
    taken(got)["ack"](confirm=True)
    mqks.publish("e1", "d2", confirm=True)
    mqks.ack(consumer_id, taken(got)["id"], confirm=True)
    mqks.publish("e1", "d3", confirm=True)
    taken(got)
    mqks.ack_all(consumer_id, confirm=True)
    mqks.ack("nobody", "nothing")
    assert mqks._eval("[(queue.ready, queue.unacked) for queue in state.queues.values()]") == "[(0, 0)]"


def test_rebind_and_add_events() -> None:
    got: SimpleQueue[Any] = SimpleQueue()
    mqks.consume("q1", ["e1"], got.put, confirm=True)
    mqks.consume("q1", ["e2"], got.put, add_events=True, confirm=True)
    assert mqks._eval("state.queues['q1'].events") == "['e1', 'e2']"
    mqks.rebind("q1", remove=["e1"], add=["a.1", "a.2"], confirm=True)
    mqks.rebind("q1", remove_mask=["a.*"])
    assert mqks._eval("state.queues['q1'].events") == "['e2']"
    mqks.rebind("q1", ["e9"])
    mqks.publish("e9", 9)
    assert taken(got)["data"] == "9"


def test_deletes() -> None:
    consumer_id = mqks.consume("q1", ["e1"], print, confirm=True)
    mqks.delete_consumer(consumer_id, confirm=True)
    assert mqks._eval("len(state.consumers)") == "0"
    mqks.delete_queue("q1", confirm=True)
    assert mqks._eval("len(state.queues)") == "0"
    mqks.ping(0, "service1", confirm=True)


def test_it_comes_back(connected: Broker) -> None:
    got: SimpleQueue[Any] = SimpleQueue()
    lost, back = threading.Event(), SimpleQueue[Any]()
    consumer_id = mqks.consume(
        "q1", ["e1"], got.put, on_disconnect=lost.set, on_reconnect=lambda *ids: back.put(ids), confirm=True
    )
    connected.restart()
    assert taken(back) == (consumer_id, consumer_id)
    assert lost.is_set()
    mqks.publish("e1", "after", confirm=True)
    assert taken(got)["data"] == "after"


def test_an_on_msg_that_fails_is_logged_and_the_next_comes(caplog: pytest.LogCaptureFixture) -> None:
    got: SimpleQueue[Any] = SimpleQueue()

    def on_msg(msg: Any) -> None:
        got.put(msg)
        if msg["data"] == "bad":
            raise RuntimeError("no good")

    mqks.consume("q1", ["e1"], on_msg, confirm=True)
    mqks.publish("e1", "bad")
    mqks.publish("e1", "good")
    assert [taken(got)["data"], taken(got)["data"]] == ["bad", "good"]
    assert "no good" in caplog.text
