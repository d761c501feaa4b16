"""How a table lies in the lake: names only, and which of them are to be read.

{lake}/{table}/date=2026-11-16/part=000000000007/….parquet     what batch 7 brought of that day
{lake}/{table}/date=2026-11-16/part=000000000000-000000000031/ 32 parts merged into one
{lake}/_mqks/{table}.json                                      the marker, such as {"batch": 7, "position": 123456, …}
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mqks.pipeline.files import Files
    from mqks.pipeline.place import Place

EVENTS = "events"
PART = re.compile(r"part=([0-9]{12})(?:-([0-9]{12}))?")
COMPRESSION = "zstd"  # no slower than Spark's default, and far smaller
WRITING = {
    "spark.sql.maxConcurrentOutputFileWriters": "8",  # else Spark sorts all rows by date first
    "spark.sql.variant.writeShredding.enabled": "false",  # columns for the fields of JSON: twice the time for little
    "spark.sql.variant.inferShreddingSchema": "false",
}

Reached = Callable[[str], object]  # told at each point where a crash must do no harm; tests crash there


def unnoticed(_point: str) -> None:
    """Nobody wants to crash here."""


class Marker(NamedTuple):
    """How far a table is: parts up to `batch` are whole, and hold all that was before `position`."""

    batch: int = -1
    position: int | None = None
    first: int = 0  # the part of batch 0
    job: str = ""  # whose table it is
    run: str = ""  # of that job, the one that writes


class Part(NamedTuple):
    first: int
    last: int

    @property
    def name(self) -> str:
        return f"part={self.first:012d}" + (f"-{self.last:012d}" if self.wide else "")

    @property
    def wide(self) -> bool:
        return self.first != self.last


def part_of(name: str) -> Part | None:
    """None where the name is not that of a part."""
    match = PART.fullmatch(name)
    return Part(int(match[1]), int(match[2] or match[1])) if match else None


def uncovered(parts: Iterable[Part]) -> list[Part]:
    """Those that do not lie within a wider one: what a merge has replaced may still be there."""
    kept: list[Part] = []
    for part in sorted(parts, key=lambda part: (part.first, -part.last)):
        if not kept or part.last > kept[-1].last:
            kept.append(part)
    return kept


def marker_path(place: Place, table: str) -> str:
    return place.table(f"_mqks/{table}.json")


def read_marker(files: Files, place: Place, table: str) -> Marker:
    return marker_of(files.read(marker_path(place, table)))


def marker_of(text: str | None) -> Marker:
    return Marker(**json.loads(text)) if text else Marker()


def parts(files: Files, folder: str, upto: int) -> dict[str, list[Part]]:
    """Date → what is to be read there, of the batches up to that one."""
    found = {}
    for date in files.names(folder):
        if date.startswith("date="):
            named = [part for part in map(part_of, files.names(f"{folder}/{date}")) if part and part.last <= upto]
            whole = [part for part in named if not part.wide or files.exists(f"{folder}/{date}/{part.name}/_SUCCESS")]
            found[date] = uncovered(whole)
    return found
