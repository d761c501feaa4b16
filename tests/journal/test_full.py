"""What a full disk does to progress and checkpoints: what it refuses waits, costs little, and is written in the end."""

import errno
import os

import pytest

from mqks.journal.journal import RETRY
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
