"""Queues with limits: bytes are exact wherever messages are, drops survive restarts, and nothing is silent.

What each request means is in the dialogues, and every turn of it in test_against_model; here is what they cannot see.
"""

import errno
import logging
import random
from typing import Any

import pytest

from mqks.broker import Broker
from mqks.broker.connections.client import Client
from mqks.broker.limits import Limits
from mqks.broker.persistence.persistence import Persistence
from mqks.broker.queues import queue_limits
from mqks.journal import JournalError
from mqks.journal.journal import Journal
from tests.broker.on_disk import OnDisk

SMALL = {"segment_size": 600, "tail_memory": 0, "spill_after": 2, "checkpoint_bytes": 1 << 30}
LARGE = {"spill_after": 1 << 30, "checkpoint_bytes": 1 << 30}
OPTIONS = pytest.mark.parametrize("options", [LARGE, SMALL], ids=["in memory", "on disk"])
CRASHES = pytest.mark.parametrize("how", ["kill", "power", "stop"])
PEER = "127.0.0.1:1"


def again(on_disk: OnDisk, how: str) -> None:
    """The broker ends, after what it has done has got to the disk as it does by itself, and starts again."""
    if how == "power":
        on_disk.wait(0.2)
    if how == "stop":
        on_disk.stop()
    else:
        on_disk.crash(power_loss=how == "power")


def publish(on_disk: OnDisk, *numbers: int) -> list[bytes]:
    """Messages of different sizes; answers what was said."""
    said = on_disk.say(on_disk.connect(), *(b"m%d publish e1 %s" % (n, b"d" * (n * 37 % 90)) for n in numbers))
    on_disk.work()
    return said


def size(number: int) -> int:
    return len(b"m%d publish e1 \n" % number) + number * 37 % 90


def ids(lines: list[bytes]) -> list[int]:
    return [int(line.split()[0][1:]) for line in lines]


def measured(on_disk: OnDisk) -> int | None:
    """What the queue's messages have, all looked at."""
    return on_disk.broker.core.limits.measure(on_disk.queue(), 1 << 40, 1 << 40)


# ── bytes ──


@OPTIONS
@CRASHES
def test_bytes_are_exact_after_a_restart(options: dict[str, Any], how: str) -> None:
    on_disk = OnDisk(**options)
    on_disk.say(on_disk.connect(), b"s subscribe q1 e1 --max-bytes=100000")
    publish(on_disk, *range(40))
    assert on_disk.queue().bytes == sum(map(size, range(40)))
    consumer = on_disk.connect()
    on_disk.broker.feed(consumer, b"c consume --manual-ack --prefetch=9 q1\n")
    on_disk.work()
    on_disk.work()
    assert on_disk.queue().bytes == sum(map(size, range(40))), "what consumers have counts"
    given = ids([line.removeprefix(b"c ok ") for line in on_disk.said(consumer)])
    on_disk.say(consumer, b"a ack c m%d" % given[1], b"a ack c m%d" % given[0], b"r reject c m%d" % given[2])
    left = sum(map(size, range(2, 40)))
    assert on_disk.queue().bytes == measured(on_disk) == left
    on_disk.work()
    again(on_disk, how)
    assert on_disk.queue().bytes == measured(on_disk) == left
    publish(on_disk, 40)
    assert on_disk.broker.queues.purge(on_disk.queue(), 5) == 5
    assert on_disk.queue().bytes == measured(on_disk)
    assert len(on_disk.drain()) == 34
    assert on_disk.queue().bytes == 0


def test_bytes_are_exact_whatever_happens() -> None:
    """Everything that moves messages, in any order, with most of them only on disk; a start in between."""
    rng = random.Random(7)
    on_disk = OnDisk(**SMALL)
    on_disk.say(on_disk.connect(), b"s subscribe q1 e1 --max-bytes=2000 --overflow=drop-oldest")
    clients: list[Client] = []
    for step in range(400):
        what = rng.choice(["publish", "publish", "join", "settle", "leave", "purge", "restart", "limit"])
        if what == "publish":
            publish(on_disk, *(rng.randrange(200) for _ in range(rng.randint(1, 12))))
        elif what == "join" and len(clients) < 3:
            clients.append(on_disk.connect())
            manual = rng.choice([b"--manual-ack --prefetch=4", b""])
            on_disk.broker.feed(clients[-1], b"c consume %s q1\n" % manual)
        elif what == "settle" and clients:
            action = rng.choice([b"ack", b"reject"])
            on_disk.say(rng.choice(clients), b"x %s c --all" % action)
        elif what == "leave" and clients:
            on_disk.broker.disconnect(clients.pop(rng.randrange(len(clients))))
        elif what == "purge":
            on_disk.broker.queues.purge(on_disk.queue(), rng.randint(0, 3))
        elif what == "limit":
            most = rng.choice([0, 500, 2000, 5000])
            on_disk.say(on_disk.connect(), b"r rebind q1 --max-bytes=%d" % most)
        elif what == "restart" and step % 3 == 0:
            clients.clear()
            again(on_disk, rng.choice(["kill", "power", "stop"]))
        on_disk.work()
        if on_disk.queue().max_bytes:
            assert on_disk.queue().bytes == measured(on_disk), (step, what)


def test_a_queue_that_is_too_long_to_measure_gets_no_limit_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_limits, "MOST_MEASURED", 10)
    on_disk = OnDisk(**LARGE)
    client = on_disk.connect()
    on_disk.say(client, b"s subscribe q1 e1")
    publish(on_disk, *range(11))
    (refused,) = on_disk.say(client, b"r rebind q1 e2 --max-bytes=9 --max-length=3 --confirm")
    assert refused.startswith(b"r error ")
    assert (on_disk.queue().events, on_disk.queue().max_length, on_disk.queue().max_bytes) == ({b"e1"}, 0, 0)
    on_disk.broker.queues.purge(on_disk.queue(), 1)
    on_disk.say(client, b"r rebind q1 --max-bytes=9")
    assert (on_disk.queue().max_bytes, on_disk.queue().bytes) == (9, sum(map(size, range(1, 11))))


def test_a_queue_that_is_too_cold_to_measure_gets_no_limit_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    on_disk = OnDisk(**SMALL)
    on_disk.say(on_disk.connect(), b"s subscribe q1 e1")
    for number in range(60):
        publish(on_disk, number)
    monkeypatch.setattr(queue_limits, "MOST_READ", 1000)
    (refused,) = on_disk.say(on_disk.connect(), b"r rebind q1 --max-bytes=9 --confirm")
    assert refused.startswith(b"r error ")
    monkeypatch.setattr(queue_limits, "MOST_READ", 1 << 20)
    on_disk.say(on_disk.connect(), b"r rebind q1 --max-bytes=100000")
    assert on_disk.queue().bytes == sum(map(size, range(60)))


def test_a_disk_that_cannot_be_read_ends_the_broker() -> None:
    on_disk = OnDisk(**{**SMALL, "spill_after": 1 << 30})
    on_disk.say(on_disk.connect(), b"s subscribe q1 e1 --max-bytes=1000 --overflow=drop-oldest")
    on_disk.disk.fail("read", errno.EIO)
    for number in range(60):
        publish(on_disk, number)
    assert "the journal cannot be read" in str(on_disk.broker.broken)
    on_disk.crash()
    found = measured(on_disk)
    assert found is not None
    assert on_disk.queue().bytes == found <= 1000


def test_a_start_that_cannot_measure_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    on_disk = OnDisk(**SMALL)
    on_disk.say(on_disk.connect(), b"s subscribe q1 e1 --max-bytes=10000")
    publish(on_disk, *range(100))
    on_disk.stop()
    read_now = Journal.read_now

    def failing(journal: Journal, start: int, size: int) -> bytes | None:
        on_disk.disk.fail("read", errno.EIO)
        return read_now(journal, start, size)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "read_now", failing)
        with pytest.raises(JournalError, match="the journal cannot be read"):
            on_disk.crash()
    with monkeypatch.context() as patch:
        patch.setattr(Persistence, "look_at", lambda *_: None)
        with pytest.raises(JournalError, match="the bytes of queue 'q1' cannot be counted"):
            on_disk.crash()
    on_disk.crash()
    assert on_disk.queue().bytes == sum(map(size, range(100)))


# ── what is dropped ──


@OPTIONS
@CRASHES
def test_what_was_dropped_stays_so(options: dict[str, Any], how: str) -> None:
    on_disk = OnDisk(**options)
    on_disk.say(on_disk.connect(), b"s subscribe q1 e1 --max-length=7 --overflow=drop-oldest")
    assert publish(on_disk, *range(30)) == []
    assert (on_disk.queue().length, on_disk.queue().dropped, on_disk.broker.core.limits.dropped) == (7, 23, 23)
    again(on_disk, how)
    assert (on_disk.queue().length, on_disk.queue().dropped, on_disk.queue().max_length) == (7, 0, 7)
    publish(on_disk, 30)
    assert ids(on_disk.drain()) == list(range(24, 31))


@CRASHES
def test_a_lower_limit_of_the_broker_holds_from_the_start_on(how: str) -> None:
    on_disk = OnDisk(**SMALL)
    on_disk.say(on_disk.connect(), b"s subscribe q1 e1")
    publish(on_disk, *range(20))
    on_disk.options["limits"] = Limits(max_length=5, overflow="drop-oldest")
    again(on_disk, how)
    assert (on_disk.queue().length, on_disk.queue().dropped) == (5, 15)
    on_disk.work()
    on_disk.options["limits"] = Limits(max_bytes=1)
    again(on_disk, how)
    assert on_disk.queue().bytes == sum(map(size, range(15, 20)))
    (refused,) = publish(on_disk, 20)
    assert refused.startswith(b"m20 error ")
    assert ids(on_disk.drain()) == [15, 16, 17, 18, 19]


def test_what_is_too_much_goes_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_limits, "AT_ONCE", 10)
    on_disk = OnDisk(**SMALL)
    client = on_disk.connect()
    on_disk.say(client, b"s subscribe q1 e1 --overflow=drop-oldest")
    publish(on_disk, *range(100))
    assert on_disk.say(client, b"r rebind q1 --max-length=65")[:1] == []
    assert on_disk.queue().length == 90
    publish(on_disk, 100)
    assert on_disk.queue().length == 65, "whoever publishes meanwhile takes part in it"
    on_disk.say(client, b"r rebind q1 --max-length=5")
    lengths = [on_disk.queue().length]
    while lengths[-1] > 5:
        on_disk.wait(queue_limits.PAUSE)
        lengths.append(on_disk.queue().length)
    assert lengths == [55, 45, 35, 25, 15, 5]
    on_disk.crash()
    assert ids(on_disk.drain()) == [96, 97, 98, 99, 100]


def test_a_queue_that_is_deleted_meanwhile_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_limits, "AT_ONCE", 1)
    on_disk = OnDisk(**LARGE)
    client = on_disk.connect()
    on_disk.say(client, b"s subscribe q1 e1 --overflow=drop-oldest")
    publish(on_disk, *range(5))
    on_disk.say(client, b"r rebind q1 --max-length=1", b"d delete_queue q1", b"s subscribe q1 e1")
    publish(on_disk, 7, 8)
    on_disk.wait(1.0)
    assert (on_disk.queue().length, on_disk.queue().max_length) == (2, 0)


def test_each_message_drops_some_of_what_is_too_much_and_no_more() -> None:
    broker = Broker()
    client = broker.connect(PEER)
    broker.feed(client, b"c consume q1 e1 --manual-ack\n")
    broker.feed(client, b"".join(b"m%d publish e1 d\n" % number for number in range(300)))
    broker.turn()
    broker.sent(client, client.pending_size)
    queue = broker.queues.by_name[b"q1"]
    broker.feed(client, b"r rebind q1 --max-length=1 --overflow=drop-oldest\nd delete_consumer c\n")
    assert (queue.ready_count, queue.dropped) == (300, 0), "consumers had them all"
    for dropped in (64, 128, 192, 256, 304, 305):
        broker.feed(client, b"m publish e1 d\n")
        assert queue.dropped == dropped
    assert queue.length == 1


# ── what is told ──


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    texts = [record.getMessage() for record in caplog.records if not record.getMessage().startswith("error ")]
    caplog.clear()
    return texts


def test_the_log_tells_when_it_begins_and_how_many_they_were(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    now = 0.0
    broker = Broker(clock=lambda: now)
    client = broker.connect(PEER)
    broker.feed(client, b"s subscribe q1 e1 --max-length=2 --overflow=drop-oldest\n")
    broker.feed(client, b"m publish e1 d\n" * 10)
    assert said(caplog) == ["queue 'q1' is full: its oldest messages are dropped"]
    for _ in range(2):
        now += queue_limits.CALM
        broker.feed(client, b"m publish e1 d\n" * 10)
        broker.tick()
    assert said(caplog) == [], "it goes on"
    now += queue_limits.CALM
    broker.tick()
    assert said(caplog) == ["messages of queue 'q1' that were dropped while it was full: 28"]
    broker.feed(client, b"m publish e1 d\n")
    assert said(caplog) == ["queue 'q1' is full: its oldest messages are dropped"]
    assert broker.limits.times["max_length"] == 2
    broker.close()
    assert said(caplog) == ["messages of queue 'q1' that were dropped while it was full: 1"]


def test_many_queues_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    now = 0.0
    broker = Broker(clock=lambda: now, limits=Limits(max_bytes=20, overflow="drop-oldest"))
    client = broker.connect(PEER)
    for number in range(queue_limits.MOST_TOLD + 30):
        broker.feed(client, b"s subscribe q%d e1\n" % number)
    broker.feed(client, b"m publish e1 d\nm publish e1 d\n")
    assert len(said(caplog)) == queue_limits.MOST_TOLD
    now = queue_limits.CALM
    broker.tick()
    now = 2 * queue_limits.CALM
    broker.tick()
    *queues, others = said(caplog)
    assert len(queues) == queue_limits.MOST_TOLD
    assert others == "queues beside these that were full, and dropped messages: 30"
    assert broker.limits.times["max_bytes"] == queue_limits.MOST_TOLD + 30


def test_of_many_queues_that_begin_to_drop_none_looks_at_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []

    class Looked(queue_limits.Dropping):
        def __getattribute__(self, name: str) -> Any:
            looks.append(name)
            return super().__getattribute__(name)

    monkeypatch.setattr(queue_limits, "Dropping", Looked)
    now = 0.0
    broker = Broker(clock=lambda: now, limits=Limits(max_length=1, overflow="drop-oldest"))
    client = broker.connect(PEER)
    for round in range(2):
        for number in range(100):
            broker.feed(client, b"s subscribe q%d e%d\n" % (number, round))
        looks.clear()
        broker.feed(client, b"m publish e%d d\nm publish e%d d\n" % (round, round))
        assert len(broker.queue_limits._dropping) == 100
        assert looks.count("told") == 0
        now += 3 * queue_limits.CALM
        broker.tick()
        now += 3 * queue_limits.CALM
        broker.tick()
        assert (broker.queue_limits._dropping, broker.queue_limits._told) == ({}, 0)


def test_a_refusal_names_the_queue_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    client = broker.connect(PEER)
    broker.feed(client, b"s subscribe q1 e1 --max-length=1\ns subscribe q2 e2 --max-bytes=10\n")
    broker.feed(client, b"m1 publish e1 d\nm2 publish e1 d\nm3 publish e1\nm4 publish e2 d\n")
    broker.feed(client, b'm5 send {"event": "e2"}\n')
    reasons = [str(record.getMessage()).partition(" reason=")[2].partition(" line=")[0] for record in caplog.records]
    long = "\"a queue is full: its --max-length is reached: 'q1'\""
    empty = "\"a queue is full: its --max-bytes is reached: 'q2', which is empty: the line alone is larger\""
    assert reasons == [long, long, empty, empty]
    assert (broker.limits.times["max_length"], broker.limits.times["max_bytes"]) == (2, 2)


# ── what is refused leaves no trace ──


def test_what_is_refused_is_not_counted_not_heard_and_not_in_the_log() -> None:
    broker = Broker()
    client = broker.connect(PEER)
    heard: list[bytes] = []
    broker.listeners.listen(b"e1", heard.append)
    broker.feed(client, b"s subscribe q1 e1\n")
    pattern = b'{"event": "e1", "data": {"k": 1}}'
    broker.feed(client, b'c recv --max-length=1 {"queue": "q2", "pattern": %s, "manual_ack": true}\n' % pattern)
    broker.feed(client, b'm1 publish e1 {"k": 1}\nm2 publish e1 {"k": 1}\nm3 publish e1 {"k": 2}\n')
    assert heard == [b'{"k": 1}', b'{"k": 2}']
    position = broker.core.log.end
    broker.feed(client, b'm4 publish --once e1 {"k": 1}\nm5 send --once %s\n' % pattern)
    assert broker.core.log.end == position
    assert dict(broker.core.events.counts())[b"e1"] == broker.core.router.published == 2
    assert broker.queues.by_name[b"q1"].published == 2
    assert len(broker.core.seen) == 0
    broker.feed(client, b'm6 send {"event": "e1", "data": 5}\n')
    assert dict(broker.core.events.counts())[b"e1"] == broker.core.router.published == 3


def test_a_queue_that_takes_everything_may_be_full_too() -> None:
    broker = Broker()
    client = broker.connect(PEER)
    broker.feed(client, b'c recv --max-length=1 {"queue": "q", "pattern": {}, "manual_ack": true}\n')
    broker.feed(client, b"m1 publish e1 d\nm2 publish e2 d\n")
    broker.turn()
    replies = client.pending().split(b"\n")
    assert [reply.split(b" ")[:2] for reply in replies if reply] == [[b"c", b"ok"], [b"m2", b"error"], [b"c", b"ok"]]
