"""The broker on a damaged folder: every file of it cut at every byte, and its bits flipped, one at a time.

Whatever the damage, the broker starts and has every message that was confirmed, or it refuses, or it says that some
are missing. It never fails in another way, and never delivers what nobody sent or, unless its own record of acks is
what was damaged, what was acked.
"""

import logging
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from mqks.broker import Broker
from mqks.journal import JournalError
from mqks.journal.format import Batches, parse_segment_line
from tests.sim.disk import FakeDisk, Inode
from tests.sim.plan import Warnings

STRIDE = 23  # of the bits, every so many are flipped: odd, so that all eight of a byte have their turn
FOLDERS = ("", "journal", "progress", "index", "aside")
OPTIONS: dict[str, Any] = {"segment_size": 1500, "checkpoint_bytes": 2600, "spill_after": 2, "tail_memory": 0}

RECV = b'c2 recv {"queue": "q2", "pattern": {"k": 1}, "delete_queue_when_unused": false}'
OK = [b"s1 ok ", b"c2 ok ", b"d1 ok "]

Files = dict[str, bytes]


class Life:
    """A broker on a disk, from its start to its end, with one client that reads all that it is told."""

    def __init__(self, files: Files, *, salvage: bool = False, **other: Any) -> None:
        self.disk = FakeDisk(random.Random(1))
        self.disk.works_by_itself = True
        for name, data in files.items():
            self.disk.entries[name] = self.disk.durable_entries[name] = Inode(bytearray(data), bytearray(data))
        ticks = count(1_700_000_000.0, 0.001)
        options: dict[str, Any] = {"seed": 1, "clock": lambda: 0.0, "wall": lambda: next(ticks), **OPTIONS}
        self.broker = Broker(disk=self.disk, **options | other)
        self.broker.recover(salvage=salvage)
        self.client = self.broker.connect("127.0.0.1:1")

    def say(self, *requests: bytes) -> list[bytes]:
        """All that is said until nothing more comes."""
        self.broker.feed(self.client, b"".join(request + b"\n" for request in requests))
        said = b""
        quiet = 0
        while quiet < 3:
            self.broker.turn()
            pending = self.client.pending()
            self.broker.sent(self.client, len(pending))
            self.broker.poll_disk()
            self.broker.tick()
            said += pending
            quiet = 0 if pending else quiet + 1
        return said.splitlines()

    def files(self) -> Files:
        found = ((f"{folder}/{name}", data) for folder in FOLDERS for name, data in self.disk.content(folder).items())
        return {name.removeprefix("/"): data for name, data in found}


@dataclass
class Story:
    """A folder, and what is true of it."""

    files: Files
    there: set[bytes] = field(default_factory=set)  # ids of messages that were confirmed and not acked
    acked: set[bytes] = field(default_factory=set)


def told(closed: bool) -> Story:
    """Two lives with two queues: segments, checkpoints, part of a queue in the index; killed or stopped in the end."""
    story = Story({})
    life = Life({})
    assert life.say(b"s1 subscribe --confirm q1 e1", RECV, b"d1 delete_consumer --confirm c2") == OK
    for first in (1, 61):
        for start in range(first, first + 60, 20):
            ids = [b"m%d" % number for number in range(start, start + 20)]
            requests = [b"%s publish --confirm e1 data of %s" % (id, id) for id in ids[1:]]
            assert life.say(b'%s send {"k": 1}' % ids[0], *requests) == [b"%s ok " % id for id in ids]
            story.there.update(ids)
        given = [line.split(b" ")[2] for line in life.say(b"c1 consume q1 --manual-ack --prefetch=4")]
        life.say(b"r1 reject c1 " + given[1])
        for id in (given[0], given[2]):
            assert b"a1 ok " in life.say(b"a1 ack --confirm c1 " + id)
            story.there.remove(id)
            story.acked.add(id)
        life.broker.disconnect(life.client)
        if closed:
            life.broker.close()
        story.files = life.files()
        life = Life(story.files)
    return story


@pytest.fixture(scope="module", params=["killed", "stopped"])
def story(request: pytest.FixtureRequest) -> Story:
    return told(closed=request.param == "stopped")


@pytest.fixture
def said() -> Iterator[Warnings]:
    logger = logging.getLogger("mqks")
    warnings = Warnings()
    logger.addHandler(warnings)
    logger.propagate = False
    yield warnings
    logger.propagate = True
    logger.removeHandler(warnings)


def delivered(files: Files, *, salvage: bool = False) -> list[tuple[bytes, bytes]]:
    """What comes out of the queues, as (id, data). JournalError: the broker does not start, or stops at the damage."""
    life = Life(files, salvage=salvage)
    lines = life.say(RECV, b"c1 consume q1")
    if life.broker.broken:
        raise JournalError(life.broker.broken)
    return [(line.split(b" ")[2], line.split(b" ", 4)[-1]) for line in lines if line != b"c2 ok "]


def outcome(story: Story, files: Files, said: Warnings, name: str) -> str:
    """What becomes of a folder in which this file was damaged."""
    said.said.clear()
    try:
        came = delivered(files)
    except JournalError:
        return "refused"
    ids = {id for id, _ in came}
    assert said.fault is None
    assert all(data in (b"data of " + id, b"1}") for id, data in came), "what nobody sent"
    assert ids <= story.there | story.acked, "what nobody sent"
    assert name.startswith("progress/") or not story.acked & ids, "an acked message came back"
    if story.there <= ids:
        return "whole"
    return "said" if said.said else "silent"


def test_without_damage_all_is_there_once_and_nothing_is_said(story: Story, said: Warnings) -> None:
    assert sorted(id for id, _ in delivered(story.files)) == sorted(story.there)
    assert said.said == []
    assert {name.partition("/")[0] for name in story.files} == {"journal", "progress", "index"}
    assert len(story.acked) == 4


def boundaries(name: str, data: bytes) -> set[int]:
    """Where in a segment a batch begins or ends."""
    line = parse_segment_line(data)
    assert line is not None
    start = int(name.removeprefix("journal/").removesuffix(".mqks"))
    batches = Batches(lambda size, offset: data[offset : offset + size], start, line.size, len(data))
    return {0, line.size, *(batches.offset for _ in batches)}


def test_cut_at_every_byte(story: Story, said: Warnings) -> None:
    """But for a cut of the last segment between two batches: that looks as if no more had been written."""
    last = max(name for name in story.files if name.startswith("journal/"))
    outcomes: Counter[str] = Counter()
    for name, data in story.files.items():
        for size in range(len(data)):
            found = outcome(story, story.files | {name: data[:size]}, said, name)
            if found == "silent":
                assert name == last and size in boundaries(name, data), (name, size)
            outcomes[found] += 1
    assert outcomes["refused"], "what a checkpoint counts on was missed"


def test_bits_flipped(story: Story, said: Warnings) -> None:
    outcomes: Counter[str] = Counter()
    for name, data in story.files.items():
        for at in range(0, 8 * len(data), STRIDE):
            flipped = bytearray(data)
            flipped[at // 8] ^= 1 << at % 8
            found = outcome(story, story.files | {name: bytes(flipped)}, said, name)
            assert found != "silent", (name, at)
            outcomes[found] += 1
    assert outcomes["whole"] and outcomes["refused"], "where nobody looks it does no harm, elsewhere it was found"


def test_a_segment_is_gone(story: Story, said: Warnings) -> None:
    """The broker refuses and advises; with --salvage it goes on without, and says what is lost."""
    lost: set[bytes] = set()
    for name in [name for name in story.files if name.startswith("journal/")]:
        files = {other: data for other, data in story.files.items() if other != name}
        with pytest.raises(JournalError, match=r"put the missing files? back, or start with --salvage"):
            delivered(files)
        said.said.clear()
        came = {id for id, _ in delivered(files, salvage=True)}
        assert came <= story.there
        assert any("lost" in text for text in said.said)
        lost |= story.there - came
    assert lost == story.there, "each message was in one of them"


@pytest.mark.parametrize("folder", ["progress/", "index/"])
def test_another_file_is_gone(story: Story, said: Warnings, folder: str) -> None:
    for name in [name for name in story.files if name.startswith(folder)]:
        files = {other: data for other, data in story.files.items() if other != name}
        assert outcome(story, files, said, name) in ("refused", "whole"), name


def test_queues_are_made_anew_without_progress_and_index(story: Story) -> None:
    """As the refusal of a damaged checkpoint advises: nothing is lost, and what was acked comes again."""
    [checkpoint] = [name for name in story.files if name.endswith(".checkpoint")]
    with pytest.raises(JournalError, match="remove the folders progress and index"):
        Life(story.files | {checkpoint: story.files[checkpoint][:-1]})
    left = {name: data for name, data in story.files.items() if name.startswith("journal/")}
    assert {id for id, _ in delivered(left)} == story.there | story.acked
