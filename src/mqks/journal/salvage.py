"""Keeps what is valid of a damaged journal, with the broker stopped: each valid batch stays at its position.

A damaged segment is copied aside whole. Then it is cut at the first bad batch, and each later run of valid batches
becomes a segment of its own, whose first line stands right before it, in the place of bytes that are lost. The damaged
file is changed last: whoever is interrupted starts again and loses nothing.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from mqks.journal.errors import JournalError
from mqks.journal.files import ASIDE, SEGMENTS, SegmentFile, starts
from mqks.journal.format import FSYNC_MODES, PIECE, segment_line, segment_name
from mqks.journal.progress import journal_synced
from mqks.journal.ranges import LOST, Range, show
from mqks.journal.verify import Lost, damage, missing_end, scan

LOCK = "lock"
_UNFINISHED = ".salvage"
END = 1 << 63  # beyond every position


@dataclass(frozen=True, slots=True)
class Run:
    """Valid batches in a row: offsets in the damaged file, and the dtid of the first."""

    offset: int
    end: int
    dtid: bytes


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What became of a damaged segment; ranges are positions."""

    segment: str
    aside: Path | None  # None: it is only too short, and stays as it is
    kept: list[tuple[int, int]]
    lost: list[tuple[int, int, str]]


@dataclass(slots=True)
class _Scanned:
    """What a segment holds; the mode is empty where its first line cannot be read."""

    start: int
    size: int
    fsync: str
    runs: list[Run]
    lost: list[Lost]


def salvage(folder: Path | str) -> list[Salvaged]:
    """What was done to each damaged segment; nothing where there is no damage."""
    folder = Path(folder)
    starts(folder)  # is there a journal?
    with _locked(folder):
        _put_leftovers_aside(folder)
        scanned = []
        known = synced = journal_synced(folder)  # of the last segment only progress may know that it was on disk
        for start in starts(folder):
            with SegmentFile(folder, start) as file:
                one, told = _scan(file)
            scanned.append(one)
            synced = max(synced, told)
        done = []
        end = max((one.start + one.size for one in scanned), default=0)
        missing = missing_end(folder, end, known)
        for one, following in zip_longest(scanned, scanned[1:]):
            damaged = damage(one.lost, one.start, following is not None, synced)
            if following is not None and (not one.size or (damaged and damaged[-1].end == one.size)):
                # It was longer once, or is another file: only the next one tells where it ended.
                _give_up(folder, [(one.start + one.size, following.start)])
            if damaged:
                done.append(_salvage(folder, one, damaged, following.start if following else END))
        if missing:
            _give_up(folder, [missing])
            name = segment_name(scanned[-1].start if scanned else 0)
            lost = [(*missing, "it was on disk, and is missing after the end")]
            if done and done[-1].segment == name:
                done[-1].lost.extend(lost)
            else:
                done.append(Salvaged(name, None, [], lost))
        return done


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """As the broker does it, so that the two never work on one folder."""
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JournalError(f"{folder} is in use: stop the broker first") from None
        yield
    finally:
        os.close(lock)


def _put_leftovers_aside(folder: Path) -> None:
    """Of a salvage that was interrupted: half-written files, and copies of batches that the file before still has."""
    source = END  # the start of the last segment that is no such copy
    for path in (folder / SEGMENTS).glob(f"*{_UNFINISHED}"):
        path.unlink()
    for start in starts(folder):
        if source < start and _is_copy(folder, start, source):
            path = folder / SEGMENTS / segment_name(start)
            path.rename(_free(folder, f"{path.name}.leftover"))
        else:
            source = start
    _sync(folder / SEGMENTS, folder / ASIDE if (folder / ASIDE).is_dir() else folder)


def _is_copy(folder: Path, start: int, source: int) -> bool:
    """Does the one segment have, after its first line, nothing but what the other has at the same positions?"""
    with SegmentFile(folder, start) as copy, SegmentFile(folder, source) as file:
        line, size = copy.first_line(), copy.size
        if line is None or size <= line.size or start + size > source + file.size:
            return False
        return all(
            copy.read(min(PIECE, size - at), at) == file.read(min(PIECE, size - at), start + at - source)
            for at in range(line.size, size, PIECE)
        )


def _scan(file: SegmentFile) -> tuple[_Scanned, int]:
    """With the highest position that a batch of it calls synced."""
    size = file.size
    line = file.first_line()
    one = _Scanned(file.start, size, line.fsync if line else "", [], [])
    synced = 0
    for found in scan(file, size):
        if isinstance(found, Lost):
            one.lost.append(found)
            continue
        header, _ = found
        synced = max(synced, header.synced)
        offset, end = header.position - file.start, header.end - file.start
        if one.runs and one.runs[-1].end == offset:
            last = one.runs.pop()
            one.runs.append(Run(last.offset, end, last.dtid))
        else:
            one.runs.append(Run(offset, end, header.dtid))
    return one, synced


def _salvage(folder: Path, one: _Scanned, damaged: list[Lost], limit: int) -> Salvaged:
    """`limit` is the position where the next segment begins."""
    path = folder / SEGMENTS / segment_name(one.start)
    aside = _copy_aside(folder, path)
    lost_ranges = [(one.start + lost.offset, min(one.start + lost.end, limit), lost.reason) for lost in damaged]
    _give_up(folder, [(start, end) for start, end, _ in lost_ranges])
    cut = damaged[0].offset
    kept = []
    for lost, following in zip(damaged, [*damaged[1:], None], strict=True):
        run = next((run for run in one.runs if run.offset == lost.end), None)
        if run is None:
            continue  # the file ends with what is lost
        # What a crash has torn at the end of the last segment stays, for the broker to deal with as always.
        end = following.offset if following else one.size
        line = segment_line(run.dtid, one.fsync or _mode_that_fits(run.offset))
        kept.append((one.start + run.offset, one.start + end))
        if run.offset == len(line):  # nothing but the first line was lost
            _mend(path, line)
            cut = end
        else:
            _write_segment(folder, one.start + run.offset - len(line), line, path, run.offset, end)
    if cut:
        _cut(path, cut)
        if one.fsync:
            kept.insert(0, (one.start, one.start + cut))
    else:
        path.unlink()  # not even its first line is left
    _sync(folder / SEGMENTS)
    return Salvaged(path.name, aside, kept, lost_ranges)


def _give_up(folder: Path, ranges: list[Range]) -> None:
    """So that the broker knows what may be missing."""
    with (folder / LOST).open("ab") as file:
        file.write(show(ranges))
        file.flush()
        os.fsync(file.fileno())
    _sync(folder)


def _mode_that_fits(room: int) -> str:
    """The mode was lost with the first line; if only that is lost, the line's length tells it."""
    return next((mode for mode in FSYNC_MODES if len(segment_line(b"0" * 24, mode)) == room), FSYNC_MODES[0])


def _free(folder: Path, name: str) -> Path:
    """A path under aside/ where nothing is yet."""
    (folder / ASIDE).mkdir(exist_ok=True)
    path = folder / ASIDE / name
    number = 0
    while path.exists():
        number += 1
        path = folder / ASIDE / f"{name}.{number}"
    return path


def _copy_aside(folder: Path, path: Path) -> Path:
    aside = _free(folder, f"{path.name}.damaged")
    with path.open("rb") as source, aside.open("xb") as copy:
        shutil.copyfileobj(source, copy, PIECE)
        copy.flush()
        os.fsync(copy.fileno())
    _sync(folder / ASIDE, folder)
    return aside


def _write_segment(folder: Path, start: int, line: bytes, source: Path, offset: int, end: int) -> None:
    path = folder / SEGMENTS / segment_name(start)
    unfinished = path.with_name(path.name + _UNFINISHED)
    with source.open("rb") as damaged, unfinished.open("wb") as file:
        file.write(line)
        damaged.seek(offset)
        for at in range(offset, end, PIECE):
            file.write(damaged.read(min(PIECE, end - at)))
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
    _sync(folder / SEGMENTS)


def _mend(path: Path, line: bytes) -> None:
    with path.open("r+b") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def _cut(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)
        os.fsync(file.fileno())


def _sync(*folders: Path) -> None:
    """So that the names in them are on disk too."""
    for folder in folders:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(opened)
        except OSError as error:
            if error.errno != errno.EINVAL:  # some file systems cannot, and need not
                raise
        finally:
            os.close(opened)
