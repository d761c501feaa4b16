"""`--salvage` in the simulation: which batches are damaged, and a salvage of the fake disk's files."""

import re
import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from mqks.journal.format import Batches, parse_segment_line, position_of
from mqks.journal.salvage import salvage
from tests.sim.disk import FakeDisk, Inode
from tests.sim.links import Violation

ADVICE = "--salvage"
CUT = re.compile(r"(\d+)\.mqks\.(\d+)\.cut")  # a file in aside/: the segment's start, and the offset in it


@dataclass
class Damage:
    """What bits that turned over have spoilt."""

    messages: set[bytes] = field(default_factory=set)  # ids of those in damaged batches
    elsewhere: bool = False  # something else is damaged too: what it may lead to is not known here


@dataclass
class Proofs:
    """What undamaged batches say: where each stands, and up to where the journal was on disk when it was written."""

    batches: list[tuple[int, int]] = field(default_factory=list)
    aside: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, disk: FakeDisk) -> "Proofs":
        found = cls(aside=set(disk.files("aside")))
        for path, inode in disk.entries.items():
            start = position_of(path.rpartition("/")[2])
            if path.startswith("journal/") and start is not None:
                found.batches += [
                    (header.position, header.synced)
                    for header, _ in _batches(inode.unflipped(inode.data), start)
                    if not any(header.position - start <= at < header.end - start for at in inode.flips)
                ]
        return found

    def check(self, disk: FakeDisk) -> None:
        """The start has cut off nothing that a batch behind it knows to have been on disk."""
        for name in disk.files("aside").keys() - self.aside:
            if cut := CUT.match(name):
                end = int(cut[1]) + int(cut[2])
                if any(position >= end and synced > end for position, synced in self.batches):
                    raise Violation(f"the journal was cut at {end}, and a later batch says that it was on disk")


def damage_of(disk: FakeDisk) -> Damage:
    found = Damage()
    for path, inode in disk.entries.items():
        flips = [at for at, bits in inode.flips.items() if bits and at < len(inode.data)]
        if not flips:
            continue
        start = position_of(path.rpartition("/")[2])
        if not path.startswith("journal/") or start is None:
            found.elsewhere = True
            continue
        batches = _batches(inode.unflipped(inode.data), start)
        for header, batch in batches:
            if any(header.position - start <= at < header.end - start for at in flips):
                lines = [line.split(b" ", 2) for line in bytes(batch).split(b"\n")[1:-1]]
                found.elsewhere |= any(line[1] not in (b"publish", b"send") for line in lines)
                found.messages |= {line[0] for line in lines}
        found.elsewhere |= any(at >= batches.offset for at in flips)
    return found


def _batches(content: bytes, start: int) -> Batches:
    first = parse_segment_line(content)
    return Batches(partial(_read, content), start, first.size if first else 0, len(content))


def _read(content: bytes, size: int, offset: int) -> bytes:
    return content[offset : offset + size]


def run(disk: FakeDisk) -> None:
    """As `mqksd --salvage` begins: the tool works on real files. What it leaves is on disk."""
    with tempfile.TemporaryDirectory(prefix="mqks-sim-") as name:
        folder = Path(name)
        for path, inode in disk.entries.items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_bytes(inode.data)
        salvage(folder)
        left = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    left.pop("lock", None)
    disk.changes.clear()
    disk.entries = {path: Inode(bytearray(data), bytearray(data)) for path, data in sorted(left.items())}
    disk.durable_entries = dict(disk.entries)
