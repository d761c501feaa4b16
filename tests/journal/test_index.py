"""Parts of long queues on disk, and what becomes of them when the disk takes no more."""

import errno
import random

import pytest

from mqks.journal import JournalError, index
from mqks.journal.index import Index
from tests.broker.on_disk import OnDisk
from tests.sim.disk import FakeDisk, Killed

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


def filled(messages: int) -> OnDisk:
    """A broker with a queue whose middle is in the index."""
    on_disk = OnDisk(spill_after=2, tail_memory=1 << 20)
    client = on_disk.connect()
    on_disk.say(client, b"r1 rebind q1 e1")
    on_disk.say(client, *(b"m%d publish e1 d" % number for number in range(messages)))
    assert on_disk.disk.files(index.FOLDER)
    on_disk.broker.disconnect(client)
    return on_disk


def test_a_file_is_removed_by_the_first_checkpoint_that_does_not_name_it() -> None:
    on_disk = filled(300)
    on_disk.wait(61)
    assert on_disk.disk.files(index.FOLDER), "a checkpoint names it"
    assert len(on_disk.drain()) == 300
    assert on_disk.disk.files(index.FOLDER), "the checkpoint on disk still does"
    on_disk.wait(61)
    assert on_disk.disk.files(index.FOLDER) == {}
    client = on_disk.connect()
    on_disk.say(client, *(b"n%d publish e1 d" % number for number in range(300)))
    assert list(on_disk.disk.files(index.FOLDER)) == ["0000000002.chunks"], "no name is used twice"
    on_disk.crash()
    assert len(on_disk.drain()) == 300


def test_what_once_remembers_is_removed_too() -> None:
    on_disk = OnDisk(dedup_part_bits=2, dedup_window=100.0)
    client = on_disk.connect()
    on_disk.say(client, *(b"m%d publish --once e1 d" % number for number in range(9)))
    on_disk.wait(61)
    assert on_disk.disk.files(index.FOLDER)
    for _ in range(4):
        on_disk.wait(61)
        on_disk.say(client, b"n publish e1 d")  # else no checkpoint is made
    assert on_disk.disk.files(index.FOLDER) == {}


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_crash_at_any_moment_of_a_checkpoint_leaves_all_that_it_names(power_loss: bool) -> None:
    for step in range(100):
        on_disk = filled(300)
        on_disk.wait(61)
        client = on_disk.connect()
        on_disk.say(client, b"c1 consume q1 --manual-ack --prefetch=300")  # so all is brought back
        on_disk.disk.kill_after = step
        try:
            on_disk.wait(61)
            on_disk.wait(61)
        except Killed:
            on_disk.crash(power_loss=power_loss)
            assert len(on_disk.drain()) == 300, step
        else:
            assert on_disk.disk.files(index.FOLDER) == {}
            break
    assert 5 < step < 99


def test_files_are_small_beside_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "LEAST_FILE_SIZE", 100)
    monkeypatch.setattr(index, "FILE_SIZE", 1000)
    disk = FakeDisk(random.Random(1))
    kept = Index(disk)
    for _ in range(3):
        kept.spill(bytes(40))
    assert [*disk.files(index.FOLDER).values()] == [144]
    for _ in range(1000):
        kept.spill(bytes(40))
    sizes = [*disk.files(index.FOLDER).values()]
    assert max(sizes) == sizes[-2] == 1008
    assert len(sizes) < 80


def test_queues_and_once_have_files_of_their_own() -> None:
    kept = Index(FakeDisk(random.Random(1)))
    queue, once = kept.spill(bytes(8)), kept.spill(bytes(8), index.ONCE)
    kept.release(queue)
    unused = kept.unused()
    assert len(unused) == 1
    kept.remove(unused)
    assert kept.read(once, 1) == bytes(8)
    assert kept.read(kept.spill(bytes(8)), 1) == bytes(8)


@pytest.mark.parametrize("left", [None, 0, 10])
def test_a_file_that_a_checkpoint_names_is_missed_at_the_start(left: int | None) -> None:
    on_disk = filled(300)
    on_disk.stop()
    [name] = on_disk.disk.files(index.FOLDER)
    inode = on_disk.disk.entries.pop(f"{index.FOLDER}/{name}")
    if left is not None:
        del inode.data[left:]
        on_disk.disk.entries[f"{index.FOLDER}/{name}"] = inode
    with pytest.raises(JournalError, match="remove the folders index and progress"):
        on_disk.crash()


def test_other_files_in_the_folder_are_left_alone() -> None:
    on_disk = filled(300)
    on_disk.disk.close(on_disk.disk.open(f"{index.FOLDER}/notes.txt", create=True))
    on_disk.crash()
    assert len(on_disk.drain()) == 300
    on_disk.wait(61)
    assert list(on_disk.disk.files(index.FOLDER)) == ["notes.txt"]
