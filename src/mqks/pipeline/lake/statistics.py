"""What the log tells of each file, so that readers leave out those they do not need: from the Parquet footers alone."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyarrow import parquet

PRUNED_BY = ("position", "time", "event", "minute", "kind", "name")  # columns that queries ask for
LONGEST = 256  # characters of a name in the log
A_MILLISECOND = timedelta(milliseconds=1)


def of_file(metadata: parquet.FileMetaData) -> dict[str, Any]:
    """Delta's statistics: rows, and of some columns the least and the largest value and the nulls."""
    told: dict[str, Any] = {"numRecords": metadata.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for name, column in columns(metadata).items():
        found = [metadata.row_group(number).column(column).statistics for number in range(metadata.num_row_groups)]
        if not found or any(one is None or not one.has_null_count for one in found):
            continue
        told["nullCount"][name] = sum(one.null_count for one in found)
        known = [one for one in found if one.has_min_max]
        if not known or any(not one.has_min_max and one.num_values for one in found):
            continue
        bounds = as_told(min(one.min for one in known), least=True), as_told(max(one.max for one in known), least=False)
        if None not in bounds:
            told["minValues"][name], told["maxValues"][name] = bounds
    return told


def columns(metadata: parquet.FileMetaData) -> dict[str, int]:
    """Of those that are pruned by: where they are in the file."""
    schema = metadata.schema
    paths = {schema.column(number).path: number for number in range(metadata.num_columns)}
    return {name: paths[name] for name in PRUNED_BY if name in paths}


def as_told(value: object, *, least: bool) -> object:
    """As Delta has it in JSON; None where it cannot be told. Times have milliseconds there, so bounds are widened."""
    match value:
        case datetime():
            moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
            floor = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
            moment = floor if least or floor == moment else floor + A_MILLISECOND
            return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case bool() | int() | float():
            return value
        case str() if len(value) <= LONGEST:
            return value
    return None


def text(metadata: parquet.FileMetaData) -> str:
    return json.dumps(of_file(metadata), ensure_ascii=False)
