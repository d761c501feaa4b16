"""What a salvage gave up: ranges of positions, one `{start} {end}` to a line, in the file `lost` of the data folder.

Only what stands here may be missing without a refusal. The salvage writes the file, the broker reads it.
"""

from collections.abc import Iterable

NAME = "lost"
Range = tuple[int, int]


def parse(data: bytes) -> list[Range]:
    """The ranges, in order; those that touch are one."""
    ranges: list[Range] = []
    for start, end in sorted(_pairs(data)):
        if ranges and start <= ranges[-1][1]:
            ranges[-1] = ranges[-1][0], max(ranges[-1][1], end)
        else:
            ranges.append((start, end))
    return ranges


def _pairs(data: bytes) -> Iterable[Range]:
    for line in data.splitlines():
        start, _, end = line.partition(b" ")
        if start.isdigit() and end.isdigit():
            yield int(start), int(end)


def show(ranges: Iterable[Range]) -> bytes:
    return b"".join(b"%d %d\n" % each for each in ranges)


def covers(ranges: list[Range], start: int, end: int) -> bool:
    return start >= end or any(low <= start and end <= high for low, high in ranges)
