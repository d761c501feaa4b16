"""An archive in a process of its own that kills itself, and its Java, at a wanted point: `DATA LAKE POINT NUMBER`.

A point is the begin or the end of a function, which is wrapped here; `writing` is inside Spark's write, when the first
files of the batch are there. NUMBER says at which time it gets there.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from mqks.pipeline.archive import archive
from mqks.pipeline.lake import compaction, writing
from mqks.pipeline.lake.delta_table import Table
from mqks.pipeline.place import Place
from mqks.pipeline.session import session
from tests.spark.processes import QUICK

AWAY = "mqks://127.0.0.1:1"
OPTIONS = {"maxOffsetsPerTrigger": 400}

POINTS: dict[str, tuple[Any, str, bool]] = {  # owner and name of the function; is it when it has ended?
    "begun": (writing, "write_files", False),
    "written": (writing, "write_files", True),
    "committing": (Table, "commit", False),
    "committed": (Table, "commit", True),
    "merging": (compaction, "copy", False),
    "merged": (compaction, "merge", True),
}


@contextmanager
def at(point: str, number: int, do: Callable[[], object]) -> Iterator[None]:
    """Does it when the point comes for that time."""
    owner, name, ended = POINTS[point]
    real, left = getattr(owner, name), number

    def wrapped(*given: Any, **more: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and not ended:
            do()
        result = real(*given, **more)
        if left == 0 and ended:
            do()
        return result

    setattr(owner, name, wrapped)
    try:
        yield
    finally:
        setattr(owner, name, real)


def archive_all(spark: SparkSession, data: Path | str, lake: Path | str) -> None:
    place = Place(AWAY, str(data), str(lake))
    job = archive(spark, place, available_now=True, compact_after=2, options=OPTIONS)
    job.wait()
    job.stop()


def main(data: str, lake: str, wanted: str, number: str) -> None:
    if wanted == "writing":
        watcher = threading.Thread(target=kill_while_writing, args=(Path(lake),), daemon=True)
        reached = at("begun", int(number), watcher.start)
    else:
        reached = at(wanted, int(number), kill)
    with reached:
        archive_all(session("local[2]", **QUICK), data, lake)


def kill_while_writing(lake: Path) -> None:
    known = set(lake.glob("events/batch-*"))
    while not any(path for path in lake.glob("events/batch-*/**/*.parquet") if not known & set(path.parents)):
        pass
    kill()


def kill() -> None:
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
