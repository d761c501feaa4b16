"""The files of progress, missing or emptied: a confirmed ack comes back only with a warning, after a refusal.

And what a crash leaves, at any moment of starts and checkpoints, is never refused for it.
"""

import json
import random
import struct
from collections.abc import Callable

import pytest

from mqks.core.crc import crc32
from mqks.journal import JournalError
from mqks.journal.progress import HEAD_SIZE
from tests.broker.on_disk import OnDisk
from tests.journal.test_broker_damage import said
from tests.sim.disk import FakeDisk, Killed
from tests.sim.plan import Warnings

__all__ = ["said"]  # a fixture

ACKED = b"m0"


def acked() -> OnDisk:
    """The ack of one of two messages is confirmed, and in the newest log only; the broker was killed."""
    on_disk = OnDisk()
    client = on_disk.connect()
    on_disk.say(client, b"r1 rebind q1 e1", b"m0 publish e1 d0", b"m1 publish e1 d1")
    on_disk.wait(61)
    on_disk.say(client, b"c1 consume q1 --manual-ack --prefetch=1")
    on_disk.say(client, b"a1 ack --confirm c1 " + ACKED)
    on_disk.work()
    assert b"a1 ok " in on_disk.said(client)
    on_disk.disk.crash(power_loss=False)
    return on_disk


def newest(on_disk: OnDisk, kind: str) -> str:
    return "progress/" + max(name for name in on_disk.disk.files("progress") if name.endswith(kind))


def gone(on_disk: OnDisk, name: str) -> None:
    del on_disk.disk.entries[name]


def emptied(on_disk: OnDisk, name: str) -> None:
    on_disk.disk.entries[name].data.clear()


def cut(on_disk: OnDisk, name: str) -> None:
    del on_disk.disk.entries[name].data[HEAD_SIZE - 1 :]


def flipped(on_disk: OnDisk, name: str) -> None:
    on_disk.disk.entries[name].data[9] ^= 1


DAMAGES = pytest.mark.parametrize("damage", [gone, emptied, cut, flipped])
Damage = Callable[[OnDisk, str], None]


def test_without_damage_the_ack_counts() -> None:
    on_disk = acked()
    on_disk.start()
    assert [line.split(b" ")[0] for line in on_disk.drain()] == [b"m1"]


@DAMAGES
def test_a_log_that_is_not_there_is_refused_and_salvage_says_what_is_lost(damage: Damage, said: Warnings) -> None:
    on_disk = acked()
    damage(on_disk, newest(on_disk, ".log"))
    before = on_disk.disk.files("progress")
    for _ in range(2):
        with pytest.raises(
            JournalError, match=r"progress/\d+\.log is .*: acks were lost; put it back, or start with --salvage"
        ):
            on_disk.start()
        on_disk.disk.crash(power_loss=False)
    assert on_disk.disk.files("progress") == before, "to refuse changes nothing"
    on_disk.salvage = True
    on_disk.start()
    assert any("acks since 2023-11-14T" in text for text in said.said), said.said
    came = [line.split(b" ")[0] for line in on_disk.drain()]
    assert came == ([ACKED, b"m1"] if damage is not flipped else [b"m1"]), "records after a bad head are read"
    on_disk.crash()


@DAMAGES
def test_a_checkpoint_that_is_not_there_is_refused_with_advice(damage: Damage) -> None:
    on_disk = acked()
    damage(on_disk, newest(on_disk, ".checkpoint"))
    with pytest.raises(JournalError, match=r"progress/\d+\.checkpoint is .*: remove the folders progress and index"):
        on_disk.start()
    on_disk.disk.crash(power_loss=False)
    for name in [name for name in on_disk.disk.entries if not name.startswith("journal/")]:
        gone(on_disk, name)
    on_disk.start()
    assert [line.split(b" ")[0] for line in on_disk.drain()] == [ACKED, b"m1"]


def test_a_power_loss_at_any_moment_is_no_damage(said: Warnings) -> None:
    """From the first start on an empty folder: of a log, its checkpoint and their names any may be there or not."""
    for step in range(400):
        on_disk = OnDisk()
        on_disk.disk = FakeDisk(random.Random(step))
        on_disk.disk.kill_after = step
        confirmed = False
        try:
            on_disk.start()
            client = on_disk.connect()
            on_disk.say(client, b"r1 rebind q1 e1", b"m0 publish e1 d0", b"m1 publish e1 d1")
            on_disk.wait(61)
            on_disk.say(client, b"c1 consume q1 --manual-ack --prefetch=1")
            on_disk.say(client, b"a1 ack --confirm c1 m0")
            on_disk.work()
            confirmed = b"a1 ok " in on_disk.said(client)
            on_disk.wait(61)
            on_disk.stop()
        except Killed:
            for _ in range(2):
                on_disk.crash(power_loss=True)
            if b"q1" in on_disk.broker.queues.by_name:
                came = [line.split(b" ")[0] for line in on_disk.drain()]
                assert not (confirmed and ACKED in came), step
        else:
            break
    assert 40 < step < 399
    assert not any("there is no checkpoint" in text for text in said.said)


def test_files_of_the_first_version_are_taken() -> None:
    """Its logs have no heads, and an empty one beside its checkpoint is nothing special."""
    on_disk = acked()
    for name, inode in on_disk.disk.entries.items():
        if name.endswith(".log"):
            del inode.data[:HEAD_SIZE]
        elif name.endswith(".checkpoint"):
            line, _, rest = bytes(inode.data[:-4]).partition(b"\n")
            head = json.loads(line)
            del head["log"]
            data = json.dumps(head).encode() + b"\n" + rest
            inode.data[:] = data + struct.pack("<I", crc32(data))
    logs = {name: bytes(inode.data) for name, inode in on_disk.disk.entries.items() if name.endswith(".log")}
    on_disk.start()
    assert [line.split(b" ")[0] for line in on_disk.drain()] == [b"m1"]
    assert any(logs.values())
