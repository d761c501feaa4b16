"""Tables of the lake with a real Spark: what it writes, what others read, and what changes files."""

import base64
import io
import json
import os
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_delta
import polars
import pytest
from deltalake import DeltaTable
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession

from mqks.pipeline import lake
from mqks.pipeline.asked import Bounds
from mqks.pipeline.errors import PipelineError
from mqks.pipeline.lake.commit import POSITION, AnotherWriter
from mqks.pipeline.lake.compaction import compact
from mqks.pipeline.lake.delta_table import Table
from mqks.pipeline.lake.forget import forget
from mqks.pipeline.lake.reading import fields_of_events, open_table, pruned
from mqks.pipeline.place import Place
from mqks.pipeline.sql import sql

OLD_LAKE = Path(__file__).with_name("lake_0_1_0.txt")  # a tar file in base64, of a lake that 0.1.0 has written


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(lake=str(tmp_path / "lake"))  # Polars 2.1 does not find a table with a space in its path


def rows(spark: SparkSession, start: int, count: int) -> DataFrame:
    """Events, 100 a day."""
    frame = spark.range(start, start + count).selectExpr(
        "id AS position",
        "timestamp_micros(1768435200000000 + id * 864000000 + 123) AS time",
        "concat('m', id) AS id",
        "'publish' AS action",
        "concat('e', id % 3) AS event",
        "parse_json(concat('{\"n\": ', id, '}')) AS data",
        "concat('{\"n\": ', id, '}') AS text",
        "CAST(NULL AS binary) AS raw",
    )
    return lake.dated(frame, "time")


def planned(place: Place, number: int, end: int, job: str = "archive") -> None:
    """As Spark notes it before a batch."""
    put(Path(place.checkpoint(job), "offsets", str(number)), f'v1\n{{}}\n{{"position": {end}}}')


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def writer(spark: SparkSession, place: Place, *, variant: bool = True, **more: Any) -> lake.Writer:
    fields = fields_of_events(variant=variant)
    return lake.Writer(spark, place, "events", "archive", fields=fields, by_position=True, **more)


def archive(spark: SparkSession, place: Place, *ends: int, **more: Any) -> lake.Writer:
    one, start = writer(spark, place, **more), 0
    for number, end in enumerate(ends):
        planned(place, number, end)
        one.write(rows(spark, start, end - start) if end > start else None, number)
        start = end
    return one


def table_of(place: Place, name: str = "events") -> Table:
    found = open_table(place, name)
    assert found is not None
    return found


def positions(spark: SparkSession, place: Place) -> list[int]:
    return sorted(row.position for row in lake.events(spark, place).select("position").collect())


def in_duckdb(place: Place, query: str) -> list[Any]:
    extension = next(Path(str(duckdb_extension_delta.__file__)).parent.rglob("delta.duckdb_extension"))
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        connection.execute(f"LOAD '{extension}'")
        return connection.execute(query.replace("EVENTS", f"delta_scan('{place.table('events')}')")).fetchall()


def in_polars(place: Place) -> polars.DataFrame:
    return polars.scan_delta(place.table("events")).collect()


def assert_read_by_others(place: Place, count: int) -> None:
    """Count = distinct = what was written, for each reader."""
    told = (count, count, sum(range(count)))
    query = "SELECT count(*), count(DISTINCT id), sum(position)::BIGINT FROM EVENTS"
    assert in_duckdb(place, query) == [told]
    found = in_polars(place)
    assert (len(found), found["id"].n_unique(), found["position"].sum()) == told
    scanned = DeltaTable(place.table("events")).scan(columns=["position", "id"]).read_all()
    assert scanned.num_rows == count
    assert sorted(scanned["position"].to_pylist()) == list(range(count))


def test_other_readers_see_what_was_written(spark: SparkSession, place: Place) -> None:
    archive(spark, place, 60, 60, 150, 250)
    assert_read_by_others(place, 250)
    assert positions(spark, place) == list(range(250))
    found = in_polars(place).sort("position")
    assert found["date"].cast(str).unique().sort().to_list() == ["2026-01-15", "2026-01-16", "2026-01-17"]
    assert found["time"].dtype == polars.Datetime("us", "UTC")
    assert found["key"].null_count() == 250
    days = in_duckdb(place, "SELECT date, count(*), max(time) FROM EVENTS GROUP BY date ORDER BY date")
    assert [(str(day)[-2:], count) for day, count, _ in days] == [("15", 100), ("16", 100), ("17", 50)]
    [(value,)] = in_duckdb(place, "SELECT data.n FROM EVENTS WHERE position = 7")
    assert int(value) == 7
    assert lake.events(spark, place).where("data:n::int = 7").count() == 1
    one = table_of(place).files[0]
    assert parquet.read_table(f"{place.table('events')}/{one.path}").num_rows == one.rows


def test_statistics_leave_out_files(spark: SparkSession, place: Place) -> None:
    archive(spark, place, 60, 150, 250)
    files = table_of(place).files

    def found(**bounds: Any) -> list[int]:
        return sorted({one.least("position") for one in pruned(files, Bounds(**bounds))})

    begins = sorted({one.least("position") for one in files})
    assert found() == begins
    assert found(positions=(70, 75)) == [at for at in begins if at in range(60, 76)][-1:]
    assert found(events=frozenset({"e1"})) == begins
    assert found(events=frozenset({"zz", "f.*"})) == []
    assert found(events=frozenset({"e.*"})) == begins
    hour = (1768435200000000 + 210 * 864000000, 1768435200000000 + 214 * 864000000)
    assert all(at >= 200 for at in found(times=hour))
    assert found(days=(20468, 20468)) == [at for at in begins if at < 100]
    one = lake.events(spark, place, bounds=Bounds(positions=(70, 75)))
    assert len(one.inputFiles()) < len(files)
    assert one.where("position BETWEEN 70 AND 75").count() == 6


def test_a_merge_changes_no_row(spark: SparkSession, place: Place) -> None:
    archive(spark, place, 30, 60, 90, 120, compact_after=100)
    table = table_of(place)
    before = len(table.files)
    assert compact(table, 2) == before
    assert len(table.files) == 2
    assert all(one.least("time") is not None for one in table.files)
    assert_read_by_others(place, 120)
    assert lake.events(spark, place).where("data:n::int = position").count() == 120
    assert compact(table, 2) == 0
    assert len(table.vacuum(hours=0, orphans=True)) >= before
    assert_read_by_others(place, 120)
    assert len(list(Path(place.table("events")).glob("batch-*"))) == 2


def test_what_an_attempt_has_left_is_not_read_and_goes_by_vacuum(spark: SparkSession, place: Place) -> None:
    one = archive(spark, place, 30)
    planned(place, 1, 60)

    def fail(*_given: object, **_more: object) -> None:
        raise RuntimeError("killed")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Table, "commit", fail)
        with pytest.raises(RuntimeError):
            one.write(rows(spark, 30, 30), 1)
    assert_read_by_others(place, 30)
    writer(spark, place).write(rows(spark, 30, 30), 1)
    assert_read_by_others(place, 60)
    folder = Path(place.table("events"))
    count = len(list(folder.rglob("*.parquet")))
    table = table_of(place)
    assert count > len(table.files)
    table.vacuum(hours=0, orphans=True)
    assert len(list(folder.rglob("*.parquet"))) == len(table.files)
    assert_read_by_others(place, 60)


def test_a_checkpoint_that_is_older_than_the_table(spark: SparkSession, place: Place) -> None:
    archive(spark, place, 30, 60)
    again = writer(spark, place)
    again.write(rows(spark, 0, 30), 0)  # was there before
    assert positions(spark, place) == list(range(60))
    planned(place, 1, 80)  # planned anew, with another end
    with pytest.raises(AnotherWriter, match="remove the checkpoint to go on from where the table ends"):
        again.write(rows(spark, 30, 50), 1)
    assert positions(spark, place) == list(range(60))


def test_without_variant(spark: SparkSession, place: Place) -> None:
    one = writer(spark, place, variant=False)
    planned(place, 0, 30)
    assert not one.has("data")
    one.write(rows(spark, 0, 30).drop("data"), 0)
    assert_read_by_others(place, 30)
    assert "data" not in in_polars(place).columns
    assert lake.events(spark, place).where("data:n::int = position").count() == 30


# ── tables by query id ──


def in_query(spark: SparkSession, call: Callable[[], object], id: str = "q1") -> None:
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", id)
    try:
        call()
    finally:
        spark.sparkContext.setLocalProperty("sql.streaming.queryId", None)  # type: ignore[arg-type]


def some(spark: SparkSession, value: int, more: str = "") -> DataFrame:
    return spark.sql(f"SELECT {value} AS n {more}, DATE'2026-01-31' AS date")


def mine(spark: SparkSession, place: Place) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in lake.table(spark, place, "t").drop("date").collect())


def test_a_table_of_a_query(spark: SparkSession, place: Place) -> None:
    one = lake.Writer(spark, place, "t", "job", goes_on=False)
    in_query(spark, lambda: one.write(some(spark, 1), 0))
    one.write(None, 1)
    in_query(spark, lambda: one.write(some(spark, 2, ", '[7]' AS more"), 2))  # a function that was changed
    in_query(spark, lambda: one.write(some(spark, 2, ", '[7]' AS more"), 2))
    in_query(spark, lambda: one.write(some(spark, 3), 3))
    assert sorted(map(str, mine(spark, place))) == ["(1, None)", "(2, '[7]')", "(3, None)"]
    with pytest.raises(PipelineError, match="the column n is string, and in the table it is integer"):
        in_query(spark, lambda: one.write(spark.sql("SELECT 'x' AS n, DATE'2026-01-31' AS date"), 4))
    put(Path(place.checkpoint("job"), "metadata"), json.dumps({"id": "q1"}))
    lake.Writer(spark, place, "t", "job", goes_on=False)
    with pytest.raises(PipelineError, match="is the table of job, not of other: take another name"):
        lake.Writer(spark, place, "t", "other")
    put(Path(place.checkpoint("job"), "metadata"), json.dumps({"id": "q2"}))
    with pytest.raises(PipelineError, match=r"has rows, and the checkpoint .* is gone"):
        lake.Writer(spark, place, "t", "job", goes_on=False)
    lake.Writer(spark, place, "t", "job")


def test_an_empty_lake_has_no_events_but_their_columns(spark: SparkSession, place: Place) -> None:
    assert lake.archived(spark, place) is None
    assert lake.tables(spark, place) == []
    events = lake.events(spark, place)
    assert events.selectExpr("data:x::int", "date").count() == 0
    assert dict(events.dtypes)["data"] == "variant"
    with pytest.raises(lake.NoSuchTable, match="its tables: none yet"):
        lake.table(spark, place, "t")


@pytest.mark.parametrize("path", ["lake*", "a[1]/lake", "{lake}"])
def test_a_path_that_spark_would_take_for_a_pattern(path: str) -> None:
    with pytest.raises(PipelineError, match="a lake's path"):
        Place(lake=path)


# ── a lake of 0.1.0 ──

ALL = ["m1", "m2", "m3", "m5", "m6", "m7", "m8", "s4"]


def unpacked(folder: Path) -> Place:
    """As 0.1.0 has left it: merged parts, a table of a user, checkpoints, the journal."""
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(OLD_LAKE.read_text()))) as archive:
        archive.extractall(folder, filter="data")
    return Place("mqks://127.0.0.1:1", str(folder / "data"), str(folder / "lake"))


def test_a_lake_of_0_1_0_is_adopted_by_one_commit(spark: SparkSession, tmp_path: Path) -> None:
    place = unpacked(tmp_path)
    folder = Path(place.table("events"))
    first = next(folder.rglob("*.parquet"))
    unfinished = folder / "date=2026-02-01" / "part=000000000004" / first.name  # killed before its marker
    unfinished.parent.mkdir()
    unfinished.write_bytes(first.read_bytes())
    marker = json.loads((tmp_path / "lake" / "_mqks" / "events.json").read_text())
    events = lake.events(spark, place)
    assert sorted(row.id for row in events.collect()) == ALL
    assert events.where("data:user.id::int = 1").count() == 1
    table = table_of(place)
    assert table.version == 0
    assert table.progress(POSITION) == marker["position"]
    assert not (tmp_path / "lake" / "_mqks" / "events.json").exists()
    assert {str(row.date): row.id for row in events.collect()}.keys() == {"2026-01-31", "2026-02-01"}
    # A merge makes files of it that others read.
    compact(table)
    table.vacuum(hours=0, orphans=True)
    assert not unfinished.exists()
    assert sorted(in_polars(place)["id"]) == ALL
    assert sorted(row.id for row in lake.events(spark, place).collect()) == ALL
    assert lake.events(spark, place).where("data:user.id::int = 1").count() == 1
    assert [len(in_duckdb(place, "SELECT id FROM EVENTS WHERE time < '2026-02-01T00:00:00Z'"))] == [4]
    assert {row.id for row in lake.table(spark, place, "orders").collect()} == {*ALL} - {"m1"}
    query = json.loads((tmp_path / "lake/_checkpoints/run-mine-orders-lake-orders/metadata").read_text())["id"]
    assert table_of(place, "orders").progress(f"mqks.query.{query}") == 0


# ── erasure, retention, time travel ──


def test_what_is_forgotten_is_gone_from_every_table_and_from_the_disk(spark: SparkSession, place: Place) -> None:
    archive(spark, place, 60, 150)
    one = lake.Writer(spark, place, "t", "job")
    in_query(spark, lambda: one.write(some(spark, 1, ", 'e1' AS event"), 0))
    other = lake.Writer(spark, place, "u", "job")
    in_query(spark, lambda: other.write(some(spark, 1), 0))
    found = {one.table: one for one in forget(spark, place, "event = 'e1' AND date >= '2026-01-15'")}
    assert (found["events"].rows, found["t"].rows) == (50, 1)
    assert "event" in found["u"].skipped
    assert positions(spark, place) == [n for n in range(150) if n % 3 != 1]
    assert mine(spark, place) == []
    assert len(in_polars(place)) == 100
    assert in_duckdb(place, "SELECT count(*) FROM EVENTS WHERE event = 'e1'") == [(0,)]
    left = [
        parquet.read_table(path, columns=["event"])
        for path in Path(place.table("events")).rglob("*.parquet")
        if "_delta_log" not in path.parts
    ]
    assert sum(one["event"].to_pylist().count("e1") for one in left) == 0
    assert sum(one.num_rows for one in left) == 100
    # The archive goes on from where it was, and asked again there is nothing.
    after = writer(spark, place)
    assert after.position == 150
    planned(place, 2, 160)
    after.write(rows(spark, 150, 10), 2)
    assert len(positions(spark, place)) == 110
    assert next(one for one in forget(spark, place, "event = 'e1' AND position < 150")).rows == 0
    with pytest.raises(PipelineError, match="no table has the columns"):
        forget(spark, place, "nowhere = 1")
    with pytest.raises(PipelineError, match="other rows each time"):
        forget(spark, place, "time < now()")


def test_as_of(spark: SparkSession, place: Place) -> None:
    archive(spark, place, 60)
    before = datetime.now(UTC)
    log = Path(place.table("events"), "_delta_log")
    for entry in log.glob("*.json"):  # commits are known by the milliseconds of their times
        os.utime(entry, (before.timestamp() - 10, before.timestamp() - 10))
    again = writer(spark, place)
    planned(place, 1, 100)
    again.write(rows(spark, 60, 40), 1)
    count = "SELECT count(*) FROM events"
    assert sql(spark, place, count, as_of=before).collect()[0][0] == 60
    assert lake.events(spark, place).count() == 100
    assert lake.archived(spark, place, as_of=before) == 60
