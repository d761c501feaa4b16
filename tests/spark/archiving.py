"""An archive in a process of its own that kills itself, and its Java, at a wanted point: `DATA LAKE POINT NUMBER`.

`writing` is inside Spark's write, when the first files of the batch stand in its staging folder; the others are the
points that the archive tells of. NUMBER says at which time it gets there.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from mqks.pipeline.archive import archive
from mqks.pipeline.place import Place
from mqks.pipeline.session import session
from tests.spark.processes import QUICK

AWAY = "mqks://127.0.0.1:1"
OPTIONS = {"maxOffsetsPerTrigger": 400}


def archive_all(spark: SparkSession, data: Path, lake: Path, reached: Callable[[str], object]) -> None:
    place = Place(AWAY, str(data), str(lake))
    job = archive(spark, place, available_now=True, compact_after=2, options=OPTIONS, reached=reached)
    job.wait()
    job.stop()


def main(data: str, lake: str, wanted: str, number: str) -> None:
    left = int(number)

    def reached(point: str) -> None:
        nonlocal left
        writing = wanted == "writing" and point == "begun"
        if point == wanted or writing:
            left -= 1
            if left == 0:
                if writing:
                    threading.Thread(target=kill_while_writing, args=(Path(lake),), daemon=True).start()
                else:
                    kill()

    archive_all(session("local[2]", **QUICK), Path(data), Path(lake), reached)


def kill_while_writing(lake: Path) -> None:
    while not any(lake.glob("events/.spark-staging-*/**/*.parquet")):
        pass
    kill()


def kill() -> None:
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
