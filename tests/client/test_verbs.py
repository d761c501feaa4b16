"""What users do with a client while all is well, and what they are told when they do it wrong: with both clients."""

import json
import logging
from datetime import UTC, datetime
from typing import Any

import pytest

import mqks
from mqks.client import wanted
from mqks.client.address import Address, find_address
from mqks.testing import Broker, broker
from tests.client.both import until
from tests.client.conftest import Open


def test_publish_and_consume(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    consumer = mq.consume("greetings", ["hi", "hello"])
    consumer.ready()
    id = mq.publish("hello", "world", confirm=True)
    message = consumer.get()
    assert (message.id, message.event, message.data, message.retry) == (id, "hello", "world", 0)
    assert "hello" in repr(message)


def test_ids_are_dtids_that_grow(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    ids = [mq.publish("e", str(number)) for number in range(50)]
    assert ids == sorted(set(ids))
    assert all(len(id) == 24 and datetime.strptime(id[:20], "%Y%m%d%H%M%S%f") for id in ids)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("", ""),
        (" two  words ", " two  words "),
        ("Käse ✓", "Käse ✓"),
        ({"a": [1, None, "ä"]}, '{"a": [1, null, "ä"]}'),
        (None, "null"),
        (7, "7"),
        (b"bytes", "bytes"),
    ],
)
def test_data_comes_as_it_went(running: Broker, open_mq: Open, given: object, text: str) -> None:
    mq = open_mq(running)
    consumer = mq.consume("q", ["e"])
    mq.publish("e", given)
    assert consumer.get().data == text


def test_bytes_that_are_no_text(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    consumer = mq.consume("q", ["e"])
    mq.publish("e", b"\xff\xfe \xc3")
    first = consumer.get()
    assert first.bytes == b"\xff\xfe \xc3"
    mq.publish("e", first.data)
    assert consumer.get().bytes == b"\xff\xfe \xc3"


def test_json(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    consumer = mq.consume("q", ["e"])
    mq.publish("e", {"id": 42, "text": "two\nlines"})
    assert consumer.get().json == {"id": 42, "text": "two\nlines"}


BAD: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "newline in data": ("publish", ("e", "a\nb"), {}),
    "TAB in data": ("publish", ("e", "a\tb"), {}),
    "NUL in data": ("publish", ("e", "a\0b"), {}),
    "carriage return at the end": ("publish", ("e", "a\r"), {}),
    "newline in bytes": ("publish", ("e", b"a\nb"), {}),
    "space in an event": ("publish", ("e 1",), {}),
    "no event": ("publish", ("",), {}),
    "a flag as an event": ("publish", ("--confirm",), {}),
    "an event that looks retried": ("publish", ("e,retry=1",), {}),
    "space in an id": ("publish", ("e",), {"id": "a b"}),
    "newline in a queue": ("consume", ("q\n", ["e"]), {}),
    "events as one string": ("consume", ("q", "events"), {}),
    "a flag in events": ("consume", ("q", ["--manual-ack"]), {}),
    "nothing to rebind": ("rebind", ("q",), {}),
    "a limit below 0": ("rebind", ("q", ["e"]), {"max_length": -1}),
    "a limit that is no number": ("consume", ("q",), {"max_bytes": "1G"}),
    "a policy that there is not": ("recv", ("q", {}), {"overflow": "drop"}),
    "limits and no events": ("rebind", ("q", []), {"max_length": 1}),
    "newline in a request": ("request", ("ping", "a\nb"), {}),
    "space in a scope": ("publish", ("e",), {"once": "my scope"}),
    "not JSON": ("publish", ("e", {"a": {1}}), {}),
}


@pytest.mark.parametrize("what", BAD)
def test_wrong_words_are_refused_at_once(running: Broker, open_mq: Open, what: str) -> None:
    mq = open_mq(running)
    verb, words, options = BAD[what]
    with pytest.raises((ValueError, TypeError)):
        getattr(mq, verb)(*words, **options)
    assert mq.ping("still here") == "still here"


def test_manual_ack(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    consumer = mq.consume("q", ["e"], manual_ack=True)
    mq.publish_many([("e", "1"), ("e", "2"), ("e", "3")])
    first, second, third = (consumer.get() for _ in range(3))
    assert first.ack()
    assert second.ack(confirm=True)
    assert third.reject(confirm=True)
    again = consumer.get()
    assert (again.data, again.retry) == ("3", 1)
    assert mq.stats()["queues"]["q"]["unacked"] == 1


def test_ack_all_and_reject_all(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    consumer = mq.consume("q", ["e"], manual_ack=True)
    mq.publish_many([("e", "1"), ("e", "2")])
    assert [consumer.get().data for _ in range(2)] == ["1", "2"]
    assert consumer.reject_all(confirm=True)
    assert [(message.data, message.retry) for message in (consumer.get(), consumer.get())] == [("1", 1), ("2", 1)]
    assert consumer.ack_all(confirm=True)
    assert mq.stats()["queues"]["q"]["unacked"] == 0


def test_a_manual_consumer_leaves_messages_to_others_unless_told(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    held = [mq.consume("q", ["e"], manual_ack=True), mq.consume("q2", ["e"], manual_ack=True, prefetch=0)]
    for consumer in held:
        consumer.ready()
    mq.publish_many(("e", str(number)) for number in range(150))
    queues = mq.stats()["queues"]
    assert queues["q"]["ready"] == 50
    assert queues["q2"]["ready"] == 0


def test_rebind(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)

    def events() -> list[str]:
        found: list[str] = mq.stats()["queues"]["q"]["events"]
        return found

    mq.rebind("q", ["a.1", "a.2", "b"])
    assert events() == ["a.1", "a.2", "b"]
    mq.rebind("q", remove=["b"], add=["c", "d"])
    assert events() == ["a.1", "a.2", "c", "d"]
    mq.rebind("q", remove_mask=["a.*"])
    assert events() == ["c", "d"]
    mq.rebind("q", [], add=["x"])
    assert events() == ["x"]
    mq.rebind("q", [])
    assert events() == []


def test_limits_of_queues(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)

    def limits() -> tuple[object, ...]:
        queue = mq.stats()["queues"]["q1"]
        return queue["events"], queue["max_length"], queue["max_bytes"], queue["overflow"]

    mq.rebind("q1", ["e1"], max_length=2)
    assert limits() == (["e1"], 2, 0, "reject")
    for data in ("one", "two"):
        mq.publish("e1", data, confirm=True)
    with pytest.raises(mqks.Refused):
        mq.publish("e1", "three", confirm=True)
    mq.rebind("q1", overflow="drop-oldest")
    mq.publish("e1", "three", confirm=True)
    assert limits() == (["e1"], 2, 0, "drop-oldest")
    consumer = mq.consume("q1", max_bytes=5000, max_length=0)
    assert [consumer.get().data for _ in range(2)] == ["two", "three"]
    assert limits() == (["e1"], 0, 5000, "drop-oldest")
    mq.recv("q1", {"k": 1}, max_bytes=0, overflow="reject", delete_queue_when_unused=False).ready()
    assert limits() == (["e1"], 0, 0, "reject")


def test_consume_adds_events_and_hears_of_changes(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    consumer = mq.consume("q", ["a"], delete_queue_when_unused=5)
    consumer.ready()
    added = mq.consume("q", add_events=["b"])
    added.ready()
    mq.ping()
    assert consumer.events == added.events == ["a", "b"]
    assert consumer.queue == "q"


def test_deleting_a_queue_ends_ones_own_consumers(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    consumer = mq.consume("q", ["e"])
    mq.publish("e", "last", confirm=True)
    mq.ping()
    mq.delete_queue("q")
    assert [message.data for message in consumer] == ["last"]
    assert "q" not in mq.stats()["queues"]


def test_a_queue_that_others_delete_leaves_no_deaf_consumer(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    other = open_mq(running)
    consumer = mq.consume("q", ["e"], delete_queue_when_unused=True)
    consumer.ready()
    other.delete_queue("q")
    mq.ping()
    other.rebind("q", ["e2"])
    other.publish("e2", "heard", confirm=True)
    assert consumer.get().data == "heard"


def test_consumer_delete_queue(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    consumer = mq.consume("q", ["e"])
    consumer.ready()
    consumer.delete_queue()
    assert list(consumer) == []
    assert mq.stats()["queues"] == {}


def test_delete_queue_when_unused(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    consumer = mq.consume("q", ["e"])
    consumer.ready()
    mq.delete_queue("q", when_unused=True)
    assert "q" in mq.stats()["queues"]
    consumer.delete()
    assert "q" not in mq.stats()["queues"]


def test_small_talk(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    assert mq.connected
    assert mq.ping() == ""
    assert mq.ping("--confirm is data here") == "--confirm is data here"
    assert mq.eval("len(state.queues)") == "0"
    assert mq.stats()["durability"] == "memory"
    assert json.loads(mq.request("stats"))["version"] == mqks.__version__
    assert mq.request("ping", "x") == "x"


def test_sevx_dialect(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    receiver = mq.recv("q", {"obj": "user"}, manual_ack=True)
    receiver.ready()
    id = mq.send({"obj": "user", "n": 1}, confirm=True)
    mq.send({"obj": "dog"})
    message = receiver.get()
    assert (message.id, message.json) == (id, {"obj": "user", "n": 1})
    message.reject(confirm=True)
    assert receiver.get().json == {"retry": 1, "obj": "user", "n": 1}
    assert receiver.ack_all(confirm=True)
    receiver.delete_queue()
    assert mq.stats()["queues"] == {}


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wanted, "PAGE", 3)


@pytest.mark.usefixtures("small_pages")
def test_history(durable: Broker, open_mq: Open) -> None:
    mq = open_mq(durable)
    ids = mq.publish_many((f"e.{number % 2}", str(number)) for number in range(10))
    records = list(mq.history())
    assert [(record.id, record.data) for record in records] == [(id, str(n)) for n, id in enumerate(ids)]
    assert [record.data for record in mq.history(records[4].position, to=records[8].position)] == ["4", "5", "6", "7"]
    assert [record.data for record in mq.history(events=["e.1"], limit=4)] == ["1", "3", "5", "7"]
    assert [record.event for record in mq.history(events=["*.0"])] == ["e.0"] * 5
    assert [record.data for record in mq.history(limit=3)] == ["0", "1", "2"]
    assert list(mq.history(limit=0)) == list(mq.history("latest")) == []
    assert len(list(mq.history(datetime(2000, 1, 1, tzinfo=UTC), to=datetime(2100, 1, 1)))) == 10


@pytest.mark.usefixtures("small_pages")
def test_history_follows(durable: Broker, open_mq: Open) -> None:
    mq = open_mq(durable)
    mq.publish("e", "before", confirm=True)
    following = iter(mq.history("latest", follow=True))
    from_start = iter(mq.history(follow=True))
    assert next(from_start).data == "before"
    mq.publish("e", "not yet", confirm=True)
    assert next(from_start).data == "not yet"
    # what is first asked for now begins now
    seen = []
    for number in range(8):
        mq.publish("e", str(number), confirm=True)
        seen.append(next(from_start).data)
    assert seen == [str(number) for number in range(8)]
    del following


def test_history_that_cannot_be(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    with pytest.raises(mqks.Refused):
        list(mq.history(10**15))


def test_refused(open_mq: Open, caplog: pytest.LogCaptureFixture) -> None:
    with broker(max_line=200) as small:
        mq = open_mq(small)
        with pytest.raises(mqks.Refused) as caught:
            mq.publish("e", "x" * 300, confirm=True, id="long-one")
        assert caught.value.id == "long-one"
        assert caught.value.error_id in str(caught.value)
        with caplog.at_level(logging.WARNING, "mqks.client"):
            mq.publish("e", "x" * 300, id="long-two")
            mq.ping()
            until(lambda: "refused the request or message long-two" in caplog.text)  # said when its lock is free
        with pytest.raises(mqks.Refused):
            mq.request("nonsense")
        with pytest.raises(mqks.Refused):
            mq.consume("q", ["e" * 300]).ready()
        consumer = mq.consume("q", ["e" * 300])
        with pytest.raises(mqks.Refused):
            next(consumer)


def test_publish_many_tells_of_each_refused(open_mq: Open) -> None:
    with broker(max_line=200) as small:
        mq = open_mq(small)
        consumer = mq.consume("q", ["e"])
        refused: list[mqks.Refused] = []
        messages = [("e", "1", "a"), ("e", "x" * 300, "b"), ("e", "2", "c"), ("e", "x" * 300, "d")]
        assert mq.publish_many(messages, on_refused=refused.append) == ["a", "b", "c", "d"]
        assert [error.id for error in refused] == ["b", "d"]
        assert [consumer.get().data for _ in range(2)] == ["1", "2"]
        with pytest.raises(mqks.Refused):
            mq.publish_many(messages)


def test_publish_many_beyond_its_window(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    mq.rebind("q", ["e"])
    ids = mq.publish_many((("e", str(number)) for number in range(3500)), confirm=True)
    assert len(set(ids)) == 3500
    assert len(mq.publish_many((("e", str(number)) for number in range(100)), confirm=False)) == 100
    mq.ping()
    assert mq.stats()["queues"]["q"]["ready"] == 3600


def test_two_publishes_of_one_id_at_a_time(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    with pytest.raises(ValueError, match="waits for its confirm already"):
        mq.publish_many([("e", "1", "same"), ("e", "2", "same")])


def test_closing_sends_what_is_buffered(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    mq.rebind("q", ["e"])
    for number in range(1000):
        mq.publish("e", str(number))
    mq.close()
    mq.close()
    with pytest.raises(mqks.ConnectionLost, match="closed"):
        mq.publish("e", "too late")
    with pytest.raises(mqks.ConnectionLost, match="closed"):
        mq.ping()
    with pytest.raises(mqks.ConnectionLost, match="closed"):
        mq.consume("q")
    assert open_mq(running).stats()["queues"]["q"]["ready"] == 1000


def test_closing_ends_consumers(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    consumer = mq.consume("q", ["e"])
    consumer.ready()
    mq.close()
    assert list(consumer) == []


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("mqks://example.com:26000", Address("example.com", 26000)),
        ("mqks://example.com", Address("example.com", 25000)),
        ("mqks://example.com/", Address("example.com", 25000)),
        ("mqks://[::1]:26000", Address("::1", 26000)),
        ("mqkss://example.com", Address("example.com", 25000, tls=True)),
        ("mqkss://[::1]:26000", Address("::1", 26000, tls=True)),
        (None, Address("127.0.0.1", 25000)),
    ],
)
def test_addresses(url: str | None, address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MQKS_URL", raising=False)
    assert find_address(url) == address
    assert find_address(str(find_address(url))) == address


def test_the_environment_tells_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQKS_URL", "mqks://elsewhere:1")
    assert find_address() == Address("elsewhere", 1)
    assert find_address("mqks://here") == Address("here", 25000)


@pytest.mark.parametrize(
    "url", ["localhost:25000", "http://x", "mqks://", "mqks://x:port", "mqks://x/q", "mqks://x:99999"]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ValueError, match="no address of a broker"):
        find_address(url)


@pytest.mark.parametrize("url", ["mqks://:secret@x", "mqks://to.secret@x", "mqks://x?token=secret", "mqks://x#secret"])
def test_a_secret_in_an_address_is_not_taken_and_not_shown(url: str) -> None:
    with pytest.raises(ValueError, match="MQKS_TOKEN") as refused:
        find_address(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("options", [{"timeout": 0}, {"keep_alive": 0}, {"max_buffer": 0}, {"when_full": "drop"}])
def test_options_that_make_no_sense(running: Broker, open_mq: Open, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        open_mq(running, **options)


def test_nobody_there(open_mq: Open) -> None:
    with broker() as gone:
        gone.stop()
        with pytest.raises(mqks.ConnectionLost, match="is mqksd running there"):
            open_mq(gone, connect_timeout=0)
