"""A checkpoint is written in slices: how much of it is made at a time, and that it counts as memory meanwhile."""

import errno
import struct
import tracemalloc
from collections.abc import Iterator

import pytest

from mqks.broker import slices
from mqks.journal.journal import WRITING, WRITTEN
from mqks.journal.progress import PIECE, Checkpoint, Snapshots
from tests.broker.on_disk import OnDisk

QUEUES = 200
LARGE = 1 << 16  # bytes
MESSAGES = 100_000


def queues(count: int, *, definition: int = 10, snapshot: int = 32) -> Snapshots:
    names = [b"q%d" % number for number in range(count)]
    sizes = [snapshot + number % 2 for number in range(count)]
    return Snapshots(
        names, list(range(count)), [b"x" * definition] * count, bytes(sum(sizes)), struct.pack(f"{count}Q", *sizes)
    )


CHECKPOINTS = {
    "nothing": Checkpoint(1),
    "many queues": Checkpoint(1, queues=queues(100 * QUEUES)),
    "long queues": Checkpoint(1, queues=queues(QUEUES, snapshot=LARGE)),
    "long definitions": Checkpoint(1, queues=queues(QUEUES, definition=LARGE)),
    "many extents": Checkpoint(1, extents=bytes(100 * LARGE)),
    "many ids": Checkpoint(1, seen=bytes(100 * LARGE)),
}


@pytest.mark.parametrize("made", CHECKPOINTS.values(), ids=CHECKPOINTS)
def test_a_piece_is_short_and_little_is_copied_for_it(made: Checkpoint) -> None:
    pieces, most = [], 0
    tracemalloc.start()
    try:
        left = made.pieces()
        while True:
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            piece = next(left, None)
            most = max(most, tracemalloc.get_traced_memory()[1] - before)
            if piece is None:
                break
            pieces.append(piece)
    finally:
        tracemalloc.stop()
    assert max(map(len, pieces)) <= PIECE
    assert most <= 16 * PIECE, "about 1,000 bytes of Python's own for a queue, and some copies of one definition"
    assert Checkpoint.unpack(1, b"".join(pieces)) == made


@pytest.fixture
def _short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "QUOTA", 1000)


@pytest.fixture
def on_disk(_short_turns: None) -> Iterator[OnDisk]:
    """A broker with one long queue."""
    on_disk = OnDisk(spill_after=2 * MESSAGES)
    client = on_disk.connect()
    on_disk.say(client, b"r1 rebind q1 e1", *[b"m publish e1 d"] * MESSAGES)
    on_disk.work()
    yield on_disk


def checkpoint(on_disk: OnDisk) -> int:
    """Begin one. Answers what was charged before."""
    assert on_disk.broker.persistence.journal
    before = on_disk.broker.core.account.used
    on_disk.broker.persistence.journal.checkpoint()
    assert len(on_disk.broker.slices)
    return before


def test_a_turn_writes_so_much_of_it(on_disk: OnDisk) -> None:
    checkpoint(on_disk)
    taken = []
    while len(on_disk.broker.slices):
        before = on_disk.broker.slices.done
        on_disk.broker.turn()
        taken.append(on_disk.broker.slices.done - before)
    assert max(taken) <= slices.QUOTA + WRITING + PIECE // WRITTEN
    assert len(taken) >= 8 * MESSAGES // WRITTEN // max(taken)
    on_disk.work()
    on_disk.crash(power_loss=True)
    assert on_disk.queue().ready_count == MESSAGES


def test_it_counts_as_memory_until_it_is_written(on_disk: OnDisk) -> None:
    before = checkpoint(on_disk)
    while len(on_disk.broker.slices):
        assert on_disk.broker.core.account.used >= before + 8 * MESSAGES
        on_disk.broker.turn()
    assert on_disk.broker.core.account.used <= before


def test_one_that_finds_no_room_counts_no_more(on_disk: OnDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    before = checkpoint(on_disk)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "on purpose")

    monkeypatch.setattr(on_disk.disk, "write", fail)
    on_disk.broker.turn()
    assert not len(on_disk.broker.slices) and on_disk.broker.broken is None
    assert on_disk.broker.core.account.used <= before
