"""A driver on a cluster: reads through the broker, streams through the sink, archives, and prints what it found.

python -m tests.spark.clustered MASTER URL LAKE
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from mqks.pipeline import lake
from mqks.pipeline.archive import archive
from mqks.pipeline.place import Place
from mqks.pipeline.session import session

EXECUTORS = 2
CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": str(EXECUTORS),
    # Nothing begins before all executors are there, so that all of them have something to do.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}
CAME, WENT = "e1", "e2"


def main(master: str, url: str, folder: str) -> None:
    spark = session(master, **CONF)
    place = Place(url, lake=folder)

    def readers(batches: Iterator[Any]) -> Iterator[Any]:
        """Which executor had how many rows: each has a daemon that its workers are forked from."""
        for batch in batches:
            yield pa.RecordBatch.from_pylist([{"executor": os.getppid(), "rows": batch.num_rows}])

    came = spark.read.format("mqks").options(url=url, minPartitions=8).load()
    read = came.mapInArrow(readers, "executor long, rows long").groupBy("executor").sum("rows").collect()

    stream = spark.readStream.format("mqks").options(url=url, startingOffsets="earliest", minPartitions=4).load()
    went = stream.selectExpr(f"'{WENT}' AS event", "data", "id").writeStream.format("mqks")
    went = went.options(url=url, checkpointLocation=place.checkpoint("sink"))
    query = went.trigger(availableNow=True).start()
    query.awaitTermination()

    job = archive(spark, place, available_now=True, options={"minPartitions": 4})
    job.wait()
    job.stop()
    kept = lake.events(spark, place).groupBy("event").count().collect()
    print(json.dumps({"read": [row[1] for row in read], "kept": {row[0]: row[1] for row in kept}}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
