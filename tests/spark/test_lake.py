"""Tables in the lake with a real Spark: each batch once, whatever a crash has left."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from mqks.pipeline import lake
from mqks.pipeline.compaction import Compaction
from mqks.pipeline.errors import PipelineError
from mqks.pipeline.files import Files
from mqks.pipeline.layout import Marker, read_marker
from mqks.pipeline.place import Place

FIRST_DAY = 1_790_000_000  # seconds since 1970: a day in 2026
DAYS = 86_400


@pytest.fixture(params=["plain", "url"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    folder = tmp_path / "a lake"
    return Place(lake=str(folder) if request.param == "plain" else f"file:{folder}")


def rows(spark: SparkSession, first: int, count: int, day: int = 0) -> DataFrame:
    time = f"timestamp_seconds({FIRST_DAY + day * DAYS} + id)"
    return lake.dated(spark.range(first, first + count, 1, 1).selectExpr("id AS position", f"{time} AS time"), "time")


def positions(spark: SparkSession, place: Place) -> list[int]:
    return sorted(row.position for row in lake.table(spark, place, "t").select("position").collect())


def part_names(place: Place, day: str = "*") -> list[str]:
    folder = Path(place.lake.removeprefix("file:"), "t")
    return sorted(path.name for path in folder.glob(f"date={day}/part=*"))


def test_files(spark: SparkSession, place: Place) -> None:
    files = Files(spark)
    assert files.names(place.table("x")) == []
    assert files.read(place.table("x/a file")) is None
    files.write(place.table("x/a file"), "1")
    files.write(place.table("x/a file"), "zwölf")
    files.write(place.table("x/b/c"), "3")
    assert files.read(place.table("x/a file")) == "zwölf"
    assert files.names(place.table("x")) == ["a file", "b"]
    assert files.size(place.table("x")) == len("zwölf".encode()) + 1
    assert files.exists(place.table("x/b/c"))
    files.delete(place.table("x/b"))
    files.delete(place.table("x/b"))
    assert files.names(place.table("x")) == ["a file"]


def test_a_batch_that_is_written_again_is_there_once(spark: SparkSession, place: Place) -> None:
    with pytest.raises(lake.NoSuchTable, match="'t'"):
        lake.table(spark, place, "t")
    both_days = rows(spark, 0, 3).union(rows(spark, 3, 2, day=1))
    lake.write_part(both_days, place.table("t"), 0)  # a crash here: no marker
    with pytest.raises(lake.NoSuchTable):
        lake.table(spark, place, "t")
    parts = lake.Parts(spark, place, "t", "job")
    parts.write(both_days, 0)
    parts.write(both_days, 0)
    assert positions(spark, place) == [0, 1, 2, 3, 4]
    lake.write_part(rows(spark, 5, 5), place.table("t"), 1)  # a crash here: not read, and swept away
    assert positions(spark, place) == [0, 1, 2, 3, 4]
    lake.Parts(spark, place, "t", "job")
    assert part_names(place) == ["part=000000000000", "part=000000000000"]
    assert lake.tables(spark, place) == ["t"]


def test_a_lost_checkpoint_overwrites_nothing(spark: SparkSession, place: Place) -> None:
    lake.Parts(spark, place, "t", "job").write(rows(spark, 0, 3), 0)
    again = lake.Parts(spark, place, "t", "job")  # there is no checkpoint
    assert again.marker[:3] == Marker(batch=0, first=1)[:3]
    again.write(rows(spark, 3, 3), 0)
    assert positions(spark, place) == [0, 1, 2, 3, 4, 5]
    Files(spark).write(f"{place.checkpoint('job')}/offsets/0", 'v1\n{}\n{"position": 77}')
    with_it = lake.Parts(spark, place, "t", "job")
    with_it.write(rows(spark, 3, 3), 0)  # a crash after the marker: it is there
    assert with_it.marker[:3] == Marker(batch=1, first=1)[:3]
    assert positions(spark, place) == [0, 1, 2, 3, 4, 5]


class Crash(Exception):
    pass


def crash_at(wanted: str) -> Callable[[str], None]:
    def reached(point: str) -> None:
        if point == wanted:
            raise Crash

    return reached


@pytest.mark.parametrize(
    ("point", "left"),
    [
        ("merging", ["part=000000000000", "part=000000000001"]),
        ("merged", ["part=000000000000", "part=000000000000-000000000001", "part=000000000001"]),
        ("removed", ["part=000000000000-000000000001", "part=000000000001"]),
    ],
)
def test_a_merge_that_is_cut_short_changes_no_row(
    spark: SparkSession, tmp_path: Path, point: str, left: list[str]
) -> None:
    place = Place(lake=str(tmp_path / "a lake"))
    parts = lake.Parts(spark, place, "t", "job", compact_after=2, reached=crash_at(point))
    parts.write(rows(spark, 0, 2), 0)
    with pytest.raises(Crash):
        parts.write(rows(spark, 2, 2), 1)
    assert part_names(place) == left
    assert positions(spark, place) == [0, 1, 2, 3]
    assert read_marker(Files(spark), place, "t").batch == 1
    lake.write_part(rows(spark, 0, 1), place.table("t"), 2)  # a batch that was killed before its marker
    if point == "merging":
        half = f"{place.table('t')}/date=2026-09-21/part=000000000000-000000000001"
        Files(spark).write(f"{half}/half.parquet", "a merge that was killed while it wrote")
    assert positions(spark, place) == [0, 1, 2, 3]
    Files(spark).write(f"{place.checkpoint('job')}/offsets/1", "v1\n{}\n{}")
    swept = lake.Parts(spark, place, "t", "job", compact_after=2)
    assert set(part_names(place)) <= {"part=000000000000", "part=000000000001", "part=000000000000-000000000001"}
    assert positions(spark, place) == [0, 1, 2, 3]
    swept.write(rows(spark, 4, 1), 2)
    swept.write(rows(spark, 5, 1), 3)
    assert part_names(place) == ["part=000000000000-000000000003"]
    assert positions(spark, place) == [0, 1, 2, 3, 4, 5]


def test_a_day_that_is_over_is_tidied_up(spark: SparkSession, tmp_path: Path) -> None:
    place = Place(lake=str(tmp_path / "a lake"))
    parts = lake.Parts(spark, place, "t", "job", compact_after=100)
    for batch in range(3):
        parts.write(rows(spark, batch, 1), batch)
    parts.write(rows(spark, 3, 1, day=1), 3)
    parts.write(rows(spark, 4, 1, day=1), 4)
    assert Compaction(spark, place.table("t"), after=100).run(4) == 2
    assert part_names(place, "2026-09-21") == ["part=000000000000-000000000002"]
    assert part_names(place, "2026-09-22") == ["part=000000000003", "part=000000000004"]
    assert positions(spark, place) == [0, 1, 2, 3, 4]


def test_a_lost_marker_costs_no_part(spark: SparkSession, place: Place) -> None:
    """Parts that the marker does not know are no leftovers, if there are several, or if Spark knows them as done."""
    files = Files(spark)
    for batch in (0, 1):
        lake.Parts(spark, place, "t", "job").write(rows(spark, 10 * batch, 10), batch)
        files.write(place.checkpoint(f"job/offsets/{batch}"), "v1")
        files.write(place.checkpoint(f"job/commits/{batch}"), "v1")
    kept = part_names(place)
    for lost in (Marker(), Marker(batch=0)):
        files.write(place.table("_mqks/t.json"), json.dumps(lost._asdict()))
        with pytest.raises(PipelineError, match="put the marker back"):
            lake.Parts(spark, place, "t", "job")
        assert part_names(place) == kept


def test_a_column_that_comes_later_is_kept_when_parts_are_merged(spark: SparkSession, tmp_path: Path) -> None:
    place = Place(lake=str(tmp_path / "a lake"))
    parts = lake.Parts(spark, place, "t", "job", compact_after=2)
    parts.write(rows(spark, 0, 1), 0)
    late = rows(spark, 1, 1).selectExpr("*", "parse_json('[7]') AS more")

    def more() -> list[str | None]:
        found = lake.table(spark, place, "t").orderBy("position").selectExpr("to_json(more) AS more").collect()
        return [row.more for row in found]

    parts.write(late, 1)
    assert part_names(place) == ["part=000000000000-000000000001"]
    assert more() == [None, "[7]"]
    parts.write(rows(spark, 2, 1), 2)  # it is not in this one, which is not merged yet
    assert more() == [None, "[7]", None]


def test_an_empty_lake_has_no_events_but_their_columns(spark: SparkSession, place: Place) -> None:
    assert lake.archived(spark, place) is None
    assert lake.tables(spark, place) == []
    events = lake.events(spark, place)
    assert events.selectExpr("data:x::int", "date").count() == 0
    assert dict(events.dtypes)["data"] == "variant"
