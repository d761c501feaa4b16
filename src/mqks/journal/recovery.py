"""The journal at start: what is valid is read again, a torn end is cut off, damage stops the start.

What was known to be on disk (`synced` in the headers of later batches tells) must be there: if it is not, the start is
refused. Beyond that, the first bad batch and all after it are cut off, kept aside, and it is said.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from mqks.journal.errors import Damaged, JournalError
from mqks.journal.format import Batches, Header, Stop, segment_name
from mqks.journal.segments import Segments
from mqks.logs import Entry

log = logging.getLogger(__name__)

OnBatch = Callable[[Header, memoryview], None]
OnBytes = Callable[[int, int], None]  # bytes read so far, of how many


@dataclass
class Journaled:
    """How far the journal goes."""

    position: int  # where the next segment may begin
    end: int  # up to where it is valid; less than `position` after a cut
    crc: int  # of the last batch; 0 if the next segment does not follow on it
    synced: int  # up to here it was known to be on disk
    dtid: bytes = b""  # of the last batch
    lines: int = 0  # that were read


def recover(
    segments: Segments,
    position: int,
    crc: int,
    on_batch: OnBatch,
    on_bytes: OnBytes,
    salvage: bool = False,
    synced: int = 0,
) -> Journaled:
    """Give every valid batch from this position on to `on_batch`. With `salvage` go on without what is missing. Up to
    `synced` progress knows the journal to have been on disk: nothing is cut off below that."""
    for start in [start for start in segments.starts if not segments.sizes[start]]:
        segments.remove(start)
    starts = [start for start in segments.starts if segments.end_of(start) > position]
    total = sum(segments.end_of(start) - max(start, position) for start in starts)
    found = Journaled(position, position, crc, position)
    done = 0
    end = max(map(segments.end_of, segments.starts), default=0)
    if end < position:
        if not salvage and not segments.is_lost(end, position):
            raise _missing(end, position)
        end = _cut_torn_end(segments, salvage)
        segments.give_up(end, position)
        _say_missing(end, position)
        return Journaled(position, position, 0, position)
    for number, start in enumerate(starts):
        offset = max(position - start, 0)
        reason = None
        if offset == 0:
            offset, reason = _first_line(segments, start)
        if start > found.position:
            found.crc = 0
            explained = segments.is_lost(found.position, start) or segments.follows_gap(start)
            if reason is None and not explained:
                if not salvage and not any(_proves(segments, later, 0, found.position) for later in starts[number:]):
                    check_end(segments, found.position, synced, salvage)
                    reason = f"what stood from {found.position} on is missing"
                    return _cut(segments, starts[number:], 0, reason, found)
                if position and not salvage:
                    raise _missing(found.position, start)
                _say_missing(found.position, start)
                if position:
                    segments.give_up(found.position, start)
        if reason is None:
            reader = Batches(
                segments.view(start).read,
                start,
                offset,
                segments.sizes[start],
                previous=found.crc or None,
            )
            for header, batch in reader:
                found.crc, found.dtid = header.crc, header.dtid
                found.synced = max(found.synced, header.synced)
                found.lines += header.count
                on_batch(header, batch)
                on_bytes(done + reader.offset, total)
            if reader.stop is not Stop.END:
                offset, reason = reader.offset, reader.reason
        if reason is not None:
            return _cut(segments, starts[number:], offset, reason, found, 0 if salvage else synced)
        found.position = found.end = segments.end_of(start)
        done += segments.sizes[start]
    return found


def check_end(segments: Segments, end: int, synced: int, salvage: bool) -> int:
    """The journal is valid up to `end`; progress knows that it was on disk up to `synced`. Answers up to where it was
    before a salvage gave up the rest."""
    if end < synced and not segments.is_lost(end, synced):
        if not salvage:
            raise _missing(end, synced)
        segments.give_up(end, synced)
        _say_missing(end, synced)
    return max(end, synced)


def _missing(end: int, position: int) -> JournalError:
    return JournalError(
        f"the journal lacks what stood from position {end} on, and it was safely on disk up to {position}: put the "
        "missing files back, or start with --salvage"
    )


def _say_missing(start: int, end: int) -> None:
    said = "positions {start} to {end} are missing: the journal has no file with them; what only they told is lost"
    log.warning(Entry(said, start=start, end=end))


def _cut_torn_end(segments: Segments, salvage: bool) -> int:
    """The last segment is not to be written again: cut off what is no valid batch. Answers where the journal ends.
    All of it was on disk, so without `salvage` a bad batch is damage."""
    if not segments.starts:
        return 0
    start = segments.starts[-1]
    offset, reason = _first_line(segments, start)
    if reason is None:
        reader = segments.view(start).batches(offset, segments.sizes[start])
        for _ in reader:
            pass
        offset = reader.offset
    if offset < segments.sizes[start]:
        if not salvage:
            raise Damaged(segment_name(start), offset, reason or reader.reason)
        segments.cut(start, offset, f"{segment_name(start)}.{offset}.cut")
    return start + offset


def _first_line(segments: Segments, start: int) -> tuple[int, str | None]:
    """Where the batches of a segment begin, or what is wrong with its first line."""
    line = segments.view(start).first_line()
    return (line.size, None) if line else (0, "the first line of the segment is not whole")


def _proves(segments: Segments, start: int, offset: int, bad: int) -> bool:
    """Does this segment tell, from this offset on, that what stands at `bad` was safely on disk?"""
    return segments.view(start).proves_damage(bad, offset, segments.sizes[start])


def _cut(
    segments: Segments, starts: list[int], offset: int, reason: str, found: Journaled, synced: int = 0
) -> Journaled:
    """The journal ends in the first of these segments, at this offset, unless more was known to be on disk: by later
    batches, or by progress up to `synced`. A start that is refused changes nothing here: a salvage needs all of it."""
    first = starts[0]
    valid = first + offset if offset else found.end
    proven = any(_proves(segments, start, offset if start == first else 0, first + offset) for start in starts)
    if proven or (valid < synced and not segments.is_lost(valid, synced)):
        raise Damaged(segment_name(first), offset, reason)
    end = max(segments.end_of(start) for start in starts)
    lost = 0
    for start in reversed(starts):
        at = offset if start == first else 0
        lost += segments.sizes[start] - at
        segments.cut(start, at, f"{segment_name(start)}.{at}.cut")
    said = (
        "the journal was cut at position {position}: {reason}; what was not confirmed may be missing, "
        "{bytes} bytes are kept in aside/"
    )
    log.warning(Entry(said, position=first + offset, reason=reason, bytes=lost))
    return replace(found, position=end + 1, end=valid, crc=0)
