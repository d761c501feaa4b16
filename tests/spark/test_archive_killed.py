"""kill -9 of the driver, with all its processes, where it hurts: each event is in the lake once in the end."""

import signal
import subprocess
import sys
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from mqks.pipeline import lake
from mqks.pipeline.place import Place
from tests.journal.making import Making
from tests.spark.archiving import AWAY, archive_all

COUNT = 2400
POINTS = [("writing", "2"), ("committing", "1"), ("merging", "1")]


def run(data: Path, folder: Path, *point: str) -> int:
    command = [sys.executable, "-m", "tests.spark.archiving", str(data), str(folder), *point]
    return subprocess.run(command, start_new_session=True, check=False).returncode


def test_killed_at_several_points_one_after_the_other(spark: SparkSession, tmp_path: Path) -> None:
    made = Making(tmp_path / "data")
    for first in range(0, COUNT, 100):
        made.batch(*(b'm%d publish e1 {"n": %d}' % (n, n) for n in range(first, first + 100)))
    made.sync()
    folder = tmp_path / "a lake"
    place = Place(AWAY, str(tmp_path / "data"), str(folder))
    for point in POINTS:
        assert run(tmp_path / "data", folder, *point) == -signal.SIGKILL, point
        row = lake.events(spark, place).selectExpr("count(*)", "count(DISTINCT id)").collect()[0]
        assert row[0] == row[1] < COUNT, point
    archive_all(spark, tmp_path / "data", folder)
    figures = "count(*)", "count(DISTINCT id)", "sum(data:n::int)"
    assert tuple(lake.events(spark, place).selectExpr(*figures).collect()[0]) == (COUNT, COUNT, sum(range(COUNT)))
    assert DeltaTable(place.table("events")).scan(columns=["id"]).read_all().num_rows == COUNT
