"""Erasure: the rows for which a condition holds leave every table of the lake, and their files leave the disk.

Files with such rows are written again without them, and one commit puts the new ones in their place. A merge that runs
meanwhile is dropped, or this one looks again; batches go on. Then vacuum removes what the table has no more: a query
that is reading such a file has to be asked again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from mqks.pipeline.asked import is_steady
from mqks.pipeline.errors import PipelineError
from mqks.pipeline.files import Files
from mqks.pipeline.lake.compaction import LARGEST, replace
from mqks.pipeline.lake.delta_table import File, Table
from mqks.pipeline.lake.reading import frame_of, open_table, tables
from mqks.pipeline.lake.schema import DATE
from mqks.pipeline.lake.writing import write_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mqks.pipeline.place import Place

VIEW = "mqks_forget"
FILE = "_mqks_file"
ORPHAN_HOURS = 1  # what a batch that is being written has there by now is younger
ATTEMPTS = 5


@dataclass(frozen=True)
class Forgotten:
    table: str
    rows: int = 0
    files: int = 0  # written again
    removed: int = 0  # from the disk
    skipped: str = ""  # why the condition does not fit this table


def forget(
    spark: SparkSession, place: Place, where: str, *, progress: Callable[[Forgotten], object] | None = None
) -> list[Forgotten]:
    """Of all tables. A table that has not the columns of the condition is skipped, which its answer says."""
    found = []
    for name in tables(spark, place):
        table = open_table(place, name, files=Files(spark), writing=False)
        if table is not None:
            found.append(forget_in(spark, name, table, where))
            if progress:
                progress(found[-1])
    if found and all(one.skipped for one in found):
        raise PipelineError(f"no table has the columns of this condition: {found[0].skipped}")
    return found


def forget_in(spark: SparkSession, name: str, table: Table, where: str) -> Forgotten:
    if why := misfit(spark, table, where):
        return Forgotten(name, skipped=why)
    for _ in range(ATTEMPTS):
        table.refresh()
        matched = matches(spark, table, where)
        added = rewritten(spark, table, list(matched), where)
        if not matched or replace(table, list(matched), added, data_change=True):
            gone = table.vacuum(hours=0, orphans=False) + table.vacuum(hours=ORPHAN_HOURS, orphans=True)
            return Forgotten(name, sum(matched.values()), len(matched), len(gone))
    raise PipelineError(f"{table.location.url} changes all the time: ask again")


def misfit(spark: SparkSession, table: Table, where: str) -> str:
    """Why the condition cannot be asked of this table; nothing if it can."""
    from pyspark.errors import AnalysisException

    frame_of(spark, table, []).createOrReplaceTempView(VIEW)
    text = f"SELECT * FROM {VIEW} WHERE ({where}\n)"  # nosec B608  # whoever forgets may ask for anything
    try:
        spark.sql(text)
        if not is_steady(spark, text):
            raise PipelineError("the condition means other rows each time it is asked (now, rand): give constants")
    except AnalysisException as error:
        return str(error).partition("\n")[0]
    finally:
        spark.catalog.dropTempView(VIEW)
    return ""


def matches(spark: SparkSession, table: Table, where: str) -> dict[File, int]:
    """The files that have such rows, and how many."""
    by_name = {key(one.path): one for one in table.files}
    frame = frame_of(spark, table, table.files, file=FILE)
    counted = frame.where(f"({where}\n)").groupBy(FILE).count().collect()
    return {by_name[key(unquote(row[FILE]))]: row["count"] for row in counted}


def key(path: str) -> str:
    """Of a file, in a path or a URL: each is three levels below its table, and its attempt's name is its own."""
    return "/".join(path.split("/")[-3:])


def rewritten(spark: SparkSession, table: Table, files: list[File], where: str) -> list[File]:
    """New files with all other rows."""
    if not files:
        return []
    kept = frame_of(spark, table, files).where(f"NOT coalesce(({where}\n), false)")
    order = [DATE, "position"] if "position" in kept.columns else [DATE]
    parts = -(-sum(one.size for one in files) // LARGEST)
    folder = table.attempt()
    ordered = kept.repartitionByRange(parts, *order).sortWithinPartitions(*order)
    write_files(ordered, (table.location / folder).spark)
    return table.found(folder)
