"""Small parts of a table merged into larger ones: a stream leaves thousands of small files a day, slow to read.

A merge writes `part={first}-{last}`, which counts when Spark has put its `_SUCCESS` there, the last thing it does, on
any file system; from then on readers leave out the parts within it, and those are removed. Killed before, it leaves a
part that does not count; killed after, parts that do not: the next start sweeps either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from mqks.pipeline.errors import PipelineError
from mqks.pipeline.files import Files
from mqks.pipeline.layout import COMPRESSION, WRITING, Part, Reached, parts, unnoticed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AFTER = 32  # parts
TIERS = (
    2 << 20,
    64 << 20,
)  # bytes; only parts below the same bound are merged, so that each row is written again twice
LARGEST = 256 << 20  # bytes of what is merged into one
FILE = 128 << 20  # bytes of a file in it


class Sized(NamedTuple):
    part: Part
    size: int


def runs(found: Iterable[Sized], least: int, bound: int) -> Iterator[list[Sized]]:
    """Neighbours that are all smaller than the bound, at least so many, together not larger than the largest."""
    least = max(least, 2)  # one alone would overwrite itself
    run: list[Sized] = []
    total = 0
    for one in [*found, None]:
        if one is None or one.size >= bound or total + one.size > LARGEST:
            if len(run) >= least:
                yield run
            run, total = [], 0
        if one is not None and one.size < bound:
            run.append(one)
            total += one.size


def chosen(found: Sequence[Sized], least: int) -> Iterator[list[Sized]]:
    """What to merge: the small among the small, else the middling."""
    for bound in TIERS:
        some = list(runs(found, least, bound))
        if some:
            yield from some
            return


class Compaction:
    """Of one table. It runs in the thread of the batches, so that no batch is written meanwhile."""

    def __init__(
        self,
        spark: SparkSession,
        folder: str,
        *,
        after: int = AFTER,
        same_columns: bool = False,
        reached: Reached = unnoticed,
    ) -> None:
        """`same_columns`: all parts have the same, so that one need not look at each."""
        if after < 1:
            raise PipelineError(f"compact_after is how many parts are merged, 2 and more, not {after}")
        self._spark = spark.newSession()  # so that what is set here is set nowhere else
        for word, value in WRITING.items():
            self._spark.conf.set(word, value)
        self._files = Files(spark)
        self._folder = folder
        self._after = after
        self._merge_schema = str(not same_columns).lower()
        self._reached = reached
        self._sizes: dict[tuple[str, Part], int] = {}  # parts never change

    def due(self, batch: int) -> bool:
        return (batch + 1) % self._after == 0

    def run(self, upto: int) -> int:
        """Merges what is worth it, of the parts up to that batch; answers how many parts there are less."""
        found = parts(self._files, self._folder, upto)
        newest = max(found, default="")
        less = 0
        for date, some in found.items():
            # A day that is over is tidied up, down to two parts that fit into one.
            least = self._after if date == newest else 2
            if len(some) < least:
                continue
            for run in chosen([Sized(part, self._size(date, part)) for part in some], least):
                self._merge(date, run)
                less += len(run) - 1
        return less

    def _merge(self, date: str, run: Sequence[Sized]) -> None:
        whole = Part(run[0].part.first, run[-1].part.last)
        folder = f"{self._folder}/{date}"
        frame = self._spark.read.option("mergeSchema", self._merge_schema).parquet(
            *(f"{folder}/{one.part.name}" for one in run)
        )
        files = -(-sum(one.size for one in run) // FILE) or 1
        if "position" in frame.columns:  # in order, so that a reader of some positions skips most of it
            frame = frame.repartitionByRange(files, "position").sortWithinPartitions("position")
        else:
            frame = frame.coalesce(files)
        self._reached("merging")
        options = {"partitionOverwriteMode": "static", "compression": COMPRESSION}
        frame.write.mode("overwrite").options(**options).parquet(f"{folder}/{whole.name}")
        self._reached("merged")
        for one in run:
            self._files.delete(f"{folder}/{one.part.name}")
            self._sizes.pop((date, one.part), None)
            self._reached("removed")

    def _size(self, date: str, part: Part) -> int:
        if (date, part) not in self._sizes:
            self._sizes[date, part] = self._files.size(f"{self._folder}/{date}/{part.name}")
        return self._sizes[date, part]
