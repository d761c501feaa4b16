"""One kill -9 of each kind: driver, worker, broker. `make test-crash` does it 50 times, as `tests.spark.kill` tells."""

from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.kill import KINDS, Run

SEED = 5


def test_each_id_is_once_in_the_lake_and_once_behind_the_sink(spark: SparkSession, tmp_path: Path) -> None:
    run = Run(tmp_path, SEED)
    try:
        run.run(len(set(KINDS)))
        published = run.settle()
        assert published
        run.check(spark, published)
    finally:
        run.close()
