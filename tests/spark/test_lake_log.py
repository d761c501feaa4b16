"""The log of a table over many commits: entries go, and a commit costs what it cost."""

import os
import time
from pathlib import Path

import pytest

from mqks.pipeline.lake import delta_table, durable
from mqks.pipeline.lake.commit import POSITION, append
from tests.spark.tables import archive, assert_exact, batch, new_table, opened

HOUR = 3600.0


def entries(folder: Path) -> list[Path]:
    return sorted((folder / "_delta_log").glob("*.json"))


def test_old_entries_go_when_a_checkpoint_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_table, "CHECKPOINT_EVERY", 10)
    folder = tmp_path / "t"
    table = new_table(folder)
    archive(table, 190)
    assert len(entries(folder)) == 20
    before = time.time() - (delta_table.LOG_HOURS + 1) * HOUR
    for entry in [*entries(folder), *(folder / "_delta_log").glob("*.parquet")]:
        os.utime(entry, (before, before))
    archive(table, 200)
    assert table.version == 20
    assert len(entries(folder)) < 20
    archive(opened(folder), 220)
    assert_exact(folder, 220)
    assert opened(folder).progress(POSITION) == 220


def test_a_checkpoint_that_power_loss_has_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_table, "CHECKPOINT_EVERY", 10)
    folder = tmp_path / "t"
    archive(new_table(folder), 150)
    (checkpoint,) = (folder / "_delta_log").glob("*.checkpoint*.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:50])
    assert set(durable.repair(folder)) == {checkpoint.name, "_last_checkpoint"}
    assert opened(folder).progress(POSITION) == 150
    assert_exact(folder, 150)


def test_each_commit_lists_a_bounded_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the clock of the files moved on as commits come, as many entries stay as there are within the hours."""
    monkeypatch.setattr(delta_table, "CHECKPOINT_EVERY", 20)
    folder = tmp_path / "t"
    table = new_table(folder)
    most = 0
    os.utime(entries(folder)[0], (0, 0))
    for number in range(1, 401):
        append(table, batch(number - 1 or None, number), None)
        at = time.time() - delta_table.LOG_HOURS * HOUR + (number - 400) * 60  # all but the newest are old
        for path in (folder / "_delta_log").glob(f"{table.version:020d}.*"):
            os.utime(path, (at, at))
        most = max(most, len(entries(folder)))
    assert most <= 45
    assert opened(folder).progress(POSITION) == 400
