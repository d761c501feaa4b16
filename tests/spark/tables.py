"""Tables of a lake written without Spark: rows by pyarrow, commits by the code under test."""

import shutil
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from mqks.pipeline.lake import durable
from mqks.pipeline.lake.commit import POSITION, Batch, append
from mqks.pipeline.lake.delta_table import Table
from mqks.pipeline.lake.location import Location
from mqks.pipeline.lake.schema import fields_of

COLUMNS = {"position": "long", "time": "timestamp", "event": "string", "key": "string", "date": "date"}
DAY = date(2026, 1, 31)
ROW = timedelta(minutes=10)  # between two rows


def new_table(folder: Path | str) -> Table:
    return Table.create(Location(str(folder)), fields_of(COLUMNS), "archive")


def opened(folder: Path | str, *, writing: bool = True) -> Table:
    table = Table.open(Location(str(folder)), writing=writing)
    assert table is not None
    return table


def time_of(position: int) -> datetime:
    return datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC) + position * ROW


def rows(start: int, end: int) -> pa.Table:
    return pa.table(
        {
            "position": pa.array(range(start, end), pa.int64()),
            "time": pa.array(map(time_of, range(start, end)), pa.timestamp("us", "UTC")),
            "event": pa.array([f"e{position % 3}" for position in range(start, end)], pa.string()),
        }
    )


def writing(start: int, end: int) -> Callable[[str], None]:
    """As Spark would write these positions: a file for each day."""

    def write(folder: str) -> None:
        for day in sorted({time_of(position).date() for position in range(start, end)}):
            of_day = [position for position in range(start, end) if time_of(position).date() == day]
            path = Path(folder, f"date={day}", "part-0.parquet")
            path.parent.mkdir(parents=True)
            parquet.write_table(rows(of_day[0], of_day[-1] + 1), path)

    return write


def batch(start: int | None, end: int) -> Batch:
    return Batch(POSITION, end, start)


def archive(table: Table, upto: int, step: int = 10) -> int:
    """Goes on from where the table is; answers how many batches it wrote."""
    table.refresh()
    count = 0
    while (at := table.progress(POSITION)) is None or at < upto:
        end = min((at or 0) + step, upto)
        count += append(table, batch(at, end), writing(at or 0, end))
    return count


def positions(folder: Path | str) -> list[int]:
    """As any reader sees them."""
    table = opened(folder, writing=False)
    found = [parquet.read_table(Path(folder, one.path), columns=["position"]) for one in table.files]
    return sorted(position for one in found for position in one["position"].to_pylist())


def assert_exact(folder: Path, upto: int) -> None:
    assert not [wrong for wrong, count in Counter(positions(folder)).items() if count > 1], "there twice"
    assert positions(folder) == list(range(upto))


class Recording:
    """What is on disk for sure: each file and folder as it was when it was last synced."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: dict[Path, bytes] = {}
        self.names: dict[Path, set[str]] = {}
        self._sync = durable.sync

    def sync(self, path: Path) -> None:
        if path.is_dir():
            self.names[path] = {one.name for one in path.iterdir()}
        else:
            self.files[path] = path.read_bytes()
        self._sync(path)

    def lose_power(self, image: Path, choose: Callable[[str], str]) -> None:
        """Makes the folder as it may be after a power loss: of what was not synced `choose` says whether it is kept,
        gone, empty or half."""
        shutil.rmtree(image, ignore_errors=True)
        self._copy(self.root, image, choose)

    def _copy(self, folder: Path, to: Path, choose: Callable[[str], str]) -> None:
        to.mkdir()
        for path in sorted(folder.iterdir()):
            if path.name not in self.names.get(folder, set()) and choose("name") == "gone":
                continue
            if path.is_dir():
                self._copy(path, to / path.name, choose)
                continue
            content = path.read_bytes()
            if self.files.get(path) != content:
                kept = choose("content")
                content = {"empty": b"", "half": content[: len(content) // 2]}.get(kept, content)
            (to / path.name).write_bytes(content)
        for name in self.names.get(folder, set()):
            if not (folder / name).exists() and choose("removal") == "kept" and (folder / name) in self.files:
                (to / name).write_bytes(self.files[folder / name])  # the removal was not synced
