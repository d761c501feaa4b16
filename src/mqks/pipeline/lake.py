"""Tables in the lake, written exactly once and read so: Parquet that any reader can read, and a marker of how far.

A batch overwrites its own parts, then the marker moves on: a batch that is done again, after a crash at any point,
leaves what it would have left without one. Parts beyond the marker are of a batch that was not finished: they are not
read, and swept away by the next start. When a checkpoint is lost, parts are numbered on from the marker: its `first` is
the part of batch 0. It also tells whose table it is, so that two jobs never write one, and of two runs of a job the
older one finds out that it is no longer its turn. See layout for the names, compaction for how small parts become large
ones.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mqks.pipeline.compaction import AFTER, Compaction
from mqks.pipeline.errors import PipelineError
from mqks.pipeline.files import HIDDEN, Files
from mqks.pipeline.layout import (
    COMPRESSION,
    EVENTS,
    WRITING,
    Marker,
    Part,
    Reached,
    marker_of,
    marker_path,
    part_of,
    parts,
    read_marker,
    unnoticed,
)
from mqks.pipeline.place import COLUMNS, schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mqks.pipeline.place import Place

DAY = 86_400_000_000  # microseconds


class NoSuchTable(PipelineError):
    """The lake has no such table; the text names those it has."""


# ── reading ──


def table(spark: SparkSession, place: Place, name: str, *, schema: str | None = None) -> DataFrame:
    """A table as it is now. What the archive merges while it is read may have to be asked for again."""
    files, folder = Files(spark), place.table(name)
    visible = parts(files, folder, read_marker(files, place, name).batch)
    paths = [f"{folder}/{date}/{part.name}" for date, some in visible.items() for part in some]
    if not paths:
        if schema is None:
            there = ", ".join(tables(spark, place)) or "none yet"
            raise NoSuchTable(f"the lake {place.lake} has no table {name!r}; its tables: {there}")
        return spark.range(0).selectExpr(*(f"CAST(NULL AS {kind}) AS {word}" for word, kind in columns(schema)))
    reader = spark.read.option("basePath", folder)
    reader = reader.option("mergeSchema", "true")  # a function that was changed may have more columns than before
    if schema is not None:
        reader = reader.schema(f"{schema}, part string")  # else Spark opens the files to find out
    return reader.parquet(*paths).drop("part")


def columns(schema: str) -> list[tuple[str, str]]:
    return [(word, kind) for word, _, kind in (column.strip().partition(" ") for column in schema.split(","))]


def tables(spark: SparkSession, place: Place) -> list[str]:
    """The names of those that have rows, or had."""
    files = Files(spark)
    return [name for name in files.names(place.lake) if not name.startswith(HIDDEN)]


def events(spark: SparkSession, place: Place) -> DataFrame:
    """All archived events, each once; none where nothing is archived yet."""
    return table(spark, place, EVENTS, schema=schema_of(COLUMNS))


def archived(spark: SparkSession, place: Place) -> int | None:
    """All events before this position are in the lake; None where nothing is archived yet."""
    return read_marker(Files(spark), place, EVENTS).position


# ── writing ──


def dated(frame: DataFrame, column: str | None = None) -> DataFrame:
    """With the `date` that its rows are filed under: the UTC day of that timestamp, else the day of the micro-batch.

    For the latter give it the stream, before foreachBatch: there a batch that is done again has the time that it had.
    """
    from pyspark.sql import functions as F

    if column is None:
        return frame.withColumn("date", F.current_date())
    return frame.withColumn(
        "date", F.expr(f"date_from_unix_date(CAST(floor(unix_micros(`{column}`) / {DAY}D) AS int))")
    )


def write_part(frame: DataFrame, folder: str, number: int) -> None:
    """Files the rows under their `date` and this part. Again with the same rows, it leaves the same."""
    from pyspark.sql import functions as F

    for word, value in WRITING.items():  # a stream's batches come with a session of their own
        frame.sparkSession.conf.set(word, value)
    (
        frame.withColumn("part", F.lit(f"{number:012d}"))
        .write.mode("overwrite")
        .options(partitionOverwriteMode="dynamic", compression=COMPRESSION)
        .partitionBy("date", "part")
        .parquet(folder)
    )


class Parts:
    """The writer of a table: made before each start of the query that it is the foreachBatch of."""

    def __init__(
        self,
        spark: SparkSession,
        place: Place,
        name: str,
        job: str,
        *,
        compact_after: int = AFTER,
        goes_on: bool = True,
        then: Callable[[Marker], object] | None = None,
        reached: Reached = unnoticed,
    ) -> None:
        """`job` names the checkpoint of the query. So many small parts of a day are merged into one. `goes_on`: when
        the checkpoint is lost, the query begins where the table ends; for others that is an error. `then` is called
        when a batch is safe in the lake."""
        self.folder = place.table(name)
        self._files = Files(spark)
        self._path = marker_path(place, name)
        self._checkpoint = place.checkpoint(job)
        self._compaction = Compaction(
            spark, self.folder, after=compact_after, same_columns=name == EVENTS, reached=reached
        )
        self._then = then
        self._reached = reached
        found = read_marker(self._files, place, name)
        if found.job not in ("", job):
            raise PipelineError(
                f"{self.folder} is the table of {found.job}, not of {job}: take another name, or move the table and "
                f"{self._path} away to begin anew"
            )
        self.marker = found._replace(job=job, run=secrets.token_hex(8))
        if found.batch >= 0 and not self._files.names(f"{self._checkpoint}/offsets"):  # which is new, the table is not
            if not goes_on:
                raise PipelineError(
                    f"{self.folder} has rows, and the checkpoint {self._checkpoint} is gone: it would get all of them "
                    f"again. Put that back, or move the table and {self._path} away to begin anew"
                )
            self.marker = self.marker._replace(first=found.batch + 1)
        left = self._left_over()
        self._files.write(self._path, json.dumps(self.marker._asdict()))
        for path in left:
            self._files.delete(path)

    def write(self, frame: DataFrame | None, batch: int) -> None:
        """None where the batch has no rows: the marker moves on all the same."""
        number = self.marker.first + batch
        position = position_of(self._files.read(f"{self._checkpoint}/offsets/{batch}") or "")
        if number <= self.marker.batch:  # the crash came after the marker, before Spark knew
            if number == self.marker.batch and self.marker.position not in (None, position):
                raise PipelineError(
                    f"batch {batch} ends at {position} and ended at {self.marker.position} when it was written to "
                    f"{self.folder}: the checkpoint {self._checkpoint} is older than the table. Remove it to go on "
                    "from where the table ends"
                )
            return
        self._check_turn()
        self._reached("begun")
        if frame is not None:
            write_part(frame, self.folder, number)
        self._reached("written")
        self._check_turn()
        self.marker = self.marker._replace(batch=number, position=position)
        self._files.write(self._path, json.dumps(self.marker._asdict()))
        self._reached("marked")
        if self._then:
            self._then(self.marker)
        if self._compaction.due(number):
            self._compaction.run(number)

    def _left_over(self) -> list[str]:
        """What a crash has left: parts of a batch or a merge that was not finished, and what was merged.

        Only of the batch after the marker, and only if Spark does not know it as done: anything else beyond the marker
        says that the marker is lost or old, and is nothing to remove.
        """
        staging = (name for name in self._files.names(self.folder) if name.startswith(".spark-staging"))
        found = [f"{self.folder}/{name}" for name in staging]
        for date, kept in parts(self._files, self.folder, self.marker.batch).items():
            for name in self._files.names(f"{self.folder}/{date}"):
                part = part_of(name)
                if part and part not in kept:
                    self._check_marker(part)
                    found.append(f"{self.folder}/{date}/{name}")
        return found

    def _check_marker(self, part: Part) -> None:
        beyond = part.last - self.marker.batch
        # Spark removes what is long done from its log: the newest tells.
        commits = [int(name) for name in self._files.names(f"{self._checkpoint}/commits") if name.isdigit()]
        done = part.last - self.marker.first <= max(commits, default=-1)
        if beyond > 1 or (beyond == 1 and (part.wide or done)):
            raise PipelineError(
                f"{self.folder} has parts that its marker {self._path} does not know: put the marker back as it was, "
                "or move the folder and the checkpoints away to begin anew"
            )

    def _check_turn(self) -> None:
        found = marker_of(self._files.read(self._path))
        if found != self.marker:
            raise PipelineError(
                f"another run of {found.job or 'a job'} writes {self.folder}: its marker {self._path} is not as this "
                "one left it. Let only one run"
            )


def position_of(offsets: str) -> int | None:
    """Up to where the batch reads the journal, as Spark's log of offsets has it; None where it reads something else."""
    for line in offsets.splitlines():
        told: Any = json.loads(line) if line.startswith("{") else None
        if isinstance(told, dict) and isinstance(told.get("position"), int):
            return int(told["position"])
    return None
