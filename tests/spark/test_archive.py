"""The archive with a real Spark over made-up journals and a real broker: each event once, and as it came."""

import io
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import mqks
from mqks.pipeline import lake
from mqks.pipeline.archive import archive
from mqks.pipeline.files import Files
from mqks.pipeline.place import PROGRESS_EVENT, Place
from mqks.pipeline.watching import JobFailed, watch
from mqks.testing import broker
from tests.journal.making import Making
from tests.spark.archiving import at
from tests.spark.test_lake import ALL as FROM_0_1_0
from tests.spark.test_lake import unpacked

AWAY = "mqks://127.0.0.1:1"
MIDNIGHT = datetime(2026, 2, 1, tzinfo=UTC)


def made_up(folder: Path) -> Making:
    """Two days, four batches of two messages, some of them no JSON or no UTF-8, and one of the pipeline's own."""
    made = Making(folder)
    made.batch(b'm1 publish user.1.connected {"user": {"id": 1}}', b"m2 publish e2 no json")
    made.batch(b"m3 publish e3 \xff\xfe", b's4 send {"event": "e4", "x": 4}')
    made.batch(b"m5 publish e5 5", b"m6 publish e6 ", time=MIDNIGHT)
    made.segment()
    made.batch(b"p1 publish mqks.pipeline.progress {}", b"m7 publish e7 [7]")
    made.sync()
    return made


def once(spark: SparkSession, place: Place) -> None:
    job = archive(spark, place, available_now=True, compact_after=2, options={"maxOffsetsPerTrigger": 2})
    try:
        job.wait()
    finally:
        job.stop()


def ids(spark: SparkSession, place: Place) -> list[str]:
    return sorted(row.id for row in lake.events(spark, place).select("id").collect())


ALL = ["m1", "m2", "m3", "m5", "m6", "m7", "s4"]


def test_all_events_as_they_came(spark: SparkSession, tmp_path: Path) -> None:
    made = made_up(tmp_path / "data")
    place = Place(AWAY, str(tmp_path / "data"), f"file:{tmp_path}/a lake")
    once(spark, place)
    events = lake.events(spark, place)
    assert ids(spark, place) == ALL
    found = events.orderBy("position").selectExpr(
        "id", "action", "event", "text", "raw", "string(date)", "to_json(data)"
    )
    assert [tuple(row) for row in found.collect()] == [
        ("m1", "publish", "user.1.connected", '{"user": {"id": 1}}', None, "2026-01-31", '{"user":{"id":1}}'),
        ("m2", "publish", "e2", "no json", None, "2026-01-31", '"no json"'),
        ("m3", "publish", "e3", "\ufffd\ufffd", b"\xff\xfe", "2026-01-31", '"\ufffd\ufffd"'),
        ("s4", "send", "e4", '{"event": "e4", "x": 4}', None, "2026-01-31", '{"event":"e4","x":4}'),
        ("m5", "publish", "e5", "5", None, "2026-02-01", "5"),
        ("m6", "publish", "e6", "", None, "2026-02-01", '""'),
        ("m7", "publish", "e7", "[7]", None, "2026-02-01", "[7]"),
    ]
    assert events.where("data:user.id::int = 1").count() == 1
    plain = DeltaTable(place.table("events")).scan(columns=["id"]).read_all()  # as any reader does it
    assert plain.num_rows == len(ALL)
    archived = lake.archived(spark, place)
    assert archived is not None
    assert made.lines[-1][0] < archived <= made.end

    # What comes later, once; also when the checkpoint is lost.
    made.batch(b"m8 publish e8 8", synced=made.end)
    made.sync()
    once(spark, place)
    assert ids(spark, place) == [*ALL[:-1], "m8", "s4"]
    Files(spark).delete(place.checkpoint("archive"))
    made.batch(b"m9 publish e9 9")
    made.sync()
    once(spark, place)
    assert ids(spark, place) == [*ALL[:-1], "m8", "m9", "s4"]


@pytest.mark.parametrize("point", ["written", "committed", "merging"])  # test_lake_commit has the others
def test_a_batch_that_fails_at_any_point_is_done_once(spark: SparkSession, tmp_path: Path, point: str) -> None:
    made_up(tmp_path / "data")
    place = Place(AWAY, str(tmp_path / "data"), str(tmp_path / "a lake"))

    def fail() -> None:
        raise RuntimeError(f"failed when {point}")

    failing = at(point, 1 if point == "merging" else 2, fail)
    with failing, pytest.raises(JobFailed, match=f"^archive: failed when {point}$"):
        once(spark, place)
    once(spark, place)
    assert ids(spark, place) == ALL
    assert DeltaTable(place.table("events")).scan(columns=["id"]).read_all().num_rows == len(ALL)


def test_a_lake_of_0_1_0_is_gone_on_with(spark: SparkSession, tmp_path: Path) -> None:
    place = unpacked(tmp_path)
    once(spark, place)
    assert ids(spark, place) == FROM_0_1_0
    assert DeltaTable(place.table("events")).scan(columns=["id"]).read_all().num_rows == len(FROM_0_1_0)


def test_it_goes_on_over_a_restart_of_the_broker_and_tells_how_far_it_is(spark: SparkSession, tmp_path: Path) -> None:
    count = 300
    stopping, out = threading.Event(), io.StringIO()
    with broker(data=tmp_path / "data") as running:
        place = Place(running.url, None, str(tmp_path / "a lake"))
        job = archive(spark, place, every=0.1)
        watcher = threading.Thread(target=watch, args=(spark, place, [job]), kwargs={"out": out, "stopping": stopping})
        watcher.start()
        published = []
        with mqks.connect(running.url) as mq:
            published += mq.publish_many([("e1", str(n)) for n in range(count)])
            wait_for(lambda: (lake.archived(spark, place) or 0) > 0)
            running.restart()
            published += mq.publish_many([("e1", str(n)) for n in range(count)])
            end = max(record.position for record in mq.history(events=["e1"]))
            wait_for(lambda: (lake.archived(spark, place) or 0) > end)
            # Spark tells of a batch a little after it is in the lake.
            wait_for(lambda: sum(done.numInputRows for done in job.queries[0].recentProgress) == len(published))
            stopping.set()
            watcher.join()
            wait_for(lambda: mq.stats()["journal"]["holds"]["archive"]["position"] > end)
            told = [json.loads(record.data) for record in mq.history(events=[PROGRESS_EVENT])]
    assert ids(spark, place) == sorted(published)
    assert [one["state"] for one in told][-1] == "stopped"
    assert told[-1]["rows"] == len(published)
    assert f"archive: {len(published)} rows" in out.getvalue()


def wait_for(happened: Callable[[], bool]) -> None:
    """The test's own time limit ends it."""
    while not happened():
        pass
