"""The journal in a data folder, for tasks that read parts of it side by side: only files, only reading.

A part is a range of positions and means the batches that begin in it, so it may be cut anywhere. All that is asked to
be read lies below the visible end, which the driver has seen: what is not valid there is damage, also in the live
segment.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from mqks.journal import BeyondEnd, Damaged, PositionGone, Reader
from mqks.journal.columns import Columns
from mqks.journal.files import SegmentFile, starts
from mqks.journal.format import HEADER_SIZE, Header, Stop, batch_crc, dtid_floor, parse_header
from mqks.journal.ranges import EMPTY, covers, read_ranges
from pyspark_mqks.journal import Journal, fitting
from pyspark_mqks.loss import Lost

PIECE = 1 << 19  # read at once: two batches that are full, and little enough for the caches
LOOK = 1 << 16  # read at once where only headers are wanted: of large batches one, of small ones hundreds


class Behind:
    """How far a live segment can be seen that has damage; each look goes on where the one before ended.

    What is behind the damage is shown as in any live segment. That there is damage is for those who read it to say.
    """

    def __init__(self, start: int) -> None:
        self.start = start
        self._visible = start
        self._offset: int | None = None  # all before was looked at
        self._waits = False  # for the sync
        self._synced = 0
        self._ends: deque[int] = deque()  # of the valid batches that cannot be seen yet

    def look(self, file: SegmentFile) -> int:
        """The visible end, as a position."""
        size = file.size
        if self._offset is None:
            line = file.first_line()
            if line is None:
                return self._visible
            self._offset = line.size
            self._waits = line.fsync == "always"
        while True:
            batches = file.batches(self._offset, size)
            for header, _ in batches:
                self._synced = max(self._synced, header.synced)
                self._ends.append(header.end)
            self._offset = batches.offset
            following = None if batches.stop is Stop.END else file.header_after(self._offset + 1, size)
            if following is None:
                break
            self._offset = following.position - file.start
        while self._ends and (self._ends[0] <= self._synced or not self._waits):
            self._visible = self._ends.popleft()
        return self._visible


class Folder(Journal):
    def __init__(self, path: str, lost: Lost) -> None:
        self._path = Path(path)
        self._lost = lost
        self._reader = Reader(self._path)
        self._behind = Behind(-1)

    # ── where things are ──

    def earliest(self) -> int:
        return self._reader.earliest

    def latest(self) -> int:
        try:
            return self._reader.latest
        except Damaged:
            with SegmentFile(self._path, starts(self._path)[-1]) as file:
                if self._behind.start != file.start:
                    self._behind = Behind(file.start)
                return self._behind.look(file)

    def at(self, time: datetime) -> int:
        try:
            return self._reader.find_time(time)
        except Damaged:  # the live segment, where it must be then
            with SegmentFile(self._path, starts(self._path)[-1]) as file:
                return file.start + file.find_dtid(dtid_floor(time), self.latest() - file.start)

    def check(self, position: int) -> int:
        try:
            self._reader.raw(position, position)  # this only checks the position
        except PositionGone as gone:
            following = next((start for start in starts(self._path) if start > position), position)
            self._lost(position, following, str(gone))
            return following
        except BeyondEnd as beyond:
            latest = self.latest()
            self._lost(latest, position, str(beyond))
            return latest
        return position

    def batch_with(self, position: int) -> Header | None:
        """None between segments, in the first line of one, and at the end."""
        found = starts(self._path)
        opened = self._open(found, bisect_right(found, position) - 1)
        if opened is None:
            return None
        with opened as file:
            header = file.header_before(min(position - file.start, file.size))
            return header if header and header.end > position else None

    def count(self, start: int, stop: int, rows: int) -> int:
        return fitting(self._headers(start, stop), stop, rows)

    def _headers(self, start: int, stop: int) -> Iterator[Header]:
        """Of the batches that begin in the range, as far as they can be read."""
        found = starts(self._path)
        for segment in found[max(bisect_right(found, start) - 1, 0) :]:
            if segment >= stop:
                return
            with suppress(FileNotFoundError), SegmentFile(self._path, segment) as file:
                for header in _headers(file, max(start - segment, 1)):
                    if header.position >= stop:
                        return
                    yield header

    # ── reading ──

    def scan(self, columns: Columns, start: int, stop: int) -> Iterator[None]:
        at, exact = start, False  # does a batch or a segment begin at `at`?
        while at < stop:
            found = starts(self._path)  # before any size: a segment that is sealed by now does not grow any more
            index = bisect_right(found, at) - 1
            opened = self._open(found, index)
            if opened is not None:
                with opened as file:
                    at = yield from self._scan_segment(columns, file, at, stop, exact)
            if at >= stop:
                return
            if index + 1 < len(found):
                self._step_over(at, found[index + 1], gone=opened is None)
                at, exact = found[index + 1], True
            elif starts(self._path) == found:
                self._lost(at, stop, f"the journal ends at {at}, and was longer when the query was planned")
                return

    def _open(self, found: list[int], index: int) -> SegmentFile | None:
        """None before the first segment, and where retention was faster."""
        try:
            return SegmentFile(self._path, found[index]) if index >= 0 else None
        except FileNotFoundError:
            return None

    def _step_over(self, at: int, following: int, gone: bool) -> None:
        """From the end of a segment to the next one: nothing is missing where recovery has cut the journal, and where
        what was removed had no message."""
        if at == following or covers(read_ranges(self._path, EMPTY), at, following):
            return
        found = starts(self._path)
        for start in found[bisect_right(found, following) - 1 :]:
            with suppress(FileNotFoundError), SegmentFile(self._path, start) as file:
                line = file.first_line()
                header = file.header_at(line.size) if line else None
                if header is not None:
                    gone = gone or header.previous != 0
                    break
        if gone:
            self._lost(at, following, f"they are not in the folder any more, it goes on at {following}")

    def _scan_segment(
        self, columns: Columns, file: SegmentFile, at: int, stop: int, exact: bool
    ) -> Generator[None, None, int]:
        """Feed the batches of one segment that begin in the range; answers how far that has come."""
        size = file.size
        offset = at - file.start
        if offset >= size:
            return at
        line = file.first_line()
        if line is None and offset == 0:
            offset = self._damaged(file, offset, size, "its first line is not that of a segment")
        elif line is not None and offset <= line.size:
            offset = line.size
        elif not exact:
            offset = _first_batch(file, offset, size)
        need = 0
        while offset < size and file.start + offset < stop:
            wanted = max(min(PIECE, stop - file.start - offset), need)
            piece = file.read(wanted, offset)
            cut = len(piece) < min(wanted, size - offset)  # by someone, while we read
            offset += columns.feed(piece, file.start + offset, stop)
            need = columns.need
            if columns.why == "bad":
                offset = self._damaged(file, offset, size, "there is no valid batch where one should be")
            elif cut or offset + need > size:
                offset = self._damaged(file, offset, size, "the file ends inside a batch")
                need = 0
            yield
        return file.start + offset

    def _damaged(self, file: SegmentFile, offset: int, size: int, reason: str) -> int:
        """Where the next batch begins, or the file ends."""
        header = file.header_after(offset + 1, size)
        following = header.position if header else file.start + size
        self._lost(file.start + offset, following, str(Damaged(file.name, offset, reason)))
        return following - file.start


def _first_batch(file: SegmentFile, offset: int, size: int) -> int:
    """The first batch that begins at the offset or later.

    What follows a valid batch is taken as the next one, also if it does not look like one: so damage at the border of
    two parts is noticed by the one that it belongs to.
    """
    header = file.header_before(offset)
    if header is not None:
        begin, end = header.position - file.start, header.end - file.start
        if begin == offset:
            return offset
        batch = file.read(header.size, begin)
        if end >= offset and len(batch) == header.size and batch_crc(batch) == header.crc:
            return end
    header = file.header_after(offset, size)
    return header.position - file.start if header else size


def _headers(file: SegmentFile, offset: int) -> Iterator[Header]:
    """Of the batches that begin there or later, as far as they can be read."""
    size = file.size
    header = file.header_after(offset, size)
    data, begin = b"", 0
    while header is not None:
        yield header
        offset = header.end - file.start
        if offset + HEADER_SIZE > begin + len(data):
            data, begin = file.read(LOOK, offset), offset
        header = parse_header(data[offset - begin : offset - begin + HEADER_SIZE])
        if header is None or header.position != file.start + offset:
            header = file.header_after(offset, size)
