"""A lake as 0.1.0 has left it becomes a Delta table where it is, by one commit: no file is written again.

There a table was {table}/date=…/part=…/….parquet, and a marker `_mqks/{table}.json` said how far it was: parts up to
its batch were whole, and a part that covered others (`part=first-last`) had replaced them when it had a `_SUCCESS`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from pyarrow import fs, parquet

from mqks.pipeline.lake import durable
from mqks.pipeline.lake.commit import POSITION, QUERY
from mqks.pipeline.lake.delta_table import File, Outrun, Table, described, is_data
from mqks.pipeline.lake.location import Location
from mqks.pipeline.lake.schema import DATE, Field, field, fields_of
from mqks.pipeline.place import COLUMNS, EVENTS

if TYPE_CHECKING:
    from mqks.pipeline.files import Files
    from mqks.pipeline.place import Place

PART = re.compile(r"part=([0-9]{12})(?:-([0-9]{12}))?")
SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"  # Spark keeps its own schema in each footer


class Part(NamedTuple):
    first: int
    last: int
    path: str


def adopt(files: Files, place: Place, name: str) -> Table | None:
    """None where 0.1.0 has left no such table."""
    marker_path = place.table(f"_mqks/{name}.json")
    marker = json.loads(files.read(marker_path) or "null")
    if marker is None or marker["batch"] < 0:
        return None
    location = Location(place.table(name))
    system = filesystem(location)
    found = [one for part in parts(system, marker["batch"]) for one in files_of(system, part.path)]
    if location.local is not None:
        durable.sync_files(location.local, [one.path for one in found])
    if name == EVENTS:
        fields = fields_of(COLUMNS)
        progress = {} if marker["position"] is None else {POSITION: marker["position"]}
    else:
        query = json.loads(files.read(f"{place.checkpoint(marker['job'])}/metadata") or "{}").get("id")
        fields = fields_in_footers(system, found)
        progress = {QUERY + query: marker["batch"] - marker["first"]} if query else {}
    try:
        table = Table.create(location, fields, marker["job"], files=found, progress=progress)
    except Outrun:
        return Table.open(location)
    files.delete(marker_path)  # so that 0.1.0 finds that it is no table of its own any more
    return table


def filesystem(location: Location) -> fs.FileSystem:
    if location.local is not None:
        return fs.SubTreeFileSystem(str(location.local), fs.LocalFileSystem())
    from deltalake.fs import DeltaStorageHandler

    return fs.PyFileSystem(DeltaStorageHandler(location.delta))


def parts(system: fs.FileSystem, upto: int) -> list[Part]:
    """Those that count, of all days."""
    found = []
    for day in system.get_file_info(fs.FileSelector("", allow_not_found=True)):
        if day.base_name.startswith(f"{DATE}="):
            listed = system.get_file_info(fs.FileSelector(day.path))
            found += uncovered(part for one in listed if (part := part_of(system, one.path)) and part.last <= upto)
    return found


def part_of(system: fs.FileSystem, path: str) -> Part | None:
    """None where it is none, or a merge that was not finished."""
    match = PART.fullmatch(path.rpartition("/")[2])
    if match is None:
        return None
    done = match[2] is None or system.get_file_info(f"{path}/_SUCCESS").is_file
    return Part(int(match[1]), int(match[2] or match[1]), path) if done else None


def uncovered(parts: Iterable[Part]) -> list[Part]:
    """Those that do not lie within a wider one: what a merge has replaced may still be there."""
    kept: list[Part] = []
    for part in sorted(parts, key=lambda part: (part.first, -part.last)):
        if not kept or part.last > kept[-1].last:
            kept.append(part)
    return kept


def files_of(system: fs.FileSystem, folder: str) -> list[File]:
    listed = system.get_file_info(fs.FileSelector(folder))
    return [described(system, one.path.lstrip("/"), one.size) for one in listed if one.is_file and is_data(one.path)]


def fields_in_footers(system: fs.FileSystem, files: Iterable[File]) -> list[Field]:
    """All columns that one of the files has."""
    fields: dict[str, Field] = {}
    for one in files:
        told = parquet.read_metadata(one.path, filesystem=system).metadata or {}
        for column in json.loads(told[SPARK_SCHEMA])["fields"]:
            fields.setdefault(column["name"], field(column["name"], column["type"]))
    return [*fields.values(), field(DATE, "date")]
