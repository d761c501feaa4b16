"""Tables of the lake as Spark reads them: the files that the log has, without those that a query does not need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError

from mqks.pipeline.asked import NO_BOUNDS, Bounds, Range, literal, moment
from mqks.pipeline.errors import PipelineError
from mqks.pipeline.files import HIDDEN, Files
from mqks.pipeline.lake.adopt import adopt
from mqks.pipeline.lake.commit import POSITION
from mqks.pipeline.lake.delta_table import File, Table
from mqks.pipeline.lake.location import Location
from mqks.pipeline.lake.schema import DATE, Field, fields_of
from mqks.pipeline.place import COLUMNS, EVENTS, Place, parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAY = 86_400_000_000  # microseconds
DATE_OF_PATH = f"CAST(regexp_extract(_metadata.file_path, '/{DATE}=([^/]+)/', 1) AS date)"


def day_of(column: str) -> str:
    """In SQL: the UTC day of a timestamp, whatever the session's zone is."""
    return f"date_from_unix_date(CAST(floor(unix_micros(`{column}`) / {DAY}D) AS int))"


class NoSuchTable(PipelineError):
    """The lake has no such table; the text names those it has."""


def open_table(
    place: Place, name: str, *, files: Files | None = None, writing: bool = False, as_of: datetime | None = None
) -> Table | None:
    """None where the lake has no such table. One in the layout of 0.1.0 becomes a Delta table first."""
    location = Location(place.table(name))
    at = None if as_of is None else as_of.astimezone(UTC).isoformat()
    try:
        table = Table.open(location, writing=writing, at=at)
    except DeltaError as error:
        if at is None:
            raise
        raise PipelineError(f"{location.url} is not known any more as it was at {at}: {error}") from None
    if files is not None:
        if table is None:
            table = adopt(files, place, name)
        elif writing:
            files.delete(place.table(f"_mqks/{name}.json"))  # of 0.1.0, if adopting it was cut short
    return table


def table(
    spark: SparkSession,
    place: Place,
    name: str,
    *,
    schema: str | None = None,
    bounds: Bounds = NO_BOUNDS,
    as_of: datetime | None = None,
) -> DataFrame:
    """A table as it is now, or as it was; `bounds` leave out files. `schema`: of one that is not there yet."""
    found = open_table(place, name, files=Files(spark), as_of=as_of)
    if found is None:
        if schema is None:
            there = ", ".join(tables(spark, place)) or "none yet"
            raise NoSuchTable(f"the lake {place.lake} has no table {name!r}; its tables: {there}")
        return spark.range(0).selectExpr(*(f"CAST(NULL AS {kind}) AS {word}" for word, kind in columns(schema)))
    return frame_of(spark, found, pruned(found.files, bounds))


def frame_of(spark: SparkSession, found: Table, files: Sequence[File], *, file: str | None = None) -> DataFrame:
    """The rows of these files of the table, in its columns; `file`: and a column of this name, with a URL."""
    from pyspark.sql.types import StructType

    in_files = [one for one in found.fields if one["name"] != DATE]
    schema = StructType.fromJson({"type": "struct", "fields": in_files})
    names = [f"`{one['name']}`" for one in in_files]
    if not files:
        empty = spark.range(0).selectExpr(
            *(f"CAST(NULL AS {one.dataType.simpleString()}) AS `{one.name}`" for one in schema)
        )
        more = [f"CAST(NULL AS string) AS {file}"] if file else []
        return empty.selectExpr(*names, f"CAST(NULL AS date) AS {DATE}", *more)
    # Folders are no columns: each attempt has its own, and the day is all that a path tells.
    reader = spark.read.schema(schema).option("recursiveFileLookup", "true")
    read = reader.parquet(*((found.location / one.path).spark for one in files))
    more = [f"_metadata.file_path AS {file}"] if file else []
    # Spark makes all of _metadata for each row, also if nobody asks for it: not where the day follows from a column.
    date = day_of("time") if found.progress(POSITION) is not None else DATE_OF_PATH
    return read.selectExpr(*names, f"{date} AS {DATE}", *more)


def columns(schema: str) -> list[tuple[str, str]]:
    return [(word, kind) for word, _, kind in (column.strip().partition(" ") for column in schema.split(","))]


def tables(spark: SparkSession, place: Place) -> list[str]:
    """The names of those that there are."""
    files = Files(spark)
    return [name for name in files.names(place.lake) if not name.startswith(HIDDEN)]


def events(
    spark: SparkSession, place: Place, *, bounds: Bounds = NO_BOUNDS, as_of: datetime | None = None
) -> DataFrame:
    """All archived events, each once; none where nothing is archived yet."""
    found = open_table(place, EVENTS, files=Files(spark), as_of=as_of)
    if found is None:
        return spark.range(0).selectExpr(*(f"CAST(NULL AS {kind}) AS {name}" for name, kind in COLUMNS.items()))
    frame = frame_of(spark, found, pruned(found.files, bounds))
    if "data" not in frame.columns:  # it was begun with --no-variant
        frame = frame.selectExpr("*", f"{parsed('text')} AS data")
    missing = [f"CAST(NULL AS {kind}) AS {name}" for name, kind in COLUMNS.items() if name not in frame.columns]
    return frame.selectExpr("*", *missing).select(*COLUMNS)


def archived(spark: SparkSession, place: Place, *, as_of: datetime | None = None) -> int | None:
    """All events before this position are in the lake; None where nothing is archived yet."""
    found = open_table(place, EVENTS, files=Files(spark), as_of=as_of)
    return None if found is None else found.progress(POSITION)


# ── pruning ──


def pruned(files: Iterable[File], bounds: Bounds) -> list[File]:
    """Those that may have rows within the bounds."""
    return [one for one in files if may_have(one, bounds)]


def may_have(file: File, bounds: Bounds) -> bool:
    return (
        overlaps((file.least("position"), file.largest("position")), bounds.positions)
        and overlaps_times((file.least("time"), file.largest("time")), bounds.times)
        and within_days(file.date, bounds.days)
        and has_names((file.least("event"), file.largest("event")), bounds.events)
    )


def overlaps(found: tuple[int | None, int | None], wanted: Range) -> bool:
    least, largest = found
    return least is None or largest is None or (least <= wanted[1] and largest >= wanted[0])


def overlaps_times(found: tuple[datetime | None, datetime | None], wanted: Range) -> bool:
    least, largest = found
    first, last = map(moment, wanted)
    if wanted[0] > wanted[1]:
        return False
    before = first is not None and largest is not None and largest < first
    return not (before or (last is not None and least is not None and least > last))


def within_days(day: str, wanted: Range) -> bool:
    """Days are counted since 1970."""
    if not day or day.startswith("__"):  # a date that is null
        return True
    number = (datetime.fromisoformat(day).date() - datetime(1970, 1, 1).date()).days
    return wanted[0] <= number <= wanted[1]


def has_names(found: tuple[str | None, str | None], wanted: frozenset[str] | None) -> bool:
    """`wanted` are regular expressions that are a name, or the begin of one."""
    least, largest = found
    if wanted is None or least is None or largest is None:
        return True
    for name, is_prefix in map(literal, wanted):
        if least <= name <= largest or (is_prefix and (name <= largest and least[: len(name)] <= name)):
            return True
    return False


def fields_of_events(*, variant: bool) -> list[Field]:
    """The columns of the table `events`."""
    kept = {name: kind for name, kind in COLUMNS.items() if variant or name != "data"}
    return fields_of(kept)
