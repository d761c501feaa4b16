"""Small files of a table merged into larger ones, and days removed that are over: without Spark.

A stream leaves thousands of small files a day. A merge copies those of one day into a new file, row group by row
group, and commits it in their place (`dataChange=false`): readers see the old files or the new one. Batches may be
written and rows be removed meanwhile: if a file to merge is gone by then, the merge is dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import groupby

import pyarrow as pa
from pyarrow import fs, parquet

from mqks.pipeline.errors import PipelineError
from mqks.pipeline.lake.delta_table import KEEP_HOURS, File, Outrun, Table
from mqks.pipeline.lake.schema import DATE

log = logging.getLogger(__name__)

AFTER = 32  # files of a day
TIERS = (2 << 20, 64 << 20)  # bytes; only files below the same bound are merged, so that a row is copied twice at most
LARGEST = 128 << 20  # bytes of what is merged into one
ROWS = 1 << 20  # of a row group
VACUUM_EVERY = timedelta(hours=1)


# ── what to merge ──


def runs(files: Iterable[File], least: int, bound: int) -> Iterator[list[File]]:
    """Neighbours that are all smaller than the bound, at least so many, together not larger than the largest."""
    least = max(least, 2)
    run: list[File] = []
    total = 0
    for one in [*files, None]:
        if one is None or one.size >= bound or total + one.size > LARGEST:
            if len(run) >= least:
                yield run
            run, total = [], 0
        if one is not None and one.size < bound:
            run.append(one)
            total += one.size


def chosen(files: Sequence[File], least: int) -> list[list[File]]:
    """The small among the small, else the middling."""
    for bound in TIERS:
        if some := list(runs(files, least, bound)):
            return some
    return []


def plan(files: Sequence[File], after: int) -> Iterator[list[File]]:
    """Of each day. One that is over is tidied up, down to two files that fit into one."""
    newest = max((one.date for one in files), default="")
    for day, of_day in groupby(files, key=lambda one: one.date):
        some = list(of_day)
        old = [one for one in some if is_of_0_1_0(one)]
        if old:
            yield from ([one] for one in old)  # INT96 and an annotated VARIANT: other readers cannot read them
            some = [one for one in some if one not in old]
        least = after if day == newest else 2
        if len(some) >= least:
            yield from chosen(some, least)


def is_of_0_1_0(file: File) -> bool:
    """Adopted from the old layout."""
    return file.path.startswith(f"{DATE}=") and "/part=" in file.path


# ── merging ──


def compact(table: Table, after: int = AFTER) -> int:
    """Merges what is worth it; answers how many files there are less, or are new."""
    changed = 0
    for run in plan(table.files, after):
        changed += merge(table, run)
    return changed


def merge(table: Table, run: Sequence[File]) -> int:
    folder = table.attempt()
    copy(table.filesystem, [one.path for one in run], f"{folder}/{DATE}={run[0].date}/merged.parquet")
    added = table.found(folder)
    if sum(one.rows for one in added) != sum(one.rows for one in run):
        raise PipelineError(f"a merge of {table.location.url} would lose rows: nothing is changed")
    return len(run) if replace(table, run, added) else 0


def replace(table: Table, removed: Sequence[File], added: Sequence[File], *, data_change: bool = False) -> bool:
    """Puts these files in the place of those; False if one of those is not there any more."""
    paths = {one.path for one in removed}
    while paths <= {one.path for one in table.files}:
        try:
            table.commit(added, removed, data_change=data_change, lineage={"replaced": len(removed)})
            return True
        except Outrun:
            continue
    return False


def copy(system: fs.FileSystem, paths: Sequence[str], to: str) -> None:
    """All rows of these files, in their order, into one."""
    sources = [parquet.ParquetFile(path, filesystem=system) for path in paths]
    schema = merged_schema([one.schema_arrow for one in sources])
    system.create_dir(to.rpartition("/")[0], recursive=True)
    with parquet.ParquetWriter(to, schema, filesystem=system, compression="zstd") as writer:
        held: list[pa.RecordBatch] = []
        rows = size = 0
        for source in sources:
            for batch in source.iter_batches():
                held.append(cast(batch, schema))
                rows, size = rows + batch.num_rows, size + batch.nbytes
                if rows >= ROWS or size >= LARGEST:
                    writer.write_table(pa.Table.from_batches(held, schema), row_group_size=ROWS)
                    held, rows, size = [], 0, 0
        if held:
            writer.write_table(pa.Table.from_batches(held, schema), row_group_size=ROWS)
    for source in sources:
        source.close()


def merged_schema(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """All columns that one of the files has; times in microseconds."""
    fields: dict[str, pa.Field] = {}
    for schema in schemas:
        for one in schema:
            fields.setdefault(one.name, pa.field(one.name, stored(one.type), nullable=True))
    return pa.schema(list(fields.values()))


def stored(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", "UTC")  # INT96 is an instant
    return kind


def cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = []
    for one in schema:
        at = batch.schema.get_field_index(one.name)
        if at < 0:
            arrays.append(pa.nulls(batch.num_rows, one.type))
            continue
        column = batch.column(at)
        if isinstance(column, pa.ExtensionArray):
            column = column.storage
        arrays.append(instants(column, one.type) if column.type != one.type else column)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def instants(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(column.type) and column.type.tz is None:
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    return column.cast(kind)


# ── what a writer does now and then ──


def remove_days_before(table: Table, day: date) -> int:
    """Retention: answers how many files were removed."""
    while old := [one for one in table.files if one.date and one.date < day.isoformat()]:
        try:
            table.commit((), old, lineage={"retention": day.isoformat()})
            return len(old)
        except Outrun:
            continue
    return 0


class Maintenance:
    """After a batch, in its thread: others may do the same to the table meanwhile."""

    def __init__(self, *, after: int = AFTER, retain_days: int | None = None) -> None:
        if after < 1:
            raise PipelineError(f"compact_after is how many files are merged, 2 and more, not {after}")
        if retain_days is not None and retain_days < 1:
            raise PipelineError(f"retain_days is how many days stay, 1 and more, not {retain_days}")
        self._after = after
        self._retain_days = retain_days
        self._batches = 0
        self._vacuumed: datetime | None = None

    def run(self, table: Table) -> None:
        self._batches += 1
        if self._batches % self._after:
            return
        compact(table, self._after)
        now = datetime.now(UTC)
        if self._retain_days is not None:
            remove_days_before(table, now.date() - timedelta(days=self._retain_days - 1))
        if self._vacuumed is None or now - self._vacuumed >= VACUUM_EVERY:
            self._vacuumed = now
            table.vacuum(hours=KEEP_HOURS, orphans=True)
