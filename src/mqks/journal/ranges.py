"""Ranges of positions that no segment has, and why: one `{start} {end}` to a line, in two files of the data folder.

`lost` has what a salvage gave up. Only what stands there may be missing without a refusal.
`empty` has segments that retention removed and that had no message in them: nobody who reads misses anything there.
"""

from collections.abc import Iterable
from pathlib import Path

LOST = "lost"
EMPTY = "empty"
Range = tuple[int, int]


def parse(data: bytes) -> list[Range]:
    """The ranges that stand there. A line that is not whole is left out."""
    return merged(_pairs(data))


def merged(ranges: Iterable[Range]) -> list[Range]:
    """In order; those that touch are one."""
    found: list[Range] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def _pairs(data: bytes) -> Iterable[Range]:
    for line in data.splitlines():
        start, _, end = line.partition(b" ")
        if start.isdigit() and end.isdigit():
            yield int(start), int(end)


def show(ranges: Iterable[Range]) -> bytes:
    return b"".join(b"%d %d\n" % each for each in ranges)


def covers(ranges: list[Range], start: int, end: int) -> bool:
    return start >= end or any(low <= start and end <= high for low, high in ranges)


def overlaps(ranges: list[Range], start: int, end: int) -> bool:
    return any(low < end and start < high for low, high in ranges)


def read_ranges(folder: Path, name: str) -> list[Range]:
    """The ranges of one of the files, for readers from outside."""
    try:
        return parse((folder / name).read_bytes())
    except FileNotFoundError:
        return []
