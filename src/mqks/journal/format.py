"""The text format of the journal in one place: names, lines, checksums, and the one way to walk the batches of a file.

docs/JOURNAL.md is this file in prose. Nothing here opens a file: `Batches` is given a function that reads, so that the
broker's recovery (over its disk seam) and readers from outside (over real files) share it.
"""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from enum import Enum
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

Buffer = bytes | bytearray | memoryview
Read = Callable[[int, int], bytes]  # (size, offset) → the bytes there, less only at the end of the file

VERSION = 1
FSYNC_MODES = ("always", "interval", "never")
HEADER_SIZE = 111
FIRST_LINE_ROOM = 256  # the first line of a segment, of whatever version, fits into this
PIECE = 1 << 20  # read at once

_TIME = rb"(?!0000)[0-9]{4}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])(?:[01][0-9]|2[0-3])(?:[0-5][0-9]){2}[0-9]{6}"
_DTID = _TIME + rb"[0-9A-Za-z]{4}"
_HEADER = rb"(%s) batch ([0-9]{20}) ([0-9]{10}) ([0-9]{8}) ([0-9]{20}) ([0-9a-f]{8}) ([0-9a-f]{8})\n" % _DTID
_header = re.compile(_HEADER)
_header_after_line = re.compile(rb"\n" + _HEADER)
_segment_line = re.compile(rb"(%s) segment ([1-9][0-9]{0,8})(?: ([^\n]*))?\n" % _DTID)
_segment_name = re.compile(r"([0-9]{20})\.mqks")

_BATCH = b" batch "
_DTID_SIZE = 24
_CRC_AT, _CRC_END = 93, 101  # where a header has its checksum
_NO_CRC = b"00000000"


# ── segments ──


class SegmentLine(NamedTuple):
    """The first line of a segment. Of a version that is not ours nothing but the version is understood."""

    dtid: bytes
    version: int
    fsync: str
    size: int


def segment_name(position: int) -> str:
    return f"{position:020d}.mqks"


def position_of(name: str) -> int | None:
    """The position of a segment's first byte; None where the name is not that of a segment."""
    match = _segment_name.fullmatch(name)
    return int(match[1]) if match else None


def segment_line(dtid: bytes, fsync: str) -> bytes:
    return b"%s segment %d %s\n" % (dtid, VERSION, fsync.encode())


def parse_segment_line(data: Buffer) -> SegmentLine | None:
    """The line at the start of the data (more may follow); None where there is no whole and legal one."""
    match = _segment_line.match(data)
    if match is None:
        return None
    line = SegmentLine(match[1], int(match[2]), (match[3] or b"").decode("ascii", "replace"), match.end())
    return line if line.version != VERSION or line.fsync in FSYNC_MODES else None


# ── batches ──


class Header(NamedTuple):
    """The first line of a batch."""

    dtid: bytes
    position: int
    bytes: int
    count: int  # type: ignore[assignment]  # the format's own word, dearer than tuple's method
    synced: int
    crc: int
    previous: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return HEADER_SIZE + self.bytes

    @property
    def end(self) -> int:
        """The position after the batch."""
        return self.position + HEADER_SIZE + self.bytes


def parse_header(line: Buffer) -> Header | None:
    """Strict: every field in its full width, and nothing after it."""
    match = _header.fullmatch(line)
    if match is None:
        return None
    dtid, position, size, count, synced, crc, previous = match.groups()
    return Header(dtid, int(position), int(size), int(count), int(synced), int(crc, 16), int(previous, 16))


def header_line(header: Header) -> bytes:
    return b"%s batch %020d %010d %08d %020d %08x %08x\n" % header


def batch_crc(batch: Buffer) -> int:
    """The checksum of a whole batch, its own 8 characters read as zeros."""
    view = memoryview(batch)
    return crc32(view[_CRC_END:], crc32(_NO_CRC, crc32(view[:_CRC_AT])))


def build_batch(dtid: bytes, position: int, lines: bytes, synced: int, previous: int) -> bytes:
    header = Header(dtid, position, len(lines), lines.count(b"\n"), synced, 0, previous)
    crc = batch_crc(header_line(header) + lines)
    return header_line(header._replace(crc=crc)) + lines


def find_header(data: bytes, start: int = 0) -> int:
    """The first place at or after `start` where a line looks like a header, -1 if none.

    A line starts after a newline that is in the data: what stands at 0 may be the middle of a line and never counts.
    """
    match = _header_after_line.search(data, max(start - 1, 0))
    return match.start() + 1 if match else -1


def rfind_header(data: bytes, end: int | None = None) -> int:
    """The last place before `end` where a line looks like a header, -1 if none."""
    stop = len(data) if end is None else end + _DTID_SIZE + len(_BATCH) - 1
    while (found := data.rfind(_BATCH, 0, stop)) > _DTID_SIZE:
        if _header_after_line.match(data, found - _DTID_SIZE - 1):
            return found - _DTID_SIZE
        stop = found
    return -1


class Stop(Enum):
    END = "end"  # at the end of the file, between two batches
    TORN = "torn"  # the file ends inside a batch
    BAD = "bad"  # what stands there is no valid batch


class Batches:
    """Iterates the valid batches of a segment, as (header, whole batch), from an offset where one starts.

    It never raises for what it reads: it ends, and then `stop` and `reason` say why and `offset` says where. While it
    runs, `offset` is the end of the batch given last. The given batch is a view of memory that stays valid.
    """

    def __init__(
        self,
        read: Read,
        start: int,  # position of the file's first byte
        offset: int,  # in the file
        end: int,  # the size of the file, or where to stop
        *,
        previous: int | None = None,  # checksum of the batch before, if known
        chain: bool = True,  # must each batch name the checksum of the one before?
        verify: bool = True,  # compute checksums?
    ) -> None:
        self.offset = offset
        self.stop: Stop | None = None
        self.reason = ""
        self._read = read
        self._start = start
        self._end = end
        self._previous = previous
        self._chain = chain
        self._verify = verify

    def __iter__(self) -> Iterator[tuple[Header, memoryview]]:
        piece, at = memoryview(b""), 0  # `at` in the piece is `offset` in the file
        while self.offset < self._end:
            if len(piece) - at < HEADER_SIZE:
                piece, at = self._more(piece[at:], HEADER_SIZE), 0
            header = parse_header(piece[at : at + HEADER_SIZE])
            if header is None:
                self._stopped(*(_NO_HEADER if len(piece) - at >= HEADER_SIZE else _TORN_HEADER))
                return
            if header.position != self._start + self.offset:
                self._stopped(Stop.BAD, f"a batch of position {header.position} stands where it does not belong")
                return
            size = HEADER_SIZE + header.bytes
            if size > len(piece) - at:
                if size <= self._end - self.offset:
                    piece, at = self._more(piece[at:], size), 0
                if size > len(piece) - at:
                    self._stopped(*_TORN_BATCH)
                    return
            batch = piece[at : at + size]
            if self._verify and batch_crc(batch) != header.crc:
                self._stopped(*_WRONG_CRC)
                return
            if self._chain and self._previous not in (None, header.previous):
                self._stopped(*_NOT_CHAINED)
                return
            self._previous = header.crc
            self.offset += size
            at += size
            yield header, batch
        self._stopped(Stop.END, "")

    def _more(self, rest: memoryview, need: int) -> memoryview:
        """The rest of the piece with the next one: `need` bytes or more, less only at the end."""
        offset = self.offset + len(rest)
        size = min(max(PIECE, need - len(rest)), self._end - offset)
        more = self._read(size, offset) if size > 0 else b""
        return memoryview(bytes(rest) + more if rest else more)

    def _stopped(self, stop: Stop, reason: str) -> None:
        self.stop, self.reason = stop, reason


_TORN_HEADER = (Stop.TORN, "the file ends inside the header of a batch")
_TORN_BATCH = (Stop.TORN, "the file ends inside a batch")
_NO_HEADER = (Stop.BAD, "there is no batch header where one should be")
_WRONG_CRC = (Stop.BAD, "the checksum of the batch is wrong")
_NOT_CHAINED = (Stop.BAD, "the batch does not name the checksum of the one before")


# ── time ──


def time_of(dtid: bytes) -> datetime:
    """The time that a dtid tells, in UTC."""
    year, month, day, hour, minute, second = (int(dtid[a:b]) for a, b in pairwise((0, 4, 6, 8, 10, 12, 14)))
    first = datetime(year, month, 1, hour, minute, second, int(dtid[14:20]), UTC)
    return first + timedelta(days=day - 1)  # so that no header can make this fail: 30 February is a day in March


def dtid_floor(time: datetime) -> bytes:
    """The smallest dtid of that time; a time without a zone is UTC."""
    utc = time.astimezone(UTC) if time.tzinfo else time
    return (f"{utc.year:04d}" + utc.strftime("%m%d%H%M%S%f0000")).encode()
