"""Where the events come from and go to, and the one shape that they have: no job reads them otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BROKER = "mqks://127.0.0.1:25000"
LAKE = "mqks-lake"

STATS_EVENT = "mqks.stats.minute"
PROGRESS_EVENT = "mqks.pipeline.progress"
OWN = (STATS_EVENT, PROGRESS_EVENT)  # what the pipeline itself says: neither archived nor counted

AS_THEY_CAME = "position long, time timestamp, id string, action string, event string, data string, raw binary"


@dataclass(frozen=True)
class Place:
    broker: str = BROKER
    data: str | None = None  # the journal's folder, where it can be reached; else it is read through the broker
    lake: str = LAKE  # any folder or URL that Spark takes

    def source(self) -> dict[str, str]:
        """The options that say where format("mqks") reads."""
        return {"path": self.data} if self.data else {"url": self.broker}

    def table(self, name: str) -> str:
        """The folder of a table in the lake."""
        return f"{self.lake.rstrip('/')}/{name}"

    def checkpoint(self, job: str) -> str:
        return self.table(f"_checkpoints/{job}")

    def events(self, spark: SparkSession, *, stream: bool = False, **options: str | int) -> DataFrame:
        """The events of the journal, in the shape that all of the pipeline knows; `options` are the source's."""
        reader = spark.readStream if stream else spark.read
        came = reader.format("mqks").schema(AS_THEY_CAME).options(**self.source(), **options).load()
        return with_json(came)


def with_json(came: DataFrame) -> DataFrame:
    """`data` as VARIANT, so that `data:user.id::int` works, and as `text` how it came. What is no JSON is a string."""
    return came.selectExpr(
        "position",
        "time",
        "id",
        "action",
        "event",
        "coalesce(try_parse_json(data), cast(data AS variant)) AS data",
        "data AS text",
        "raw",
    )
