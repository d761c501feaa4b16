"""Parts of long queues on disk, and what becomes of them when the disk takes no more."""

import errno
import random

import pytest

from mqks.journal import index
from mqks.journal.index import Index
from tests.broker.on_disk import OnDisk
from tests.sim.disk import FakeDisk

FULL = pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])


@FULL
@pytest.mark.parametrize("call", ["create", "write"])
def test_a_full_disk_is_told_by_0_and_tried_again(call: str, error: int) -> None:
    disk = FakeDisk(random.Random(1))
    kept = Index(disk)
    disk.fail(call, error)
    items = bytes(range(16))
    assert kept.spill(items) == 0
    place = kept.spill(items)
    assert place
    assert kept.bring_back(place, 2) == items


@pytest.mark.parametrize("call", ["create", "write"])
def test_another_error_is_none_of_a_full_disk(call: str) -> None:
    disk = FakeDisk(random.Random(1))
    disk.fail(call, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        Index(disk).spill(bytes(8))


@FULL
def test_a_broker_goes_on_where_no_file_can_be_made(error: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for a file after the first: what finds no room stays in memory."""
    monkeypatch.setattr(index, "FILE_SIZE", 1)
    on_disk = OnDisk(spill_after=2)
    client = on_disk.connect()
    on_disk.say(client, b"r1 rebind q1 e1")
    said: list[bytes] = []
    for files in (0, 1):
        on_disk.disk.fail("create", error)
        while len(on_disk.disk.files(index.FOLDER)) == files:
            said.append(b"m%d" % len(said))
            on_disk.say(client, said[-1] + b" publish e1 d")
            assert on_disk.broker.broken is None
    assert on_disk.drain() == [id + b" event=e1 d" for id in said]
