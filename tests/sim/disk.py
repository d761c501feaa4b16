"""A disk in memory that behaves as badly as a real one may: behind the seam of mqks.journal.disk.

What was written is seen at once, as through the page cache, but is on disk only after a sync: the content of a file by
a sync of the file, its name by a sync of the folder. A killed process loses nothing that was written; a power loss
loses what was not synced, in part, torn, and in any order. A sync in the background covers what was written before it
was asked for, and ends when the simulation says so. All chance comes from the given random.Random.
"""

import errno
import os
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from mqks.journal.disk import Done
from tests.sim.inode import SECTOR, Inode, chooser

if TYPE_CHECKING:
    from typing_extensions import Buffer


__all__ = ["SECTOR", "FakeDisk", "Inode", "Killed"]


class Killed(BaseException):
    """The process ends here, in the middle of whatever it was doing; nothing in it may catch this."""


class Change(NamedTuple):
    """What happens at once to names: each now stands for a file, or for none."""

    number: int
    names: dict[str, Inode | None]

    def apply(self, entries: dict[str, Inode]) -> None:
        for name, inode in self.names.items():
            if inode is None:
                entries.pop(name, None)
            else:
                entries[name] = inode


@dataclass
class Job:
    """Something in the background: syncs cover what had been written when they were asked for."""

    tag: int
    syncs: list[tuple[Inode | str, int]] = field(default_factory=list)  # file or folder, number of its last change
    read: tuple[Inode, int, int] | None = None  # file, size, offset
    handles: tuple[int, ...] = ()


def folder_of(name: str) -> str:
    return name.rpartition("/")[0]


def _inside(entries: dict[str, Inode], folder: str) -> dict[str, Inode]:
    """Name without the folder's → file, sorted."""
    return {name.rpartition("/")[2]: entries[name] for name in sorted(entries) if folder_of(name) == folder}


class FakeDisk:
    def __init__(self, rng: random.Random, capacity: int = 1 << 40) -> None:
        self.rng = rng
        self.capacity = capacity
        self.entries: dict[str, Inode] = {}  # as the process sees them, by path
        self.durable_entries: dict[str, Inode] = {}
        self.changes: list[Change] = []  # of entries, not yet synced
        self.changed = 0
        self.removed: dict[str, Inode] = {}  # what was there, by path
        self.faults: dict[str, deque[int]] = {}
        self.kill_after: int | None = None  # so many more changes, then Killed
        self._begin()

    def _begin(self) -> None:
        """What a process has, and loses with its end."""
        self.handles: dict[int, Inode | str] = {}
        self.jobs: dict[bool, deque[Job]] = {True: deque(), False: deque()}  # urgent or not
        self.done: list[Done] = []
        self.locked = False
        self.dead = False
        self.works_by_itself = False  # jobs end before the process looks: it may wait for them
        self.next_handle = 3

    # ── the seam ──

    def lock(self) -> None:
        if self.locked:
            raise BlockingIOError(errno.EWOULDBLOCK, "the folder is locked")
        self.locked = True

    def files(self, folder: str) -> dict[str, int]:
        return {name: len(inode.data) for name, inode in _inside(self.entries, folder).items()}

    def open(self, name: str, *, create: bool = False) -> int:
        if create:
            if name in self.entries:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
            self._check_fault("create")
            self._step("open", lambda: self._change({name: Inode()}))
        elif name not in self.entries:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return self._handle(self.entries[name])

    def open_folder(self, folder: str) -> int:
        return self._handle(folder)

    def close(self, file: int) -> None:
        for job in (job for jobs in self.jobs.values() for job in jobs):
            assert file not in job.handles, "closed while something in the background uses it"
        del self.handles[file]

    def size(self, file: int) -> int:
        return len(self._inode(file).data)

    def read(self, file: int, size: int, offset: int) -> bytes:
        self._check_fault("read")
        return bytes(self._inode(file).data[offset : offset + size])

    def read_named(self, name: str, size: int, offset: int) -> bytes:
        if name not in self.entries:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        self._check_fault("read")
        return bytes(self.entries[name].data[offset : offset + size])

    def write(self, file: int, data: "Buffer", offset: int) -> None:
        inode = self._inode(file)
        content = bytes(data)
        try:
            self._check_fault("write")
            self._check_space(inode, offset + len(content))
            self._step("write", lambda: inode.write(offset, content))
        except (OSError, Killed):
            inode.write(offset, content[: self.rng.randrange(len(content) + 1)])  # a part got there
            raise

    def reserve(self, file: int, offset: int, size: int) -> None:
        inode = self._inode(file)
        self._check_fault("reserve")
        self._check_space(inode, offset + size)
        inode.reserved = max(inode.reserved, offset + size)

    def truncate(self, file: int, size: int) -> None:
        inode = self._inode(file)
        self._step("truncate", lambda: inode.write(size, None))
        inode.reserved = min(inode.reserved, size)

    def sync(self, file: int) -> None:
        target = self._target(file)
        last = self._last_change(target)
        self._step("sync", lambda: self._sync(target, last))

    def rename(self, old: str, new: str) -> None:
        self._check_fault("rename")
        inode = self.entries[old]
        self._step("rename", lambda: self._change({old: None, new: inode}))

    def remove(self, name: str) -> None:
        if name not in self.entries:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        self.removed[name] = self.entries[name]
        self._step("remove", lambda: self._change({name: None}))

    def space(self) -> tuple[int, int]:
        return max(0, self.capacity - self._occupied()), self.capacity

    def start_sync(self, files: tuple[int, ...], tag: int, *, urgent: bool = True) -> None:
        targets = [self._target(file) for file in files]
        job = Job(tag, [(target, self._last_change(target)) for target in targets], handles=files)
        self._step("start_sync", lambda: self.jobs[urgent].append(job))

    def start_read(self, file: int, size: int, offset: int, tag: int) -> None:
        self.jobs[False].append(Job(tag, read=(self._inode(file), size, offset), handles=(file,)))

    def start_uncache(self, files: tuple[int, ...], tag: int) -> None:
        self.jobs[False].append(Job(tag, handles=files))

    def finished(self) -> list[Done]:
        while self.works_by_itself and (self.complete(urgent=True) or self.complete(urgent=False)):
            pass
        done, self.done = self.done, []
        return done

    def fileno(self) -> int:
        return -1

    def stop(self) -> None:
        self._begin()

    # ── what the simulation does with it ──

    def complete(self, *, urgent: bool) -> bool:
        """The oldest job of a channel ends; False: there is none."""
        if not self.jobs[urgent]:
            return False
        job = self.jobs[urgent].popleft()
        data = b""
        error = None
        try:
            for target, last in job.syncs:
                self._sync(target, last)
            if job.read is not None:
                self._check_fault("read")
                inode, size, offset = job.read
                data = bytes(inode.data[offset : offset + size])
        except OSError as failed:
            error = failed
        self.done.append(Done(job.tag, error, data))
        return True

    def fail(self, call: str, error: int) -> None:
        """The next such call fails: create, write, sync, read, reserve or rename."""
        self.faults.setdefault(call, deque()).append(error)

    def crash(self, *, power_loss: bool) -> None:
        """The process is gone; with a power loss, also what was not synced, or some of it."""
        self._begin()
        self.faults.clear()
        self.kill_after = None
        if power_loss:
            keep = chooser(self.rng)
            for change in self.changes:
                if keep():
                    change.apply(self.durable_entries)
            self.changes.clear()
            self.entries = dict(self.durable_entries)
            for inode in dict.fromkeys(self.entries.values()):
                inode.lose(self.rng)

    def flip(self, folders: tuple[str, ...]) -> str:
        """One bit of one file turns over at rest, of the last one rather. Answers which, or "" if there is nothing."""
        names = sorted(name for name, inode in self.entries.items() if inode.data and folder_of(name) in folders)
        if not names:
            return ""
        name = self.rng.choice((self.rng.choice(names), names[-1]))
        inode = self.entries[name]
        at, bit = self.rng.randrange(len(inode.data)), 1 << self.rng.randrange(8)
        inode.data[at] ^= bit
        inode.flips[at] = inode.flips.get(at, 0) ^ bit
        if at < len(inode.durable):
            inode.durable[at] = inode.data[at]
        return f"{name} byte {at} bit {bit:#x}"

    def is_flipped(self) -> bool:
        """Is there a file, or was there, with a bit that has turned over?"""
        return any(inode.flips for inode in (*self.entries.values(), *self.removed.values()))

    def forgotten(self) -> int:
        """How many files are open that have no name any more, and are not in use in the background."""
        in_use = {file for jobs in self.jobs.values() for job in jobs for file in job.handles}
        named = [id(inode) for inode in self.entries.values()]
        open_files = ((file, target) for file, target in self.handles.items() if isinstance(target, Inode))
        return sum(file not in in_use and id(inode) not in named for file, inode in open_files)

    def durable(self, folder: str, *, flips: bool = True) -> dict[str, bytes]:
        """Name → content, of what a power loss cannot take from a folder; with the flips, or as it was written."""
        found = _inside(self.durable_entries, folder).items()
        return {name: bytes(inode.durable) if flips else inode.unflipped(inode.durable) for name, inode in found}

    def content(self, folder: str) -> dict[str, bytes]:
        """Name → content, as a process sees a folder."""
        return {name: bytes(inode.data) for name, inode in _inside(self.entries, folder).items()}

    def written(self, folder: str) -> dict[str, bytes]:
        """All that was ever written and not cut off: with what was removed, without the flips."""
        return {
            name: inode.unflipped(inode.data) for name, inode in _inside(self.removed | self.entries, folder).items()
        }

    # ── how it works ──

    def _handle(self, target: Inode | str) -> int:
        self.next_handle += 1
        self.handles[self.next_handle] = target
        return self.next_handle

    def _target(self, file: int) -> Inode | str:
        assert file in self.handles or self.dead, f"handle {file} is not open"
        if self.dead:
            raise Killed
        return self.handles[file]

    def _inode(self, file: int) -> Inode:
        target = self._target(file)
        assert isinstance(target, Inode), "a folder is neither read nor written"
        return target

    def _step(self, call: str, do: Callable[[], None]) -> None:
        """One change that the process asks for; here it may be killed, before or after it."""
        if self.dead:
            raise Killed
        if self.kill_after is not None:
            if self.kill_after == 0:
                self.dead = True
                if call != "write" and self.rng.random() < 0.5:
                    do()
                raise Killed
            self.kill_after -= 1
        do()

    def _check_fault(self, call: str) -> None:
        waiting = self.faults.get(call)
        if waiting:
            error = waiting.popleft()
            raise OSError(error, os.strerror(error))

    def _occupied(self) -> int:
        return sum(inode.occupied for inode in self.entries.values())

    def _check_space(self, inode: Inode, end: int) -> None:
        if end > inode.occupied and self._occupied() - inode.occupied + end > self.capacity:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _change(self, names: dict[str, Inode | None]) -> None:
        self.changed += 1
        change = Change(self.changed, names)
        change.apply(self.entries)
        self.changes.append(change)

    def _last_change(self, target: Inode | str) -> int:
        return self.changed if isinstance(target, str) else target.written

    def _sync(self, target: Inode | str, last: int) -> None:
        try:
            self._check_fault("sync")
        except OSError:
            if isinstance(target, Inode):
                self._forget(target, last)
            raise
        if isinstance(target, str):
            self._sync_folder(target, last)
        else:
            covered, target.unsynced = target.split(last)
            for write in covered:
                write.apply(target.durable)

    def _forget(self, inode: Inode, last: int) -> None:
        """As on Linux after a failed sync: the pages count as clean, wherever their content is."""
        covered, inode.unsynced = inode.split(last)
        for write in covered:
            if self.rng.random() < 0.5:
                write.apply(inode.durable)

    def _sync_folder(self, folder: str, last: int) -> None:
        """What happened to names in the folder is on disk, and what happened to those same names before."""
        chosen: list[Change] = []
        names: set[str] = set()
        for change in reversed(self.changes):
            inside = any(folder_of(name) == folder for name in change.names)
            if change.number <= last and (inside or names & change.names.keys()):
                chosen.append(change)
                names |= change.names.keys()
        for change in reversed(chosen):
            change.apply(self.durable_entries)
        numbers = {change.number for change in chosen}
        self.changes = [change for change in self.changes if change.number not in numbers]
