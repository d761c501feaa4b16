"""The journal as the oracle reads it: the text on the fake disk, checked by what docs/JOURNAL.md says of it."""

from functools import partial

from mqks.journal.format import Batches, parse_header, parse_segment_line, position_of, rfind_header
from tests.sim.disk import FakeDisk
from tests.sim.links import Violation


def lines(disk: FakeDisk, *actions: bytes) -> list[bytes]:
    """The lines of these actions, in all segments."""
    wanted = [[action] for action in actions]
    text = (line for content in disk.written("journal").values() for line in content.split(b"\n"))
    return [line for line in text if line.split(b" ", 2)[1:2] in wanted]


def check_format(disk: FakeDisk, *, may_be_torn: bool = False) -> None:
    """Every segment is valid from its first byte to its last, and starts where the one before ends or beyond. A full
    disk may have taken only a part of the last write."""
    end = 0
    last = max(disk.written("journal"), default="")
    for name, content in disk.written("journal").items():
        if not content:
            continue
        start = position_of(name)
        if start is None or start < end:
            raise Violation(f"the segment {name} starts before {end}, where the one before it ends")
        first = parse_segment_line(content)
        if first is None:
            raise Violation(f"the segment {name} has no first line")
        batches = Batches(partial(_read, content), start, first.size, len(content))
        for _ in batches:
            pass
        torn = may_be_torn and name == last and str(batches.reason).startswith("the file ends")
        if batches.reason and not torn:
            raise Violation(f"the segment {name} is bad at {batches.offset}: {batches.reason}")
        end = start + len(content)


def _read(content: bytes, size: int, offset: int) -> bytes:
    return content[offset : offset + size]


def check_synced(disk: FakeDisk) -> int:
    """What the last batch says of the disk is true. Answers up to where it says that the journal is on it."""
    files = disk.content("journal")
    last = next(reversed(files.values()), b"")
    at = rfind_header(last)
    header = parse_header(last[at : last.index(b"\n", at) + 1]) if at >= 0 else None
    if header is None:
        return 0
    durable = disk.durable("journal")
    for name, content in files.items():
        size = header.synced - (position_of(name) or 0)
        if size > 0 and durable.get(name, b"")[:size] != content[:size]:
            raise Violation(f"a batch says that the journal is on disk up to {header.synced}, and {name} is not")
    return header.synced
