"""A queue is purged: what is ready is gone for good, also after restarts; what consumers hold stays theirs."""

import errno

import pytest

from mqks.broker import Broker
from mqks.broker.connections.client import Client
from mqks.broker.queues import queue_limits
from tests.broker.on_disk import OnDisk

MANY = 1 << 20
MOST_READ = 4 << 20  # as core/bounding.pyx has it
LONG = 300_000
COLD = 50
SMALL = {"segment_size": 600, "tail_memory": 0, "spill_after": 2, "checkpoint_bytes": 1 << 30}
LARGE = {"spill_after": 1 << 30, "checkpoint_bytes": 1 << 30}
OPTIONS = pytest.mark.parametrize("options", [LARGE, SMALL], ids=["in memory", "on disk"])
CRASHES = pytest.mark.parametrize("how", ["kill", "power", "stop"])


def purged(on_disk: OnDisk, name: bytes = b"q1") -> int:
    return on_disk.broker.queues.purge(on_disk.queue(name), MANY)


def publish(on_disk: OnDisk, *numbers: int) -> None:
    on_disk.say(on_disk.connect(), *(b"m%d publish e1 d%d" % (number, number) for number in numbers))
    on_disk.work()


def came(lines: list[bytes]) -> list[bytes]:
    """The message ids of deliveries."""
    return [line.split()[-3] for line in lines]


def consume(on_disk: OnDisk, *, prefetch: int) -> Client:
    client = on_disk.connect()
    on_disk.broker.feed(client, b"c consume --manual-ack --prefetch=%d q1 e1\n" % prefetch)
    on_disk.work()
    return client


def again(on_disk: OnDisk, how: str) -> None:
    """The broker ends, after what it has done has got to the disk as it does by itself, and starts again."""
    if how == "power":
        on_disk.wait(0.2)
    if how == "stop":
        on_disk.stop()
    else:
        on_disk.crash(power_loss=how == "power")


def test_in_memory_what_is_ready_goes_and_its_memory_with_it() -> None:
    broker = Broker()
    client = broker.connect("127.0.0.1:1")
    broker.feed(client, b"s subscribe q1 e1\ns subscribe q2 e1\n")
    before = broker.core.account.used
    broker.feed(client, b"".join(b"m%d publish e1 %0100d\n" % (number, number) for number in range(100_000)))
    q1, q2 = broker.queues.by_name[b"q1"], broker.queues.by_name[b"q2"]
    assert broker.queues.purge(q1, MANY) == 100_000
    assert (q1.ready_count, q1.unsettled, q2.ready_count) == (0, 0, 100_000)
    assert broker.core.log.held > 10_000_000, "the other queue has them"
    assert broker.queues.purge(q2, MANY) == 100_000
    assert broker.queues.purge(q2, MANY) == 0
    assert broker.core.account.used - before < 2 << 20
    assert (q1.published, q1.acked, q1.rejected, q1.delivered) == (100_000, 0, 0, 0)
    broker.feed(client, b"c consume q1\nm publish e1 next\n")
    broker.turn()
    assert client.pending() == b"c ok m event=e1 next\n"


@OPTIONS
def test_a_long_queue_may_be_purged_a_part_at_a_time(options: dict[str, int]) -> None:
    on_disk = OnDisk(**options)
    on_disk.say(on_disk.connect(), b"s subscribe q1 e1")
    publish(on_disk, *range(20))
    assert [on_disk.broker.queues.purge(on_disk.queue(), most) for most in (0, 2, 3, 7)] == [0, 2, 3, 7]
    again(on_disk, "kill")
    assert came(on_disk.drain()) == [b"m%d" % number for number in range(12, 20)]
    assert on_disk.broker.queues.purge(on_disk.queue(), 3) == 0


@OPTIONS
@CRASHES
def test_what_was_ready_does_not_come_back(options: dict[str, int], how: str) -> None:
    on_disk = OnDisk(**options)
    on_disk.say(on_disk.connect(), b"s subscribe q1 e1", b"s subscribe q2 e1")
    publish(on_disk, *range(50))
    assert [on_disk.broker.queues.purge(on_disk.queue(), 20) for _ in range(4)] == [20, 20, 10, 0]
    publish(on_disk, 50, 51)
    again(on_disk, how)
    assert (on_disk.queue(b"q1").ready_count, on_disk.queue(b"q2").ready_count) == (2, 52)
    assert came(on_disk.drain(b"q1")) == [b"m50", b"m51"]
    assert len(on_disk.drain(b"q2")) == 52


def test_a_killed_broker_has_purged_as_soon_as_it_says_so() -> None:
    on_disk = OnDisk()
    on_disk.say(on_disk.connect(), b"s subscribe q1 e1")
    publish(on_disk, *range(50))
    assert purged(on_disk) == 50
    on_disk.crash()  # no turn came after it
    assert on_disk.queue().ready_count == 0


@OPTIONS
@CRASHES
def test_what_consumers_hold_stays_and_returns_to_them(options: dict[str, int], how: str) -> None:
    on_disk = OnDisk(**options)
    client = consume(on_disk, prefetch=4)
    publish(on_disk, *range(10))
    assert len(on_disk.said(client)) == 4
    on_disk.say(client, b"a ack c m1")
    on_disk.work()
    assert purged(on_disk) == 5
    assert (on_disk.queue().ready_count, on_disk.queue().unsettled) == (0, 4)
    on_disk.say(client, b"a ack c m2")
    again(on_disk, how)
    left = on_disk.drain()
    assert came(left) == [b"m0", b"m3", b"m4"]
    assert on_disk.queue().unsettled == 0


@OPTIONS
@CRASHES
def test_what_was_returned_or_rejected_is_purged_too(options: dict[str, int], how: str) -> None:
    on_disk = OnDisk(**options)
    client = consume(on_disk, prefetch=6)
    publish(on_disk, *range(10))
    on_disk.said(client)
    on_disk.say(client, b"p pause c", b"r reject c m1", b"r reject c m0")
    keeper = consume(on_disk, prefetch=1)
    assert came(on_disk.said(keeper)) == [b"m6"]
    on_disk.broker.disconnect(client)
    queue = on_disk.queue()
    assert (queue.ready_count, queue.returned_count, queue.unsettled) == (9, 4, 1)
    assert purged(on_disk) == 9
    publish(on_disk, 10)
    again(on_disk, how)
    assert came(on_disk.drain()) == [b"m6", b"m10"]


@OPTIONS
@CRASHES
@pytest.mark.parametrize("when", ["before", "after", "both"])
def test_with_checkpoints_before_and_after(options: dict[str, int], how: str, when: str) -> None:
    on_disk = OnDisk(**options)
    client = consume(on_disk, prefetch=3)
    publish(on_disk, *range(20))
    on_disk.said(client)
    on_disk.say(client, b"r reject c m2")
    assert on_disk.broker.persistence.journal
    if when != "after":
        on_disk.broker.persistence.journal.checkpoint()
        on_disk.work()
    publish(on_disk, 20)
    assert purged(on_disk) == 18
    if when != "before":
        on_disk.broker.persistence.journal.checkpoint()
        on_disk.work()
    publish(on_disk, 21)
    again(on_disk, how)
    assert sorted(came(on_disk.drain())) == [b"m0", b"m1", b"m21", b"m3"]


def test_a_purge_while_a_checkpoint_is_on_its_way_is_not_undone_by_it() -> None:
    on_disk = OnDisk(**SMALL)
    on_disk.say(on_disk.connect(), b"s subscribe q1 e1")
    publish(on_disk, *range(5000))
    assert on_disk.broker.persistence.journal
    on_disk.broker.persistence.journal.checkpoint()
    assert purged(on_disk) == 5000
    on_disk.work()
    on_disk.crash()
    assert on_disk.queue().ready_count == 0


def test_a_long_queue_leaves_neither_parts_nor_segments_behind() -> None:
    on_disk = OnDisk(**SMALL, retain_bytes=1000)
    on_disk.say(on_disk.connect(), b"s subscribe q1 e1")
    publish(on_disk, *range(20_000))
    assert len(on_disk.disk.files("journal")) > 1 and on_disk.disk.files("index")
    journal, core = on_disk.broker.persistence.journal, on_disk.broker.core
    assert journal
    assert core.log.live_in(0, core.log.end) == 20_000
    assert purged(on_disk) == 20_000
    assert core.log.live_in(0, core.log.end) == 0
    assert core.log.extents() == b""
    on_disk.stop()
    on_disk.wait(0.2)
    assert len(on_disk.disk.files("journal")) <= 2
    assert len(on_disk.disk.files("index")) <= 1  # the one that is written to stays
    assert on_disk.drain() == []


class Reads:
    """What is read from disk while all wait, since the last time that somebody asked."""

    def __init__(self, on_disk: OnDisk, monkeypatch: pytest.MonkeyPatch) -> None:
        self._bytes = 0
        self._read_now = on_disk.broker.persistence.read_now
        monkeypatch.setattr(on_disk.broker.persistence, "read_now", self._read)

    def _read(self, start: int, size: int) -> bytes | None:
        self._bytes += size
        return self._read_now(start, size)

    def took(self) -> int:
        taken, self._bytes = self._bytes, 0
        return taken


def cold(*flags: bytes) -> OnDisk:
    """Messages of which each is a part of the log of its own, and none is in memory: their sizes have to be read."""
    on_disk = OnDisk(**SMALL)
    on_disk.say(on_disk.connect(), b" ".join((b"s subscribe q1 e1 --max-bytes=1000000000", *flags)))
    for number in range(COLD):
        on_disk.say(on_disk.connect(), b"m%d publish e1 %s" % (number, b"d" * LONG))
        on_disk.work()
    on_disk.crash()
    return on_disk


def test_what_has_to_be_read_for_a_purge_is_read_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    on_disk = cold()
    client = consume(on_disk, prefetch=1)
    on_disk.work()
    assert len(on_disk.said(client)) == 1
    reads, total, steps = Reads(on_disk, monkeypatch), 0, 0
    while count := purged(on_disk):
        assert 0 < reads.took() <= MOST_READ + LONG + 1000
        total += count
        steps += 1
        assert on_disk.queue().bytes == on_disk.broker.core.limits.measure(on_disk.queue(), MANY, 1 << 40)
        reads.took()
    assert (total, on_disk.queue().length) == (COLD - 1, 1)
    assert steps > 1


def test_a_purge_that_leaves_nothing_has_nothing_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    on_disk = cold()
    reads = Reads(on_disk, monkeypatch)
    assert purged(on_disk) == COLD
    assert (reads.took(), on_disk.queue().bytes) == (0, 0)
    publish(on_disk, 1)
    assert on_disk.queue().bytes == len(b"m1 publish e1 d1\n")


def test_what_has_to_be_read_to_drop_what_is_too_much_is_read_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    on_disk = cold(b"--overflow=drop-oldest")
    reads = Reads(on_disk, monkeypatch)
    on_disk.say(on_disk.connect(), b"r rebind q1 --max-length=2")
    lengths = [COLD, on_disk.queue().length]
    while lengths[-1] < lengths[-2]:
        assert 0 < reads.took() <= MOST_READ + LONG + 1000
        on_disk.wait(queue_limits.PAUSE)
        lengths.append(on_disk.queue().length)
    assert lengths[-1] == 2
    assert len(lengths) > 4


def test_who_publishes_meanwhile_reads_little_of_what_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    on_disk = cold(b"--overflow=drop-oldest")
    on_disk.say(on_disk.connect(), b"r rebind q1 --max-length=2")
    reads, length = Reads(on_disk, monkeypatch), on_disk.queue().length
    publish(on_disk, 1)
    assert on_disk.queue().length == length, "one came, and one went"
    assert 0 < reads.took() <= 2 * (LONG + 1000)


def test_a_large_message_for_which_many_have_to_go_reads_little_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    on_disk = cold(b"--overflow=drop-oldest")
    on_disk.options |= {"max_line": 1 << 30}
    on_disk.crash()
    most = on_disk.queue().bytes
    on_disk.say(on_disk.connect(), b"r rebind q1 --max-bytes=%d" % most)
    reads = Reads(on_disk, monkeypatch)
    on_disk.say(on_disk.connect(), b"m publish e1 %s" % (b"d" * (40 * LONG)))
    lengths = [COLD + 1, on_disk.queue().length]
    while lengths[-1] < lengths[-2]:
        assert 0 < reads.took() <= MOST_READ + LONG + 1000
        on_disk.wait(queue_limits.PAUSE)
        lengths.append(on_disk.queue().length)
    assert on_disk.queue().bytes <= most < on_disk.queue().bytes + LONG + 1000
    assert len(lengths) > 3


def test_a_queue_that_waits_for_the_disk_can_be_purged() -> None:
    on_disk = OnDisk(**SMALL)
    on_disk.say(on_disk.connect(), b"s subscribe q1 e1")
    publish(on_disk, *range(100))
    on_disk.crash()  # so that nothing is in memory
    client = on_disk.connect()
    assert on_disk.say(client, b"c consume q1") == [], "the first messages are being read"
    assert purged(on_disk) == 100
    on_disk.work()
    assert on_disk.said(client) == []
    publish(on_disk, 100)
    assert on_disk.said(client) == [b"c ok m100 event=e1 d100"]
    on_disk.work()
    on_disk.crash()
    assert on_disk.drain() == []


def test_when_a_part_cannot_be_read_the_purge_ends_there_and_the_broker_stops() -> None:
    on_disk = OnDisk(**SMALL)
    on_disk.say(on_disk.connect(), b"s subscribe q1 e1")
    publish(on_disk, *range(20_000))
    on_disk.disk.fail("read", errno.EIO)
    assert 0 < purged(on_disk) < 20_000
    assert on_disk.broker.broken


def test_one_that_was_retried_many_times_is_forgotten_whole() -> None:
    on_disk = OnDisk()
    client = consume(on_disk, prefetch=0)
    publish(on_disk, 1)
    for _ in range(300):
        on_disk.said(client)
        on_disk.say(client, b"r reject c m1")
    on_disk.broker.disconnect(client)
    assert purged(on_disk) == 1
    on_disk.crash()
    assert on_disk.drain() == []
