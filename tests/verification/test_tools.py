"""A short run of each tool of `make verify`, and what they rely on: the log of calls and the disk that loses power."""

import random
import shutil
import struct
from pathlib import Path
from types import SimpleNamespace

import pytest

from verification import oplog
from verification.__main__ import TOOLS
from verification.disk_model import Change, Disk, File
from verification.facts import Facts
from verification.hostile import Hostile, case_seeds
from verification.loads import KINDS
from verification.oplog import Kind, Op
from verification.process import build_preload
from verification.stage import Stage

COUNTS = {"history": 6, "power": 8, "damage": 4}
SEED = 1  # `make verify` looks at new ones
HOSTILE = ("messages in memory", "queues", "consumers")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_preload(tmp_path_factory.mktemp("preload"))


@pytest.mark.parametrize("name", COUNTS)
def test_a_short_run_finds_no_violation(name: str, library: Path, tmp_path: Path) -> None:
    tool = TOOLS[name](tmp_path, library, SEED)
    tool.run(COUNTS[name])
    assert tool.failures == []
    assert tool.count == COUNTS[name]
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_load_finds_no_violation(kind: str, library: Path, tmp_path: Path) -> None:
    tool = Hostile(tmp_path, library, SEED * len(KINDS) + list(KINDS).index(kind))
    tool.run(1)
    assert tool.failures == []


def test_the_seed_of_a_case_is_a_run_of_that_case_and_each_kind_has_its_turn() -> None:
    seeds = list(case_seeds(1234, len(KINDS)))
    assert sorted(seed % len(KINDS) for seed in seeds) == list(range(len(KINDS)))
    assert [next(case_seeds(seed, 1)) for seed in seeds] == seeds


def stage(log: list[str], error_id: str) -> Stage:
    """One whose broker has refused something, and has this log."""
    known = Stage.__new__(Stage)
    known.broker = SimpleNamespace(wait_for=lambda text: next((line for line in log if text in line), ""))  # type: ignore[assignment]
    known.error_ids = {error_id}
    return known


def test_a_refusal_without_a_documented_reason_in_the_log_is_a_violation() -> None:
    error_id = "20261118041139226583I0tQ"
    good = [f"warning error {error_id} reason='out of memory: --max-memory is reached'"]
    assert stage(good, error_id).unclear_refusals(("--max-memory is reached",)) == []
    assert stage(good, error_id).unclear_refusals(("--max-queues is reached",))
    assert stage([], error_id).unclear_refusals(("--max-memory is reached",))
    assert stage(good, "").unclear_refusals(("--max-memory is reached",))


def written(data: bytes, fd: int = 7, offset: int = 0) -> Op:
    return Op(Kind.WRITE, fd, offset, data, b"")


def opened(name: str, fd: int = 7) -> Op:
    return Op(Kind.OPEN, fd, 1, name.encode(), b"")


def call(kind: Kind, fd: int = 7) -> Op:
    return Op(kind, fd, 0, b"", b"")


def after(calls: list[Op], tmp_path: Path, *, data: str, names: str) -> dict[str, bytes]:
    """The files after a power loss at the end of these calls."""
    start, image = tmp_path / "start", tmp_path / "image"
    start.mkdir()
    image.mkdir()
    disk = Disk(start)
    for one in calls:
        disk.apply(one)
    disk.image(image, data, names, 512, random.Random(1))
    return {path.name: path.read_bytes() for path in image.iterdir()}


def test_a_synced_file_is_kept_and_what_was_written_during_the_sync_may_go(tmp_path: Path) -> None:
    calls = [
        opened("a"),
        Op(Kind.OPEN, 8, 2, b"", b""),
        call(Kind.SYNC_BEGIN, 8),
        call(Kind.SYNC_END, 8),
        written(b"one"),
        call(Kind.SYNC_BEGIN),
        written(b"two", offset=3),
        call(Kind.SYNC_END),
    ]
    assert after(calls, tmp_path, data="none", names="none") == {"a": b"one"}


def test_two_syncs_of_one_file_may_overlap(tmp_path: Path) -> None:
    begin, end = call(Kind.SYNC_BEGIN), call(Kind.SYNC_END)
    folder = [Op(Kind.OPEN, 8, 2, b"", b""), call(Kind.SYNC_BEGIN, 8), call(Kind.SYNC_END, 8)]
    calls = [opened("a"), *folder, written(b"one"), begin, written(b"two", offset=3), begin, end, end]
    assert after(calls, tmp_path, data="none", names="none") == {"a": b"onetwo"}


def test_a_file_whose_name_was_not_synced_may_go(tmp_path: Path) -> None:
    calls = [opened("a"), written(b"one"), call(Kind.SYNC_BEGIN), call(Kind.SYNC_END)]
    assert after(calls, tmp_path, data="all", names="none") == {}


def test_a_rename_that_was_not_synced_may_go(tmp_path: Path) -> None:
    calls = [
        opened("new"),
        Op(Kind.OPEN, 8, 2, b"", b""),
        written(b"one"),
        call(Kind.SYNC_BEGIN),
        call(Kind.SYNC_END),
        call(Kind.SYNC_BEGIN, 8),
        call(Kind.SYNC_END, 8),
        Op(Kind.RENAME, -1, 0, b"new", b"old"),
    ]
    assert after(calls, tmp_path, data="all", names="none") == {"new": b"one"}


def test_a_torn_write_has_whole_blocks_or_none() -> None:
    for seed in range(50):
        file = File()
        file.pending.append(Change(1, 100, b"x" * 2000))
        content = file.after_loss("subset", 512, random.Random(seed))
        blocks = [content[at : at + 512].replace(b"\0", b"") for at in range(0, len(content), 512)]
        assert all(len(block) in (0, 412, 512, 52) for block in blocks), seed


def test_a_log_that_a_killed_process_left_is_read_up_to_its_last_whole_record() -> None:
    record = struct.pack("<IiqII", Kind.SEND, 5, 0, 3, 0) + b"abc"
    assert [op.first for op in oplog.parse(record + record[:-1])] == [b"abc"]


def facts(*lines: tuple[Kind, bytes]) -> Facts:
    known = Facts()
    for kind, line in lines:
        known.apply(Op(kind, 5, 0, line + b"\n", b""))
    return known


def test_an_error_and_a_delivery_of_one_message_are_a_violation() -> None:
    known = facts(
        (Kind.RECV, b"m1 publish --confirm job x"),
        (Kind.SEND, b"m1 error 2026"),
        (Kind.SEND, b"work/auto/1 ok m1 event=job x"),
    )
    assert "answered with an error" in known.problems[0]


def test_a_delivery_after_a_confirmed_ack_is_a_violation() -> None:
    known = facts(
        (Kind.RECV, b"m1 publish --confirm job x"),
        (Kind.SEND, b"work/manual/1 ok m1 event=job x"),
        (Kind.RECV, b"a1 ack --confirm work/manual/1 m1"),
        (Kind.SEND, b"a1 ok "),
        (Kind.SEND, b"work/manual/2 ok m1 event=job,retry=1 x"),
    )
    assert "after its ack was confirmed" in known.problems[0]


def test_two_messages_of_one_publisher_in_the_wrong_order_are_a_violation() -> None:
    known = facts(
        (Kind.RECV, b"m1 publish job x"),
        (Kind.RECV, b"m2 publish job x"),
        (Kind.SEND, b"work/auto/1 ok m2 event=job x"),
        (Kind.SEND, b"work/auto/1 ok m1 event=job x"),
    )
    assert "out of order" in known.problems[0]
