"""The journal in a data folder, for tasks that read parts of it side by side: only files, only reading.

A part is a range of positions and means the batches that begin in it, so it may be cut anywhere. All that is asked to
be read lies below the visible end, which the driver has seen: what is not valid there is damage, also in the live
segment.
"""

from bisect import bisect_right
from collections.abc import Generator, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from mqks.journal import BeyondEnd, Damaged, PositionGone, Reader
from mqks.journal.columns import Columns
from mqks.journal.files import SegmentFile, starts
from mqks.journal.format import Header, batch_crc
from pyspark_mqks.loss import Lost

PIECE = 1 << 19  # read at once: two batches that are full, and little enough for the caches


class Folder:
    def __init__(self, path: str, lost: Lost) -> None:
        self._path = Path(path)
        self._lost = lost
        self._reader = Reader(self._path)

    # ── where things are ──

    def earliest(self) -> int:
        return self._reader.earliest

    def latest(self) -> int:
        """The visible end."""
        return self._reader.latest

    def at(self, time: datetime) -> int:
        """Where the first batch of that time or later begins."""
        return self._reader.find_time(time)

    def begin(self, position: int) -> int:
        """Where to begin, to have all from this position on: at its batch, at the next there is, or at the end."""
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
        header = self._batch_with(position)
        return header.position if header else position

    def advance(self, start: int, latest: int, rows: int | None, size: int | None) -> int:
        """How far to go from `start` with so many rows and bytes at most, but at least one batch: where one ends."""
        stop = latest
        if size is not None and start + size < latest:
            header = self._batch_with(start + size)
            stop = start + size if header is None else header.position if header.position > start else header.end
        if rows is None:
            return min(stop, latest)
        at = start
        for header in self._headers(start, stop):
            rows -= header.count
            if rows < 0 and at > start:
                return at
            at = header.end
        return min(stop, latest)

    def _batch_with(self, position: int) -> Header | None:
        """The batch that has this position; None between segments, in the first line of one, and at the end."""
        found = starts(self._path)
        index = bisect_right(found, position) - 1
        if index >= 0:
            with suppress(FileNotFoundError), SegmentFile(self._path, found[index]) as file:
                header = file.header_before(min(position - file.start, file.size))
                return header if header and header.end > position else None
        return None

    def _headers(self, start: int, stop: int) -> Iterator[Header]:
        """Of the batches that begin in the range, as far as they can be read."""
        found = starts(self._path)
        for segment in found[max(bisect_right(found, start) - 1, 0) :]:
            if segment >= stop:
                return
            with suppress(FileNotFoundError), SegmentFile(self._path, segment) as file:
                size = file.size
                header = file.header_after(max(start - segment, 1), size)
                while header is not None and header.position < stop:
                    yield header
                    end = header.end - segment
                    header = file.header_at(end) or file.header_after(end, size)

    # ── reading ──

    def scan(self, columns: Columns, start: int, stop: int) -> Iterator[None]:
        """Feed the batches that begin in the range; every now and then the caller may take what is there."""
        at, exact = start, False  # does a batch or a segment begin at `at`?
        while at < stop:
            found = starts(self._path)  # before any size: a segment that is sealed by now does not grow any more
            index = bisect_right(found, at) - 1
            if index >= 0:
                with (
                    suppress(FileNotFoundError),
                    SegmentFile(self._path, found[index]) as file,
                ):  # or retention was faster
                    at = yield from self._scan_segment(columns, file, at, stop, exact)
            if at >= stop:
                return
            if index + 1 < len(found):
                self._step_over(at, found[index + 1], index < 0)
                at, exact = found[index + 1], True
            elif starts(self._path) == found:
                self._lost(at, stop, f"the journal ends at {at}, and was longer when the query was planned")
                return

    def _step_over(self, at: int, following: int, gone: bool) -> None:
        """From the end of a segment to the next one: where recovery has cut the journal nothing is missing."""
        if at == following:
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
        if line is None:
            offset = self._damaged(file, offset, size, "its first line is not that of a segment")
        elif offset <= line.size:
            offset = line.size
        elif not exact:
            offset = _first_batch(file, offset, size)
        need = 0
        while offset < size and file.start + offset < stop:
            piece = file.read(max(min(PIECE, stop - file.start - offset), need), offset)
            offset += columns.feed(piece, file.start + offset, stop)
            need = columns.need
            if columns.why == "bad":
                offset = self._damaged(file, offset, size, "there is no valid batch where one should be")
            elif offset + need > size:
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
