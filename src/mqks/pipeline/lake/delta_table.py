"""One Delta table through delta-rs: its files, its progress, and commits on top of the snapshot that was looked at.

delta-rs alone is not enough to be exact: of two commits that remove one file from one snapshot it takes both when it
may retry, and it never syncs. So a commit here is tried once, on top of this very snapshot; who comes second gets
`Outrun`, refreshes, checks again and tries again. On a local lake all that a commit needs is synced before it returns.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake import Field as DeltaField
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, PostCommitHookProperties, RemoveAction, create_table_with_add_actions
from pyarrow import fs, parquet

from mqks import __version__
from mqks.pipeline.errors import PipelineError
from mqks.pipeline.lake import durable, statistics
from mqks.pipeline.lake.location import Location
from mqks.pipeline.lake.schema import DATE, Field, fields_in, schema_of

LOG_HOURS = 2  # log entries are kept: thousands of them make each commit slower
CHECKPOINT_EVERY = 100  # versions
KEEP_HOURS = 24  # files that a commit has replaced stay for readers
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)  # they would not be synced
STAGING = "batch-"
ATTEMPT = re.compile(rf"{STAGING}(\d{{13}})-\w+")


class Outrun(Exception):
    """Someone else has committed since the snapshot was taken: nothing of this commit is in the table."""


@dataclass(frozen=True)
class File:
    """One that the table has, or is to have."""

    path: str  # below the table's folder
    size: int
    date: str
    stats: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)

    @property
    def rows(self) -> int:
        return int(self.stats.get("numRecords") or 0)

    def least(self, column: str) -> Any:
        return self.stats.get("minValues", {}).get(column)

    def largest(self, column: str) -> Any:
        return self.stats.get("maxValues", {}).get(column)


class Table:
    """The snapshot that was taken last."""

    def __init__(self, location: Location, delta: DeltaTable) -> None:
        self.location = location
        self._delta = delta
        self._synced: int | None = None  # up to there the log is on disk; when it is opened, nobody knows

    # ── snapshots ──

    @classmethod
    def open(cls, location: Location, *, at: str | None = None, writing: bool = False) -> Table | None:
        """None where there is no table. `at`: as it was at this time, in ISO form. `writing` repairs it first."""
        if writing and location.local is not None:
            durable.repair(location.local)
        try:
            delta = DeltaTable(location.delta)
        except TableNotFoundError:
            return None
        if at is not None:
            delta.load_as_version(at)
        return cls(location, delta)

    @classmethod
    def create(
        cls,
        location: Location,
        fields: Sequence[Field],
        job: str,
        *,
        files: Iterable[File] = (),
        progress: Mapping[str, int] | None = None,
    ) -> Table:
        """With these files, and progress, in one commit. Outrun: someone else has made it meanwhile."""
        local = location.local
        if local is not None:
            local.mkdir(parents=True, exist_ok=True)
        try:
            create_table_with_add_actions(
                location.delta,
                schema_of(fields),
                [_add(one, data_change=True) for one in files],
                "error",
                [DATE],
                name=location.url.rstrip("/").rpartition("/")[2],
                description=f"written by mqks: {job}",
                configuration={
                    "delta.logRetentionDuration": f"interval {LOG_HOURS} hours",
                    "delta.deletedFileRetentionDuration": f"interval {KEEP_HOURS} hours",
                },
                commit_properties=_properties(progress or {}, {}),
                post_commithook_properties=NO_HOOKS,
            )
        except Exception:
            if DeltaTable.is_deltatable(location.delta):
                raise Outrun from None
            raise
        table = cls(location, DeltaTable(location.delta))
        if local is not None:
            table._synced = durable.sync_log(local, None)
            durable.sync_new(local)
        return table

    def refresh(self) -> None:
        self._delta.update_incremental()
        self.__dict__.pop("files", None)

    @property
    def version(self) -> int:
        return self._delta.version()

    @property
    def fields(self) -> list[Field]:
        return fields_in(self._delta.schema())

    @property
    def job(self) -> str:
        """Whose table it is."""
        return str(self._delta.metadata().description or "").removeprefix("written by mqks: ")

    def progress(self, key: str) -> int | None:
        """How far the writer with this key is; None if it has written nothing."""
        return self._delta.transaction_version(key)

    @cached_property
    def files(self) -> list[File]:
        """In order of their dates, and of what they begin with."""
        rows = pa.table(self._delta.get_add_actions(flatten=True)).to_pylist()
        found = [_file(row) for row in rows]
        return sorted(found, key=lambda one: (one.date, one.least("position") or 0, one.path))

    # ── files ──

    def attempt(self) -> str:
        """A folder below the table that nobody else writes to."""
        return f"{STAGING}{now_ms():013d}-{secrets.token_hex(8)}"

    @property
    def filesystem(self) -> fs.FileSystem:
        """The table's folder is its root."""
        local = self.location.local
        if local is not None:
            return fs.SubTreeFileSystem(str(local), fs.LocalFileSystem())
        return fs.PyFileSystem(DeltaStorageHandler.from_table(self._delta._table))

    def found(self, folder: str) -> list[File]:
        """What was written below this folder, with statistics; synced, if the lake is a local one."""
        system = self.filesystem
        listed = system.get_file_info(fs.FileSelector(folder, allow_not_found=True, recursive=True))
        paths = {one.path.lstrip("/"): one.size for one in listed if one.is_file and is_data(one.path)}
        files = [described(system, path, size) for path, size in sorted(paths.items())]
        if self.location.local is not None:
            durable.sync_files(self.location.local, paths)
        return [one for one in files if one.rows]

    # ── commits ──

    def commit(
        self,
        added: Iterable[File] = (),
        removed: Iterable[File] = (),
        *,
        progress: Mapping[str, int] | None = None,
        lineage: Mapping[str, object] | None = None,
        data_change: bool = True,
    ) -> None:
        """One commit on top of this snapshot. `data_change`: False where the rows stay the same."""
        now = now_ms()
        actions: list[AddAction | RemoveAction] = [_add(one, data_change=data_change) for one in added]
        actions += [RemoveAction(one.path, data_change, now, one.size, {DATE: one.date}) for one in removed]
        checked = self.version
        try:
            self._delta.create_write_transaction(
                actions,
                "append",
                self._delta.schema(),
                [DATE],
                commit_properties=_properties(progress or {}, lineage or {}),
                post_commithook_properties=NO_HOOKS,
            )
        except CommitFailedError:
            self.refresh()
            if self.version > checked:
                raise Outrun from None
            raise
        self._sync_log()
        self.refresh()
        if self.version // CHECKPOINT_EVERY > checked // CHECKPOINT_EVERY:
            self.tidy_log()

    def add_columns(self, fields: Sequence[Field]) -> None:
        """Null in the rows that are there."""
        self._delta.alter.add_columns(
            [DeltaField.from_json(json.dumps(one)) for one in fields],
            post_commithook_properties=NO_HOOKS,
        )
        self._sync_log()
        self.refresh()

    def tidy_log(self) -> None:
        """A checkpoint, and entries that are old and before it go: only when the checkpoint is on disk."""
        self._delta.create_checkpoint()
        if self.location.local is not None:
            durable.sync_checkpoint(self.location.local)
        self._delta.cleanup_metadata()

    def vacuum(self, *, hours: int, orphans: bool) -> list[str]:
        """Removes files that the table has had no more for so long; `orphans`: also those that it never had."""
        gone: list[str] = self._delta.vacuum(
            hours,
            dry_run=False,
            enforce_retention_duration=False,
            full=orphans,
            post_commithook_properties=NO_HOOKS,
        )
        self.refresh()
        if self.location.local is not None:
            remove_empty(self.location.local, before=now_ms() - hours * 3_600_000)
        return gone

    def _sync_log(self) -> None:
        local = self.location.local
        if local is not None:
            self._synced = durable.sync_log(local, self._synced)


def described(system: fs.FileSystem, path: str, size: int) -> File:
    """A file by its own footer, and by the day in its path."""
    metadata = parquet.read_metadata(path, filesystem=system)
    return File(path, size, date_of(path), statistics.of_file(metadata))


def date_of(path: str) -> str:
    for part in path.split("/"):
        if part.startswith(f"{DATE}="):
            return part.partition("=")[2]
    raise PipelineError(f"{path} is in no folder {DATE}=…, so it is no file of a table")


def is_data(path: str) -> bool:
    """Not what Spark has left of tasks that it tried again."""
    parts = path.strip("/").split("/")
    return path.endswith(".parquet") and not any(part.startswith(("_", ".")) for part in parts)


def remove_empty(root: Path, *, before: int) -> None:
    """Folders of attempts older than that (ms since 1970), and of 0.1.0, of which no file is left."""
    for top in root.iterdir():
        attempt = ATTEMPT.fullmatch(top.name)
        if top.name.startswith(f"{DATE}=") or (attempt and int(attempt[1]) <= before):
            for folder in sorted([top, *filter(Path.is_dir, top.rglob("*"))], key=lambda one: -len(one.parts)):
                with suppress(OSError):  # it has files
                    folder.rmdir()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _add(file: File, *, data_change: bool) -> AddAction:
    stats = json.dumps(dict(file.stats), ensure_ascii=False)
    return AddAction(file.path, file.size, {DATE: file.date}, now_ms(), data_change, stats)


def _properties(progress: Mapping[str, int], lineage: Mapping[str, object]) -> CommitProperties:
    told = {"mqks.version": __version__, **{f"mqks.{name}": value for name, value in lineage.items()}}
    transactions = [Transaction(key, value) for key, value in progress.items()]
    return CommitProperties(custom_metadata=told, max_commit_retries=0, app_transactions=transactions)


def _file(row: Mapping[str, Any]) -> File:
    stats: dict[str, Any] = {"numRecords": row.get("num_records"), "minValues": {}, "maxValues": {}, "nullCount": {}}
    kinds = {"min": "minValues", "max": "maxValues", "null_count": "nullCount"}
    for name, value in row.items():
        kind, _, column = name.partition(".")
        if column and kind in kinds and value is not None:
            stats[kinds[kind]][column] = value
    date = row[f"partition.{DATE}"]
    return File(row["path"], row["size_bytes"], "" if date is None else str(date), stats)
