"""SQL over all that there is: `events`, which are the lake's and the journal's, and each table of the lake by its name.

    sql(spark, place, "SELECT event, count(*) FROM events WHERE time > now() - INTERVAL 1 HOUR GROUP BY event")

Each event is there once: those before the archived position from the lake, all others from the journal. That position
is read first and is a constant of the query, so it does no harm that an archive goes on meanwhile. Merging takes away
files that a query may be about to read, and retention takes away journal that has been archived: then the query has to
be asked again, which `answer` does.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import reduce
from shutil import copyfileobj
from tempfile import SpooledTemporaryFile
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, TextIO, TypeVar

from mqks.client.blocking import Client
from mqks.client.errors import MqksError
from mqks.client.protocol import history_end
from mqks.journal import JournalError, Reader
from mqks.pipeline import lake
from mqks.pipeline.asked import EVERYTHING, NO_BOUNDS, Asked, Bounds, asked, moment, stand_in
from mqks.pipeline.errors import PipelineError
from mqks.pipeline.place import CAME, COLUMNS, EVENTS, OWN, schema_of, with_json
from mqks.pipeline.stats import SCHEMA
from mqks.pipeline.stats import TABLE as STATS_TABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mqks.pipeline.place import Place

T = TypeVar("T")
Tell = Callable[[str], object]

A_MICROSECOND = timedelta(microseconds=1)
TIMEOUT = 10.0  # seconds for a broker to say where its journal ends
ATTEMPTS = 3
IN_MEMORY = 16 << 20  # bytes of an answer, before it waits on disk
VANISHED = re.compile(r"FILE_NOT_EXIST|FileNotFoundException|position \d+ is gone|gone by retention")
NOT_YET = ("key", "meta", "due", "expires")  # columns that the journal cannot fill
MADE_OF = {"time": {"time", "date"}, "data": {"data", "text"}}  # columns of the journal → ours; all others are the same

_naming = Lock()


class SqlError(PipelineError):
    """What is wrong with a query, or keeps it from being answered, in a line or two; `told` is all that Spark says."""

    def __init__(self, told: str) -> None:
        super().__init__(plain(told))
        self.told = told


def complain(text: str) -> None:
    print(f"mqks: {text}", file=sys.stderr, flush=True)


# ── asking ──


def sql(
    spark: SparkSession,
    place: Place,
    text: str,
    *,
    end: int | None = None,
    as_of: datetime | None = None,
    tell: Tell = complain,
) -> DataFrame:
    """The answer to the query, not computed yet. `tell` is given a line where lake or journal cannot be read.

    Only what the query asks for is read: its columns, its names, and of lake and journal the times that it wants. `end`
    is the position before which the events are, by default where the journal ends now. `as_of`: the tables of the lake
    as they were at that time, and nothing of the journal.
    """
    with named(spark, place, text, as_of):
        wanted = asked(spark, text)
        if wanted.columns is not None:
            events(spark, place, wanted, end=end, as_of=as_of, tell=tell).createOrReplaceTempView(EVENTS)
        return spark.sql(text)


@contextmanager
def named(spark: SparkSession, place: Place, text: str, as_of: datetime | None = None) -> Iterator[None]:
    """The session has a view of each table of the lake that the query names, and `events` as a stand-in of no rows:
    for one query at a time, so that none meets the stand-in of another."""
    lower = text.lower()
    with _naming:
        for name in lake.tables(spark, place):
            if name != EVENTS and (name.lower() in lower or lower.lstrip().startswith("show")):
                with suppress(lake.NoSuchTable):  # its first batch is being written
                    schema = SCHEMA if name == STATS_TABLE else None
                    lake.table(spark, place, name, schema=schema, as_of=as_of).createOrReplaceTempView(f"`{name}`")
        stand_in(spark).createOrReplaceTempView(EVENTS)
        yield


def answer(
    spark: SparkSession,
    place: Place,
    text: str,
    take: Callable[[DataFrame], T],
    *,
    end: int | None = None,
    as_of: datetime | None = None,
    tell: Tell = complain,
) -> T:
    """What `take` makes of the answer. It is called again if files vanish while it reads, so it should give nothing
    away before it has all. Raises SqlError, without a word of Java."""
    for attempt in range(ATTEMPTS):
        try:
            with plainly():
                return take(sql(spark, place, text, end=end, as_of=as_of, tell=tell if attempt == 0 else ignore))
        except SqlError as error:
            if attempt == ATTEMPTS - 1 or not VANISHED.search(error.told):
                raise
    raise AssertionError("the last attempt answers or raises")


@contextmanager
def plainly() -> Iterator[None]:
    """What Spark raises becomes an SqlError."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no types
    from pyspark.errors import PySparkException

    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)  # it prints each error as JSON
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise SqlError(str(error)) from None


def write(
    spark: SparkSession,
    place: Place,
    text: str,
    render: Callable[[DataFrame], Iterable[str]],
    out: TextIO,
    *,
    as_of: datetime | None = None,
    tell: Tell = complain,
) -> None:
    """The answer as lines, such as `tables.csv` makes them. They wait in a file until all are there."""
    with SpooledTemporaryFile(IN_MEMORY, "w+", encoding="utf-8", newline="") as kept:

        def keep(frame: DataFrame) -> None:
            kept.seek(0)
            kept.truncate()
            kept.writelines(f"{line}\n" for line in render(frame))

        answer(spark, place, text, keep, as_of=as_of, tell=tell)
        kept.seek(0)
        copyfileobj(kept, out)


def ignore(text: str) -> None:
    """It has been said."""


# ── events ──


def events(
    spark: SparkSession,
    place: Place,
    wanted: Asked = EVERYTHING,
    *,
    end: int | None = None,
    as_of: datetime | None = None,
    tell: Tell = complain,
) -> DataFrame:
    """All events of lake and journal, each once, in the columns of COLUMNS; those not wanted are null in the journal's
    part. The pipeline's own are left out. `end` is the position before which they all are, by default that of now."""
    from pyspark.sql import functions as F

    if as_of is not None:
        return lake.events(spark, place, bounds=wanted.bounds, as_of=as_of)
    position = lake.archived(spark, place)
    parts = []
    if position is not None:
        upto = position if end is None else min(position, end)
        archived = lake.events(spark, place, bounds=wanted.bounds)
        parts.append(archived.where((F.col("position") < upto) & ~F.col("event").isin(*OWN)))
    try:
        found = extent(place, wanted.bounds)
    except (MqksError, JournalError, OSError) as error:
        tell(f"the journal cannot be read, so this is only what the lake has: {error}")
    else:
        if position is not None and position < found.start:
            tell(f"the journal begins at {found.start}: what came after {position} is neither there nor in the lake")
        if position is not None and position > found.end:
            tell(f"the journal ends at {found.end}, before what the lake has ({position}): it is another one, not read")
        start = max(position or 0, found.first)
        stop = found.stop if end is None else min(found.stop, end)
        if start < stop:
            parts.append(journal(spark, place, wanted, start, stop))
    if not parts:
        parts.append(spark.range(0).select(*(F.lit(None).cast(kind).alias(name) for name, kind in COLUMNS.items())))
    alike = [part.select(*COLUMNS) for part in parts]
    return reduce(lambda one, other: one.unionAll(other), alike)


def journal(spark: SparkSession, place: Place, wanted: Asked, start: int, end: int) -> DataFrame:
    """The events from `start` to before `end`, as the lake has them, without columns and names that nobody wants."""
    from pyspark.sql import functions as F

    columns, names = wanted.columns or frozenset(), wanted.bounds.events
    kept = {name: kind for name, kind in CAME.items() if MADE_OF.get(name, {name}) & columns} or {"position": "long"}
    options: dict[str, str | int] = {"startingOffsets": start, "endingOffsets": end, "exceptEvents": ",".join(OWN)}
    if names is not None:
        options["subscribePattern"] = "|".join(sorted(names))
    came = spark.read.format("mqks").schema(schema_of(kept)).options(**place.source(), **options).load()
    filled = (F.col(name) if name in kept else F.lit(None).cast(kind).alias(name) for name, kind in CAME.items())
    missing = [F.lit(None).cast(kind).alias(name) for name, kind in COLUMNS.items() if name in NOT_YET]
    return lake.dated(with_json(came.select(*filled)).select("*", *missing), "time")


# ── where the journal is ──


class Extent(NamedTuple):
    """Where a journal begins and ends by now, and where what is wanted of it does."""

    start: int
    end: int
    first: int
    stop: int


def extent(place: Place, bounds: Bounds = NO_BOUNDS) -> Extent:
    with looking(place) as find:
        start = first = find("earliest")
        end = stop = find("latest")
        (since, until), (lowest, highest) = map(moment, bounds.times), bounds.positions
        if since is not None:
            first = max(first, find(since))
        if until is not None:
            with suppress(OverflowError):  # the end of all times
                stop = min(stop, find(until + A_MICROSECOND))
        return Extent(start, end, int(max(first, min(lowest, end))), int(min(stop, max(highest + 1, start))))


@contextmanager
def looking(place: Place) -> Iterator[Callable[[str | datetime], int]]:
    """Tells the position of `earliest`, of `latest`, and of a time: from the journal's folder, else from the broker."""
    if place.data:
        reader = Reader(place.data)
        ends = {"earliest": lambda: reader.earliest, "latest": lambda: reader.latest}
        yield lambda at: ends[at]() if isinstance(at, str) else reader.find_time(at)
        return
    with Client(place.broker, connect_timeout=0, timeout=TIMEOUT) as broker:
        if not broker.stats().get("journal"):
            raise JournalError(f"the broker at {place.broker} keeps no journal (--memory)")

        def ask(at: str | datetime) -> int:
            word = at if isinstance(at, str) else at.isoformat()
            return history_end(broker.request("history", f"{word} --to=earliest"))

        yield ask


# ── errors ──

TRACEBACK = "Traceback (most recent call last):"
RAISED = re.compile(r"(?:[\w.]+\.)?(\w+): (.+)")
CONDITION = re.compile(r"^\[[A-Z_.]+\] ")
STATE = re.compile(r"\.? SQLSTATE: \w+.*", re.DOTALL)
TASK = re.compile(r"^Job aborted due to stage failure: .*?executor \w+\): ")
AT = re.compile(r"\(?line (\d+),? pos (\d+)\)?")


def plain(text: str) -> str:
    """What Spark says of an error, without where in Java or Python it was raised."""
    if TRACEBACK in text:
        raised = [match for line in text.rpartition(TRACEBACK)[2].splitlines() if (match := RAISED.match(line))]
        if raised:
            return STATE.sub("", raised[-1][2])
    lines = [line for line in text.strip().splitlines() if not line.startswith("An error occurred while calling")]
    first = TASK.sub("", lines[0].removeprefix(": ")) if lines else text
    at = AT.search(text)
    where = f" (line {at[1]}, position {int(at[2]) + 1})" if at else ""
    return STATE.sub("", CONDITION.sub("", first)).rstrip(".") + where
