"""Where the rows of a user's function go: decorators that note it, and how each kind of target is written.

A decorator leaves the function as it is, so that tests and other code can call it. `run` finds what was noted and
starts a query for each. Rows reach the lake and the broker exactly once: a batch that is done again is in the table
already, or is published under the same scope.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from mqks.names import is_event
from mqks.pipeline import lake
from mqks.pipeline.batches import each
from mqks.pipeline.errors import PipelineError
from mqks.pipeline.lake.schema import DATE, nullable
from mqks.pipeline.lake.writing import check_types
from mqks.pipeline.place import EVENTS
from mqks.pipeline.stats import TABLE as STATS_TABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from mqks.pipeline.place import Place

NOTED = "__mqks_targets__"
EVERY = 1.0  # seconds
MODES = ("append", "update", "complete")
TABLE = re.compile(r"[a-z][a-z0-9_]*")
OURS = (EVENTS, STATS_TABLE)
OF_EVENTS = ("event", "data", "id", "position")

Function = TypeVar("Function", bound=Callable[..., object])


class BadTarget(PipelineError):
    """A target that will not do; the text says what would."""


class Query(NamedTuple):
    """What a target is written by: a query that keeps its checkpoint under the name `job`."""

    place: Place
    job: str


@dataclass(frozen=True, kw_only=True)
class Target(ABC):
    """One place that rows go to: how often at most, and Spark's output mode."""

    mode: str
    every: float = EVERY

    kind = ""

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise BadTarget(f"mode is one of {', '.join(MODES)}, not {self.mode!r}")
        if self.every < 0:
            raise BadTarget(f"every is a number of seconds, not {self.every!r}")

    @property
    def named(self) -> str:
        """Which one of its kind it is, if it has a name."""
        return ""

    @abstractmethod
    def writer(self, frame: DataFrame, query: Query) -> DataStreamWriter: ...

    def __call__(self, function: Function) -> Function:
        setattr(function, NOTED, [self, *noted(function)])
        return function


def noted(function: object) -> list[Target]:
    """The targets of a function, from the top decorator down."""
    return list(getattr(function, NOTED, ()))


@dataclass(frozen=True, kw_only=True)
class ToLake(Target):
    table: str

    kind = "lake"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.table, str) or not TABLE.fullmatch(self.table):
            raise BadTarget(f"a table's name is of small letters, digits and _, not {self.table!r}")
        if self.table in OURS:
            raise BadTarget(f"the table {self.table!r} is written by the pipeline itself: take another name")
        if self.mode != "append":
            raise BadTarget("a table takes rows that stay as they are: mode is append")

    @property
    def named(self) -> str:
        return self.table

    def writer(self, frame: DataFrame, query: Query) -> DataStreamWriter:
        types = dict(frame.dtypes)
        for column in types:
            if column.lower() == DATE and column != DATE:
                raise BadTarget(f"a column cannot be named {column}: the lake has its own")
        if types.get("date", "date") != "date":
            raise BadTarget(f"the column date files the rows by day: it must be a date, and is {types['date']}")
        if "date" not in types:
            frame = lake.dated(frame, "time" if types.get("time") == "timestamp" else None)
        writer = lake.Writer(frame.sparkSession, query.place, self.table, query.job, goes_on=False)
        if writer.table is not None:
            check_types(writer.table, nullable(json.loads(frame.schema.json())["fields"]))
        return frame.writeStream.foreachBatch(each(writer.write))


@dataclass(frozen=True, kw_only=True)
class ToEvent(Target):
    event: str | None

    kind = "event"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.event is not None and not (isinstance(self.event, str) and is_event(self.event.encode())):
            raise BadTarget(f"{self.event!r} is no name of an event")
        if self.event is not None and {",", "*"} & set(self.event):
            raise BadTarget(f"an event that comes from a pipeline has no , and no * in its name: {self.event!r}")

    @property
    def named(self) -> str:
        return self.event or ""

    def writer(self, frame: DataFrame, query: Query) -> DataStreamWriter:
        told = self.messages(frame)
        # Ids and positions mean one message, whenever they come. Other rows are told apart by their content, which may
        # well come again in another batch.
        stable = {"id", "position"} & set(told.columns)

        def publish(batch: DataFrame, number: int) -> None:
            id = str(batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
            scope = id if stable else f"{id}-{number}"
            batch.write.format("mqks").mode("append").option("url", query.place.broker).option("scope", scope).save()

        return told.writeStream.foreachBatch(each(publish))

    def messages(self, frame: DataFrame) -> DataFrame:
        """The rows as messages. Without a column data, the columns that are none of a message's own become a JSON."""
        from pyspark.sql import functions as F

        columns = frame.columns
        if self.event is None and "event" not in columns:
            raise BadTarget(f"@to_event() without a name wants a column event; there are {', '.join(columns)}")
        if self.event is not None and "event" in columns and "data" in columns:
            raise BadTarget(f"there is a column event, and @to_event({self.event!r}) names one: drop one of them")
        if "data" in columns:
            if more := [column for column in columns if column not in OF_EVENTS]:
                raise BadTarget(
                    f"beside data there may be event, id and position; there is {', '.join(more)} too. "
                    "Leave those out, or leave data out: then all columns are put into one JSON object"
                )
            data = _as_text(frame)
        else:
            of_row = [
                column for column in columns if column not in ("id", "position") and (self.event or column != "event")
            ]
            if not of_row:
                raise BadTarget(f"no column to make data of; there are {', '.join(columns)}")
            data = frame.withColumn("data", F.to_json(F.struct(*(f"`{column}`" for column in of_row))))
        if self.event is not None:
            data = data.withColumn("event", F.lit(self.event))
        return data.select(*(column for column in OF_EVENTS if column in data.columns))


def _as_text(frame: DataFrame) -> DataFrame:
    """Text and bytes as they are, all else as JSON."""
    from pyspark.sql import functions as F

    kind = dict(frame.dtypes)["data"]
    if kind in ("string", "binary"):
        return frame
    nested = kind == "variant" or kind.startswith(("struct", "map", "array"))
    return frame.withColumn("data", F.to_json("data") if nested else F.col("data").cast("string"))


@dataclass(frozen=True, kw_only=True)
class ToConsole(Target):
    rows: int = 20

    kind = "console"

    def writer(self, frame: DataFrame, query: Query) -> DataStreamWriter:
        def show(batch: DataFrame, number: int) -> None:
            batch = batch.persist()
            try:
                if count := batch.count():
                    print(f"{query.job}, batch {number}, rows {count}:")
                    batch.show(self.rows, truncate=False)
            finally:
                batch.unpersist()

        return frame.writeStream.foreachBatch(each(show))


def to_lake(table: str, *, every: float = 10.0, mode: str = "append") -> ToLake:
    """Into a table of the lake, which `mqks pipeline sql` knows by this name. Rows are filed by day: by the column
    date, else by the column time, else by when they come."""
    return ToLake(table=table, every=every, mode=mode)


def to_event(event: str | None = None, *, every: float = EVERY, mode: str = "update") -> ToEvent:
    """Back to the broker, as this event, or as the one that the column event names. A column data is the message's
    data; without one, it is the whole row as a JSON object. A column id is its id."""
    return ToEvent(event=event, every=every, mode=mode)


def to_console(*, rows: int = 20, every: float = EVERY, mode: str = "update") -> ToConsole:
    """Printed, so many rows of each batch."""
    return ToConsole(rows=rows, every=every, mode=mode)
