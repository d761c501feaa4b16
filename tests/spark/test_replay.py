"""Replay through a real broker: what comes back is what came, once, in order, and never its own output."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import mqks
from mqks.journal import Message, Reader
from mqks.pipeline import lake
from mqks.pipeline.archive import archive
from mqks.pipeline.place import Place
from mqks.pipeline.replay import ReplayError, replay
from mqks.pipeline.sql import SqlError, extent
from mqks.testing import broker

PATIENCE = 100.0
NOT_UTF8 = b"\xff\xfe raw"
COUNT = 300


@pytest.fixture(scope="module")
def place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Half of it archived, half in the journal only; two messages have one id."""
    folder = tmp_path_factory.mktemp("replay")
    with broker(data=folder / "data", fsync="never") as running:
        place = Place(broker=running.url, data=str(folder / "data"), lake=str(folder / "lake"))
        with mqks.connect(place.broker) as mq:
            mq.publish_many([("order.new", json.dumps({"n": one}), f"a{one}") for one in range(COUNT)])
            job = archive(spark, place, available_now=True)
            try:
                assert job.wait(PATIENCE)
            finally:
                job.stop()
            mq.publish_many([("order.paid", json.dumps({"n": one}), f"b{one}") for one in range(COUNT)])
            mq.publish("odd", NOT_UTF8.decode("utf-8", "surrogateescape"), id="odd", confirm=True)
            mq.publish("twice", "first", id="same", confirm=True)
            mq.publish("twice", "second", id="same", confirm=True)
            mq.send({"event": "sevx", "x": 1}, id="s1", confirm=True)
            mq.send({"nameless": True}, id="s2", confirm=True)
        yield place


@pytest.fixture(scope="module")
def end(place: Place) -> int:
    """Where the journal ended before the first replay."""
    return extent(place).end


def came(place: Place, start: int = 0, stop: int | None = None) -> list[Message]:
    assert place.data is not None
    return [one for one in Reader(place.data).messages(start, stop) if not one.event.startswith(b"mqks.pipeline")]


def contents(messages: list[Message]) -> list[tuple[bytes, bytes, bytes, bytes]]:
    return [(one.id, one.action, one.event, one.data) for one in messages]


def test_a_dry_run_tells_and_publishes_nothing(spark: SparkSession, place: Place, end: int) -> None:
    before = extent(place).end
    found = replay(spark, place, where="event LIKE 'order.%' OR event = 'twice'", stop=end, dry_run=True)
    originals = [one for one in came(place, 0, end) if one.event.startswith((b"order.", b"twice"))]
    assert found.rows == len(originals) == 2 * COUNT + 2
    assert found.size == sum(len(one.data) for one in originals)
    assert {name: rows for name, (rows, _) in found.events.items()} == {
        "order.new": COUNT,
        "order.paid": COUNT,
        "twice": 2,
    }
    assert (found.since, found.until) == (originals[0].time, originals[-1].time)
    assert found.repeated == 1
    assert extent(place).end == before


def test_everything_again_byte_by_byte_in_order_and_a_second_time_nothing(
    spark: SparkSession, place: Place, end: int
) -> None:
    start, steps = extent(place).end, []
    found = replay(spark, place, stop=end, slice_rows=250, progress=lambda done, total: steps.append((done, total)))
    assert len(found.slices) > 1
    assert steps[-1] == (found.rows, found.rows)
    assert [done for done, _ in steps] == sorted({done for done, _ in steps})
    replayed = came(place, start)
    originals = came(place, 0, end)
    assert contents(replayed) == contents([one for one in originals if one.data != b"second"])
    assert {one.once for one in replayed} == {b"replay"}
    # Within the dedup window its ids are known.
    start = extent(place).end
    replay(spark, place, stop=end)
    assert came(place, start) == []


def test_what_is_replayed_is_settled_at_the_start(spark: SparkSession, place: Place) -> None:
    """A replay to the very events that it reads, in several slices, does not go on with its own output."""
    start = extent(place).end
    with mqks.connect(place.broker) as mq:
        mq.publish_many([("loop", "x" * 40, f"l{one}") for one in range(60)])
    found = replay(spark, place, where="event = 'loop'", start=start, new_ids=True, slice_rows=20)
    assert len(found.slices) > 1
    assert found.rows == 60
    assert len([one for one in came(place, start) if one.event == b"loop"]) == 120


def test_to_one_event_with_new_ids_nothing_is_dropped(spark: SparkSession, place: Place, end: int) -> None:
    start = extent(place).end
    for _ in range(2):
        replay(spark, place, where="event IN ('twice', 'sevx')", stop=end, to_event="copy", new_ids=True)
    replayed = came(place, start)
    assert {one.event for one in replayed} == {b"copy"}
    assert [one.data for one in replayed] == 2 * [b"first", b"second", b'{"event": "sevx", "x": 1}']
    assert len({one.id for one in replayed}) == 6


def test_to_one_queue_and_to_no_other(spark: SparkSession, place: Place, end: int) -> None:
    with mqks.connect(place.broker) as mq:
        mq.rebind("others", ["order.new"])
        mq.rebind("mail", ["order.shipped"])
        replay(spark, place, where="data:n::int < 5 OR event = 'odd'", stop=end, queue="mail")
        queues = mq.stats()["queues"]
        assert queues["others"]["ready"] == 0
        assert queues["mail"]["events"] == ["order.shipped"]  # bound to the copies only while the replay lasted
        consumer = mq.consume("mail")
        got = [consumer.get(PATIENCE) for _ in range(queues["mail"]["ready"])]
        mq.delete_queue("others")
    assert [(one.id, one.event) for one in got if one] == [
        *((f"a{number}", "mqks.replay.mail.order.new") for number in range(5)),
        *((f"b{number}", "mqks.replay.mail.order.paid") for number in range(5)),
        ("odd", "mqks.replay.mail.odd"),
    ]
    # The copies are not replayed again.
    assert replay(spark, place, where="event LIKE 'mqks.%'", dry_run=True).rows == 0


def test_one_that_is_stopped_goes_on_with_what_is_missing(spark: SparkSession, place: Place, end: int) -> None:
    start = extent(place).end

    def stop(done: int, total: int) -> None:
        assert done < total
        raise KeyboardInterrupt

    options = {"where": "event = 'order.new'", "stop": end, "to_event": "again"}
    with pytest.raises(KeyboardInterrupt):
        replay(spark, place, slice_rows=100, progress=stop, **options)  # type: ignore[arg-type]  # of several types
    first = [one.id for one in came(place, start)]
    assert 0 < len(first) < COUNT
    replay(spark, place, **options)  # type: ignore[arg-type]  # as above
    assert [one.id for one in came(place, start)] == [b"a%d" % number for number in range(COUNT)]


def test_a_rate_makes_small_slices_so_that_progress_is_seen(spark: SparkSession, place: Place, end: int) -> None:
    fast = replay(spark, place, stop=end, dry_run=True)
    slow = replay(spark, place, stop=end, rate=5, dry_run=True)
    assert len(fast.slices) == 1 < len(slow.slices)
    assert slow.rows == fast.rows


@pytest.mark.parametrize("where", ["time < now()", "rand() < 0.5", "date = current_date()"])
def test_a_condition_must_mean_the_same_in_each_slice(spark: SparkSession, place: Place, where: str) -> None:
    with pytest.raises(ReplayError, match="means other rows each time"):
        replay(spark, place, where=where)


def test_a_condition_may_name_a_table_of_the_lake(spark: SparkSession, place: Place, end: int) -> None:
    frame = spark.range(3).selectExpr("concat('a', id) AS chosen", "DATE'2026-11-16' AS date")
    lake.Writer(spark, place, "chosen_ids", "test").write(frame, 0)
    found = replay(spark, place, where="id IN (SELECT chosen FROM chosen_ids)", stop=end, dry_run=True)
    assert found.rows == 3


def test_all_of_the_lake_where_the_journal_was_begun_anew(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    told: list[str] = []
    with broker(data=tmp_path, fsync="never") as running, mqks.connect(running.url) as mq:
        mq.publish("order.new", "of another journal", confirm=True)
        found = replay(spark, replace(place, data=str(tmp_path)), dry_run=True, tell=told.append)
    assert found.rows == COUNT
    assert "another one" in told[0]


def test_what_is_wrong_is_said_before_anything_is_published(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    before = extent(place).end
    with pytest.raises(SqlError, match="`nope` cannot be resolved"):
        replay(spark, place, where="nope = 1")
    with pytest.raises(ReplayError, match="more than 0"):
        replay(spark, place, rate=0)
    nothing = replace(place, data=str(tmp_path / "none"), lake=str(tmp_path / "lake"))
    with pytest.raises(ReplayError, match="neither a lake nor a journal"):
        replay(spark, nothing)
    assert extent(place).end == before


def test_a_broker_that_is_away_is_told_in_a_line(spark: SparkSession, place: Place, end: int) -> None:
    away = replace(place, broker="mqks://127.0.0.1:1")
    with pytest.raises(ReplayError, match="the queue q1 cannot be bound: cannot reach"):
        replay(spark, away, where="event = 'odd'", stop=end, queue="q1")
