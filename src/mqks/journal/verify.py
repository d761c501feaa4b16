"""Looks at every byte of a journal and says what is wrong: reads only, also while a broker writes.

`scan` walks one segment past any damage; salvage uses it too.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from mqks.journal.errors import UnknownVersion
from mqks.journal.files import SegmentFile, names, starts
from mqks.journal.format import FSYNC_MODES, HEADER_SIZE, Header, Stop, position_of, segment_line, segment_name
from mqks.journal.progress import journal_synced
from mqks.journal.ranges import LOST, Range, covers, read_ranges

FIRST_LINE_SIZES = [len(segment_line(b"0" * 24, mode)) for mode in FSYNC_MODES]
NO_SEGMENT_LINE = "its first line is not that of a segment"


class Lost(NamedTuple):
    """Bytes of a segment that belong to no valid batch."""

    offset: int
    end: int
    reason: str


class Problem(NamedTuple):
    segment: str
    offset: int
    text: str


class Gap(NamedTuple):
    """Positions that no segment has: removed by retention, cut by recovery, or lost."""

    start: int
    end: int


@dataclass
class Report:
    segments: int = 0
    batches: int = 0
    lines: int = 0
    bytes: int = 0
    gaps: list[Gap] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    torn: Problem | None = None  # what the next start of the broker will cut off: no damage

    @property
    def good(self) -> bool:
        return not self.problems


def scan(file: SegmentFile, size: int) -> Iterator[tuple[Header, memoryview] | Lost]:
    """Every valid batch that stands in its place, and what lies between, in order."""
    line = file.first_line()
    offset = line.size if line else _go_on(file, 0, size)
    lost = Lost(0, 0, NO_SEGMENT_LINE) if line is None and size else None
    while offset < size:
        batches = file.batches(offset, size)
        for header, raw in batches:
            if lost:
                yield lost._replace(end=header.position - file.start)
                lost = None
            yield header, raw
        if batches.stop is Stop.END:
            return
        lost = lost or Lost(batches.offset, size, batches.reason)
        offset = _go_on(file, batches.offset, size)
    if lost:
        yield lost._replace(end=size)


def _go_on(file: SegmentFile, bad: int, size: int) -> int:
    """Where the next batch after a bad place may start, or the size: at the next line that is a header.

    If only the newline before it is lost, the bad batch's own size tells it, or the length of a first line.
    """
    broken = file.header_at(bad)
    guesses = [broken.end - file.start] if broken else FIRST_LINE_SIZES if bad == 0 else []
    headers = [file.header_after(bad + 1, size), *map(file.header_at, guesses)]
    return min((header.position - file.start for header in headers if header), default=size)


def damage(lost: list[Lost], start: int, sealed: bool, synced: int) -> list[Lost]:
    """Those that a crash cannot explain: in a sealed segment all, in the last one what was known to be on disk."""
    return [one for one in lost if sealed or start + one.offset < synced]


def missing_end(folder: Path, end: int, synced: int) -> Range | None:
    """What was on disk beyond the end of the last segment, as progress knows, unless a salvage gave it up."""
    return None if covers(read_ranges(folder, LOST), end, synced) else (end, synced)


def verify(folder: Path | str, progress: Callable[[int, int], None] | None = None) -> Report:
    """`progress` is told the bytes done, and those in all."""
    return _Verifier(Path(folder), progress or _tell_nobody).run()


def _tell_nobody(*_: int) -> None:
    pass


class _Verifier:
    def __init__(self, folder: Path, progress: Callable[[int, int], None]) -> None:
        self.report = Report()
        self._folder = folder
        self._progress = progress
        self._total = 0
        # What the batch to come must fit to; no checksum where it may name any.
        self._start = 0
        self._end: int | None = None
        self._crc: int | None = None
        self._dtid = b""
        self._known = journal_synced(folder)  # of the last batches only progress may know that they were on disk
        self._synced = self._known

    def run(self) -> Report:
        found = starts(self._folder)
        for name in names(self._folder):
            if position_of(name) is None:
                self.report.problems.append(Problem(name, 0, "this is not the name of a segment: move it elsewhere"))
        self._total = sum(self._sizes(found))
        for start in found:
            try:
                with SegmentFile(self._folder, start) as file:
                    self._verify(file, sealed=start != found[-1])
            except FileNotFoundError:
                continue  # removed by retention meanwhile
        self._check_end()
        return self.report

    def _check_end(self) -> None:
        end = self._end or 0
        if missing := missing_end(self._folder, end, self._known):
            text = f"{missing[1] - missing[0]} bytes that were on disk are missing after its end"
            self.report.problems.append(Problem(segment_name(self._start), end - self._start, text))

    def _sizes(self, found: list[int]) -> Iterator[int]:
        for start in found:
            try:
                with SegmentFile(self._folder, start) as file:
                    yield file.size
            except FileNotFoundError:
                continue

    def _verify(self, file: SegmentFile, sealed: bool) -> None:
        size, done = file.size, self.report.bytes
        self.report.segments += 1
        self.report.bytes += size
        self._arrive(file)
        lost = []
        try:
            for found in scan(file, size):
                if isinstance(found, Lost):
                    lost.append(found)
                    self._crc = None
                else:
                    self._check(file, *found)
                    self._progress(min(done + found[0].end - file.start, self._total), self._total)
        except UnknownVersion as error:
            self.report.problems.append(Problem(file.name, 0, str(error)))
            self._crc = None
        self._start, self._end = file.start, file.start + size
        damaged = damage(lost, file.start, sealed, self._synced)
        for one in lost:
            problem = Problem(file.name, one.offset, f"{one.reason} ({one.end - one.offset} bytes)")
            if one in damaged:
                self.report.problems.append(problem)
            else:
                self.report.torn = self.report.torn or problem
        self._progress(min(done + size, self._total), self._total)

    def _arrive(self, file: SegmentFile) -> None:
        """At the next segment: does it start where the one before ended?"""
        if self._end is None:
            self._crc = 0 if file.start == 0 else None
        elif file.start > self._end:
            self._crc = None
            self.report.gaps.append(Gap(self._end, file.start))
        elif file.start < self._end:
            self._crc = None
            self.report.problems.append(
                Problem(file.name, 0, f"it starts before the end of the one before, {self._end}")
            )

    def _check(self, file: SegmentFile, header: Header, raw: memoryview) -> None:
        lines = bytes(raw[HEADER_SIZE:])
        mistakes = {
            "the batch does not name the checksum of the one before": self._crc not in (None, header.previous),
            f"the batch says {header.count} lines, and has {lines.count(10)}": header.count != lines.count(10),
            "the last line of the batch has no end": bool(lines) and not lines.endswith(b"\n"),
            "the batch is older than the one before": header.dtid < self._dtid,
            f"the batch calls {header.synced} synced, which is beyond itself": header.synced > header.position,
        }
        for text, wrong in mistakes.items():
            if wrong:
                self.report.problems.append(Problem(file.name, header.position - file.start, text))
        self.report.batches += 1
        self.report.lines += header.count
        self._crc = header.crc
        self._dtid = max(self._dtid, header.dtid)
        self._synced = max(self._synced, header.synced)
