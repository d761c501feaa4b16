"""Reads a journal from outside, also while a broker writes it: only files, only reading, no lock.

What is seen: whole valid batches, and in the segment that is being written, where the broker syncs before it confirms
(`always`), only those that are known to be on disk. There a mismatch means "not yet"; in a sealed segment, damage.
A reader is for one thread; any number of readers may look at one folder.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Event

from mqks.journal.errors import BeyondEnd, Damaged, PositionGone
from mqks.journal.files import SegmentFile, starts
from mqks.journal.format import HEADER_SIZE, PIECE, Header, Stop, dtid_floor, time_of
from mqks.journal.messages import Message, parse_message
from mqks.journal.ranges import EMPTY, covers, read_ranges
from mqks.names import Events

Place = int | str | datetime  # a position, "earliest", "latest", or a time

_LAST_DTID = b"~"  # sorts after every dtid


@dataclass(frozen=True, slots=True)
class Batch:
    """What the broker wrote at once. One without lines only tells what is on disk."""

    position: int
    end: int
    dtid: bytes
    count: int
    raw: bytes  # header and lines, as they stand in the file

    @property
    def time(self) -> datetime:
        return time_of(self.dtid)

    @property
    def lines(self) -> bytes:
        return self.raw[HEADER_SIZE:]


@dataclass(frozen=True, slots=True)
class Segment:
    start: int
    size: int
    first: datetime | None  # time of the first and the last batch
    last: datetime | None
    sealed: bool
    fsync: str  # empty while its first line is not there

    @property
    def end(self) -> int:
        return self.start + self.size


class Live:
    """How far the segment that is being written can be seen; each look goes on where the one before ended."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.visible = start
        self._offset = 0  # all before is valid
        self._waits = False  # for the sync
        self._synced = 0
        self._ends: deque[int] = deque()  # of the valid batches that cannot be seen yet

    def look(self, file: SegmentFile) -> int:
        """The visible end, as a position."""
        if self._offset == 0:
            line = file.first_line()
            if line is None:
                return self.visible
            self._offset = line.size
            self._waits = line.fsync == "always"
        batches = file.batches(self._offset, file.size)
        for header, _ in batches:
            self._synced = max(self._synced, header.synced)
            self._ends.append(header.end)
        self._offset = batches.offset
        # What proves it was on disk is damage, and no batch that is still being written.
        if batches.stop is not Stop.END and file.proves_damage(self.start + self._offset, self._offset + 1, file.size):
            raise Damaged(file.name, batches.offset, batches.reason)
        while self._ends and (self._ends[0] <= self._synced or not self._waits):
            self.visible = self._ends.popleft()
        return self.visible


class Reader:
    def __init__(
        self, folder: Path | str, *, verify: bool = True, poll: float = 0.05, stopping: Event | None = None
    ) -> None:
        """`poll` is how often, in seconds, one that follows looks for more; it ends when `stopping` is set."""
        self._folder = Path(folder)
        self._verify = verify
        self._poll = poll
        self._stopping = stopping or Event()
        self._live = Live(-1)
        starts(self._folder)  # is there a journal?

    # ── where things are ──

    @property
    def earliest(self) -> int:
        return next(iter(starts(self._folder)), 0)

    @property
    def latest(self) -> int:
        """The visible end."""
        return next((self._look(file) for file, _ in self._opened(starts(self._folder), -1)), 0)

    def segments(self) -> list[Segment]:
        return [_describe(file, sealed) for file, sealed in self._opened(starts(self._folder))]

    def find_time(self, time: datetime) -> int:
        """The position of the first batch of that time or later; the visible end if there is none yet."""
        wanted = dtid_floor(time)
        found = starts(self._folder)
        # The last segment that starts before that time holds the place, or ends where it is.
        index = bisect_left(range(len(found)), wanted, key=lambda at: self._first_dtid(found, at))
        for file, sealed in self._opened(found, max(index - 1, 0)):
            end = file.size if sealed else self._look(file) - file.start
            offset = file.find_dtid(wanted, end)
            if offset < end or not sealed:
                return file.start + offset
        return self.latest

    def _first_dtid(self, found: list[int], index: int) -> bytes:
        """The time at which a segment starts; one that is empty or gone starts when the next one does."""
        for start in found[index:]:
            try:
                with SegmentFile(self._folder, start) as file:
                    header = _first_header(file)
            except FileNotFoundError:
                continue
            if header is not None:
                return header.dtid
        return _LAST_DTID

    def _opened(self, found: list[int], index: int = 0) -> Iterator[tuple[SegmentFile, bool]]:
        """The segments from that one on, open, and whether each is sealed; those that vanish meanwhile are left out."""
        for start in found[index:]:
            try:
                file = SegmentFile(self._folder, start)
            except FileNotFoundError:
                continue
            with file:
                yield file, start != found[-1]

    def _look(self, file: SegmentFile) -> int:
        if self._live.start != file.start:
            self._live = Live(file.start)
        return self._live.look(file)

    def _resolve(self, place: Place) -> int:
        match place:
            case "earliest":
                return self.earliest
            case "latest":
                return self.latest
            case datetime():
                return self.find_time(place)
            case int():
                return place
        raise ValueError(f"{place!r} is no place in a journal: give a position, a datetime, 'earliest' or 'latest'")

    def _resolve_start(self, place: Place) -> int:
        position = self._resolve(place)
        if isinstance(place, int):
            self._check(position)
        return position

    def _check(self, position: int) -> None:
        """Can reading start there? In a gap it can where recovery cut the journal, not where something was removed."""
        found = starts(self._folder)
        index = bisect_right(found, position) - 1
        if found and index < 0:
            raise PositionGone(f"position {position} is gone: the journal starts at {found[0]}; read from there")
        end = 0
        for file, _ in self._opened(found, index):
            if file.start > position:
                header = _first_header(file)
                empty = read_ranges(self._folder, EMPTY)
                if header is not None and header.previous and not covers(empty, position, file.start):
                    raise PositionGone(f"position {position} is gone: the journal goes on at {file.start}")
                return
            end = file.start + file.size
            if position <= end:
                return
        if position != end:
            raise BeyondEnd(f"position {position} is beyond the end of the journal, {end}; is it the right folder?")

    # ── reading ──

    def batches(self, start: Place = "earliest", stop: Place | None = None, follow: bool = False) -> Iterator[Batch]:
        """From the batch that contains `start` to the one that contains the byte before `stop`."""
        steps = self._steps(self._resolve_start(start), None if stop is None else self._resolve(stop), follow)
        return (
            Batch(header.position, header.end, header.dtid, header.count, bytes(raw))
            for header, raw in filter(None, steps)
        )

    def raw(
        self, start: Place = "earliest", stop: Place | None = None, follow: bool = False, size: int = PIECE
    ) -> Iterator[bytes]:
        """The same batches, header and lines, joined to pieces of about that size."""
        return _join(
            self._steps(self._resolve_start(start), None if stop is None else self._resolve(stop), follow), size
        )

    def messages(
        self,
        start: Place = "earliest",
        stop: Place | None = None,
        events: Iterable[str | bytes] | None = None,
        follow: bool = False,
    ) -> Iterator[Message]:
        """The messages from `start` on, before `stop`; with `events` only those of these names and masks."""
        first, last = self._resolve_start(start), None if stop is None else self._resolve(stop)
        wanted = None if events is None else Events(one.encode() if isinstance(one, str) else one for one in events)
        return (
            message
            for header, raw in filter(None, self._steps(first, last, follow))
            for message in _messages(header, raw)
            if message.position >= first
            and (last is None or message.position < last)
            and (wanted is None or message.event in wanted)
        )

    def _steps(self, at: int, stop: int | None, follow: bool) -> Iterator[tuple[Header, memoryview] | None]:
        """The batches from there on; None where all that can be seen has been given, and it will wait or end."""
        exact = False  # does a batch or a segment start at `at`?
        while stop is None or at < stop:
            found = starts(self._folder)  # before any size: a segment that is sealed by now does not grow any more
            index = max(bisect_right(found, at) - 1, 0)
            last = index + 1 >= len(found)
            try:
                for header, raw in self._segment(found[index], last, at, exact) if found else ():
                    if stop is not None and header.position >= stop:
                        return
                    exact = True
                    at = header.end
                    yield header, raw
            except FileNotFoundError:
                continue  # retention was faster: look again
            if not last:
                at, exact = found[index + 1], True
                continue
            yield None
            if not follow or self._stopping.wait(self._poll):
                return

    def _segment(self, start: int, last: bool, at: int, exact: bool) -> Iterator[tuple[Header, memoryview]]:
        """The batches of one segment that end after `at`."""
        with SegmentFile(self._folder, start) as file:
            end = self._look(file) - start if last else file.size
            line = file.first_line() if end else None
            if line is None:
                if end:
                    raise Damaged(file.name, 0, "its first line is not that of a segment")
                return
            offset = max(at - start, line.size)
            if not exact:
                header = file.header_before(min(offset, end))
                offset = header.position - start if header else line.size
            batches = file.batches(offset, end, verify=self._verify and not last)  # the last one has been looked at
            for header, raw in batches:
                if header.end > at:
                    yield header, raw
            if batches.stop is not Stop.END:
                raise Damaged(file.name, batches.offset, batches.reason)


def _first_header(file: SegmentFile) -> Header | None:
    line = file.first_line()
    return file.header_at(line.size) if line else None


def _describe(file: SegmentFile, sealed: bool) -> Segment:
    size = file.size
    line = file.first_line()
    first = _first_header(file)
    last = file.header_before(size) if first else None
    return Segment(
        file.start,
        size,
        time_of(first.dtid) if first else None,
        time_of(last.dtid) if last else None,
        sealed,
        line.fsync if line else "",
    )


def _messages(header: Header, raw: memoryview) -> Iterator[Message]:
    time = time_of(header.dtid)
    position = header.position + HEADER_SIZE
    for line in bytes(raw[HEADER_SIZE:]).split(b"\n"):
        message = parse_message(line, position, time)
        if message is not None:
            yield message
        position += len(line) + 1


def _join(steps: Iterator[tuple[Header, memoryview] | None], size: int) -> Iterator[bytes]:
    parts: list[memoryview] = []
    waiting = 0
    for step in steps:
        if step is not None:
            parts.append(step[1])
            waiting += len(step[1])
        if parts and (step is None or waiting >= size):
            yield b"".join(parts)
            parts, waiting = [], 0
    if parts:
        yield b"".join(parts)
