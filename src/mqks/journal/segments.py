"""The segments on disk, as the broker writes them: which there are, and where a position is.

It gets bytes that are batches already (the core makes them) and puts them where they belong. Files that were written
and not yet synced are remembered here, together with the folder whenever it has a new name in it.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain, count

from mqks.core.disk import disk_of
from mqks.core.hub import Core
from mqks.journal import ranges
from mqks.journal.disk import Disk, Reserve, sync_folder
from mqks.journal.files import SegmentView
from mqks.journal.format import (
    FIRST_LINE_ROOM,
    HEADER_SIZE,
    PIECE,
    Batches,
    Read,
    parse_header,
    parse_segment_line,
    position_of,
    segment_name,
    time_of,
)

FOLDER = "journal"
LOOKED_AT = (4 << 10, 64 << 10, 4 << 20)  # bytes of a segment in which a message is looked for, first and at most
AHEAD = 4 << 20  # bytes of disk that are made sure of before they are needed
MOST_OPEN = 64
_message = re.compile(rb"\n[^ \n]+ (?:publish|send) ")

Piece = tuple[int, memoryview, bool]  # position, bytes, do they begin a file


class Segments:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._writer = disk_of(disk)
        found = ((position_of(name), size) for name, size in disk.files(FOLDER).items())
        self.sizes = {start: size for start, size in found if start is not None}
        self._folder = disk.open_folder(FOLDER)
        self._lost = self._read_ranges(ranges.LOST)
        self._empty = self._read_ranges(ranges.EMPTY)
        self._gone: list[ranges.Range] = []  # segments with messages that retention has removed since the start
        self._starts = sorted(self.sizes)
        self._files: dict[int, int] = {}  # start → handle, of those open
        self._removed: set[int] = set()  # handles that are still open
        self._unsynced: dict[int, None] = {}  # starts
        self._folder_unsynced = False
        self._reserve = Reserve(disk, AHEAD)
        self._passed: set[int] = set()

    @property
    def starts(self) -> list[int]:
        return self._starts

    @property
    def total(self) -> int:
        return sum(self.sizes.values())

    @property
    def earliest(self) -> int:
        return self._starts[0] if self._starts else 0

    def end_of(self, start: int) -> int:
        return start + self.sizes[start]

    def file(self, start: int) -> int:
        if start not in self._files:
            self._files[start] = self._disk.open(f"{FOLDER}/{segment_name(start)}")
        return self._files[start]

    def read(self, start: int, size: int, offset: int) -> bytes:
        return self._disk.read(self.file(start), size, offset)

    def holding(self, position: int) -> int | None:
        """The start of the segment that has this position."""
        at = bisect_right(self._starts, position) - 1
        if at < 0 or position >= self.end_of(self._starts[at]):
            return None
        return self._starts[at]

    def after(self, position: int) -> int | None:
        """The start of the first segment that begins beyond this position."""
        at = bisect_right(self._starts, position)
        return self._starts[at] if at < len(self._starts) else None

    def view(self, start: int) -> SegmentView:
        return SegmentView(start, lambda size, offset: self.read(start, size, offset))

    def follows_gap(self, start: int) -> bool:
        """Did the broker that began this segment know that nothing stands right before it?"""
        line = self.view(start).first_line()
        first = parse_header(self.read(start, HEADER_SIZE, line.size)) if line else None
        return first is None or first.previous == 0

    def misses_nothing(self, start: int, following: int, *, given_up: bool) -> bool:
        """Between two segments: was there never a message, or (given_up) did a salvage give up what was there?"""
        if ranges.overlaps(self._gone, start, following):
            return False
        return (
            self.follows_gap(following)
            or ranges.covers(self._empty, start, following)
            or (given_up and ranges.overlaps(self._lost, start, following))
        )

    # ── for those who look: any thread may call these, while the broker writes and removes ──

    def lines_at(self, positions: Iterable[int], most: int) -> dict[int, tuple[bytes, int]]:
        """The lines that begin at these positions, without their newlines, if the files have them whole: `most` bytes
        of each, and how many it has."""
        found = {}
        start, batch = 0, b""
        for position in sorted(set(positions)):
            if position >= start + len(batch):
                with suppress(OSError):
                    view = self._view_apart(position)
                    if view and (holding := view.batch_with(position)):
                        start, batch = holding[0].position, bytes(holding[1])
            at = position - start
            if HEADER_SIZE <= at < len(batch) and batch[at - 1 : at] == b"\n":
                size = batch.index(b"\n", at) - at
                found[position] = batch[at : at + min(size, most)], size
        return found

    def time_at(self, position: int) -> float | None:
        """When the batch came that has this position, in seconds since 1970."""
        with suppress(OSError):
            view = self._view_apart(position)
            header = view.header_before(position - view.start) if view else None
            if header and position < header.end:
                return time_of(header.dtid).timestamp()
        return None

    def _view_apart(self, position: int) -> SegmentView | None:
        """The segment that has this position, read by its name: the handles are the broker's, who may close them."""
        starts = self._starts.copy()
        at = bisect_right(starts, position) - 1
        if at < 0 or position >= starts[at] + self.sizes.get(starts[at], 0):
            return None
        name = f"{FOLDER}/{segment_name(starts[at])}"
        return SegmentView(starts[at], lambda size, offset: self._disk.read_named(name, size, offset))

    # ── writing ──

    def write(self, pieces: Iterable[Piece]) -> None:
        for position, data, begins in pieces:
            if begins and position not in self.sizes:
                self._begin(position)
            start = self._starts[-1]
            offset = position - start
            self._writer.write(self.file(start), data, offset)
            self.sizes[start] = offset + len(data)
            self._unsynced[start] = None

    def _begin(self, start: int) -> None:
        if self._starts:
            self._seal(self._starts[-1])
        self._files[start] = self._disk.open(f"{FOLDER}/{segment_name(start)}", create=True)
        self._folder_unsynced = True
        self.sizes[start] = 0
        self._starts.append(start)
        self._reserve.end = 0

    def _seal(self, start: int) -> None:
        """What was reserved and not used goes back."""
        if self._reserve.end:
            self._disk.truncate(self.file(start), self.sizes[start])

    def has_room(self) -> bool:
        """Is there disk for what may come next? Space is reserved a good part ahead."""
        if not self._starts:
            return True
        start = self._starts[-1]
        return self._reserve.has_room(self.file(start), self.sizes[start])

    def finish(self) -> None:
        """The broker stops: give back what was reserved."""
        if self._starts:
            self._seal(self._starts[-1])

    def to_sync(self) -> tuple[int, ...]:
        """The handles that a sync must cover now; from here on they count as synced."""
        files = [self._files[start] for start in self._unsynced]
        if self._folder_unsynced:
            files.append(self._folder)
        self._unsynced.clear()
        self._folder_unsynced = False
        return tuple(files)

    def passed(self, core: Core, position: int) -> tuple[int, ...]:
        """Handles of the files sealed below this position, which is synced, that no queue needs; each is told once."""
        ended = [start for start in self._files if start != self._starts[-1] and self.end_of(start) <= position]
        files = tuple(
            self._files[start]
            for start in ended
            if start not in self._passed and core.log.live_in(start, self.end_of(start)) == 0
        )
        self._passed.update(ended)
        return files

    def make_safe(self, position: int) -> None:
        """From here on nobody knows what is on disk and what only in the memory of the system, where it stays if a sync
        has failed: write it again and sync. What a broker that was killed had reserved goes back."""
        for start in self._starts[max(bisect_right(self._starts, position) - 1, 0) :]:
            for offset in range(max(position - start, 0), self.sizes[start], PIECE):
                self._disk.write(self.file(start), self.read(start, PIECE, offset), offset)
            self._disk.truncate(self.file(start), self.sizes[start])
            self._disk.sync(self.file(start))
        self._disk.sync(self._folder)

    def unsynced(self) -> tuple[int, ...]:
        """The same handles, for a sync of another kind."""
        return (*(self._files[start] for start in self._unsynced), self._folder)

    # ── what is known to be missing ──

    def _read_ranges(self, name: str) -> list[ranges.Range]:
        try:
            file = self._disk.open(name)
        except FileNotFoundError:
            return []
        try:
            return ranges.parse(self._disk.read(file, self._disk.size(file), 0))
        finally:
            self._disk.close(file)

    def _open_ranges(self, name: str) -> int:
        return self._disk.open(name, create=name not in self._disk.files(""))

    @property
    def given_up(self) -> list[ranges.Range]:
        """What a salvage could not save."""
        return self._lost

    def is_lost(self, start: int, end: int) -> bool:
        """Is it known that the journal lacks this?"""
        return ranges.covers(self._lost, start, end)

    def give_up(self, start: int, end: int) -> None:
        """From now on it is."""
        if self.is_lost(start, end):
            return
        file = self._open_ranges(ranges.LOST)
        self._append_ranges(file, [(start, end)])
        self._disk.sync(file)
        self._disk.close(file)
        sync_folder(self._disk, "")
        self._lost = self._read_ranges(ranges.LOST)

    def missing(self, start: int, size: int) -> list[ranges.Range]:
        """What no file has of this part, whether that is known or not."""
        found = []
        at = start
        for first in self._overlapping(start, start + size):
            if first > at:
                found.append((at, first))
            at = max(at, self.end_of(first))
        return [*found, (at, start + size)] if at < start + size else found

    def _overlapping(self, start: int, end: int) -> list[int]:
        return self._starts[max(bisect_right(self._starts, start) - 1, 0) : bisect_right(self._starts, end - 1)]

    def mend(self, start: int, size: int) -> bytes | None:
        """A part of a salvaged journal: its valid batches, and zeros for what is known to be lost. None: more is."""
        data = bytearray(size)
        at = start  # all before is in the data, or known to be lost
        for first in self._overlapping(start, start + size):
            low = max(start, first)
            if not self.is_lost(at, low):
                return None
            found = self.read(first, start + size - low, low - first)
            line = parse_segment_line(found[:FIRST_LINE_ROOM]) if low == first else None
            at = low + (line.size if line else 0)
            for header, batch in Batches(_reading(found), low, at - low, len(found), chain=False):
                data[header.position - start : header.end - start] = batch
                at = header.end
        return bytes(data) if self.is_lost(at, start + size) else None

    # ── removing ──

    def unnoted(self, removable: list[int]) -> list[int]:
        """Those of these segments that have no message and leave a gap: one is kept before them. `empty` lacks them."""
        kept = next((start for start in self._starts if start not in removable), 0)
        return [
            start
            for start in removable
            if start > kept
            and not ranges.covers(self._empty, start, self.end_of(start))
            and not self._has_message(start)
        ]

    def before_gaps(self, removable: list[int]) -> list[int]:
        """Those of these segments that stay, so that what is removed is not taken for a gap that a crash has left: the
        last one with messages before such a gap, as long as one before it is kept."""
        going = set(removable)
        kept = next((start for start in self._starts if start not in going), 0)
        following: int | None = None
        found = []
        for start in reversed(self._starts if going else ()):
            if start not in going:
                following = start
            elif start > kept and following is not None and self.follows_gap(following) and self._has_message(start):
                found.append(start)
                following = start
        return found

    def pass_over(self, removed: list[int]) -> None:
        """These go now. Histories that have not read them go on after those without messages, and fail at others."""
        empty = {start: self.with_gap(start) for start in removed if not self._has_message(start)}
        self.note_empty(list(empty.values()))
        gone = [(start, self.end_of(start)) for start in removed if start not in empty]
        self._gone = ranges.merged((*self._gone, *gone))

    def _has_message(self, start: int) -> bool:
        """Is there a line whose second word is that of a message? Of a long segment only the beginning is read. If
        it cannot be read, the answer is yes."""
        with suppress(OSError):
            for size in LOOKED_AT:
                if _message.search(self.read(start, size, 0)):
                    return True
                if self.sizes[start] <= size:
                    return False
        return True

    def write_empty(self, noted: list[ranges.Range]) -> int:
        """Append these to `empty`; answers the file. They count when it and the data folder are synced."""
        file = self._open_ranges(ranges.EMPTY)
        try:
            self._append_ranges(file, noted)
        except OSError:
            self._disk.close(file)
            raise
        return file

    def _append_ranges(self, file: int, noted: list[ranges.Range]) -> None:
        """A line that a crash or a full disk has torn stays a line of its own."""
        size = self._disk.size(file)
        torn = size and self._disk.read(file, 1, size - 1) != b"\n"
        self._disk.write(file, (b"\n" if torn else b"") + ranges.show(noted), size)

    def note_empty(self, noted: list[ranges.Range]) -> None:
        """Histories pass over these. On disk they are in `empty`, unless nothing is left before them."""
        self._empty = ranges.merged((*self._empty, *noted))

    def with_gap(self, start: int) -> ranges.Range:
        """The segment, with the gap before it if there never was anything in that."""
        at = self._starts.index(start)
        return self.end_of(self._starts[at - 1]) if at and self.follows_gap(start) else start, self.end_of(start)

    def cut(self, start: int, offset: int, aside: str) -> None:
        """The segment ends here; what stood beyond is kept aside. It is safely so when this returns."""
        size = self.sizes[start]
        self._keep_aside(self.read(start, size - offset, offset), aside)
        self._disk.truncate(self.file(start), offset)
        self._disk.sync(self.file(start))
        self.sizes[start] = offset
        if offset == 0:
            self.remove(start)
            self._disk.sync(self._folder)

    def _keep_aside(self, data: bytes, name: str) -> None:
        there = self._disk.files("aside")
        free = next(one for one in chain((name,), (f"{name}.{n}" for n in count(1))) if one not in there)
        file = self._disk.open(f"aside/{free}", create=True)
        self._disk.write(file, data, 0)
        self._disk.sync(file)
        self._disk.close(file)
        sync_folder(self._disk, "aside")

    def remove(self, start: int) -> None:
        self._disk.remove(f"{FOLDER}/{segment_name(start)}")
        if start in self._files:
            self._removed.add(self._files.pop(start))
        self._unsynced.pop(start, None)
        del self.sizes[start]
        self._starts.remove(start)
        self._passed.discard(start)

    @property
    def too_many_open(self) -> bool:
        return bool(self._removed) or len(self._files) > MOST_OPEN

    def close_unused(self, in_use: set[int]) -> None:
        """Of the sealed segments few stay open, beside those that are being synced or read."""
        if len(self._files) > MOST_OPEN:
            for start, file in list(self._files.items()):
                if start != self._starts[-1] and start not in self._unsynced and file not in in_use:
                    self._disk.close(self._files.pop(start))
        for file in self._removed - in_use:
            self._disk.close(file)
        self._removed &= in_use


def _reading(data: bytes) -> Read:
    return lambda size, offset: data[offset : offset + size]
