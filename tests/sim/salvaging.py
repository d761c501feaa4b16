"""`--salvage` in the simulation: which batches are damaged, and a salvage of the fake disk's files."""

import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from mqks.journal.format import Batches, parse_segment_line, position_of
from mqks.journal.salvage import salvage
from tests.sim.disk import FakeDisk, Inode

ADVICE = "--salvage"


@dataclass
class Damage:
    """What bits that turned over have spoilt."""

    messages: set[bytes] = field(default_factory=set)  # ids of those in damaged batches
    elsewhere: bool = False  # something else is damaged too: what it may lead to is not known here


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
        content = inode.unflipped(inode.data)
        first = parse_segment_line(content)
        if first is None:
            found.elsewhere = True
            continue
        batches = Batches(partial(_read, content), start, first.size, len(content))
        for header, batch in batches:
            if any(header.position - start <= at < header.end - start for at in flips):
                lines = [line.split(b" ", 2) for line in bytes(batch).split(b"\n")[1:-1]]
                found.elsewhere |= any(line[1] not in (b"publish", b"send") for line in lines)
                found.messages |= {line[0] for line in lines}
        found.elsewhere |= any(at >= batches.offset for at in flips)
    return found


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
