"""One Spark session for all tests that need one: it takes seconds to start."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from mqks.pipeline.session import session
from tests.spark.processes import QUICK


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    spark = session("local[2]", **QUICK)
    yield spark
    spark.stop()
