"""What a full disk does to progress and checkpoints: what it refuses waits, costs little, and is written in the end."""

import errno
import os

import pytest

from mqks.journal.journal import LAZY, RETRY
from tests.broker.on_disk import OnDisk
from tests.sim.disk import FakeDisk

TURNS = 50
WORDS = 3 * 8  # bytes of progress that a turn has at least, if it has any


class Gauge:
    """While it is full, it refuses whatever is written, and counts how often that was tried."""

    def __init__(self, disk: FakeDisk, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self.tried = 0
        self._write = disk.write
        monkeypatch.setattr(disk, "write", self.write)

    def write(self, file: int, data: bytes, offset: int) -> None:
        if self.full:
            self.tried += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._write(file, data, offset)


def test_progress_that_a_full_disk_refused_is_tried_when_the_disk_is_looked_at_and_counts_as_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_disk = OnDisk()
    gauge, core, client = Gauge(on_disk.disk, monkeypatch), on_disk.broker.core, on_disk.connect()
    on_disk.say(client, b"c1 consume q1 e1 --manual-ack --prefetch=1", b"m1 publish e1 d1")
    on_disk.work()
    on_disk.say(client, b"r1 reject c1 m1")
    before = core.used
    gauge.full = True
    for _ in range(TURNS):
        assert on_disk.say(client, b"r1 reject c1 m1")[0].startswith(b"c1 ok m1 event=e1,retry=")
    assert gauge.tried == 1
    assert core.used >= before + TURNS * WORDS
    on_disk.wait(RETRY)
    assert gauge.tried == 2
    gauge.full = False
    on_disk.say(client, b"r1 reject c1 m1")
    on_disk.wait(RETRY)
    assert core.used == before
    on_disk.wait(RETRY)
    on_disk.crash(power_loss=True)
    assert on_disk.drain() == [b"m1 event=e1,retry=%d d1" % (TURNS + 2)], "each reject is there"


def test_an_ack_waits_behind_what_was_refused_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    on_disk = OnDisk()
    gauge, client = Gauge(on_disk.disk, monkeypatch), on_disk.connect()
    on_disk.say(client, b"c1 consume q1 e1 --manual-ack", b"m1 publish e1 d1", b"m2 publish e1 d2")
    on_disk.work()
    on_disk.said(client)
    gauge.full = True
    assert on_disk.say(client, b"r1 reject c1 m1") == [b"c1 ok m1 event=e1,retry=1 d1"]
    gauge.full = False
    [refused] = on_disk.say(client, b"a1 ack --confirm c1 m1")
    assert refused.startswith(b"a1 error ")
    on_disk.wait(RETRY)
    assert on_disk.say(client, b"a2 ack --confirm c1 m2") == []
    on_disk.work()
    assert on_disk.said(client) == [b"a2 ok "]
    on_disk.crash(power_loss=True)
    assert on_disk.drain() == []


# ---- Checkpoints


class NoRoom:
    """For files whose names end so, while it is full: neither to make one nor to write into it."""

    def __init__(self, disk: FakeDisk, monkeypatch: pytest.MonkeyPatch, call: str, ending: str) -> None:
        self.full = True
        self.tried = 0
        self._disk, self._call, self._ending = disk, call, ending
        self._open, self._write = disk.open, disk.write
        monkeypatch.setattr(disk, "open", self.open)
        monkeypatch.setattr(disk, "write", self.write)

    def _check(self, call: str, name: str) -> None:
        if self.full and call == self._call and name.endswith(self._ending):
            self.tried += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def open(self, name: str, *, create: bool = False) -> int:
        self._check("open", name)
        return self._open(name, create=create)

    def write(self, file: int, data: bytes, offset: int) -> None:
        self._check("write", next(name for name, of in self._disk.entries.items() if of is self._disk.handles[file]))
        self._write(file, data, offset)


PLACES = pytest.mark.parametrize(("call", "ending"), [("open", ".new"), ("write", ".new"), ("open", ".log")])


def settled(on_disk: OnDisk) -> None:
    """Of three messages m0 was acked, and m1 rejected."""
    client = on_disk.connect()
    on_disk.say(client, b"c1 consume q1 e1 --manual-ack", *(b"m%d publish e1 d1" % number for number in range(3)))
    on_disk.say(client, b"a1 ack c1 m0", b"r1 reject c1 m1")
    on_disk.wait(RETRY)
    on_disk.said(client)


def left(on_disk: OnDisk) -> list[bytes]:
    return sorted(line.split(b" ")[0] for line in on_disk.drain())


@PLACES
def test_a_checkpoint_that_finds_no_room_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, call: str, ending: str
) -> None:
    on_disk = OnDisk()
    settled(on_disk)
    disk, journal = on_disk.disk, on_disk.broker.journal
    assert journal
    place = NoRoom(disk, monkeypatch, call, ending)
    handles, files = set(disk.handles), disk.content("progress")
    for _ in range(5):
        journal.checkpoint()
        on_disk.work()
    assert place.tried == 5
    assert (set(disk.handles), disk.content("progress")) == (handles, files)
    place.full = False
    on_disk.wait(60.0)  # without a word since: it was not made yet, and is made now
    assert max(disk.content("progress")) > max(files)
    assert [name.partition(".")[2] for name in disk.content("progress")] == ["checkpoint", "log"]
    on_disk.crash(power_loss=True)
    assert left(on_disk) == [b"m1", b"m2"]


@PLACES
@pytest.mark.parametrize("power_loss", [False, True])
def test_a_start_after_a_checkpoint_that_found_no_room(
    monkeypatch: pytest.MonkeyPatch, call: str, ending: str, power_loss: bool
) -> None:
    """What was settled after it is in the log that went on."""
    on_disk = OnDisk()
    client = on_disk.connect()
    on_disk.say(client, b"c1 consume q1 e1 --manual-ack", b"m1 publish e1 d1", b"m2 publish e1 d2")
    on_disk.wait(RETRY)
    place = NoRoom(on_disk.disk, monkeypatch, call, ending)
    assert on_disk.broker.journal
    on_disk.broker.journal.checkpoint()
    on_disk.say(client, b"a1 ack c1 m1")
    on_disk.wait(RETRY)
    place.full = False
    on_disk.crash(power_loss=power_loss)
    assert left(on_disk) == [b"m2"]


@PLACES
def test_a_stop_that_finds_no_room_for_its_checkpoint_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, call: str, ending: str
) -> None:
    on_disk = OnDisk()
    settled(on_disk)
    place = NoRoom(on_disk.disk, monkeypatch, call, ending)
    begin, on_disk.start = on_disk.start, lambda: setattr(place, "full", False)  # type: ignore[method-assign]
    on_disk.stop()
    assert place.tried == 1
    begin()
    assert left(on_disk) == [b"m1", b"m2"]


def test_a_checkpoint_that_found_no_room_is_not_tried_at_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has all queues. The next attempt comes with as much journal as always, or with the next minute."""
    on_disk = OnDisk(checkpoint_bytes=10_000)
    client = on_disk.connect()
    on_disk.say(client, b"r1 rebind q1 e1")
    on_disk.wait(LAZY)
    place = NoRoom(on_disk.disk, monkeypatch, "write", ".new")
    for size, tried in ((11_000, 1), (100, 1), (100, 1), (11_000, 2), (100, 2)):
        on_disk.say(client, b"m1 publish e1 " + b"x" * size)
        on_disk.wait(LAZY)
        assert place.tried == tried
    place.full = False
    on_disk.say(client, b"m1 publish e1 " + b"x" * 11_000)
    on_disk.wait(LAZY)
    assert place.tried == 2
