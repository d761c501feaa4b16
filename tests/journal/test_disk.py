"""The real disk keeps the promises of the seam, also when the system does less than asked, refuses or is full."""

import errno
import os
import resource
import select
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqks.core.disk import Disk as CoreDisk
from mqks.core.disk import disk_of
from mqks.core.worker import reserve
from mqks.journal.disk import Disk, Done, RealDisk

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAKE = Callable[[], RealDisk]
KEEPS_LOCK = """
import sys
from pathlib import Path
from mqks.journal.disk import RealDisk
disk = RealDisk(Path(sys.argv[1]))
disk.lock()
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def make(folder: Path) -> Iterator[MAKE]:
    made: list[RealDisk] = []

    def disk() -> RealDisk:
        made.append(RealDisk(folder))
        return made[-1]

    yield disk
    for each in made:
        each.stop()


@pytest.fixture
def disk(make: MAKE) -> Disk:
    real = make()
    real.files("journal")
    return real


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What is synced in the loop's own thread, in order."""
    paths: list[Path] = []
    real = os.fdatasync

    def fdatasync(file: int) -> None:
        paths.append(Path(f"/proc/self/fd/{file}").readlink())
        real(file)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    return paths


def readable(disk: Disk) -> bool:
    return bool(select.select([disk.fileno()], [], [], 0)[0])


def wait_for(disk: Disk, count: int) -> list[Done]:
    done: list[Done] = []
    while len(done) < count:
        select.select([disk.fileno()], [], [])
        done += disk.finished()
    assert len(done) == count
    return done


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# ---- Folders and the lock


@pytest.mark.parametrize(
    ("umask", "folders", "files"), [(0o077, 0o700, 0o600), (0o027, 0o750, 0o640), (0, 0o750, 0o640)]
)
def test_the_umask_decides_whether_a_group_may_read(
    make: MAKE, folder: Path, umask: int, folders: int, files: int
) -> None:
    """Members of the group can then follow the journal. Nobody else ever can."""
    before = os.umask(umask)
    try:
        disk = make()
        disk.lock()
        assert disk.files("journal") == {}
        disk.open("journal/a", create=True)
    finally:
        os.umask(before)
    assert (mode(folder), mode(folder / "journal")) == (folders, folders)
    assert (mode(folder / "lock"), mode(folder / "journal" / "a")) == (files, files)


def test_syncs_the_entry_of_each_folder_it_makes(tmp_path: Path, synced: list[Path]) -> None:
    disk = RealDisk(tmp_path / "a" / "b")
    disk.lock()
    assert synced == [tmp_path, tmp_path / "a"]
    disk.files("journal")
    disk.files("journal")
    assert synced[2:] == [tmp_path / "a" / "b"]
    disk.stop()


def test_syncs_entries_of_folders_that_an_earlier_process_made(make: MAKE, folder: Path, synced: list[Path]) -> None:
    (folder / "journal").mkdir(parents=True)
    disk = make()
    disk.lock()
    disk.files("journal")
    assert synced == [folder.parent, folder]


def test_a_file_in_the_place_of_the_folder(make: MAKE, folder: Path) -> None:
    folder.write_bytes(b"")
    with pytest.raises(FileExistsError) as caught:
        make().lock()
    assert caught.value.filename == str(folder)


def test_one_lock_at_a_time(make: MAKE, folder: Path) -> None:
    first, second = make(), make()
    first.lock()
    with pytest.raises(BlockingIOError, match=f"in use by process {os.getpid()}") as caught:
        second.lock()
    assert caught.value.filename == str(folder / "lock")
    assert int((folder / "lock").read_text("ascii")) == os.getpid()
    first.stop()
    second.lock()


def test_the_lock_of_a_process_ends_with_it(make: MAKE, folder: Path) -> None:
    command = [sys.executable, "-c", KEEPS_LOCK, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(BlockingIOError, match=f"process {other.pid}:"):
            make().lock()
        other.kill()
        other.wait()
        make().lock()
    assert int((folder / "lock").read_text("ascii")) == os.getpid()


# ---- Files


def test_files_are_told_by_name_without_folders(disk: Disk, folder: Path) -> None:
    for name, size in (("b", 2), ("a", 1), ("c", 0)):
        (folder / "journal" / name).write_bytes(b"x" * size)
    (folder / "journal" / "aside").mkdir()
    assert list(disk.files("journal").items()) == [("a", 1), ("b", 2), ("c", 0)]


def test_open_and_create(disk: Disk, folder: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        disk.open("journal/a")
    assert missing.value.filename == str(folder / "journal" / "a")
    file = disk.open("journal/a", create=True)
    assert not os.get_inheritable(file)
    with pytest.raises(FileExistsError):
        disk.open("journal/a", create=True)
    disk.write(file, b"abc", 0)
    again = disk.open("journal/a")
    assert disk.read(again, 10, 0) == b"abc"
    disk.close(file)
    with pytest.raises(OSError, match="Bad file descriptor"):
        disk.size(file)


def test_only_folders_open_as_folders(disk: Disk) -> None:
    disk.open("journal/a", create=True)
    disk.sync(disk.open_folder("journal"))
    with pytest.raises(NotADirectoryError):
        disk.open_folder("journal/a")


def test_rename_replaces_and_remove_removes(disk: Disk) -> None:
    for name in ("journal/a", "journal/b"):
        disk.write(disk.open(name, create=True), name.encode(), 0)
    disk.rename("journal/a", "journal/b")
    assert disk.read(disk.open("journal/b"), 100, 0) == b"journal/a"
    assert list(disk.files("journal")) == ["b"]
    disk.remove("journal/b")
    assert disk.files("journal") == {}
    with pytest.raises(FileNotFoundError):
        disk.remove("journal/b")


STEPS = st.one_of(
    st.tuples(st.just("write"), st.binary(max_size=50), st.integers(0, 100)),
    st.tuples(st.just("truncate"), st.just(b""), st.integers(0, 100)),
    st.tuples(st.just("read"), st.binary(max_size=50), st.integers(0, 120)),
)


@settings(max_examples=50)
@given(steps=st.lists(STEPS))
def test_a_file_is_like_a_bytearray(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bytes, int]]
) -> None:
    disk, plain = RealDisk(tmp_path_factory.mktemp("data")), bytearray()
    file = disk.open("a", create=True)
    for step, data, at in steps:
        if step == "write" and data:
            disk.write(file, data, at)
            plain += bytes(max(0, at - len(plain)))
            plain[at : at + len(data)] = data
        elif step == "truncate":
            disk.truncate(file, at)
            plain = plain[:at] + bytes(max(0, at - len(plain)))
        else:
            assert disk.read(file, len(data), at) == plain[at : at + len(data)]
        assert disk.size(file) == len(plain)
    disk.start_read(file, 1000, 0, 1)
    assert wait_for(disk, 1) == [Done(1, None, bytes(plain))]
    disk.stop()


@pytest.mark.parametrize("data", [b"0123456789", bytearray(b"0123456789"), memoryview(b"0123456789"), b""])
def test_any_buffer_can_be_written(disk: Disk, data: bytes) -> None:
    file = disk.open("journal/a", create=True)
    disk.write(file, data, 5)
    assert disk.read(file, 100, 5) == bytes(data)


def test_a_write_goes_on_until_the_system_refuses(disk: Disk) -> None:
    """The system writes as much as a file may have, and refuses the rest when it is asked again."""
    file = disk.open("journal/a", create=True)
    _, most = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, most))
    try:
        with pytest.raises(OSError, match="large") as refused:
            disk.write(file, b"0123456789", 5)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert refused.value.errno == errno.EFBIG
    assert str(refused.value.filename).endswith("/journal/a")
    assert disk.read(file, 100, 5) == b"012"


class Told:
    """A disk in Python that notes what is written."""

    def __init__(self) -> None:
        self.told: list[tuple[int, bytes, int]] = []

    def write(self, file: int, data: "Buffer", offset: int) -> None:
        if offset < 0 or not memoryview(data).nbytes:
            raise OSError(errno.EIO, "refused")
        self.told.append((file, bytes(data), offset))


def test_the_core_writes_to_a_disk_in_python_too(disk: Disk) -> None:
    told = Told()
    writer = disk_of(told)
    writer.write(7, b"0123456789", 5)
    assert told.told == [(7, b"0123456789", 5)]
    with pytest.raises(OSError, match="refused"):
        writer.write(7, b"", 5)
    assert isinstance(disk, CoreDisk) and disk_of(disk) == disk, "the real one needs no Python"


def test_reads_go_on_until_the_end(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pread
    file = disk.open("journal/a", create=True)
    disk.write(file, b"0123456789", 0)
    monkeypatch.setattr(os, "pread", lambda file, size, offset: real(file, min(size, 3), offset))
    assert disk.read(file, 8, 1) == b"12345678"
    assert disk.read(file, 100, 1) == b"123456789"


def test_a_full_disk_says_so(disk: Disk, folder: Path) -> None:
    (folder / "journal" / "full").symlink_to("/dev/full")
    file = disk.open("journal/full")
    with pytest.raises(OSError, match="No space left") as caught:
        disk.write(file, b"x", 0)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(folder / "journal" / "full")


def test_errors_name_the_file(disk: Disk, folder: Path) -> None:
    file = disk.open("journal/a", create=True)
    attempts: list[Callable[[], object]] = [
        lambda: disk.write(file, b"x", -1),
        lambda: disk.read(file, 1, -1),
        lambda: disk.truncate(file, -1),
        lambda: disk.reserve(file, -1, 1),
    ]
    for attempt in attempts:
        with pytest.raises(OSError, match="Invalid argument") as caught:
            attempt()
        assert caught.value.filename == str(folder / "journal" / "a")


def test_reserving_takes_space_and_leaves_the_size(disk: Disk) -> None:
    file = disk.open("journal/a", create=True)
    disk.write(file, b"abc", 0)
    disk.reserve(file, 0, 1 << 20)
    assert disk.size(file) == 3
    assert os.fstat(file).st_blocks * 512 >= 1 << 20
    with pytest.raises(OSError, match=r"File too large|No space left"):
        disk.reserve(file, 0, 1 << 62)


def test_reserving_where_the_file_system_cannot() -> None:
    with Path("/proc/self/comm").open("rb+", buffering=0) as file:
        reserve(file.fileno(), 0, 10)
    with pytest.raises(OSError, match="Bad file descriptor"):
        reserve(-1, 0, 10)


def test_sync_where_folders_have_no_fdatasync(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: int) -> None:
        raise OSError(errno.EINVAL, f"no fdatasync for {file}")

    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", refuse)
    monkeypatch.setattr(os, "fsync", synced.append)
    file = disk.open_folder("journal")
    disk.sync(file)
    assert synced == [file]


def test_space(disk: Disk) -> None:
    available, total = disk.space()
    assert 0 < available <= total


# ---- In the background


def test_reads_in_the_background(disk: Disk) -> None:
    data = bytes(range(256)) * 20_000
    file = disk.open("journal/a", create=True)
    disk.write(file, data, 0)
    wanted = {
        1: (100, 5),
        2: (len(data), 0),
        3: (len(data), 7),
        4: (10, len(data)),
        5: (0, 0),
        6: (1, 3),
        7: (2, len(data) - 1),
    }
    for tag, (size, offset) in wanted.items():
        disk.start_read(file, size, offset, tag)
    assert wait_for(disk, len(wanted)) == [Done(tag, None, data[at : at + size]) for tag, (size, at) in wanted.items()]


def test_syncs_in_the_background(disk: Disk) -> None:
    files = (disk.open("journal/a", create=True), disk.open("journal/b", create=True), disk.open_folder("journal"))
    for urgent in (True, False):
        disk.start_sync(files, -5, urgent=urgent)
        disk.start_sync((), 2**62, urgent=urgent)
        assert wait_for(disk, 2) == [Done(-5, None, b""), Done(2**62, None, b"")]


def test_what_fails_in_the_background(disk: Disk, folder: Path) -> None:
    file = disk.open("journal/a", create=True)
    disk.write(file, b"abc", 0)
    reader, writer = os.pipe()
    failing = {errno.EBADF: (file, -1), errno.EINVAL: (writer, -1), 0: (file,)}
    for tag, files in failing.items():
        disk.start_sync(files, tag)
    assert [(tag, error and error.errno) for tag, error, _ in wait_for(disk, 3)] == [(9, 9), (22, 22), (0, None)]
    disk.start_read(file, 10, -1, 1)
    disk.start_read(reader, 10, 0, 2)
    disk.start_read(file, 10, 0, 3)
    first, second, third = wait_for(disk, 3)
    assert first.error
    assert (first.error.errno, first.error.filename, first.data) == (errno.EINVAL, str(folder), b"")
    assert second.error
    assert second.error.errno == errno.ESPIPE
    assert third == Done(3, None, b"abc")
    os.close(reader)
    os.close(writer)


def test_readable_while_something_is_finished(disk: Disk) -> None:
    file = disk.open("journal/a", create=True)
    assert not readable(disk)
    assert disk.finished() == []
    disk.start_sync((file,), 1)
    select.select([disk.fileno()], [], [])
    assert readable(disk)
    assert disk.finished() == [Done(1, None, b"")]
    assert not readable(disk)


def test_no_end_is_missed_whoever_tells_it(disk: Disk) -> None:
    """Both threads tell by one eventfd. One whose end were cleared away unseen would leave this waiting for ever."""
    file = disk.open("journal/a", create=True)
    disk.write(file, b"abc", 0)
    for n in range(3000):
        disk.start_sync((), n)
        disk.start_read(file, 3, 0, n)
        assert sorted(wait_for(disk, 2)) == [Done(n, None, b""), Done(n, None, b"abc")]


def test_each_thread_keeps_the_order(disk: Disk) -> None:
    for tag in range(1000):
        disk.start_sync((), tag, urgent=tag % 3 > 0)
    tags = [each.tag for each in wait_for(disk, 1000)]
    assert [tag for tag in tags if tag % 3] == [tag for tag in range(1000) if tag % 3]
    assert [tag for tag in tags if not tag % 3] == list(range(0, 1000, 3))


def test_urgent_syncs_have_a_thread_of_their_own(make: MAKE) -> None:
    tasks = Path("/proc/self/task")
    before = {path.name for path in tasks.iterdir()}
    make()
    assert len({path.name for path in tasks.iterdir()} - before) == 2


def test_stop_closes_all_and_can_be_repeated(disk: Disk) -> None:
    files = [disk.open("journal/a", create=True), disk.open_folder("journal")]
    disk.stop()
    disk.stop()
    assert disk.fileno() == -1
    for file in files:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(file)
    with pytest.raises(ValueError, match="stopped"):
        disk.start_sync((), 1)
    with pytest.raises(ValueError, match="stopped"):
        disk.start_read(0, 10, 0, 1)
