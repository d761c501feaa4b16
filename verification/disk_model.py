"""A disk that loses power: what each file and folder may be afterwards, given the calls before.

A sync that has returned keeps all that was written to the file, or changed in the folder, before it began. Each later
change may be there or not: data block by block, names change by change. Files and folders are independent.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path

from verification.oplog import Kind, Op

POLICIES = ("all", "none", "prefix", "subset")


@dataclass
class Change:
    """One write (data at an offset), or one truncation (no data)."""

    number: int
    offset: int
    data: bytes | None

    def apply(self, content: bytearray) -> None:
        if self.data is None:
            del content[self.offset :]
            content.extend(bytes(self.offset - len(content)))
        else:
            if len(content) < self.offset:
                content.extend(bytes(self.offset - len(content)))
            content[self.offset : self.offset + len(self.data)] = self.data


@dataclass
class File:
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)

    def synced(self, before: int) -> None:
        for change in self.pending:
            if change.number < before:
                change.apply(self.durable)
        self.pending = [change for change in self.pending if change.number >= before]

    def after_loss(self, policy: str, block: int, rng: random.Random) -> bytes:
        content = bytearray(self.durable)
        count = len(self.pending)
        keep = {"all": count, "none": 0, "prefix": rng.randint(0, count), "subset": count}[policy]
        for at, change in enumerate(self.pending):
            if at < keep and policy != "subset":
                change.apply(content)
            elif policy == "subset" or (policy == "prefix" and at == keep):
                self._tear(change, policy, block, rng, content)
        return bytes(content)

    @staticmethod
    def _tear(change: Change, policy: str, block: int, rng: random.Random, content: bytearray) -> None:
        """Some blocks of a write: any of them, or its beginning."""
        if change.data is None:
            if rng.random() < 0.5:
                change.apply(content)
            return
        end = change.offset + len(change.data)
        starts = [change.offset, *range((change.offset // block + 1) * block, end, block)]
        last = rng.randrange(len(starts) + 1)
        for index, start in enumerate(starts):
            if index < last if policy == "prefix" else rng.random() < 0.5:
                stop = min(end, (start // block + 1) * block)
                Change(0, start, change.data[start - change.offset : stop - change.offset]).apply(content)


@dataclass
class Rename:
    """A change of a folder: a name gets a file, or (None) goes; `old` is what a rename takes away."""

    number: int
    name: str
    file: File | None
    old: str | None = None


class Disk:
    """Fold the calls of a broker into it; then ask for an image."""

    def __init__(self, folder: Path) -> None:
        """It begins with what is in the folder, all of it durable."""
        self.names: dict[str, File] = {}  # as the process sees them
        self.durable: dict[str, File] = {}
        self.pending: dict[str, list[Rename]] = {}  # by folder
        self.folders: set[str] = set()
        self._open: dict[int, str | File] = {}  # a folder's name, or a file
        self._number = 0
        self._begun: dict[int, list[int]] = {}  # syncs of a descriptor that have not ended
        for path in sorted(folder.rglob("*")):
            name = str(path.relative_to(folder))
            if path.is_dir():
                self.folders.add(name)
            else:
                self.names[name] = self.durable[name] = File(bytearray(path.read_bytes()))

    def apply(self, op: Op) -> None:
        self._number += 1
        handler = {
            Kind.OPEN: self._opened,
            Kind.CLOSE: self._closed,
            Kind.WRITE: self._wrote,
            Kind.TRUNCATE: self._truncated,
            Kind.SYNC_BEGIN: self._sync_began,
            Kind.SYNC_END: self._sync_ended,
            Kind.RENAME: self._renamed,
            Kind.UNLINK: self._unlinked,
            Kind.MKDIR: self._made_folder,
        }.get(op.kind)
        if handler is not None:
            handler(op)

    def _change_name(self, name: str, file: File | None, old: str | None = None) -> None:
        folder = str(Path(name).parent) if "/" in name else ""
        self.pending.setdefault(folder, []).append(Rename(self._number, name, file, old))

    def _opened(self, op: Op) -> None:
        name = op.first.decode()
        if not name or name in self.folders:
            self._open[op.fd] = name
            return
        if name not in self.names:
            self.names[name] = File()
            self._change_name(name, self.names[name])
        file = self.names[name]
        if op.number < 0 and (file.durable or file.pending):
            file.pending.append(Change(self._number, 0, None))
        self._open[op.fd] = file

    def _closed(self, op: Op) -> None:
        self._open.pop(op.fd, None)

    def _file(self, fd: int) -> File:
        file = self._open[fd]
        assert isinstance(file, File)
        return file

    def _wrote(self, op: Op) -> None:
        self._file(op.fd).pending.append(Change(self._number, op.number, op.first))

    def _truncated(self, op: Op) -> None:
        self._file(op.fd).pending.append(Change(self._number, op.number, None))

    def _sync_began(self, op: Op) -> None:
        self._begun.setdefault(op.fd, []).append(self._number)

    def _sync_ended(self, op: Op) -> None:
        before = self._begun[op.fd].pop()  # of two at once, the log does not tell which: believe the later
        what = self._open[op.fd]
        if isinstance(what, File):
            what.synced(before)
            return
        changes = self.pending.get(what, [])
        for change in changes:
            if change.number < before:
                _rename(self.durable, change)
        self.pending[what] = [change for change in changes if change.number >= before]

    def _renamed(self, op: Op) -> None:
        old, new = op.first.decode(), op.second.decode()
        file = self.names.pop(old)
        self.names[new] = file
        self._change_name(new, file, old)

    def _unlinked(self, op: Op) -> None:
        name = op.first.decode()
        self.folders.discard(name)
        if self.names.pop(name, None) is not None:
            self._change_name(name, None)

    def _made_folder(self, op: Op) -> None:
        self.folders.add(
            op.first.decode()
        )  # the tester does not lose folders: each has to be there for the start itself

    def image(self, to: Path, data: str, names: str, block: int, rng: random.Random) -> None:
        """Write what may be left into this folder, by a policy for data and one for names."""
        left = dict(self.durable)
        for changes in self.pending.values():
            count = {"all": len(changes), "none": 0}.get(names, rng.randint(0, len(changes)))
            for change in changes[:count]:
                _rename(left, change)
        for folder in sorted(self.folders):
            (to / folder).mkdir(parents=True, exist_ok=True)
        for name, file in left.items():
            path = to / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.after_loss(rng.choice(POLICIES) if data == "mixed" else data, block, rng))


def _rename(names: dict[str, File], change: Rename) -> None:
    if change.old is not None:
        names.pop(change.old, None)
    if change.file is None:
        names.pop(change.name, None)
    else:
        names[change.name] = change.file
