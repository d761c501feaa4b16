"""One Spark session for all tests that need one: it takes seconds to start."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from mqks.pipeline.session import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Tests are short: to compile less and collect garbage simply is half of the work.
    spark = session("local[2]", **{"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"})
    yield spark
    spark.stop()
