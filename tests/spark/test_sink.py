"""The sink under Spark: batches and streams into a real broker, twice, in other partitions, and with bad rows."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import mqks.testing
from mqks.testing import Broker
from tests.spark.peers import Taken, taken


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with mqks.testing.broker(data=tmp_path / "data", fsync="never") as running:
        yield running


def write(rows: DataFrame, broker: Broker, **options: str) -> None:
    rows.write.format("mqks").options(url=broker.url, **options).mode("append").save()


def scopes(folder: Path) -> Counter[str]:
    """How many messages have which scope: the journal is text."""
    text = b"".join(file.read_bytes() for file in (folder / "data" / "journal").glob("*.mqks"))
    return Counter(scope.decode() for scope in re.findall(rb" --once=(\S+) ", text))


def numbered(spark: SparkSession, rows: int, partitions: int) -> DataFrame:
    return spark.range(0, rows, 1, partitions).select(
        F.format_string("e%d", F.col("id") % 7).alias("event"), F.col("id").cast("string").alias("data"), "id"
    )


def test_rows_of_all_kinds(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    rows = spark.sql("""
        SELECT * FROM VALUES
            ('m1', 'e1', CAST('d 1' AS BINARY), 'publish'),
            ('m2', 'e1', CAST(NULL AS BINARY), NULL),
            ('m3', 'e1', X'FF41', 'publish'),
            ('m4', NULL, CAST('{"event": "e2", "n": 1}' AS BINARY), 'send'),
            ('m5', 'e1', CAST('end\r' AS BINARY), 'publish')
        AS (id, event, data, action)
    """).coalesce(1)
    write(rows, broker)
    assert taken(broker.url) == [
        Taken("m1", "e1", "d 1"),
        Taken("m2", "e1", ""),
        Taken("m3", "e1", "\udcffA"),
        Taken("m4", "e2", '{"event": "e2", "n": 1}'),
        Taken("m5", "e1", "end\r"),
    ]
    assert scopes(tmp_path) == {"spark": 5}


def test_written_again_in_other_partitions(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """What was there is not there twice: by given ids, and by positions."""
    rows = numbered(spark, 3000, 3)
    with_ids = rows.withColumn("id", F.col("id").cast("string"))
    with_positions = rows.withColumnRenamed("id", "position")
    write(with_ids.where("id < 2000"), broker, scope="ids")
    write(with_ids.repartition(5), broker, scope="ids")
    write(with_positions.where("position >= 1000"), broker, scope="positions")
    write(with_positions.repartition(2), broker, scope="positions")
    assert Counter(message.data for message in taken(broker.url)) == Counter([str(n) for n in range(3000)] * 2)
    assert scopes(tmp_path) == {"ids": 3000, "positions": 3000}


def test_a_job_that_failed_is_run_again(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Its rows have neither ids nor positions, some are equal, and a task fails when all its rows are published."""
    mark = str(tmp_path / "failed")

    def fail_once(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        if not Path(mark).exists():
            Path(mark).touch()
            raise RuntimeError("the end of a task")

    rows = numbered(spark, 3000, 2).select("event", (F.col("id") % 100).cast("string").alias("data"))
    failing = rows.mapInArrow(fail_once, rows.schema)
    with pytest.raises(Exception, match="the end of a task"):
        write(failing, broker)
    write(failing, broker)
    found = Counter((message.event, message.data) for message in taken(broker.url))
    assert found == Counter((f"e{n % 7}", str(n % 100)) for n in range(3000))
    write(failing, broker, once="false")
    assert len(taken(broker.url)) == 6000


def test_streams(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Equal rows of two micro-batches are two messages; the scope is the query's id, in foreachBatch too."""
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(2):
        (texts / f"{number}.txt").write_text("same\nsame\n")
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(texts))
    rows = lines.select(F.lit("e1").alias("event"), F.col("value").alias("data"))

    def write_batch(batch: DataFrame, _: int) -> None:
        write(batch, broker)

    direct = rows.writeStream.format("mqks").option("url", broker.url).queryName("direct").outputMode("append")
    queries = [
        writer.option("checkpointLocation", str(tmp_path / f"checkpoint{number}")).trigger(availableNow=True).start()
        for number, writer in enumerate((direct, rows.writeStream.foreachBatch(write_batch)))
    ]
    for query in queries:
        query.awaitTermination()
        assert query.exception() is None
    assert [message.data for message in taken(broker.url)] == ["same"] * 8
    assert scopes(tmp_path) == {query.id: 4 for query in queries}


@pytest.mark.parametrize(
    ("select", "options", "why"),
    [
        ("SELECT 'e1' AS event, 'd' AS data, now() AS time", {}, "no column 'time': there are event, data"),
        ("SELECT 'e1' AS event, 'd' AS data", {"rates": "5"}, "unknown option 'rates'.*retryFor"),
        (
            "SELECT IF(id = 7, 'two words', 'e1') AS event, 'd' AS data FROM range(0, 20, 1, 1)",
            {},
            "row 7 of this task cannot be published: event 'two words' is no name",
        ),
    ],
)
def test_what_will_not_do(spark: SparkSession, broker: Broker, select: str, options: dict[str, str], why: str) -> None:
    with pytest.raises(Exception, match=why):
        write(spark.sql(select), broker, **options)
    assert taken(broker.url) == []
