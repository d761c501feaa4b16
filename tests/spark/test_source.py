"""The source inside Spark: what Spark itself makes of it. All else about it is tested without Spark, which is slow."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from mqks import connect
from mqks.testing import broker
from tests.journal.making import SECOND, TIME, Making
from tests.spark.scanning import Row, expected

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
SIX = ("position", "time", "id", "action", "event", "data")


@pytest.fixture
def made(tmp_path: Path) -> Making:
    """Two segments, and one that is being written: rows of each kind, some of them no text."""
    made = Making(tmp_path / "data", fsync="never")
    for number in range(60):
        if number in (20, 40):
            made.segment(fsync="never", gap=40 - number)
        made.batch(
            b"a%d publish e1 d%d" % (number, number),
            b'b%d send --once {"event": "order.new", "n": %d}' % (number, number),
            b"20260131120000000000aaaa rebind q1 e1",
            b"c%d publish --once=s order.paid \xff%d" % (number, number),
        )
    return made


def collected(frame: DataFrame) -> list[Row]:
    """As the journal's own reader would give them: times in Spark come without a zone, in that of the machine."""
    rows = [row.asDict() for row in frame.collect()]
    for row in rows:
        row["time"] = row["time"].astimezone(TIME.tzinfo)
        row["raw"] = None if row["raw"] is None else bytes(row["raw"])
    return sorted(rows, key=lambda row: int(row["position"]))


def test_batch(spark: SparkSession, made: Making) -> None:
    with_raw = "position long, time timestamp, id string, action string, event string, data string, raw binary"
    frame = spark.read.format("mqks").option("minPartitions", 5).schema(with_raw).load(str(made.folder))
    assert frame.rdd.getNumPartitions() == 5
    assert collected(frame) == expected(made.folder)

    default = spark.read.format("mqks").load(str(made.folder))
    assert default.schema.simpleString() == (
        "struct<position:bigint,time:timestamp,id:string,action:string,event:string,data:string>"
    )
    pruned = spark.read.format("mqks").schema("event string, position long").load(str(made.folder))
    assert pruned.groupBy("event").count().orderBy("event").collect() == [
        ("e1", 60),
        ("order.new", 60),
        ("order.paid", 60),
    ]


@pytest.mark.parametrize("allowed", ["true", "false"])
@pytest.mark.parametrize("pushed", ["true", None])
def test_filters(spark: SparkSession, made: Making, allowed: str, pushed: str | None) -> None:
    """The same rows with filters pushed and without: the session may have it either way."""
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, allowed)
    try:
        reader = spark.read.format("mqks").option("path", str(made.folder))
        frame = reader.option("pushFilters", pushed).load() if pushed else reader.load()
        found = frame.where(frame.event.isin("e1", "order.paid") & (frame.time >= TIME + 31 * SECOND))
        expects = [f"{letter}{number}" for number in range(30, 60) for letter in "ac"]
        assert [row.id for row in found.orderBy("position").collect()] == expects
        if pushed is None:
            assert frame.count() == 180  # of the same frame: no filter of another query is left
    finally:
        spark.conf.set(PUSHDOWN, str(before))


def test_mistakes(spark: SparkSession, made: Making, tmp_path: Path) -> None:
    read = spark.read.format("mqks")
    with pytest.raises(AnalysisException, match="unknown option 'topic' of the mqks source; there are path, url"):
        read.option("topic", "t").load(str(made.folder))
    with pytest.raises(AnalysisException, match="give either path"):
        spark.read.format("mqks").load()
    with pytest.raises(PySparkException, match="no column 'topic string'; there are position bigint"):
        spark.read.format("mqks").schema("topic string").load(str(made.folder)).collect()
    with pytest.raises(PySparkException, match="there is no journal in"):
        spark.read.format("mqks").load(str(tmp_path / "elsewhere")).collect()


def test_an_empty_journal(spark: SparkSession, tmp_path: Path) -> None:
    made = Making(tmp_path / "data")
    assert spark.read.format("mqks").load(str(made.folder)).collect() == []


def written(frame: DataFrame, folder: Path, **trigger: Any) -> StreamingQuery:
    return (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(**trigger)
        .start(str(folder / "out"))
    )


def finished(query: StreamingQuery) -> list[int]:
    """The rows of each micro-batch."""
    query.awaitTermination()
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def test_stream_with_limits_and_restarts(spark: SparkSession, made: Making, tmp_path: Path) -> None:
    """Each run of AvailableNow takes what is there, in micro-batches as large as allowed, and the next one goes on."""
    reader = spark.readStream.format("mqks").option("startingOffsets", "earliest")
    by_rows = reader.option("maxOffsetsPerTrigger", 120).load(str(made.folder))
    assert finished(written(by_rows, tmp_path, availableNow=True)) == [90, 90]  # 40 lines are 30 rows
    assert finished(written(by_rows, tmp_path, availableNow=True)) == []
    made.batch(*[b"late%d publish e1 d" % number for number in range(10)])
    made.batch(*[b"later%d publish e1 d" % number for number in range(150)])
    by_bytes = spark.readStream.format("mqks").option("maxBytesPerTrigger", 500).load(str(made.folder))
    assert finished(written(by_bytes, tmp_path, availableNow=True)) == [10, 150]
    ids = [row.id for row in spark.read.parquet(str(tmp_path / "out")).orderBy("position").collect()]
    assert ids == [row["id"] for row in expected(made.folder)]


def test_stream_loses_nothing_silently(spark: SparkSession, made: Making, tmp_path: Path) -> None:
    sorted((made.folder / "journal").iterdir())[1].unlink()
    options = {"path": str(made.folder), "startingOffsets": "earliest"}
    failing = spark.readStream.format("mqks").options(**options).load()
    with pytest.raises(StreamingQueryException, match=r"cannot be read[^$]*failOnDataLoss"):
        finished(written(failing, tmp_path / "failing", availableNow=True))
    going_on = spark.readStream.format("mqks").options(**options, failOnDataLoss="false").load()
    assert sum(finished(written(going_on, tmp_path / "going on", availableNow=True))) == 120


def test_live_tail_of_a_broker(spark: SparkSession, tmp_path: Path) -> None:
    """By url, into memory, while the broker writes: every row, once."""
    with broker(data=tmp_path / "data", fsync="always") as running, connect(running.url) as client:
        client.publish("before", "", confirm=True)
        stream = spark.readStream.format("mqks").option("url", running.url).option("startingOffsets", "earliest")
        query = (
            stream.load()
            .writeStream.format("memory")
            .queryName("tail")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="0 seconds")
            .start()
        )
        try:
            for first in range(0, 2000, 500):
                client.publish_many([("e1", str(number)) for number in range(first, first + 500)])
                query.processAllAvailable()
            while spark.table("tail").count() < 2001:  # the broker shows what is on disk a moment later
                query.processAllAvailable()
            found = [row.data for row in spark.table("tail").orderBy("position").collect()]
            assert found == ["", *map(str, range(2000))]
        finally:
            query.stop()
