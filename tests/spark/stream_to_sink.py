"""A streaming query from text files into the sink, as a process that tests can kill:

    python -m tests.spark.stream_to_sink URL TEXTS CHECKPOINT

Its rows have neither ids nor positions. Each task fails once, when all its rows have been handed to the sink.
"""

import sys
from collections.abc import Iterator
from typing import Any

from pyspark import TaskContext
from pyspark.sql import functions as F

from mqks.pipeline.session import session
from tests.spark.processes import QUICK

RATE = 4000  # rows per second and task, so that there is a middle in which to kill it


def fail_once(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches
    context = TaskContext.get()
    if context is not None and context.attemptNumber() == 0:
        raise RuntimeError("the end of a task")


def main(url: str, texts: str, checkpoint: str) -> None:
    spark = session("local[2,2]", **{"spark.sql.execution.arrow.maxRecordsPerBatch": "200"}, **QUICK)
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 2).load(texts)
    rows = lines.select(F.lit("e1").alias("event"), F.col("value").alias("data"))
    query = (
        rows.mapInArrow(fail_once, rows.schema)
        .writeStream.format("mqks")
        .options(url=url, rate=str(RATE), checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
