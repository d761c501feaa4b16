"""The seam between the journal and the disk: all that the journal does with files, it does through `Disk`.

What is written in every turn goes to the same disk as the core sees it, which needs no Python: mqks/core/disk.pyx.

`RealDisk` is the file system; a simulator can put one here that tears, drops, fails and fills up. Nothing else that
writes the journal may touch a file. Names are relative to the folder that holds all data; an open file is a number
(an fd). Errors are the system's OSErrors, with the file's name where it is known.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mqks.core.disk import FileDisk
from mqks.core.worker import Worker, reserve

if TYPE_CHECKING:
    from typing_extensions import Buffer

FULL = (errno.ENOSPC, errno.EDQUOT)
FOLDER_MODE = 0o750  # the umask decides whether a group may read: jobs on Spark read the journal as users of their own
FILE_MODE = 0o640


class Done(NamedTuple):
    """How something ended that was started in the background."""

    tag: int
    error: OSError | None
    data: bytes  # what was read


class Disk(Protocol):
    def lock(self) -> None:
        """Keep others out, for as long as this process lives: BlockingIOError if another one does. Makes the folder."""

    def files(self, folder: str) -> dict[str, int]:
        """Name (without the folder's) → size of each file in it, sorted by name. Makes the folder."""

    def open(self, name: str, *, create: bool = False) -> int:
        """For reading and writing. Either it must be there, or (create) it must not."""

    def open_folder(self, folder: str) -> int:
        """To sync the entries of the folder: names that are new, changed or removed."""

    def close(self, file: int) -> None: ...

    def size(self, file: int) -> int: ...

    def read(self, file: int, size: int, offset: int) -> bytes:
        """So many bytes; less only at the end of the file."""

    def read_named(self, name: str, size: int, offset: int) -> bytes:
        """The same, of a file that need not be open. Any thread may call this."""

    def write(self, file: int, data: Buffer, offset: int) -> None:
        """All of it, or OSError; then a part may be written."""

    def reserve(self, file: int, offset: int, size: int) -> None:
        """Make sure of space without changing the file's size, where the file system can."""

    def truncate(self, file: int, size: int) -> None: ...

    def sync(self, file: int) -> None:
        """Wait until it is on disk: for start and stop."""

    def rename(self, old: str, new: str) -> None:
        """Replaces a file of the new name."""

    def remove(self, name: str) -> None: ...

    def space(self) -> tuple[int, int]:
        """Bytes available, and bytes in all, of the file system."""

    # In the background: each of these calls ends in exactly one Done. Until then its files stay open.

    def start_sync(self, files: tuple[int, ...], tag: int, *, urgent: bool = True) -> None:
        """One after the other, up to the first error. What is not urgent never delays what is."""

    def start_read(self, file: int, size: int, offset: int, tag: int) -> None: ...

    def start_uncache(self, files: tuple[int, ...], tag: int) -> None:
        """What is in these files is not needed in the system's memory."""

    def finished(self) -> list[Done]: ...

    def fileno(self) -> int:
        """Readable when something has finished; -1: there is none."""

    def stop(self) -> None:
        """End the threads, close what is open, give the lock back."""


class RealDisk(FileDisk):
    """The file system. `write` is FileDisk's, in C."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = set[str]()  # folders known to be there for good
        self._commits = Worker()
        self._others = Worker(self._commits.fileno())

    def lock(self) -> None:
        self._make("")
        path = self._folder / "lock"
        file = self._open(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # In place and always as long: a disk that is full is no reason not to start.
            os.pwrite(file, b"%-10d\n" % os.getpid(), 0)
        except BlockingIOError as error:
            owner = os.pread(file, 10, 0).decode("ascii", "replace").strip()
            self.close(file)
            raise BlockingIOError(error.errno, f"in use by process {owner or 'unknown'}", str(path)) from None

    def files(self, folder: str) -> dict[str, int]:
        self._make(folder)
        with os.scandir(self._folder / folder) as entries:
            return dict(sorted((entry.name, entry.stat().st_size) for entry in entries if entry.is_file()))

    def open(self, name: str, *, create: bool = False) -> int:
        return self._open(self._folder / name, os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0))

    def open_folder(self, folder: str) -> int:
        return self._open(self._folder / folder, os.O_RDONLY | os.O_DIRECTORY)

    def close(self, file: int) -> None:
        self.names.pop(file, None)
        os.close(file)

    def size(self, file: int) -> int:
        with self._naming(file):
            return os.fstat(file).st_size

    def read(self, file: int, size: int, offset: int) -> bytes:
        with self._naming(file):
            return _read(file, size, offset)

    def read_named(self, name: str, size: int, offset: int) -> bytes:
        file = os.open(self._folder / name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _read(file, size, offset)
        finally:
            os.close(file)

    def reserve(self, file: int, offset: int, size: int) -> None:
        with self._naming(file):
            reserve(file, offset, size)

    def truncate(self, file: int, size: int) -> None:
        with self._naming(file):
            os.ftruncate(file, size)

    def sync(self, file: int) -> None:
        with self._naming(file):
            _sync(file)

    def rename(self, old: str, new: str) -> None:
        (self._folder / old).replace(self._folder / new)

    def remove(self, name: str) -> None:
        (self._folder / name).unlink()

    def space(self) -> tuple[int, int]:
        found = os.statvfs(self._folder)
        return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize

    def start_sync(self, files: tuple[int, ...], tag: int, *, urgent: bool = True) -> None:
        (self._commits if urgent else self._others).start_sync(files, tag)

    def start_read(self, file: int, size: int, offset: int, tag: int) -> None:
        self._others.start_read(file, size, offset, tag)

    def start_uncache(self, files: tuple[int, ...], tag: int) -> None:
        self._others.start_uncache(files, tag)

    def finished(self) -> list[Done]:
        ended = self._commits.finished()  # first: it clears what both tell by
        ended += self._others.finished()
        return [Done(tag, self._error(number) if number else None, data) for tag, number, data in ended]

    def fileno(self) -> int:
        return self._commits.fileno()

    def stop(self) -> None:
        self._commits.stop()
        self._others.stop()
        for file in list(self.names):
            self.close(file)

    def _open(self, path: Path, flags: int) -> int:
        file = os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
        self.names[file] = str(path)
        return file

    def _make(self, folder: str) -> None:
        """Also one that is there may not be on disk yet, if the process that made it was killed."""
        if folder not in self._made:
            _make_folder(self._folder / folder)
            self._made.add(folder)

    @contextmanager
    def _naming(self, file: int) -> Iterator[None]:
        """The system does not name the file of an fd that it fails on."""
        try:
            yield
        except OSError as error:
            error.filename = self.names.get(file)
            raise

    def _error(self, number: int) -> OSError:
        return OSError(number, os.strerror(number), str(self._folder))


def sync_folder(disk: Disk, folder: str) -> None:
    """Wait until the names in it are on disk."""
    file = disk.open_folder(folder)
    disk.sync(file)
    disk.close(file)


class Reserve:
    """Disk that is made sure of before a growing file needs it."""

    def __init__(self, disk: Disk, ahead: int) -> None:
        self._disk = disk
        self._ahead = ahead
        self.end = 0  # so far in the file; 0: nothing yet

    def has_room(self, file: int, size: int) -> bool:
        """Is there disk for what may come next in this file, which has this size?"""
        if self.end < size + self._ahead:
            try:
                self._disk.reserve(file, size, 4 * self._ahead)
            except OSError as error:
                if error.errno in FULL:
                    return False
                raise
            self.end = size + 4 * self._ahead
        return True


def _read(file: int, size: int, offset: int) -> bytes:
    data = bytearray()
    while len(data) < size and (piece := os.pread(file, size - len(data), offset + len(data))):
        if len(piece) == size:  # as nearly always
            return piece
        data += piece
    return bytes(data)


def _sync(file: int) -> None:
    """Some file systems have no fdatasync for folders."""
    try:
        os.fdatasync(file)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        os.fsync(file)


def _make_folder(folder: Path) -> None:
    """So that it is there after a power loss too, unless its parent may not be read: then somebody else made it."""
    if not folder.parent.is_dir():
        _make_folder(folder.parent)
    folder.mkdir(FOLDER_MODE, exist_ok=True)
    with suppress(PermissionError):
        parent = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _sync(parent)
        finally:
            os.close(parent)
