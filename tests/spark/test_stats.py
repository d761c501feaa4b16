"""Counts per minute: what is counted, when a minute is over, and that its last word is said once, whatever happens."""

import json
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import mqks
from mqks.pipeline import lake
from mqks.pipeline.deliveries import LONGEST_NAME
from mqks.pipeline.place import OWN, STATS_EVENT, TICK_EVENT, Place
from mqks.pipeline.stats import FINALS, SCHEMA, TABLE, messages, minutes, stats
from mqks.testing import Broker, broker
from tests.journal.making import Making

BEGIN = datetime(2026, 11, 16, 5, 1, tzinfo=UTC)
SHAPE = "time timestamp, event string, text string, raw binary"
QUEUE = {"minute": "2026-11-16T05:00:00Z", "kind": "queue", "name": "q.1", "count": 3, "rate": 0.05, "delivered": 2}
LATER = {**QUEUE, "minute": "2026-11-16T05:04:00Z"}
PATIENCE = 100.0


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def journal_line(event: str, data: str = "12345") -> bytes:
    return f"m publish {event} {data}".encode()


@pytest.fixture
def running() -> Iterator[Broker]:
    """The journal that is read is a made one; the broker only takes what is told."""
    with broker() as running:
        yield running


def in_lake(spark: SparkSession, place: Place) -> dict[tuple[str, str, str], int]:
    rows = lake.table(spark, place, TABLE, schema=SCHEMA).collect()
    found = {(f"{row['minute']:%H:%M}", row["kind"], row["name"]): row["count"] for row in rows}
    assert len(found) == len(rows), "told twice"
    return found


def told(running: Broker) -> dict[tuple[str, str, str], int]:
    with mqks.Client(running.url) as client:
        rows = [json.loads(record.data) for record in client.history("earliest", events=[STATS_EVENT])]
    assert all(row["final"] for row in rows)
    found = {(row["minute"][11:16], row["kind"], row["name"]): row["count"] for row in rows}
    assert len(found) == len(rows), "told twice"
    return found


def test_what_is_counted(spark: SparkSession) -> None:
    events: list[tuple[Any, ...]] = [
        (at(0), "user.1.on", "123", None),
        (at(59.9), "user.2.on", "é", None),
        (at(59.9), "user.2.on", "�", b"\xff"),
        (at(60), "user.2.on", "", None),
        (at(1), "", "{}", None),
        (at(2), "mqks.replay.q.user.1.on", "123", None),
        *((at(3), own, "{}", None) for own in OWN),
        (at(5), STATS_EVENT, json.dumps({**QUEUE, "final": False}), None),
        (at(6), STATS_EVENT, json.dumps({**QUEUE, "final": True}), None),
    ]
    counted = minutes(spark.createDataFrame(events, SHAPE)).drop("told").persist()
    rows = counted.drop("last").collect()
    assert {(f"{row['minute']:%H:%M}", *row[1:]) for row in rows} == {
        ("05:01", "event", "user.1.on", 1, 3),
        ("05:01", "event", "user.2.on", 2, 3),
        ("05:01", "mask", "user.{id}.on", 3, 6),
        ("05:02", "event", "user.2.on", 1, 0),
        ("05:02", "mask", "user.{id}.on", 1, 0),
        ("05:01", "event", "", 1, 2),
        ("05:01", "mask", "", 1, 2),
        ("05:01", "queue", "q.1", 1, len(json.dumps({**QUEUE, "final": True}))),
    }
    # As messages: an update's rate is that of the seconds so far, a final's that of the minute.
    of_one = counted.where("kind = 'mask' AND name LIKE 'user%' AND count = 3")
    update, final = messages(of_one, final=False).collect()[0], messages(of_one, final=True).collect()[0]
    assert update["event"] == final["event"] == STATS_EVENT
    assert update["id"] == final["id"] == "2026-11-16T05:01:00Z-mask-" + sha256(b"user.{id}.on").hexdigest()[:16]
    row = {"minute": "2026-11-16T05:01:00Z", "kind": "mask", "name": "user.{id}.on", "count": 3, "bytes": 6}
    assert json.loads(update["data"]) == {**row, "rate": 0.051, "final": False}
    assert json.loads(final["data"]) == {**row, "rate": 0.05, "final": True}
    long = of_one.withColumn("name", F.repeat(F.lit("x"), F.lit(LONGEST_NAME + 1)))
    assert messages(long, final=True).count() == 0
    counted.unpersist()


def test_late_data_is_not_counted(spark: SparkSession, tmp_path: Path) -> None:
    """One file is one batch. 50, 55 and 110 come while their minutes are open, 30 when its minute is closed."""
    (tmp_path / "in").mkdir()
    for number, batch in enumerate([[0, 65], [50, 80], [55, 130], [30, 110]]):
        file = tmp_path / "in" / f"{number}.json"
        file.write_text(
            "\n".join(json.dumps({"time": at(time).isoformat(), "event": "e", "text": ""}) for time in batch)
        )
        os.utime(file, (number, number))  # by which Spark takes them in order
    events = spark.readStream.schema(SHAPE).option("maxFilesPerTrigger", 1).option("latestFirst", False)
    counted = minutes(events.json(str(tmp_path / "in")), "10 seconds").where("kind = 'event'")
    query = counted.writeStream.format("memory").queryName("late_finals").outputMode("append")
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    found = spark.table("late_finals").collect()
    assert {(f"{row['minute']:%H:%M}", row["count"]) for row in found} == {("05:01", 3), ("05:02", 3)}


def test_finals(spark: SparkSession, tmp_path: Path, running: Broker) -> None:
    """In the lake and at the broker once each: over restarts, a broker that is away, and a lost checkpoint."""
    made = Making(tmp_path / "data")
    place = Place(broker=running.url, data=str(made.folder), lake=str(tmp_path / "lake"))

    def run() -> None:
        job = stats(spark, place, available_now=True)
        try:
            assert job.wait(PATIENCE)
        finally:
            job.stop()

    made.batch(journal_line("user.1.on"), journal_line("user.2.on"), time=at(1))
    made.batch(journal_line("user.1.on"), time=at(59))
    made.batch(journal_line("user.1.on"), time=at(61))
    made.sync()
    run()
    assert in_lake(spark, place) == told(running) == {}  # the first minute may still get late events

    # Nothing but a heartbeat: it is not counted, and closes the minutes before it.
    heartbeat = TICK_EVENT
    made.batch(journal_line(STATS_EVENT, json.dumps({**QUEUE, "final": True})), time=at(62))
    made.batch(journal_line(heartbeat, "{}"), time=at(150))
    made.sync()
    run()
    first = {
        ("05:01", "event", "user.1.on"): 2,
        ("05:01", "event", "user.2.on"): 1,
        ("05:01", "mask", "user.{id}.on"): 3,
        ("05:02", "event", "user.1.on"): 1,
        ("05:02", "mask", "user.{id}.on"): 1,
    }
    assert told(running) == first
    assert in_lake(spark, place) == {**first, ("05:00", "queue", "q.1"): 3}
    queue = lake.table(spark, place, TABLE).where("kind = 'queue'").collect()[0]
    assert [queue[word] for word in ("delivered", "bytes", "rate")] == [2, None, 0.05]
    assert f"{queue['date']}" == "2026-11-16"

    run()
    assert told(running) == first

    # The lake is written, the broker is away, and we are stopped: the batch is done again when it is back.
    made.batch(journal_line("order.paid"), time=at(190))
    made.batch(journal_line(heartbeat, "{}"), time=at(260))
    made.sync()
    running.stop()
    job = stats(spark, place, available_now=True)
    while in_lake(spark, place).get(("05:04", "event", "order.paid")) != 1:
        assert job.active, job.failure
    job.stop()
    assert job.failure is None
    running.start()
    run()
    more = {("05:04", "event", "order.paid"): 1, ("05:04", "mask", "order.paid"): 1}
    assert told(running) == more  # this broker keeps nothing over a restart
    assert in_lake(spark, place) == {**first, **more, ("05:00", "queue", "q.1"): 3}

    # A lost checkpoint: counting goes on where the lake's minutes end, also those of queues.
    made.batch(journal_line(STATS_EVENT, json.dumps({**LATER, "final": True})), time=at(270))
    made.batch(journal_line(heartbeat, "{}"), time=at(312))
    made.sync()
    run()
    queues = {("05:00", "queue", "q.1"): 3, ("05:04", "queue", "q.1"): 3}
    assert in_lake(spark, place) == {**first, **more, **queues}
    shutil.rmtree(place.checkpoint(FINALS))
    made.batch(journal_line("order.paid"), time=at(313))
    made.batch(journal_line(heartbeat, "{}"), time=at(400))
    made.sync()
    run()
    more = {**more, ("05:06", "event", "order.paid"): 1, ("05:06", "mask", "order.paid"): 1}
    assert told(running) == more
    assert in_lake(spark, place) == {**first, **more, **queues}


def test_updates_come_and_come_to_rest(spark: SparkSession, tmp_path: Path) -> None:
    place_of = {"lake": str(tmp_path / "lake"), "data": str(tmp_path / "data")}
    with broker(data=tmp_path / "data") as running, mqks.Client(running.url) as client:
        client.publish("user.1.on", "123", confirm=True)
        job = stats(spark, Place(broker=running.url, **place_of), every=0.1, finals_every=3600)
        try:
            with client.consume("seen", [STATS_EVENT]) as seen:
                client.publish("user.2.on", "123", confirm=True)
                updates: dict[tuple[str, str], dict[str, Any]] = {}
                while not ({("event", "user.2.on"), ("mask", "user.{id}.on")} <= set(updates)):
                    message = seen.get(timeout=PATIENCE)
                    assert message is not None, job.failure
                    row = json.loads(message.data)
                    updates[row["kind"], row["name"]] = row
                row = updates["event", "user.2.on"]
                assert (row["count"], row["bytes"], row["final"]) == (1, 3, False)
                assert 0 < row["rate"] <= 1
                # What it told is read by it, and nothing more is told.
                for _ in range(2):
                    job.queries[0].processAllAvailable()
                before = client.stats()["position"]
                for _ in range(3):
                    job.queries[0].processAllAvailable()
                assert client.stats()["position"] == before
        finally:
            job.stop()
