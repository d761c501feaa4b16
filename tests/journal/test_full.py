"""What a full disk does: what was taken and is refused waits, unanswered and undelivered, and is written in the end."""

import errno
import os
import re

import pytest

from mqks.journal.journal import LAZY, RETRY
from tests.broker.on_disk import OnDisk
from tests.journal.test_confirm import RELIED_ON
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


# ---- Messages


class Refusing:
    """A broker whose disk took all so far, and takes nothing more: c1 has m1 and m2 of q1, m3 waits; c2 has q2."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **options: object) -> None:
        self.on_disk = OnDisk(**options)
        self.client = self.on_disk.connect()
        messages = (b"m%d publish e1 d%d" % (number, number) for number in (1, 2, 3))
        self.say(b"c1 consume q1 e1 --manual-ack --prefetch=2", b"c2 consume q2 e2", *messages)
        self.on_disk.wait(RETRY)
        self.on_disk.said(self.client)
        self.gauge = Gauge(self.on_disk.disk, monkeypatch)
        self.gauge.full = True

    def say(self, *requests: bytes) -> list[bytes]:
        """What is said in a turn and when the disk has done what it was asked for."""
        said = self.on_disk.say(self.client, *requests)
        self.on_disk.work()
        return said + self.on_disk.said(self.client)

    def has_room_again(self) -> list[bytes]:
        """What is said then."""
        self.gauge.full = False
        self.on_disk.wait(RETRY)
        self.on_disk.work()
        return self.on_disk.said(self.client)

    def lines(self, text: bytes) -> int:
        """How many lines of the journal end so."""
        return sum(content.count(text + b"\n") for content in self.on_disk.disk.content("journal").values())


@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
@pytest.mark.parametrize("request_line", RELIED_ON.values(), ids=RELIED_ON.keys())
def test_what_was_taken_is_answered_when_it_is_written_and_an_error_means_not_taken(
    monkeypatch: pytest.MonkeyPatch, request_line: bytes, fsync: str
) -> None:
    refusing = Refusing(monkeypatch, fsync=fsync)
    said = refusing.say(request_line)
    assert not [line for line in said if line.startswith(b"r1 ")], "it was taken: there is nothing true to be said yet"
    [refused] = refusing.say(b"m9 publish --confirm e1 d9")
    assert refused.startswith(b"m9 error ")
    assert b"r1 ok " in refusing.has_room_again()
    assert refusing.lines(b"m9 publish e1 d9") == 0
    assert refusing.say(b"m9 publish --confirm e9 d9") == [b"m9 ok "]


@pytest.mark.parametrize("flag", [b"", b"--confirm "])
def test_a_message_that_cannot_be_written_is_not_delivered_before_it_is(
    monkeypatch: pytest.MonkeyPatch, flag: bytes
) -> None:
    refusing = Refusing(monkeypatch)
    assert refusing.say(b"m4 publish %se2 d4" % flag) == []
    for _ in range(3):
        assert refusing.say(b"p1 ping") == [b"p1 ok "]
    assert refusing.gauge.tried == 1, "it is tried when the disk is looked at, not in each turn"
    assert refusing.lines(b"m4 publish e2 d4") == 0
    assert sorted(refusing.has_room_again()) == [b"c2 ok m4 event=e2 d4", b"m4 ok "][: 2 if flag else 1]
    assert refusing.lines(b"m4 publish e2 d4") == 1


def test_the_ok_of_a_duplicate_waits_for_the_first_to_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = Refusing(monkeypatch)
    assert refusing.say(b"m4 publish --once --confirm e9 d4") == []
    assert refusing.say(b"m4 publish --once --confirm e9 d4") == []
    assert refusing.has_room_again() == [b"m4 ok ", b"m4 ok "]
    assert refusing.lines(b"m4 publish --once e9 d4") == 1


@pytest.mark.parametrize("power_loss", [False, True])
def test_what_was_not_written_when_the_broker_died_was_seen_by_nobody(
    monkeypatch: pytest.MonkeyPatch, power_loss: bool
) -> None:
    refusing = Refusing(monkeypatch)
    assert refusing.say(b"a1 ack c1 m1", b"m4 publish --confirm e1 d4") == []
    refusing.gauge.full = False
    refusing.on_disk.crash(power_loss=power_loss)
    assert refusing.on_disk.drain() == [
        b"m1 event=e1,retry=1 d1", b"m2 event=e1,retry=1 d2", b"m3 event=e1 d3",
    ]  # fmt: skip


def test_a_stop_with_a_full_disk_says_what_is_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refusing = Refusing(monkeypatch)
    assert refusing.say(b"m4 publish --confirm e1 d4", b"a1 ack c1 m1") == []
    on_disk = refusing.on_disk
    begin, on_disk.start = on_disk.start, lambda: setattr(refusing.gauge, "full", False)  # type: ignore[method-assign]
    on_disk.stop()
    [said] = [record.getMessage() for record in caplog.records if "stopped with a full disk" in record.getMessage()]
    assert re.search(r": \d{2,} bytes of messages and definitions are lost, none of them confirmed or delivered;", said)
    begin()
    assert left(on_disk) == [b"m1", b"m2", b"m3"]


# ---- Progress


def test_progress_that_a_full_disk_refused_is_tried_when_the_disk_is_looked_at_and_counts_as_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_disk = OnDisk()
    gauge, core, client = Gauge(on_disk.disk, monkeypatch), on_disk.broker.core, on_disk.connect()
    messages = (b"m%d publish e1 d" % number for number in range(TURNS + 2))
    on_disk.say(client, b"c1 consume q1 e1 --manual-ack", *messages)
    on_disk.wait(RETRY)
    on_disk.say(client, b"a1 ack c1 m0")
    before = core.account.used
    gauge.full = True
    for number in range(1, TURNS + 1):
        assert on_disk.say(client, b"a1 ack c1 m%d" % number) == []
    assert gauge.tried == 1
    assert core.account.used >= before + TURNS * WORDS
    on_disk.wait(RETRY)
    assert gauge.tried == 2
    gauge.full = False
    on_disk.wait(RETRY)
    assert core.account.used == before
    on_disk.wait(RETRY)
    on_disk.crash(power_loss=True)
    assert on_disk.drain() == [b"m%d event=e1,retry=1 d" % (TURNS + 1)], "each ack is there"


def test_an_ack_waits_behind_what_was_refused_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = Refusing(monkeypatch)
    assert refusing.say(b"r1 reject c1 m1") == []
    refusing.gauge.full = False
    assert refusing.say(b"a1 ack --confirm c1 m2") == []
    assert set(refusing.has_room_again()) == {b"c1 ok m3 event=e1 d3", b"c1 ok m1 event=e1,retry=1 d1", b"a1 ok "}
    refusing.on_disk.crash(power_loss=True)
    assert left(refusing.on_disk) == [b"m1", b"m3"]


def test_nothing_is_delivered_that_cannot_be_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all that was delivered while the disk was full would come again unmarked."""
    refusing = Refusing(monkeypatch)
    assert refusing.say(b"a1 ack c1 m1") == []
    assert refusing.say(b"p1 ping") == [b"p1 ok "]
    refusing.gauge.full = False
    refusing.on_disk.crash()
    assert refusing.on_disk.drain() == [
        b"m1 event=e1,retry=1 d1", b"m2 event=e1,retry=1 d2", b"m3 event=e1 d3",
    ]  # fmt: skip


def test_what_is_delivered_while_no_messages_are_taken_is_marked_when_it_comes_again() -> None:
    """Messages are taken only while there is room reserved for progress."""
    on_disk = OnDisk(min_free=1)
    client = on_disk.connect()
    on_disk.say(client, b"r1 rebind q1 e1", *(b"m%d publish e1 d%d" % (number, number) for number in range(50)))
    on_disk.disk.capacity = sum(inode.occupied for inode in on_disk.disk.entries.values())
    on_disk.wait(LAZY)
    assert on_disk.say(client, b"m50 publish e1 d")[0].startswith(b"m50 error ")
    assert len(on_disk.say(client, b"c1 consume q1 --manual-ack --prefetch=25")) == 25
    on_disk.disk.capacity = 1 << 40
    on_disk.crash()
    marked = [b"m%d event=e1%s d%d" % (number, b",retry=1" if number < 25 else b"", number) for number in range(50)]
    assert on_disk.drain() == marked


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
    disk, journal = on_disk.disk, on_disk.broker.persistence.journal
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
    assert on_disk.broker.persistence.journal
    on_disk.broker.persistence.journal.checkpoint()
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
