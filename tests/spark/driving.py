"""A driver to be killed: an archive, a stream from the journal through the sink into another event, and erasure.

    python -m tests.spark.driving URL DATA LAKE

The archive reads the journal's folder, the other one reads through the broker. Batches are small and the sink is slow,
so that there is always a middle to be killed in; files are merged often, rows of one event are removed from the lake
all the time; a task may fail more than once.
"""

import sys
import threading

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from mqks.pipeline.archive import archive
from mqks.pipeline.lake.forget import forget
from mqks.pipeline.place import Place
from mqks.pipeline.session import session
from mqks.pipeline.watching import Job, watch

CAME, WENT, DOOMED = "e1", "e2", "doomed"
SINK = "sink"
ROWS = 20_000  # of the journal in a micro-batch
RATE = 4000  # rows per second and task
BACKOFF = (0.2, 0.5, 1.0)
FORGET_EVERY = 3.0  # seconds


def through(spark: SparkSession, place: Place) -> Job:
    def start() -> list[StreamingQuery]:
        source = {"url": place.broker, "subscribe": CAME, "startingOffsets": "earliest"}
        came = spark.readStream.format("mqks").options(**source, maxOffsetsPerTrigger=ROWS, minPartitions=2).load()
        went = came.selectExpr(f"'{WENT}' AS event", "data", "id").writeStream.format("mqks")
        went = went.options(url=place.broker, rate=RATE, checkpointLocation=place.checkpoint(SINK))
        return [went.trigger(processingTime="0.2 seconds").start()]

    return Job(SINK, start)


def forgetting(spark: SparkSession, place: Place, ended: threading.Event) -> None:
    while not ended.wait(FORGET_EVERY):
        try:
            forget(spark, place, f"event = '{DOOMED}'")
        except Exception as error:  # a task of it was killed: it is asked again
            print(f"forget: {str(error).splitlines()[:1]}", flush=True)


def main(url: str, data: str, lake: str) -> None:
    spark = session("local[3,4]")
    place = Place(url, data, lake)
    jobs = [
        archive(spark, place, every=0.2, compact_after=4, options={"maxOffsetsPerTrigger": ROWS}),
        through(spark, place),
    ]
    ended = threading.Event()
    eraser = threading.Thread(target=forgetting, args=(spark.newSession(), place, ended), daemon=True)
    eraser.start()
    try:
        watch(spark, place, jobs, backoff=BACKOFF)
    finally:
        ended.set()
    eraser.join()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
