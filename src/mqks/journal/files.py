"""Looking into segments: where batches are, by place and by time; and segments as files of a real folder.

Nothing here writes, locks or keeps the broker waiting.
"""

import os
from pathlib import Path
from types import TracebackType

from mqks.journal.errors import JournalError, UnknownVersion
from mqks.journal.format import (
    FIRST_LINE_ROOM,
    HEADER_SIZE,
    VERSION,
    Batches,
    Header,
    Read,
    SegmentLine,
    find_header,
    parse_header,
    parse_segment_line,
    position_of,
    rfind_header,
    segment_name,
)

SEGMENTS = "journal"
ASIDE = "aside"
_LOOK = 1 << 12  # read first when looking for a header; then more and more
_LOOK_MOST = 1 << 18


def starts(folder: Path) -> list[int]:
    """The positions at which the segments of a data folder start, in order."""
    return sorted(start for name in names(folder) if (start := position_of(name)) is not None)


def names(folder: Path) -> list[str]:
    """All that lies where the segments are."""
    try:
        return sorted(os.listdir(folder / SEGMENTS))  # noqa: PTH208  # no Path per file: this runs at every poll
    except (FileNotFoundError, NotADirectoryError):
        raise JournalError(f"there is no journal in {folder}: name the folder that the broker has as --data") from None


class SegmentView:
    """One segment, through a function that reads it. Offsets count from the start of the file."""

    def __init__(self, start: int, read: Read) -> None:
        self.start = start
        self.name = segment_name(start)
        self._read = read

    def read(self, size: int, offset: int) -> bytes:
        return self._read(size, offset)

    def first_line(self) -> SegmentLine | None:
        """None where it is missing, torn or damaged."""
        line = parse_segment_line(self.read(FIRST_LINE_ROOM, 0))
        if line is not None and line.version != VERSION:
            raise UnknownVersion(self.name, line.version)
        return line

    def batches(self, offset: int, end: int, *, verify: bool = True) -> Batches:
        """The batches from there on; what a chain of checksums may tell beyond that is `mqks.journal.verify`'s."""
        return Batches(self.read, self.start, offset, end, chain=False, verify=verify)

    def header_at(self, offset: int) -> Header | None:
        """The header there; that it is in its own place is checked, its checksum is not."""
        header = parse_header(self.read(HEADER_SIZE, offset))
        return header if header is not None and header.position == self.start + offset else None

    def header_after(self, offset: int, end: int) -> Header | None:
        """The first header at or after the offset that ends by `end`."""
        at, look = max(offset - 1, 0), _LOOK
        while at + HEADER_SIZE < end:
            data = self.read(min(look, end - at), at)
            found = -1
            while (found := find_header(data, found + 1)) >= 0:
                if header := self._in_place(data, found, at):
                    return header
            if at + len(data) >= end or len(data) <= HEADER_SIZE:
                break
            at += len(data) - HEADER_SIZE  # the newline before a header that is only half in the data
            look = min(look * 4, _LOOK_MOST)
        return None

    def header_before(self, offset: int) -> Header | None:
        """The last header that starts at or before the offset: that of the batch that contains it."""
        look = _LOOK
        while True:
            at = max(offset - look, 0)
            data = self.read(offset + HEADER_SIZE - at, at)
            found = offset - at + 1
            while (found := rfind_header(data, found)) >= 0:
                if header := self._in_place(data, found, at):
                    return header
            if at == 0:
                return None
            look *= 4

    def batch_with(self, position: int) -> tuple[Header, memoryview] | None:
        """The batch that contains this position, if it is whole and valid."""
        header = self.header_before(position - self.start)
        if header is None or position >= header.end:
            return None
        return next(iter(self.batches(header.position - self.start, header.end - self.start)), None)

    def _in_place(self, data: bytes, found: int, at: int) -> Header | None:
        header = parse_header(data[found : found + HEADER_SIZE])
        return header if header is not None and header.position == self.start + at + found else None

    def proves_damage(self, bad: int, offset: int, end: int) -> bool:
        """Does a valid batch between these offsets say that the position `bad` was safely on disk?"""
        header = self.header_after(offset, end)
        while header is not None:
            for valid, _ in self.batches(header.position - self.start, end):
                if valid.synced > bad:
                    return True
                header = valid
            header = self.header_after(header.position - self.start + 1, end)
        return False

    def find_dtid(self, wanted: bytes, end: int) -> int:
        """The offset of the first batch with that dtid or a later one, or `end`: by halving, not by walking."""
        line = self.first_line()
        if line is None or line.size > end:
            return end
        low, high = line.size, end  # batches that start before `low` are earlier, from `high` on there is none earlier
        while low < high:
            header = self.header_at(low)
            if header is None or header.dtid >= wanted:
                return low
            low = min(header.end - self.start, end)
            middle = (low + high) // 2
            header = self.header_after(middle, high + HEADER_SIZE)
            if header is None or header.position - self.start >= high or header.dtid >= wanted:
                high = middle
            else:
                low = min(header.end - self.start, end)
        return low


class SegmentFile(SegmentView):
    """One segment of a real folder, open. FileNotFoundError if retention has removed it."""

    def __init__(self, folder: Path, start: int) -> None:
        self._fd = os.open(folder / SEGMENTS / segment_name(start), os.O_RDONLY | os.O_CLOEXEC)
        super().__init__(start, lambda size, offset: os.pread(self._fd, size, offset))

    def __enter__(self) -> "SegmentFile":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._fd)

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size
