"""The original client's functions: names, order of arguments, and what they return, as its users know them."""

import inspect
import logging
import re
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from mqks.client import functions as mqks
from mqks.client.errors import ConnectionLost, Refused
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
    "_eval": ["code", "worker", "timeout"],
    "get_worker": ["item"],
}
DTID = re.compile(r"[0-9]{20}[0-9a-zA-Z]{4}")


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


def is_request_id(value: object) -> bool:
    return isinstance(value, str) and DTID.fullmatch(value) is not None


# ── what functions return ──


@pytest.mark.parametrize("confirm", [False, True])
def test_functions_return_the_id_of_their_request(confirm: bool) -> None:
    got: SimpleQueue[Any] = SimpleQueue()
    consumer_id = mqks.consume("q1", ["e1"], got.put, manual_ack=True, confirm=confirm)
    ids: list[str | None] = [consumer_id, mqks.rebind("q1", ["e1", "e2"], confirm=confirm)]
    for number in range(2):
        msg_id = mqks.publish("e1", str(number), confirm=confirm)
        msg = taken(got)
        assert msg["id"] == msg_id
        ids += [msg_id, msg["reject"](confirm=confirm), mqks.ack(consumer_id, taken(got)["id"], confirm)]
    ids += [mqks.ack_all(consumer_id, confirm), mqks.reject_all(consumer_id, confirm=confirm)]
    ids += [mqks.ping(0, "service1", confirm=confirm), mqks.delete_consumer(consumer_id, confirm=confirm)]
    ids += [mqks.delete_queue("q1", confirm=confirm)]
    assert all(map(is_request_id, ids)), ids
    assert len(set(ids)) == len(ids)


def test_the_consumer_id_is_that_of_the_request() -> None:
    consumer_id = mqks.consume("q1", ["e1"], print, confirm=True)
    assert mqks._eval("[consumer.id for consumer in state.consumers]") == f"['{consumer_id}']"


def test_what_is_not_there_is_not_asked_for() -> None:
    assert mqks.ack("nobody", "nothing") is None
    assert mqks.reject_all("nobody", confirm=True) is None
    assert mqks.delete_consumer("nobody", confirm=True) is None
    consumer_id = mqks.consume("q1", ["e1"], print, confirm=True)
    assert is_request_id(mqks.delete_consumer(consumer_id))
    assert mqks.delete_consumer(consumer_id) is None


def test_eval() -> None:
    assert mqks._eval("1 + 1") == mqks._eval("1 + 1", worker=0, timeout=PATIENCE) == "2"
    with pytest.raises(Refused) as refused:
        mqks._eval("1/0")
    request_id, word, error_id = str(refused.value).split(" ")
    assert (is_request_id(request_id), word, len(error_id)) == (True, "error", 24)
    with pytest.raises(Refused):
        mqks._eval("1", worker=7)


def test_an_eval_that_is_not_answered_in_time(connected: Broker) -> None:
    connected.stop()
    try:
        with pytest.raises(TimeoutError):
            mqks._eval("1", timeout=0.01)
    finally:
        connected.start()


def test_a_request_without_confirm_does_not_raise_but_log(caplog: pytest.LogCaptureFixture) -> None:
    assert is_request_id(mqks.rebind("q1", ["e1,retry=1"]))
    mqks.ping(0, confirm=True)
    mqks.disconnect()
    assert "the broker refused" in caplog.text and "rebind" in caplog.text


# ── messages ──


def test_messages_are_dicts() -> None:
    got: SimpleQueue[Any] = SimpleQueue()
    mqks.consume("q1", ["e1"], got.put, confirm=True)
    msg_id = mqks.publish("e1", "d1")
    msg = taken(got)
    assert (msg["id"], msg["event"], msg["data"]) == (msg_id, "e1", "d1")
    assert set(msg) == {"id", "event", "data", "ack", "reject"}


def test_ack_and_reject() -> None:
    got: SimpleQueue[Any] = SimpleQueue()
    consumer_id = mqks.consume("q1", ["e1"], got.put, manual_ack=True, confirm=True)
    mqks.publish("e1", "d1", confirm=True)
    first = taken(got)
    assert "retry" not in first
    first["reject"](confirm=True)
    again = taken(got)
    assert again["retry"] == "1"
    mqks.reject(consumer_id, again["id"], confirm=True)
    assert taken(got)["retry"] == "2"
    mqks.reject_all(consumer_id, confirm=True)
    taken(got)["ack"](confirm=True)
    mqks.publish("e1", "d2", confirm=True)
    mqks.ack(consumer_id, taken(got)["id"], confirm=True)
    mqks.publish("e1", "d3", confirm=True)
    taken(got)
    mqks.ack_all(consumer_id, confirm=True)
    assert mqks._eval("[(queue.ready, queue.unacked) for queue in state.queues.values()]") == "[(0, 0)]"


def test_ack_all_leaves_alone_what_on_msg_did_not_get() -> None:
    begun, go_on = SimpleQueue[Any](), SimpleQueue[Any]()

    def on_msg(msg: Any) -> None:
        begun.put(msg)
        taken(go_on)

    consumer_id = mqks.consume("q1", ["e1"], on_msg, manual_ack=True, confirm=True)
    for data in ("d1", "d2"):
        mqks.publish("e1", data, confirm=True)
    taken(begun)
    mqks.ack_all(consumer_id, confirm=True)
    assert mqks._eval("state.queues['q1'].unacked") == "1"
    go_on.put("")
    assert taken(begun)["data"] == "d2"
    mqks.ack(consumer_id, "--all", confirm=True)
    assert mqks._eval("state.queues['q1'].unacked") == "0"
    go_on.put("")


# ── queues and consumers ──


def test_rebind_and_add_events() -> None:
    got: SimpleQueue[Any] = SimpleQueue()
    mqks.consume("q1", ["e1"], got.put, confirm=True)
    mqks.consume("q1", ["e2"], got.put, add_events=True, confirm=True)
    assert mqks._eval("state.queues['q1'].events") == "['e1', 'e2']"
    mqks.rebind("q1", remove=["e1"], add=["a.1", "a.2"], confirm=True)
    mqks.rebind("q1", [], remove_mask=["a.*"])
    assert mqks._eval("state.queues['q1'].events") == "['e2']"
    mqks.rebind("q1", ["e9"])
    mqks.publish("e9", 9)
    assert taken(got)["data"] == "9"


def test_state_has_what_a_new_connection_asks_for() -> None:
    worker = mqks.get_worker("q1")
    options: dict[str, Any] = {"delete_queue_when_unused": 5.0, "manual_ack": True, "confirm": True}
    consumer_id = mqks.consume("q1", ["e1", "e2"], print, on_disconnect=print, **options)
    flags = "--delete-queue-when-unused=5.0 --manual-ack"
    assert mqks.state["consumers"][worker][consumer_id] == f"q1 e1 e2 {flags}"
    mqks.rebind("q1", ["e2", "e3"], confirm=True)
    assert mqks.state["consumers"][worker][consumer_id] == f"q1 e2 e3 {flags}"
    assert mqks.state["workers"] == {consumer_id: worker}
    assert mqks.state["on_msg"] == mqks.state["on_disconnect"] == {consumer_id: print}
    assert mqks.state["on_reconnect"] == {}
    mqks.delete_consumer(consumer_id, confirm=True)
    assert mqks.state["consumers"][worker] == {}
    consumer_id = mqks.consume("q1", ["e3", "e4"], print, add_events=True, **options)
    assert mqks.state["consumers"][worker][consumer_id] == f"q1 e2 e3 e4 {flags}"


def test_deletes() -> None:
    consumer_id = mqks.consume("q1", ["e1"], print, confirm=True)
    mqks.delete_consumer(consumer_id, confirm=True)
    assert mqks._eval("len(state.consumers)") == "0"
    mqks.delete_queue("q1", confirm=True)
    assert mqks._eval("len(state.queues)") == "0"


# ── the connection ──


def test_a_consumer_that_comes_back_has_a_new_id(connected: Broker) -> None:
    got: SimpleQueue[Any] = SimpleQueue()
    lost, back = threading.Event(), SimpleQueue[Any]()
    old = mqks.consume(
        "q1",
        ["e1"],
        got.put,
        on_disconnect=lost.set,
        on_reconnect=lambda *ids: back.put(ids),
        manual_ack=True,
        confirm=True,
    )
    mqks.publish("e1", "d1", confirm=True)
    before = taken(got)
    connected.restart()
    told, new = taken(back)
    assert lost.is_set()
    assert told == old != new
    assert is_request_id(new)
    assert list(mqks.state["workers"]) == [new]
    again = taken(got)
    assert again["id"] == before["id"]
    assert before["ack"](confirm=True) is None  # it came over the old connection
    assert mqks.ack(old, before["id"]) is None
    assert mqks._eval("state.queues['q1'].unacked") == "1"
    assert is_request_id(mqks.ack(new, again["id"], confirm=True))
    assert mqks._eval("state.queues['q1'].unacked") == "0"
    mqks.publish("e1", "after", confirm=True)
    assert taken(got)["data"] == "after"


def test_without_an_address_it_connects_when_it_is_used(connected: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """And waits for a broker that is not there yet."""
    monkeypatch.setenv("MQKS_URL", connected.url)
    connected.stop()
    mqks.connect()
    assert mqks.state["auto_reconnect"]
    pinged = threading.Thread(target=mqks.ping, kwargs={"confirm": True}, daemon=True)
    pinged.start()
    connected.start()
    pinged.join(PATIENCE)
    assert not pinged.is_alive()
    mqks.disconnect()
    assert not mqks.state["auto_reconnect"]


def test_disconnect_ends_the_wait_for_a_broker(connected: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQKS_URL", connected.url)
    connected.stop()
    mqks.connect()
    errors: SimpleQueue[Exception] = SimpleQueue()
    waits = threading.Event()

    class Waits(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            assert "trying until it answers" in record.getMessage()
            waits.set()

    def ping() -> None:
        try:
            mqks.ping(confirm=True)
        except ConnectionLost as error:
            errors.put(error)

    handler = Waits()
    logger = logging.getLogger(mqks.config["logger_name"])
    logger.addHandler(handler)
    try:
        threading.Thread(target=ping, daemon=True).start()
        assert waits.wait(PATIENCE)
        mqks.disconnect()
        assert "disconnect() was called" in str(errors.get(timeout=PATIENCE))
    finally:
        logger.removeHandler(handler)


def test_config(connected: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(mqks.config) == {"workers", "logger_name", "ping_seconds", "reconnect_seconds", "id_length"}
    monkeypatch.setitem(mqks.config, "workers", [f"127.0.0.1:24000:{connected.port}"])
    monkeypatch.setenv("MQKS_URL", "mqks://nowhere.invalid")
    mqks.connect()
    mqks.ping(0, confirm=True)
    monkeypatch.setitem(mqks.config, "workers", ["127.0.0.1:24000:25000", "127.0.0.1:24001:25001"])
    mqks.connect()
    with pytest.raises(ValueError, match="there is one broker"):
        mqks.ping(0)


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
