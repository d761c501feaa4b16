"""Looking at messages without a trace: what would be delivered next, what stands at a position, and since when."""

import errno
import random
from pathlib import Path

import pytest

from mqks.broker import Broker
from mqks.broker.connections.client import Client
from mqks.broker.protocol.bridge import render
from mqks.journal.disk import RealDisk
from tests.broker.on_disk import START, OnDisk

MANY = 1 << 20
SMALL = {"segment_size": 600, "tail_memory": 0, "spill_after": 2, "retain_bytes": 1 << 30}


def publish(on_disk: OnDisk, *numbers: int) -> None:
    on_disk.say(on_disk.connect(), *(b"m%d publish e1 %0100d" % (number, number) for number in numbers))
    on_disk.work()


def shown(broker: Broker, name: bytes = b"q1", limit: int = MANY) -> list[bytes]:
    """What peek and the log tell of the next messages, as a consumer would be told."""
    found = broker.core.delivery.peek(broker.queues.by_name[name], limit)
    positions = [position for position, _ in found]
    lines = broker.persistence.lines(positions) | broker.persistence.read_lines(positions)
    return [render(lines[position][0], 0, retries) for position, retries in found]


def stir(on_disk: OnDisk, rng: random.Random) -> None:
    """Messages come, are given, acked, rejected and returned, as chance has it."""
    clients: list[Client] = []
    held: list[tuple[Client, bytes]] = []
    for number in range(80):
        what = rng.random()
        if what < 0.5 or not clients:
            publish(on_disk, number)
        elif held and what < 0.8:
            client, message = held.pop(rng.randrange(len(held)))
            action = rng.choice((b"ack", b"reject", b"reject"))
            on_disk.say(client, b"r%d %s c %s" % (number, action, message))
        elif what < 0.9:
            gone = clients.pop(rng.randrange(len(clients)))
            on_disk.broker.disconnect(gone)
            held = [one for one in held if one[0] is not gone]
        if len(clients) < 3:
            clients.append(on_disk.connect())
            on_disk.say(clients[-1], b"c consume --manual-ack --prefetch=%d q1" % rng.randint(1, 4))
        on_disk.work()
        for client in clients:
            held += [(client, line.split()[2]) for line in on_disk.said(client)]
    for client in clients:
        on_disk.broker.disconnect(client)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("options", [{}, SMALL], ids=["in memory", "on disk"])
def test_peek_shows_what_is_delivered_next(seed: int, options: dict[str, int]) -> None:
    on_disk = OnDisk(**options)
    on_disk.say(on_disk.connect(), b"s subscribe q1 e1")
    stir(on_disk, random.Random(seed))
    publish(on_disk, *range(100, 120))
    expected = shown(on_disk.broker)
    assert len(expected) == on_disk.queue().ready_count
    assert shown(on_disk.broker, limit=7) == expected[:7]
    assert on_disk.drain() == expected


def test_peek_changes_nothing() -> None:
    on_disk = OnDisk(**SMALL)
    on_disk.say(on_disk.connect(), b"s subscribe q1 e1")
    stir(on_disk, random.Random(1))
    publish(on_disk, *range(100, 120))
    core, queue = on_disk.broker.core, on_disk.queue()
    before = core.snapshots.take([queue]), core.log.extents(), core.account.used, on_disk.disk.content("index")
    found = core.delivery.peek(queue, MANY)
    assert core.delivery.peek(queue, MANY) == found
    assert (
        core.snapshots.take([queue]),
        core.log.extents(),
        core.account.used,
        on_disk.disk.content("index"),
    ) == before
    assert not core.persistence.unwritten


def test_retries_beyond_what_fits_beside_a_position_are_shown() -> None:
    broker = Broker()
    client = broker.connect("127.0.0.1:1")
    broker.feed(client, b"c consume --manual-ack q1 e1\nm publish e1 x\n")
    for _ in range(300):
        broker.turn()
        broker.sent(client, client.pending_size)
        broker.feed(client, b"r reject c m\n")
    [(_, retries)] = broker.core.delivery.peek(broker.queues.by_name[b"q1"], 10)
    assert retries == broker.queues.by_name[b"q1"].retrying == broker.queues.by_name[b"q1"].retried == 300


def test_a_part_that_cannot_be_read_ends_the_list_and_harms_nothing() -> None:
    on_disk = OnDisk(**SMALL)
    on_disk.say(on_disk.connect(), b"s subscribe q1 e1")
    publish(on_disk, *range(20_000))
    queue = on_disk.queue()
    whole = on_disk.broker.core.delivery.peek(queue, MANY)
    on_disk.disk.fail("read", errno.EIO)
    found = on_disk.broker.core.delivery.peek(queue, MANY)
    assert found == whole[: len(found)] and 0 < len(found) < len(whole) == 20_000
    assert on_disk.broker.broken is None
    assert on_disk.broker.core.delivery.peek(queue, MANY) == whole


def test_the_oldest_is_seen_without_a_trace() -> None:
    on_disk = OnDisk(**SMALL)
    on_disk.say(on_disk.connect(), b"s subscribe q1 e1")
    publish(on_disk, *range(1000))
    core, queue = on_disk.broker.core, on_disk.queue()
    position, _ = core.delivery.peek(queue, 13)[12]
    assert on_disk.broker.queues.purge(queue, 12) == 12  # the first part of the queue is gone, the next one is on disk
    before = core.snapshots.take([queue]), core.log.extents(), core.account.used
    assert core.snapshots.oldest(queue, False) == position
    assert (core.snapshots.take([queue]), core.log.extents(), core.account.used) == before
    on_disk.disk.fail("read", errno.EIO)
    assert core.snapshots.oldest(queue, False) is None, "it is on disk, and cannot be seen"
    assert on_disk.broker.broken is None
    assert core.snapshots.oldest(queue, False) == position


def test_an_empty_queue_has_nothing_to_show() -> None:
    broker = Broker()
    broker.feed(broker.connect("127.0.0.1:1"), b"s subscribe q1 e1\n")
    assert broker.core.delivery.peek(broker.queues.by_name[b"q1"], 10) == []


# ── what stands at a position ──


def test_only_where_a_message_begins_there_is_a_line() -> None:
    """All positions of a small journal with everything in it."""
    on_disk = OnDisk(segment_size=500)
    client = on_disk.connect()
    requests = [
        b"m1 publish e1 d1",
        b'm2 send {"event": "e1"}',
        b"m3 publish --once=s e1 d3",
        b"m4 publish e9 unwanted",
    ]
    on_disk.say(client, b"s subscribe q1 e1", b"h hold h1 0 --seconds=9")
    for request in requests:
        on_disk.say(client, request)
        on_disk.work()
    on_disk.wait(1.0)
    broker = on_disk.broker
    everywhere = list(range(broker.core.log.end + 300))
    found = broker.persistence.read_lines(everywhere)
    assert list(found.values()) == [(request, len(request)) for request in requests]
    assert len(on_disk.disk.files("journal")) > 1
    in_memory = broker.persistence.lines(everywhere)
    assert in_memory.items() <= found.items()
    assert {position for position, _ in broker.core.delivery.peek(on_disk.queue(), 10)} <= in_memory.keys()
    assert broker.persistence.lines([1 << 60]) == broker.persistence.read_lines([1 << 60]) == {}


def test_without_a_journal_there_are_lines_in_memory_only() -> None:
    broker = Broker()
    client = broker.connect("127.0.0.1:1")
    assert broker.persistence.lines([0]) == {}
    broker.feed(client, b"s subscribe q1 e1\nm1 publish e1 d1\nm2 publish e1 d2\n")
    broker.turn()
    assert broker.persistence.lines(list(range(100))) == {0: (b"m1 publish e1 d1", 16), 17: (b"m2 publish e1 d2", 16)}
    assert broker.persistence.read_lines([0]) == {} and broker.persistence.time_of(0) is None


def test_what_the_memory_lost_the_files_have() -> None:
    on_disk = OnDisk(**SMALL)
    on_disk.say(on_disk.connect(), b"s subscribe q1 e1")
    publish(on_disk, *range(10_000))
    positions = [position for position, _ in on_disk.broker.core.delivery.peek(on_disk.queue(), MANY)]
    assert len(on_disk.broker.persistence.lines(positions)) < 5000
    lines = on_disk.broker.persistence.read_lines(positions)
    texts = [b"m%d publish e1 %0100d" % (number, number) for number in range(10_000)]
    assert list(lines.values()) == [(text, len(text)) for text in texts]


def test_of_long_messages_only_the_beginning_is_copied_and_the_true_size_is_told() -> None:
    on_disk = OnDisk()
    data = b"0123456789" * 10_000
    on_disk.say(
        on_disk.connect(),
        b"s subscribe q1 e1",
        b"m1 publish e1 " + data,
        b"m2 publish e1 short",
        b"m" * 50 + b" publish e1 x",
    )
    on_disk.work()
    on_disk.wait(1.0)
    broker = on_disk.broker
    first, second, third = (position for position, _ in broker.core.delivery.peek(on_disk.queue(), 10))
    expected = {first: (b"m1 publish e1 " + data[:26], 100_014), second: (b"m2 publish e1 short", 19)}
    assert broker.persistence.lines([first, second, third], 40) == expected, "of the third not even the action is known"
    assert broker.persistence.read_lines([first, second, third], 40) == expected
    assert broker.core.log.line_at(first, 0) == (b"", 100_014)


def test_a_message_whose_batch_is_damaged_is_not_shown() -> None:
    on_disk = OnDisk()
    on_disk.say(on_disk.connect(), b"s subscribe q1 e1")
    publish(on_disk, 1)
    publish(on_disk, 2)
    first, second = (position for position, _ in on_disk.broker.core.delivery.peek(on_disk.queue(), 10))
    [inode] = [inode for name, inode in on_disk.disk.entries.items() if name.startswith("journal/")]
    inode.data[first + 20] ^= 1
    assert on_disk.broker.persistence.read_lines([first, second]).keys() == {second}


def test_a_message_has_the_time_at_which_its_batch_came() -> None:
    on_disk = OnDisk(segment_size=600)
    on_disk.say(on_disk.connect(), b"s subscribe q1 e1")
    for number in range(10):
        on_disk.wait(5.0)
        publish(on_disk, number)
    positions = [position for position, _ in on_disk.broker.core.delivery.peek(on_disk.queue(), 10)]
    assert [on_disk.broker.persistence.time_of(position) for position in positions] == [
        START + 5.0 * n for n in range(1, 11)
    ]
    assert on_disk.broker.persistence.time_of(on_disk.broker.core.log.end) is None
    assert on_disk.broker.persistence.time_of(1 << 60) is None


def test_files_that_are_gone_have_nothing_to_show(tmp_path: Path) -> None:
    """Retention may remove one while a thread reads it."""
    disk = RealDisk(tmp_path)
    broker = Broker(disk=disk, fsync="never")
    broker.recover()
    try:
        broker.feed(broker.connect("127.0.0.1:1"), b"s subscribe q1 e1\nm1 publish e1 d1\n")
        broker.turn()
        [(position, _)] = broker.core.delivery.peek(broker.queues.by_name[b"q1"], 10)
        assert broker.persistence.read_lines([position]) == {position: (b"m1 publish e1 d1", 16)}
        assert broker.persistence.time_of(position)
        for file in (tmp_path / "journal").iterdir():
            file.unlink()
        assert broker.persistence.read_lines([position]) == {}
        assert broker.persistence.time_of(position) is None
    finally:
        disk.stop()
