"""What a commit to a local lake needs beyond delta-rs, which never calls fsync: files, log entries and folders on disk.

A power loss may keep a log entry whose content was not on disk yet. Such an entry was never followed by a move of the
hold, so the journal still has its events: `repair` removes it before the table is opened for writing.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from itertools import count, takewhile
from pathlib import Path

from pyarrow import ArrowException, parquet

LOG = "_delta_log"
ENTRY = re.compile(r"(\d{20})\.json")
CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\..+)?\.parquet")
LAST_CHECKPOINT = "_last_checkpoint"


def sync(path: Path) -> None:
    """A file or a folder."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def sync_files(root: Path, paths: Iterable[str]) -> None:
    """These files, and the folders between them and the root, the root too."""
    folders = {root}
    for path in paths:
        file = root / path
        sync(file)
        folders.update(parent for parent in file.parents if root in parent.parents)
    for folder in sorted(folders, key=lambda one: -len(one.parts)):
        sync(folder)


def sync_log(root: Path, after: int | None) -> int:
    """All entries after this version, also those of other processes: a table needs all that came before its last one.
    None: all that there are. Answers the newest version."""
    log = root / LOG
    if after is None:
        versions = [int(match[1]) for match in map(ENTRY.fullmatch, names_in(log)) if match]
    else:
        versions = list(takewhile(lambda version: (log / entry(version)).exists(), count(after + 1)))
    for version in versions:
        with suppress(FileNotFoundError):  # it is old, and has been cleaned up
            sync(log / entry(version))
    sync(log)
    return max(versions, default=-1 if after is None else after)


def sync_new(root: Path) -> None:
    """The folders that a new table, perhaps in a new lake, has its names in."""
    for folder in (root, root.parent, root.parent.parent):
        sync(folder)


def entry(version: int) -> str:
    return f"{version:020d}.json"


def sync_checkpoint(root: Path) -> None:
    log = root / LOG
    for name in names_in(log):
        if CHECKPOINT.fullmatch(name) or name == LAST_CHECKPOINT:
            with suppress(FileNotFoundError):
                sync(log / name)
    sync(log)


def repair(root: Path) -> list[str]:
    """Removes what a power loss has left unfinished at the end of the log; answers its names."""
    log = root / LOG
    if not log.is_dir():
        return []
    names = names_in(log)
    broken = [name for name in names if CHECKPOINT.fullmatch(name) and not is_parquet(log / name)]
    pointer = log / LAST_CHECKPOINT
    if pointer.exists():
        version = version_of(pointer)
        if version is None or not any(
            name.startswith(f"{version:020d}.checkpoint") and name not in broken for name in names
        ):
            broken.append(LAST_CHECKPOINT)
    for name in reversed([name for name in names if ENTRY.fullmatch(name)]):
        if is_entry(log / name):
            break
        broken.append(name)
    for name in broken:
        (log / name).unlink()
    if broken:
        sync(log)
    return broken


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def version_of(pointer: Path) -> int | None:
    try:
        return int(json.loads(pointer.read_bytes())["version"])
    except (ValueError, KeyError, TypeError):
        return None


def is_entry(path: Path) -> bool:
    """Is each of its lines an action? One that was cut or is empty is not."""
    text = path.read_bytes()
    try:
        actions = [json.loads(line) for line in text.splitlines()]
    except ValueError:
        return False
    return bool(actions) and text.rstrip(b"\n").endswith(b"}") and all(isinstance(one, dict) for one in actions)


def is_parquet(path: Path) -> bool:
    try:
        parquet.read_metadata(path)
    except (ArrowException, OSError):
        return False
    return True
