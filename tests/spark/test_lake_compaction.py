"""Merges and retention without Spark: what is merged, beside a running archive, and who comes second."""

import threading
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from mqks.pipeline.errors import PipelineError
from mqks.pipeline.lake import compaction
from mqks.pipeline.lake.commit import POSITION, AnotherWriter, append
from mqks.pipeline.lake.compaction import Maintenance, chosen, compact, merge, plan, remove_days_before, replace, runs
from mqks.pipeline.lake.delta_table import File
from tests.spark.tables import archive, assert_exact, batch, new_table, opened, positions, rows, writing

MB = 1 << 20


def sized(*sizes: int, day: str = "2026-01-31") -> list[File]:
    return [File(f"batch-{number}", size, day) for number, size in enumerate(sizes)]


def names(found: Any) -> list[list[int]]:
    return [[int(one.path.removeprefix("batch-")) for one in run] for run in found]


def test_runs_are_neighbours_that_are_small() -> None:
    files = sized(1, 1, 5, 1, 1, 1, 5, 1)
    assert names(runs(files, 2, 5)) == [[0, 1], [3, 4, 5]]
    assert names(runs(files, 3, 5)) == [[3, 4, 5]]
    assert names(runs(files, 9, 9)) == []
    assert names(runs(files, 1, 5)) == [[0, 1], [3, 4, 5]]  # one alone has nobody to be merged with


def test_runs_do_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "LARGEST", 10)
    assert names(runs(sized(4, 4, 4, 4, 4), 2, 5)) == [[0, 1], [2, 3]]


def test_the_small_are_merged_before_the_middling() -> None:
    files = sized(10 * MB, 10 * MB, 1, 1, 1, 70 * MB)
    assert names(chosen(files, 3)) == [[2, 3, 4]]
    assert names(chosen(files, 4)) == [[0, 1, 2, 3, 4]]
    assert names(chosen(files, 6)) == []


def test_a_day_that_is_over_is_tidied_up() -> None:
    files = [*sized(1, 1, day="2026-01-30"), *sized(1, 1, 1)]
    assert names(plan(files, 32)) == [[0, 1]]
    assert names(plan(files, 3)) == [[0, 1], [0, 1, 2]]


@pytest.mark.parametrize("given", [{"after": 0}, {"retain_days": 0}])
def test_settings_that_cannot_be(given: dict[str, int]) -> None:
    with pytest.raises(PipelineError, match="and more, not 0"):
        Maintenance(**given)


def test_a_merge_keeps_all_rows_in_their_order(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    archive(table, 140, step=7)
    assert len(table.files) == 20
    assert compact(table, 2) == 20
    (merged,) = table.files
    assert (merged.rows, merged.least("position"), merged.largest("position")) == (140, 0, 139)
    assert rows(0, 140).equals(
        parquet.read_table(tmp_path / "t" / merged.path, partitioning=None).select(["position", "time", "event"])
    )
    assert_exact(tmp_path / "t", 140)
    assert len(table.vacuum(hours=0, orphans=True)) == 20
    assert_exact(tmp_path / "t", 140)
    assert len(list((tmp_path / "t").glob("batch-*"))) == 1


def test_merges_beside_a_running_archive(tmp_path: Path) -> None:
    """The archive commits on, two others merge: each row stays there once."""
    new_table(tmp_path / "t")
    done = threading.Event()

    def merging() -> None:
        table = opened(tmp_path / "t", writing=False)
        while not done.is_set():
            table.refresh()
            compact(table, 3)

    others = [threading.Thread(target=merging) for _ in range(2)]
    for one in others:
        one.start()
    try:
        archive(opened(tmp_path / "t"), 140, step=2)
    finally:
        done.set()
        for one in others:
            one.join()
    assert_exact(tmp_path / "t", 140)


def test_of_two_merges_of_one_file_the_second_is_dropped(tmp_path: Path) -> None:
    """delta-rs itself takes both: then each row would be there twice."""
    archive(new_table(tmp_path / "t"), 30)
    first, second = opened(tmp_path / "t"), opened(tmp_path / "t")
    assert merge(first, first.files) == 3
    assert merge(second, second.files) == 0
    assert_exact(tmp_path / "t", 30)


def test_of_a_merge_and_a_removal_the_second_is_dropped(tmp_path: Path) -> None:
    archive(new_table(tmp_path / "t"), 30)
    first, second = opened(tmp_path / "t"), opened(tmp_path / "t")
    assert replace(first, first.files[:1], [], data_change=True)
    assert merge(second, second.files) == 0
    assert positions(tmp_path / "t") == list(range(10, 30))


def test_days_that_are_over_are_removed(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    archive(table, 200, step=50)
    assert remove_days_before(table, date(2026, 1, 31)) == 0
    assert remove_days_before(table, date(2026, 2, 1)) == 3
    assert positions(tmp_path / "t") == list(range(144, 200))
    assert table.progress(POSITION) == 200
    archive(table, 220)
    assert positions(tmp_path / "t") == list(range(144, 220))


def test_a_writer_does_it_now_and_then(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    maintenance = Maintenance(after=3, retain_days=1)
    for start in range(0, 60, 10):
        append(table, batch(start or None, start + 10), writing(start, start + 10))
        maintenance.run(table)
    assert table.files == []  # of January
    with pytest.raises(AnotherWriter):
        append(table, batch(0, 10**6), None)
