"""Rows of Spark into Parquet files that DuckDB, Polars, pyarrow and Spark read alike, and from there into a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mqks.pipeline.errors import PipelineError
from mqks.pipeline.files import Files
from mqks.pipeline.lake import commit
from mqks.pipeline.lake.commit import POSITION, QUERY, Batch
from mqks.pipeline.lake.compaction import AFTER, Maintenance
from mqks.pipeline.lake.delta_table import Outrun, Table
from mqks.pipeline.lake.location import Location
from mqks.pipeline.lake.reading import day_of, open_table
from mqks.pipeline.lake.schema import DATE, Field, nullable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mqks.pipeline.place import Place

COMPRESSION = "zstd"  # no slower than Spark's default, and far smaller
SETTINGS = {
    "spark.sql.maxConcurrentOutputFileWriters": "8",  # else Spark sorts all rows by date first
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # INT96 has no statistics
    "spark.sql.parquet.variant.annotateLogicalType.enabled": "false",  # else Polars reads no column at all
    "spark.sql.variant.writeShredding.enabled": "false",  # columns for the fields of JSON: twice the time for little
    "spark.sql.variant.inferShreddingSchema": "false",
}


def dated(frame: DataFrame, column: str | None = None) -> DataFrame:
    """With the `date` that its rows are filed under: the UTC day of that timestamp, else the day of the micro-batch.

    For the latter give it the stream, before foreachBatch: there a batch that is done again has the time that it had.
    """
    from pyspark.sql import functions as F

    if column is None:
        return frame.withColumn(DATE, F.current_date())
    return frame.withColumn(DATE, F.expr(day_of(column)))


def write_files(frame: DataFrame, url: str) -> None:
    """A folder for each date below the url."""
    for word, value in SETTINGS.items():  # a stream's batches come with a session of their own
        frame.sparkSession.conf.set(word, value)
    frame.write.mode("error").option("compression", COMPRESSION).partitionBy(DATE).parquet(url)


class Writer:
    """What a streaming query writes a table by: made before each start of the query that it is the foreachBatch of."""

    def __init__(
        self,
        spark: SparkSession,
        place: Place,
        name: str,
        job: str,
        *,
        fields: Sequence[Field] | None = None,
        by_position: bool = False,
        goes_on: bool = True,
        compact_after: int = AFTER,
        retain_days: int | None = None,
        then: Callable[[int | None], object] | None = None,
    ) -> None:
        """`job` names the checkpoint of the query. `fields` are the table's columns; else they are those of the rows.
        `by_position`: batches are ranges of positions, and follow each other. `goes_on`: when the checkpoint is lost,
        the query begins where the table ends; for others that is an error. `then` is told the table's position when a
        batch is safe in it."""
        self._files = Files(spark)
        self._place = place
        self._name = name
        self._job = job
        self._checkpoint = place.checkpoint(job)
        self._by_position = by_position
        self._then = then
        self._maintenance = Maintenance(after=compact_after, retain_days=retain_days)
        self.table = open_table(place, name, files=self._files, writing=True)
        if self.table is None and fields is not None:
            self.table = self._create(fields)
        if self.table is not None:
            self._check_owner(self.table, goes_on)
        self.position = self.table.progress(POSITION) if self.table else None  # where this run stands

    def has(self, column: str) -> bool:
        return self.table is not None and any(one["name"] == column for one in self.table.fields)

    def write(self, frame: DataFrame | None, number: int) -> None:
        """None where the batch has no rows."""
        if not self._by_position and frame is None:
            return
        table = self._table_for(frame)
        batch = self._batch(frame, number)
        write = None if frame is None else lambda url: write_files(frame, url)
        new = commit.append(table, batch, write)
        if self._by_position:
            self.position = table.progress(POSITION)
            if self._then:
                self._then(self.position)
        if new:
            self._maintenance.run(table)

    def _batch(self, frame: DataFrame | None, number: int) -> Batch:
        if self._by_position:
            end, start = self._ends(number), self._ends(number - 1)
            if end is None:
                raise PipelineError(f"batch {number} of {self._job} does not read the journal")
            start = self.position if start is None else start
            return Batch(POSITION, end, start, lineage={"job": self._job, "batch": number, "start": start, "end": end})
        assert frame is not None
        query = query_id(frame)
        lineage = {"job": self._job, "query": query, "batch": number, "end": self._ends(number)}
        return Batch(QUERY + query, number, follows=False, lineage=lineage)

    def _ends(self, number: int) -> int | None:
        return position_of(self._files.read(f"{self._checkpoint}/offsets/{number}") or "")

    def _table_for(self, frame: DataFrame | None) -> Table:
        """It has all the columns of the rows."""
        fields = [] if frame is None else nullable(json.loads(frame.schema.json())["fields"])
        if self.table is None:
            self.table = self._create(fields)
        check_types(self.table, fields)
        there = {one["name"] for one in self.table.fields}
        if more := [one for one in fields if one["name"] not in there]:
            self.table.add_columns(more)
        return self.table

    def _create(self, fields: Sequence[Field]) -> Table:
        try:
            return Table.create(Location(self._place.table(self._name)), fields, self._job)
        except Outrun:
            found = open_table(self._place, self._name, files=self._files, writing=True)
            assert found is not None
            return found

    def _check_owner(self, table: Table, goes_on: bool) -> None:
        folder = table.location.url
        if table.job != self._job:
            raise PipelineError(
                f"{folder} is the table of {table.job}, not of {self._job}: take another name, or move the table away "
                "to begin anew"
            )
        if goes_on or not table.files:
            return
        query = id_in(self._files.read(f"{self._checkpoint}/metadata"))
        if query is None or table.progress(QUERY + query) is None:
            raise PipelineError(
                f"{folder} has rows, and the checkpoint {self._checkpoint} is gone: it would get all of them "
                "again. Put that back, or move the table away to begin anew"
            )


def check_types(table: Table, fields: Sequence[Field]) -> None:
    """A column keeps its type."""
    there = {one["name"]: one["type"] for one in table.fields}
    for one in fields:
        before = there.get(one["name"], one["type"])
        if before != one["type"]:
            raise PipelineError(
                f"the column {one['name']} is {one['type']}, and in the table it is {before}: take another name"
            )


def query_id(frame: DataFrame) -> str:
    """Of the streaming query whose micro-batch it is; it is in the checkpoint."""
    return str(frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))


def id_in(metadata: str | None) -> str | None:
    """As Spark keeps it in a checkpoint."""
    return str(json.loads(metadata)["id"]) if metadata else None


def position_of(offsets: str) -> int | None:
    """Up to where the batch reads the journal, as Spark's log of offsets has it; None where it reads something else."""
    for line in offsets.splitlines():
        told: Any = json.loads(line) if line.startswith("{") else None
        if isinstance(told, dict) and isinstance(told.get("position"), int):
            return int(told["position"])
    return None
