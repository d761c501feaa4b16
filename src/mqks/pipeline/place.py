"""Where the events come from and go to, and the one shape that they have: no job reads them otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mqks.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BROKER = "mqks://127.0.0.1:25000"
LAKE = "mqks-lake"

STATS_EVENT = "mqks.stats.minute"
PROGRESS_EVENT = "mqks.pipeline.progress"
TICK_EVENT = "mqks.stats.tick"  # so that a minute ends where nobody speaks any more
OWN = (STATS_EVENT, PROGRESS_EVENT, TICK_EVENT)  # what the pipeline itself says: neither archived nor counted

EVENTS = "events"  # the table of all events
EXCEPT = "exceptEvents"
WILD = set("*?[]{}")  # Spark takes these for patterns when it reads, and as they are when it writes

# The columns of events: as the journal has them, and as all of the pipeline has them.
CAME = {
    "position": "long",
    "time": "timestamp",
    "id": "string",
    "action": "string",
    "event": "string",
    "data": "string",
    "raw": "binary",
}
COLUMNS = {
    "position": "long",
    "time": "timestamp",
    "id": "string",
    "action": "string",
    "event": "string",
    "data": "variant",
    "text": "string",
    "raw": "binary",
    "key": "string",  # this and the next three are null: the journal has them not yet
    "meta": "map<string,string>",
    "due": "timestamp",
    "expires": "timestamp",
    "date": "date",  # in the lake, which files rows under it, and in SQL
}


def schema_of(columns: Mapping[str, str]) -> str:
    """As Spark writes a schema."""
    return ", ".join(map(" ".join, columns.items()))


@dataclass(frozen=True)
class Place:
    broker: str = BROKER
    data: str | None = None  # the journal's folder, where it can be reached; else it is read through the broker
    lake: str = LAKE  # any folder or URL that Spark takes

    def __post_init__(self) -> None:
        if WILD & set(self.lake):
            raise PipelineError(f"a lake's path has none of {' '.join(sorted(WILD))}, and this one does: {self.lake}")

    def source(self) -> dict[str, str]:
        """The options that say where format("mqks") reads."""
        return {"path": self.data} if self.data else {"url": self.broker}

    def table(self, name: str) -> str:
        """The folder of a table in the lake."""
        return f"{self.lake.rstrip('/')}/{name}"

    def checkpoint(self, job: str) -> str:
        return self.table(f"_checkpoints/{job}")

    def events(
        self, spark: SparkSession, *, stream: bool = False, leave_out: Iterable[str] = (), **options: str | int
    ) -> DataFrame:
        """The events of the journal, in the shape that all of the pipeline knows; `options` are the source's. Those to
        leave out are so beside those of the option exceptEvents."""
        given = {**self.source(), **options}
        unwanted = [*leave_out, *(str(given.pop(word)) for word in list(given) if word.lower() == EXCEPT.lower())]
        if unwanted:
            given[EXCEPT] = ",".join(unwanted)
        reader = spark.readStream if stream else spark.read
        return with_json(reader.format("mqks").schema(schema_of(CAME)).options(**given).load())


def parsed(column: str) -> str:
    return f"coalesce(try_parse_json({column}), cast({column} AS variant))"


def with_json(came: DataFrame) -> DataFrame:
    """`data` as VARIANT, so that `data:user.id::int` works, and as `text` how it came. What is no JSON is a string."""
    return came.selectExpr(
        "position",
        "time",
        "id",
        "action",
        "event",
        f"{parsed('data')} AS data",
        "data AS text",
        "raw",
    )
