"""The commit protocol without Spark: replays, races, crashes at each step, and power loss."""

import random
import threading
from pathlib import Path
from typing import Any

import pytest

from mqks.pipeline.lake import durable
from mqks.pipeline.lake.commit import POSITION, AnotherWriter, Batch, append
from mqks.pipeline.lake.delta_table import Outrun, Table
from mqks.pipeline.lake.location import Location
from tests.spark import tables
from tests.spark.tables import Recording, archive, assert_exact, batch, new_table, opened, positions, writing


def test_a_batch_is_in_the_table_once(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    assert table.progress(POSITION) is None
    assert append(table, batch(None, 10), writing(0, 10))
    assert append(table, batch(10, 20), writing(10, 20))
    assert not append(table, batch(10, 20), writing(10, 20))
    assert not append(opened(tmp_path / "t"), batch(None, 10), writing(0, 10))
    assert append(table, batch(20, 25), None)  # nothing in it but what the pipeline says itself
    assert table.progress(POSITION) == 25
    assert_exact(tmp_path / "t", 20)


@pytest.mark.parametrize(("start", "end"), [(None, 30), (0, 30), (15, 30), (25, 30)])
def test_a_batch_that_does_not_follow(tmp_path: Path, start: int | None, end: int) -> None:
    table = new_table(tmp_path / "t")
    archive(table, 20)
    with pytest.raises(AnotherWriter, match=r"ends at 20, and this batch begins at .*: another archive is writing"):
        append(table, batch(start, end), writing(start or 0, end))
    assert_exact(tmp_path / "t", 20)


def test_a_table_that_is_gone_is_not_begun_in_the_middle(tmp_path: Path) -> None:
    with pytest.raises(AnotherWriter, match="ends at nothing, and this batch begins at 20"):
        append(new_table(tmp_path / "t"), batch(20, 30), writing(20, 30))


def test_batches_of_a_query_need_not_follow_each_other(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    for number in (0, 3, 3, 1, 4):
        append(table, Batch("mqks.query.q", number, follows=False), writing(number, number + 1))
    assert positions(tmp_path / "t") == [0, 3, 4]


def test_lineage_is_in_the_commit(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    append(table, Batch(POSITION, 10, lineage={"query": "q7", "start": 0, "end": 10}), writing(0, 10))
    entry = (tmp_path / "t" / "_delta_log" / f"{1:020d}.json").read_text()
    assert '"mqks.query":"q7"' in entry
    assert '"mqks.end":10' in entry


def test_of_two_archives_each_batch_is_written_by_one(tmp_path: Path) -> None:
    new_table(tmp_path / "t")
    failures: list[AnotherWriter] = []

    def run() -> None:
        table = opened(tmp_path / "t")
        while True:
            try:
                archive(table, 300)
                return
            except AnotherWriter as failure:
                failures.append(failure)  # it is started again, and takes over in turn

    both = [threading.Thread(target=run) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert_exact(tmp_path / "t", 300)
    print(f"{len(failures)} times one of them found the other")


def test_who_comes_second_commits_nothing(tmp_path: Path) -> None:
    """Both have checked the same snapshot, and both have written."""
    first, second = new_table(tmp_path / "t"), opened(tmp_path / "t")
    append(first, batch(None, 10), writing(0, 10))

    def write(folder: str) -> None:
        writing(10, 20)(folder)
        append(first, batch(10, 20), writing(10, 20))

    with pytest.raises(AnotherWriter, match="has written this batch meanwhile"):
        append(second, batch(10, 20), write)
    assert_exact(tmp_path / "t", 20)


def test_a_commit_that_changes_no_row_does_not_stop_the_archive(tmp_path: Path) -> None:
    first, second = new_table(tmp_path / "t"), opened(tmp_path / "t")
    archive(first, 20)
    second.refresh()
    first.refresh()
    first.commit(lineage={"other": 1})
    assert append(second, batch(20, 30), writing(20, 30))
    with pytest.raises(Outrun):
        first.commit(lineage={"other": 2})
    assert_exact(tmp_path / "t", 30)


def test_two_make_the_table_at_once(tmp_path: Path) -> None:
    new_table(tmp_path / "t")
    with pytest.raises(Outrun):
        new_table(tmp_path / "t")


class Crash(Exception):
    pass


STEPS = {  # what is wrapped from outside → is it in the table by then?
    (Table, "attempt"): False,
    (Table, "found"): False,
    (durable, "sync_files"): False,
    (Table, "commit"): False,
    (durable, "sync_log"): True,
}


@pytest.mark.parametrize(("owner", "name"), STEPS)
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_each_step(tmp_path: Path, owner: Any, name: str, after: bool) -> None:
    folder = tmp_path / "t"
    archive(new_table(folder), 20)
    real = getattr(owner, name)

    def crash(*given: Any, **more: Any) -> None:
        if after:
            real(*given, **more)
        raise Crash

    table = opened(folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, name, crash)
        with pytest.raises(Crash):
            append(table, batch(20, 30), writing(20, 30))
    there = STEPS[owner, name] or (after and name == "commit")
    assert_exact(folder, 30 if there else 20)
    assert append(opened(folder), batch(20, 30), writing(20, 30)) is not there  # as Spark does it again
    archive(opened(folder), 40)
    assert_exact(folder, 40)


# ── power loss ──


@pytest.mark.parametrize("seed", range(40))
def test_power_loss_loses_nothing_that_the_hold_has_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """At a moment by chance, all that was not synced is kept, gone, empty or half: the hold's position is in the table,
    each row once, and the archive goes on."""
    chance = random.Random(seed)
    root = tmp_path / "lake"
    root.mkdir()
    recording = Recording(root)
    monkeypatch.setattr(durable, "sync", recording.sync)
    monkeypatch.setattr("mqks.pipeline.lake.delta_table.CHECKPOINT_EVERY", chance.choice([2, 3, 100]))
    recording.names[root] = set()
    hold = 0  # the journal has all from here on
    left = chance.randrange(60)

    class Off(Exception):
        pass

    def tick(real: Any) -> Any:
        def call(*given: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Off
            return real(*given, **more)

        return call

    monkeypatch.setattr(durable, "sync", tick(recording.sync))
    monkeypatch.setattr(Table, "found", tick(Table.found))
    try:
        table = new_table(root / "t")
        while True:
            archive(table, hold + 10)
            hold += 10
    except Off:
        pass
    monkeypatch.undo()
    image = tmp_path / "image"
    recording.lose_power(image, lambda _: chance.choice(["kept", "gone", "empty", "half"]))
    found = Table.open(Location(str(image / "t")), writing=True)
    reached = 0 if found is None else found.progress(POSITION) or 0
    assert reached >= hold, f"the hold is at {hold}, the table at {reached}"
    if found is None:
        found = new_table(image / "t")
    assert_exact(image / "t", reached)
    archive(found, reached + 20)
    assert_exact(image / "t", reached + 20)


def test_a_log_entry_that_power_loss_has_cut_is_removed(tmp_path: Path) -> None:
    archive(new_table(tmp_path / "t"), 30)
    log = tmp_path / "t" / "_delta_log"
    newest = max(log.glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:100])
    assert durable.repair(tmp_path / "t") == [newest.name]
    assert durable.repair(tmp_path / "t") == []
    assert opened(tmp_path / "t").progress(POSITION) == 20


def test_a_full_disk_fails_the_batch_and_no_more(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    archive(table, 10)

    def write(folder: str) -> None:
        writing(10, 15)(folder)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        append(table, batch(10, 20), write)
    archive(table, 30)
    assert_exact(tmp_path / "t", 30)


def test_days_are_partitions(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    append(table, batch(None, 200), writing(0, 200))
    assert [(one.date, one.rows, one.least("position")) for one in table.files] == [
        ("2026-01-31", 144, 0),
        ("2026-02-01", 56, 144),
    ]
    assert table.files[1].least("time") == tables.time_of(144)
    assert table.files[1].largest("event") == "e2"
