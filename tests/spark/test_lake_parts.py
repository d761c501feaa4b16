"""The writer of a table over a plain folder, without Spark: its marker, who may write, and what a crash leaves."""

import json
import shutil
from pathlib import Path
from typing import Any, cast

import pytest

from mqks.pipeline import lake
from mqks.pipeline.compaction import Compaction
from mqks.pipeline.errors import PipelineError
from mqks.pipeline.layout import marker_path
from mqks.pipeline.place import Place

FRAME = cast(Any, "rows")
NO_SPARK = cast(Any, None)


class LocalFiles:
    def __init__(self, _spark: object) -> None:
        pass

    def names(self, folder: str) -> list[str]:
        return sorted(path.name for path in Path(folder).iterdir()) if Path(folder).is_dir() else []

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def delete(self, path: str) -> None:
        shutil.rmtree(path)

    def read(self, path: str) -> str | None:
        return Path(path).read_text() if Path(path).exists() else None

    def write(self, path: str, text: str) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)


class NoCompaction:
    def __init__(self, *_given: object, **_more: object) -> None:
        pass

    def due(self, _batch: int) -> bool:
        return False


def write_part(_frame: object, folder: str, number: int) -> None:
    Path(folder, "date=2026-01-31", f"part={number:012d}").mkdir(parents=True, exist_ok=True)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(lake, "Files", LocalFiles)
    monkeypatch.setattr(lake, "Compaction", NoCompaction)
    monkeypatch.setattr(lake, "write_part", write_part)
    return Place(lake=str(tmp_path))


def parts_of(place: Place, job: str = "job", table: str = "t", **given: Any) -> lake.Parts:
    return lake.Parts(NO_SPARK, place, table, job, **given)


def planned(place: Place, batch: int, position: int = 0, *, done: bool = False) -> None:
    """As Spark notes it before a batch, and after it."""
    for log in ("offsets", *(["commits"] if done else [])):
        file = Path(place.checkpoint("job"), log, str(batch))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'v1\n{{}}\n{{"position": {position}}}')


def part_names(place: Place) -> list[str]:
    return sorted(path.name for path in Path(place.table("t")).glob("date=*/part=*"))


def test_each_table_has_a_marker_of_its_own(place: Place) -> None:
    assert marker_path(place, "events") == f"{place.lake}/_mqks/events.json"
    assert marker_path(place, "archive") == f"{place.lake}/_mqks/archive.json"


def test_batches_without_rows_move_the_marker_so_that_a_crash_after_them_is_swept(place: Place) -> None:
    parts = parts_of(place)
    for batch in range(5):
        planned(place, batch, 10 * batch, done=True)
        parts.write(None if batch else FRAME, batch)
    assert parts.marker[:3] == (4, 40, 0)
    planned(place, 5)
    write_part(FRAME, place.table("t"), 5)  # killed before the marker
    parts_of(place)
    assert part_names(place) == ["part=000000000000"]


def test_a_batch_that_is_planned_anew_is_not_taken_for_the_one_that_is_done(place: Place) -> None:
    planned(place, 0, 100)
    parts_of(place).write(FRAME, 0)
    parts_of(place).write(FRAME, 0)  # the same again: done
    planned(place, 0, 500)
    with pytest.raises(PipelineError, match=r"ends at 500 and ended at 100 .* older than the table"):
        parts_of(place).write(FRAME, 0)


def test_a_table_has_one_job(place: Place) -> None:
    parts_of(place, "run-a")
    with pytest.raises(PipelineError, match="is the table of run-a, not of run-b: take another name"):
        parts_of(place, "run-b")


@pytest.mark.parametrize("point", ["begun", "written"])
def test_of_two_runs_the_older_one_finds_out(place: Place, point: str) -> None:
    planned(place, 0)

    def reached(at: str) -> None:
        if at == point:
            parts_of(place)

    older = parts_of(place, reached=reached)
    with pytest.raises(PipelineError, match=r"another run of job writes .*/t: "):
        older.write(FRAME, 0)
    assert json.loads(Path(marker_path(place, "t")).read_text())["batch"] == -1
    with pytest.raises(PipelineError, match="another run"):
        older.write(FRAME, 0)  # before it writes anything


def test_who_cannot_go_on_without_a_checkpoint_is_told(place: Place) -> None:
    planned(place, 0)
    parts_of(place, goes_on=False).write(FRAME, 0)
    parts_of(place, goes_on=False)
    shutil.rmtree(place.checkpoint("job"))
    with pytest.raises(PipelineError, match=r"has rows, and the checkpoint .* is gone"):
        parts_of(place, goes_on=False)
    assert parts_of(place).marker.first == 1


def test_a_lost_marker_is_noticed_when_spark_has_forgotten_the_batch(place: Place) -> None:
    write_part(FRAME, place.table("t"), 0)
    planned(place, 150, done=True)
    with pytest.raises(PipelineError, match="put the marker back"):
        parts_of(place)
    assert part_names(place) == ["part=000000000000"]
    assert not Path(marker_path(place, "t")).exists()


def test_nothing_is_merged_of_no_part() -> None:
    with pytest.raises(PipelineError, match="2 and more, not 0"):
        Compaction(NO_SPARK, "folder", after=0)


@pytest.mark.parametrize("path", ["lake*", "a[1]/lake", "{lake}"])
def test_a_path_that_spark_would_take_for_a_pattern(path: str) -> None:
    with pytest.raises(PipelineError, match="a lake's path"):
        Place(lake=path)
