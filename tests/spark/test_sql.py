"""SQL over lake and journal, on a real broker: each event once, whatever the archive does, and nothing read in vain."""

import csv
import io
import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import mqks
from mqks.journal import Reader
from mqks.pipeline import lake, tables
from mqks.pipeline.archive import archive
from mqks.pipeline.asked import EPOCH, NO_BOUNDS, Asked, Bounds, asked, moment, stand_in
from mqks.pipeline.lake.compaction import compact
from mqks.pipeline.lake.reading import open_table
from mqks.pipeline.place import EVENTS, OWN, Place
from mqks.pipeline.plot import plot
from mqks.pipeline.sql import SqlError, answer, events, extent, sql, write
from mqks.testing import broker

PATIENCE = 100.0
NOT_UTF8 = b"\xff\xfe"
LAST = 253_402_300_799_999_999  # µs since 1970: the end of the year 9999


def rows(frame: DataFrame) -> list[Any]:
    return frame.collect()


def publish(url: str, event: str, count: int) -> None:
    with mqks.connect(url) as mq:
        mq.publish_many([(event, json.dumps({"user": {"id": one}})) for one in range(count)])


def archive_now(spark: SparkSession, place: Place) -> None:
    job = archive(spark, place, available_now=True)
    try:
        assert job.wait(PATIENCE)
    finally:
        job.stop()


@contextmanager
def broker_at(folder: Path) -> Iterator[Place]:
    with broker(data=folder / "data", fsync="never") as running:
        yield Place(broker=running.url, data=str(folder / "data"), lake=str(folder / "lake"))


@pytest.fixture(scope="module")
def place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """300 events in the lake, and 103 in the journal only; some of the pipeline's own among them."""
    with broker_at(tmp_path_factory.mktemp("sql")) as place:
        publish(place.broker, "order.old", 300)
        publish(place.broker, OWN[0], 5)
        archive_now(spark, place)
        publish(place.broker, "order.new", 100)
        publish(place.broker, OWN[1], 5)
        with mqks.connect(place.broker) as mq:
            mq.publish("odd", NOT_UTF8.decode("utf-8", "surrogateescape"), confirm=True)
            mq.publish("odd", "no JSON", confirm=True)
            mq.send({"event": "sevx", "a": [1, None]}, confirm=True)
        yield place


# ── each event once ──


def test_events_are_those_of_the_journal_each_once(spark: SparkSession, place: Place) -> None:
    assert place.data is not None
    archived, end = lake.archived(spark, place), extent(place).end
    assert archived is not None
    assert 0 < archived < end
    found = answer(spark, place, "SELECT position, id, action, event, text FROM events ORDER BY position", rows)
    messages = [one for one in Reader(place.data).messages() if one.event.decode() not in OWN]
    assert [tuple(row) for row in found] == [
        (one.position, one.id.decode(), one.action.decode(), one.event.decode(), one.data.decode("utf-8", "replace"))
        for one in messages
    ]


def test_data_is_a_variant_and_bytes_are_kept(spark: SparkSession, place: Place) -> None:
    (summed,) = answer(spark, place, "SELECT sum(data:user.id::int) FROM events WHERE event LIKE 'order.%'", rows)
    assert summed[0] == sum(range(300)) + sum(range(100))
    odd = answer(spark, place, "SELECT raw, data::string FROM events WHERE event = 'odd' ORDER BY position", rows)
    assert [(row[0] and bytes(row[0]), row[1]) for row in odd] == [(NOT_UTF8, "��"), (None, "no JSON")]


def test_a_running_archive_that_merges_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    with broker_at(tmp_path) as place:
        job = archive(spark, place, every=0.1, compact_after=2)
        try:
            published, positions = 0, {lake.archived(spark, place)}
            deadline = time.monotonic() + PATIENCE
            while len(positions) < 4:  # until the query has met three states of the lake
                assert time.monotonic() < deadline, f"the archive does not go on: {job.failure}"
                publish(place.broker, "e1", 50)
                published += 50
                text = "SELECT count(*), count(DISTINCT position) FROM events"
                assert tuple(answer(spark, place, text, rows)[0]) == (published, published)
                positions.add(lake.archived(spark, place))
                if job.failure:  # as a machine that is too busy for Spark's workers brings about
                    job.restart()
        finally:
            job.stop()


def test_files_that_vanish_while_they_are_read_are_looked_for_again(
    spark: SparkSession, place: Place, tmp_path: Path
) -> None:
    own = replace(place, lake=str(tmp_path / "lake"))
    writer = lake.Writer(spark, own, "merged", "test")
    for batch in range(2):
        writer.write(spark.range(10).selectExpr("id", "DATE'2026-11-16' AS date").coalesce(1), batch)
    calls = []

    def merge_then_read(frame: DataFrame) -> int:
        calls.append(1)
        if len(calls) == 1:
            table = open_table(own, "merged")
            assert table is not None
            assert compact(table, 2) == 2
            assert len(table.vacuum(hours=0, orphans=False)) == 2
        return len(frame.collect())

    assert answer(spark, own, "SELECT * FROM merged", merge_then_read) == 20
    assert len(calls) == 2


# ── what there is ──


@pytest.mark.parametrize("zone", ["Etc/GMT+12", "Etc/GMT-14"])  # in one of them it is another day now
def test_a_date_is_the_day_in_utc_wherever_one_is(spark: SparkSession, place: Place, zone: str) -> None:
    there = spark.newSession()
    there.conf.set("spark.sql.session.timeZone", zone)
    text = "SELECT count(*), count_if(date = date_from_unix_date(int(unix_seconds(time) DIV 86400))) FROM events"
    (counted,) = answer(there, place, text, rows)
    assert tuple(counted) == (403, 403)


def test_without_a_lake_there_is_the_journal(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    told: list[str] = []
    bare = replace(place, lake=str(tmp_path / "none"))
    (counted,) = answer(spark, bare, "SELECT count(*) FROM events", rows, tell=told.append)
    assert (counted[0], told) == (403, [])


def test_without_a_journal_there_is_the_lake_and_it_is_said(
    spark: SparkSession, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = replace(place, data=str(tmp_path / "none"))
    (counted,) = answer(spark, lost, "SELECT count(*) FROM events", rows)
    assert counted[0] == 300
    said = capsys.readouterr().err
    assert said.startswith("mqks: the journal cannot be read")
    assert said.count("\n") == 1


def test_with_neither_there_are_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    with broker() as in_memory:
        told: list[str] = []
        nothing = Place(broker=in_memory.url, lake=str(tmp_path / "none"))
        (counted,) = answer(spark, nothing, "SELECT count(*), max(time) FROM events", rows, tell=told.append)
    assert tuple(counted) == (0, None)
    assert "keeps no journal" in told[0]


def test_the_journal_can_be_read_through_the_broker(spark: SparkSession, place: Place) -> None:
    there = replace(place, data=None)
    assert extent(there) == extent(place)
    text = "SELECT event, count(*) FROM events GROUP BY event ORDER BY event"
    assert answer(spark, there, text, rows) == answer(spark, place, text, rows)


def test_a_journal_that_is_another_one_is_not_mixed_in(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    with broker_at(tmp_path) as other:
        told: list[str] = []
        mixed = replace(place, data=other.data)
        (counted,) = answer(spark, mixed, "SELECT count(*) FROM events", rows, tell=told.append)
    assert counted[0] == 300
    assert "another one" in told[0]


def test_tables_of_the_lake_have_their_names(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    own = replace(place, lake=str(tmp_path / "lake"))
    frame = spark.range(3).selectExpr("id", "DATE'2026-11-16' AS date")
    lake.Writer(spark, own, "orders_daily", "test").write(frame, 0)
    (summed,) = answer(spark, own, "SELECT sum(id) FROM orders_daily", rows)
    assert summed[0] == 3
    assert "orders_daily" in {row.tableName for row in answer(spark, own, "SHOW TABLES", rows)}
    Path(own.lake, "a `folder` of others").mkdir()
    assert answer(spark, own, "SELECT max(id) FROM Orders_Daily", rows) == [(2,)]


# ── nothing is read in vain ──


@pytest.mark.parametrize(
    ("text", "columns", "days"),
    [
        ("SELECT event FROM events", {"event"}, (None, None)),
        ("SELECT count(*) FROM events", set(), (None, None)),
        ("SELECT 1", None, (None, None)),
        (
            "SELECT event FROM events WHERE time >= '2026-11-01 12:00' AND '2026-11-03' > time",
            {"event", "time"},
            (date(2026, 11, 1), date(2026, 11, 3)),
        ),
        (
            "SELECT id FROM events WHERE time = '2026-11-05' OR (time < '2026-11-03' AND time > '2026-11-02')",
            {"id", "time"},
            (date(2026, 11, 2), date(2026, 11, 5)),
        ),
        ("SELECT id FROM events WHERE time > '2026-11-05' OR id = 'x'", {"id", "time"}, (None, None)),
        (
            "SELECT id FROM events WHERE time IN ('2026-11-05', '2026-11-07')",
            {"id", "time"},
            (date(2026, 11, 5), date(2026, 11, 7)),
        ),
        # The one that reads more decides, be it joined or in a subquery.
        (
            "SELECT a.id FROM events a JOIN events b USING (id) WHERE a.time > '2026-11-05'",
            {"id", "time"},
            (None, None),
        ),
        (
            "SELECT id FROM events WHERE time > '2026-11-05' AND position = (SELECT max(position) FROM events)",
            {"id", "time", "position"},
            (None, None),
        ),
        # A `time` that is another one says nothing of the days.
        (
            "SELECT * FROM (SELECT time + INTERVAL 1 DAY AS time, rand() AS r FROM events) WHERE time > '2026-11-05'",
            {"time"},
            (None, None),
        ),
        (
            "EXPLAIN SELECT text FROM events WHERE date_trunc('day', time) IS NULL OR time < '2026-11-05'",
            {"text", "time"},
            (None, None),
        ),
    ],
)
def test_what_a_query_asks_for(
    spark: SparkSession, text: str, columns: set[str] | None, days: tuple[date | None, date | None]
) -> None:
    stand_in(spark).createOrReplaceTempView(EVENTS)
    found = asked(spark, text)
    first, last = (at and at.date() for at in map(moment, found.bounds.times))
    assert (found.columns, (first, last)) == (columns if columns is None else frozenset(columns), days)


@pytest.mark.parametrize(
    ("condition", "bounds"),
    [
        ("event = 'order.new'", Bounds(events=frozenset({r"order\.new"}))),
        ("event LIKE 'order.%' OR event = 'x'", Bounds(events=frozenset({r"order\..*", "x"}))),
        ("event IN ('a', 'b')", Bounds(events=frozenset("ab"))),
        (f"event IN ({', '.join(repr(one) for one in 'abcdefghijklm')})", Bounds(events=frozenset("abcdefghijklm"))),
        ("event LIKE 'order.%' AND event IN ('order.a', 'order.b')", Bounds(events=frozenset({r"order\..*"}))),
        ("event = 'a' OR id = 'b'", NO_BOUNDS),
        ("event <> 'a' AND event LIKE '%a'", NO_BOUNDS),
        ("position >= 7 AND 90 > position", Bounds(positions=(7, 90))),
        ("position = 7 OR position = 9 AND event = 'a'", Bounds(positions=(7, 9))),
    ],
)
def test_what_holds_for_all_that_a_query_asks_for(spark: SparkSession, condition: str, bounds: Bounds) -> None:
    stand_in(spark).createOrReplaceTempView(EVENTS)
    assert asked(spark, f"SELECT id FROM events WHERE {condition}").bounds == bounds


def test_of_the_journal_only_what_may_be_wanted_is_looked_at(spark: SparkSession, place: Place) -> None:
    assert place.data is not None
    messages = list(Reader(place.data).messages())
    whole, at = extent(place), messages[-1].time
    micros = (at - EPOCH) // timedelta(microseconds=1)
    for where in (place, replace(place, data=None)):
        last = extent(where, Bounds(times=(micros, math.inf)))
        assert whole.start < last.first <= messages[-1].position < last.stop == whole.end
        early = extent(where, Bounds(times=(-math.inf, micros - 1), positions=(5, math.inf)))
        assert (early.first, early.stop) == (5, last.first)
        nothing = extent(where, Bounds(positions=(10**15, math.inf)))
        assert nothing.first == nothing.stop == whole.end
        assert extent(where, Bounds(times=(-math.inf, LAST))) == whole
    # Two bounds for one scan each, in one query: neither is taken for the other's.
    text = """SELECT count(*) FROM events WHERE event = 'order.new'
              UNION ALL SELECT count(*) FROM events WHERE event = 'odd'
              UNION ALL SELECT count(*) FROM events"""
    assert [row[0] for row in answer(spark, place, text, rows)] == [100, 2, 403]


def test_a_command_is_planned_but_not_run_to_find_out(spark: SparkSession, place: Place) -> None:
    sql(spark, place, "CREATE TEMP VIEW made_once AS SELECT event FROM events")  # would fail the second time
    try:
        assert spark.sql("SELECT count(*) FROM made_once").collect()[0][0] == 403
    finally:
        spark.sql("DROP VIEW made_once")


def test_filters_prune_the_files_and_row_groups_of_the_lake(spark: SparkSession, place: Place) -> None:
    spark = spark.newSession()
    spark.conf.set("spark.sql.maxMetadataStringLength", "10000")

    def planned(text: str) -> str:
        return str(sql(spark, place, text)._jdf.queryExecution().executedPlan().toString())

    plan = planned("SELECT event FROM events WHERE time >= '2026-11-01' AND event >= 'order.new'")
    assert "GreaterThanOrEqual(time,2026-11-01" in plan
    assert "LessThan(position," in plan
    read = plan.partition("BatchScan mqks[")[2].partition("]")[0]
    assert [name.partition("#")[0] for name in read.split(", ")] == ["time", "event"]
    assert "FileScan" not in planned("SELECT event FROM events WHERE event = 'order.new'")  # no file has one


def test_columns_that_nobody_asked_for_are_not_read_from_the_journal(spark: SparkSession, place: Place) -> None:
    found = events(spark, place, Asked(frozenset({"event"}))).where("event = 'order.new'").limit(1).collect()
    assert (found[0].event, found[0].position, found[0].time) == ("order.new", None, None)


# ── how it is shown ──

SHOWN = """SELECT TIMESTAMP'2026-11-16 05:00:00.5' AS at, 7L AS n, parse_json('{"a": [1, "x"]}') AS data,
                  CAST('text' AS variant) AS word, named_struct('b', X'00ff') AS nested, X'00ff' AS raw,
                  'two\nlines' AS text, CAST(NULL AS string) AS nothing, 1 AS n"""


def test_json_lines_and_csv_for_programs(spark: SparkSession, place: Place) -> None:
    out = io.StringIO()
    write(spark, place, SHOWN, tables.csv, out)
    heads, cells = csv.reader(io.StringIO(out.getvalue(), newline=""))
    assert heads == ["at", "n", "data", "word", "nested", "raw", "text", "nothing", "n"]
    assert cells == [
        "2026-11-16T05:00:00.500000Z",
        "7",
        '{"a":[1,"x"]}',
        '"text"',
        '{"b":"AP8="}',
        "AP8=",
        "two\nlines",
        "",
        "1",
    ]
    out = io.StringIO()
    write(spark, place, SHOWN.removesuffix(", 1 AS n"), tables.json, out)
    assert json.loads(out.getvalue()) == {
        "at": "2026-11-16T05:00:00.500000Z",
        "n": 7,
        "data": {"a": [1, "x"]},
        "word": "text",
        "nested": {"b": "AP8="},
        "raw": "AP8=",
        "text": "two\nlines",
        "nothing": None,
    }


def test_a_table_for_people_says_where_it_is_cut(spark: SparkSession, place: Place) -> None:
    text = "SELECT position, event FROM events WHERE event LIKE 'order.%' ORDER BY position"
    shown = answer(spark, place, text, lambda frame: list(tables.table(frame, limit=3)))
    assert shown[0].split() == ["position", "event"]
    assert [line.split()[1] for line in shown[2:5]] == ["order.old"] * 3
    assert shown[5:] == ["the first 3 rows: there are more"]
    assert list(tables.table(spark.sql("SELECT 1 AS one"), limit=3)) == ["one", "───", "  1", "1 row"]


def test_a_plan_is_shown_as_the_text_that_it_is(spark: SparkSession, place: Place) -> None:
    shown = answer(spark, place, "EXPLAIN SELECT event FROM events", lambda frame: list(tables.table(frame, limit=3)))
    assert shown[0] == "== Physical Plan =="
    assert len(shown) > 3


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("SELECT nope FROM events", "name `nope` cannot be resolved"),
        ("SELECT * FROM nowhere", "`nowhere` cannot be found"),
        ("SELEC", "Syntax error at or near 'SELEC' (line 1, position 1)"),
        ("SELECT assert_true(position < 0) FROM events", "is not true"),
    ],
)
def test_errors_are_short_and_without_java(
    spark: SparkSession, place: Place, text: str, error: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SqlError) as raised:
        answer(spark, place, text, rows)
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "Traceback" not in str(raised.value)
    assert '"level"' not in capfd.readouterr().err


def test_a_plot_of_a_query(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    path = tmp_path / "plot.png"
    text = "SELECT date_trunc('second', time) AS second, event, count(*) AS n FROM events GROUP BY ALL"
    answer(spark, place, text, lambda frame: plot(frame, path, text))
    assert path.stat().st_size > 1000
