"""Thousands of simulated runs, and the fake disk by itself.

A run that fails names its seed and the command that replays it.
"""

import errno
import random
from collections.abc import Callable

import pytest

from tests.seeds import failure
from tests.sim.disk import SECTOR, FakeDisk, Killed
from tests.sim.simulation import Simulation

SEEDS = 2400
PARTS = 6


@pytest.mark.parametrize("part", range(PARTS))
def test_seeds(part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        _, reason = failure(Simulation, seed)
        assert not reason, f"{reason}\nreplay: python -m tests.sim {seed} --trace"


# ── the disk ──


@pytest.fixture
def disk() -> FakeDisk:
    return FakeDisk(random.Random(1))


def made(disk: FakeDisk, name: str, content: bytes = b"", *, synced: bool = True) -> int:
    """A file with this content, on disk for good if so wished."""
    file = disk.open(name, create=True)
    disk.write(file, content, 0)
    if synced:
        disk.sync(file)
        disk.sync(disk.open_folder(name.rpartition("/")[0]))
    return file


def after_power_loss(prepare: Callable[[FakeDisk], None], folder: str = "a") -> set[tuple[tuple[str, bytes], ...]]:
    """What may be left of a folder, found by many tries."""
    found = set()
    for seed in range(500):
        disk = FakeDisk(random.Random(seed))
        prepare(disk)
        disk.crash(power_loss=True)
        assert disk.content(folder) == disk.durable(folder)
        found.add(tuple(disk.content(folder).items()))
    return found


def test_reads_what_was_written(disk: FakeDisk) -> None:
    file = made(disk, "a/x", b"hello", synced=False)
    disk.write(file, memoryview(b"p me"), 3)
    assert disk.read(file, 100, 0) == b"help me"
    assert disk.read(file, 2, 1) == b"el"
    assert disk.size(file) == 7
    disk.truncate(file, 2)
    disk.write(file, b"!", 4)
    assert disk.read(file, 100, 0) == b"he\0\0!"
    assert disk.files("a") == {"x": 5}


def test_create_and_open_need_what_they_say(disk: FakeDisk) -> None:
    made(disk, "a/x")
    with pytest.raises(FileExistsError):
        disk.open("a/x", create=True)
    with pytest.raises(FileNotFoundError):
        disk.open("a/y")
    with pytest.raises(FileNotFoundError):
        disk.remove("a/y")


def test_files_are_sorted_and_of_one_folder(disk: FakeDisk) -> None:
    for name in ("a/2", "a/1", "b/3"):
        made(disk, name)
    assert list(disk.files("a")) == ["1", "2"]


def test_lock_is_for_one_process(disk: FakeDisk) -> None:
    disk.lock()
    with pytest.raises(BlockingIOError):
        disk.lock()
    disk.crash(power_loss=False)
    disk.lock()


def test_a_kill_loses_nothing_that_was_written(disk: FakeDisk) -> None:
    file = made(disk, "a/x", b"one", synced=False)
    disk.start_sync((file,), tag=1)
    disk.crash(power_loss=False)
    assert disk.content("a") == {"x": b"one"}
    assert disk.durable("a") == {}
    assert not disk.complete(urgent=True)


def test_what_was_synced_survives_a_power_loss() -> None:
    def prepare(disk: FakeDisk) -> None:
        made(disk, "a/x", b"one")
        made(disk, "b/y", b"two", synced=False)

    assert after_power_loss(prepare) == {(("x", b"one"),)}


def test_a_name_needs_a_sync_of_its_folder() -> None:
    def prepare(disk: FakeDisk) -> None:
        disk.sync(made(disk, "a/x", b"one", synced=False))

    assert after_power_loss(prepare) == {(), (("x", b"one"),)}


def test_unsynced_writes_are_kept_lost_and_torn() -> None:
    content = bytes([65 + i // SECTOR for i in range(3 * SECTOR)])

    def prepare(disk: FakeDisk) -> None:
        disk.write(made(disk, "a/x", b"one"), content, 3)

    found = {dict(left)["x"] for left in after_power_loss(prepare)}
    assert all(len(left) <= 3 + len(content) and left.startswith(b"one") for left in found)
    assert b"one" in found
    assert b"one" + content in found
    assert any(0 < len(left.rstrip(b"\0")) - 3 < len(content) for left in found), "torn at a byte"
    assert any(left[3:6] == bytes(3) and left[-1:] == b"C" for left in found), "a sector lost before one that is there"
    assert b"one" + bytes(len(content)) in found, "the size without the data"


def test_unsynced_writes_survive_in_any_order() -> None:
    def prepare(disk: FakeDisk) -> None:
        file = made(disk, "a/x", b"..")
        disk.write(file, b"1", 0)
        disk.write(file, b"2", 1)

    found = {dict(left)["x"] for left in after_power_loss(prepare)}
    assert found == {b"..", b"1.", b".2", b"12"}


def test_a_truncation_is_a_write_too() -> None:
    def prepare(disk: FakeDisk) -> None:
        disk.truncate(made(disk, "a/x", b"one two"), 3)

    assert {dict(left)["x"] for left in after_power_loss(prepare)} >= {b"one", b"one two"}


def test_a_rename_happens_or_not() -> None:
    def prepare(disk: FakeDisk) -> None:
        made(disk, "a/old", b"1")
        made(disk, "a/new", b"2")
        disk.rename("a/new", "a/old")

    assert after_power_loss(prepare) == {(("new", b"2"), ("old", b"1")), (("old", b"2"),)}


def test_a_rename_is_on_disk_when_either_folder_is() -> None:
    def prepare(disk: FakeDisk) -> None:
        made(disk, "a/x", b"1")
        disk.rename("a/x", "b/y")
        disk.sync(disk.open_folder("b"))

    assert after_power_loss(prepare) == {()}
    assert after_power_loss(prepare, "b") == {(("y", b"1"),)}


def test_a_removal_happens_or_not() -> None:
    def prepare(disk: FakeDisk) -> None:
        made(disk, "a/x", b"1")
        disk.remove("a/x")

    assert after_power_loss(prepare) == {(), (("x", b"1"),)}


def test_a_sync_in_the_background_covers_what_was_written_before_it(disk: FakeDisk) -> None:
    file = made(disk, "a/x", b"one")
    disk.write(file, b"two", 3)
    disk.start_sync((file,), tag=7)
    disk.write(file, b"three", 6)
    assert disk.finished() == []
    assert disk.durable("a") == {"x": b"one"}
    assert disk.complete(urgent=True)
    assert [(done.tag, done.error) for done in disk.finished()] == [(7, None)]
    assert disk.finished() == []
    assert disk.durable("a") == {"x": b"onetwo"}


def test_channels_keep_their_order_and_do_not_wait_for_each_other(disk: FakeDisk) -> None:
    file = made(disk, "a/x", b"one")
    disk.start_read(file, 2, 1, tag=1)
    disk.start_sync((file,), tag=2, urgent=False)
    disk.start_sync((file,), tag=3)
    disk.start_sync((file,), tag=4)
    for urgent in (True, False, True, False):
        assert disk.complete(urgent=urgent)
    assert [done.tag for done in disk.finished()] == [3, 1, 4, 2]


def test_a_read_in_the_background(disk: FakeDisk) -> None:
    file = made(disk, "a/x", b"content")
    disk.start_read(file, 3, 1, tag=1)
    disk.complete(urgent=False)
    assert [done.data for done in disk.finished()] == [b"ont"]


def test_a_file_in_use_must_not_be_closed(disk: FakeDisk) -> None:
    file = made(disk, "a/x")
    disk.start_sync((file,), tag=1)
    with pytest.raises(AssertionError):
        disk.close(file)
    disk.complete(urgent=True)
    disk.close(file)
    with pytest.raises(AssertionError):
        disk.read(file, 1, 0)


def test_after_a_failed_sync_the_next_one_lies() -> None:
    def prepare(disk: FakeDisk) -> None:
        file = made(disk, "a/x", b"one")
        disk.write(file, b"two", 3)
        disk.fail("sync", errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            disk.sync(file)
        disk.sync(file)
        assert disk.read(file, 100, 0) == b"onetwo"
        assert not disk.entries["a/x"].unsynced

    assert after_power_loss(prepare) >= {(("x", b"one"),), (("x", b"onetwo"),)}


def test_a_failed_sync_in_the_background_stops_at_its_first_error(disk: FakeDisk) -> None:
    first, second = made(disk, "a/x", b"1"), made(disk, "a/y", b"2")
    disk.write(second, b"3", 1)
    disk.fail("sync", errno.EIO)
    disk.start_sync((first, second), tag=1)
    disk.complete(urgent=True)
    (done,) = disk.finished()
    assert done.error is not None
    assert done.error.errno == errno.EIO
    assert disk.durable("a")["y"] == b"2"


@pytest.mark.parametrize("call", ["write", "read", "reserve"])
def test_a_fault_comes_once(disk: FakeDisk, call: str) -> None:
    file = made(disk, "a/x", b"one")
    calls: dict[str, Callable[[], object]] = {
        "write": lambda: disk.write(file, b"two", 3),
        "read": lambda: disk.read(file, 3, 0),
        "reserve": lambda: disk.reserve(file, 0, 10),
    }
    disk.fail(call, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        calls[call]()
    calls[call]()


def test_a_full_disk(disk: FakeDisk) -> None:
    disk.capacity = 100
    file = made(disk, "a/x", b"x" * 40)
    assert disk.space() == (60, 100)
    disk.reserve(file, 0, 90)
    assert disk.space() == (10, 100)
    assert disk.size(file) == 40
    other = made(disk, "a/y")
    with pytest.raises(OSError, match="No space"):
        disk.write(other, b"y" * 20, 0)
    disk.write(file, b"x" * 50, 40)
    disk.remove("a/x")
    disk.write(other, b"y" * 20, 0)


def test_what_was_written_includes_what_was_removed_and_no_flips(disk: FakeDisk) -> None:
    file = made(disk, "a/x", b"one")
    made(disk, "a/y", b"two")
    disk.flip(("a",))
    disk.flip(("a",))
    disk.remove("a/x")
    assert disk.written("a") == {"x": b"one", "y": b"two"}
    assert list(disk.content("a")) == ["y"]
    assert disk.forgotten() == 1
    disk.close(file)
    assert disk.forgotten() == 0


def test_a_disk_that_works_by_itself(disk: FakeDisk) -> None:
    disk.start_sync((made(disk, "a/x", b"one", synced=False), disk.open_folder("a")), tag=1)
    assert disk.finished() == []
    disk.works_by_itself = True
    assert [done.tag for done in disk.finished()] == [1]
    assert disk.durable("a") == {"x": b"one"}


@pytest.mark.parametrize("after", range(4))
def test_killed_after_so_many_changes(disk: FakeDisk, after: int) -> None:
    disk.kill_after = after
    done = 0
    with pytest.raises(Killed):
        for number in range(10):
            made(disk, f"a/{number}", b"content")
            done += 1
    assert done == after // 4
    with pytest.raises(Killed):
        disk.open("a/new", create=True)
    disk.crash(power_loss=False)
    disk.open("a/new", create=True)


def test_a_flip_changes_one_bit_for_good(disk: FakeDisk) -> None:
    made(disk, "a/x", b"content")
    made(disk, "b/y", b"content")
    assert disk.flip(("a",)).startswith("a/x ")
    (flipped,) = disk.content("a").values()
    assert sum((a ^ b).bit_count() for a, b in zip(flipped, b"content", strict=True)) == 1
    assert disk.durable("a") == {"x": flipped}
    assert disk.content("b") == {"y": b"content"}
    assert disk.flip(("c",)) == ""
