"""What a start makes of a folder, where the whole broker would not show it."""

import select
from pathlib import Path

import pytest

from mqks.broker import Broker
from mqks.journal import progress, segments
from mqks.journal.disk import RealDisk
from tests.broker.on_disk import OnDisk


def wait_for_checkpoint(broker: Broker, disk: RealDisk, folder: Path) -> None:
    """It is there when the logs before it are gone."""
    while len(list((folder / "progress").glob("*.log"))) > 1:
        select.select([disk.fileno()], [], [])
        broker.poll_disk()


def test_a_queue_deleted_after_a_checkpoint_holds_no_segment(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    broker = Broker(disk=disk)
    broker.recover()
    client = broker.connect("127.0.0.1:1")
    broker.feed(client, b"s1 subscribe q1 e1\nm1 publish e1 d1\n")
    broker.turn()
    assert broker.persistence.journal is not None
    wait_for_checkpoint(broker, disk, tmp_path)  # that of the start
    broker.persistence.journal.checkpoint()
    wait_for_checkpoint(broker, disk, tmp_path)
    broker.feed(client, b"d1 delete_queue q1\n")
    broker.turn()
    disk.stop()  # as a crash leaves it

    disk = RealDisk(tmp_path)
    broker = Broker(disk=disk)
    broker.recover()
    assert not broker.queues.by_name
    assert broker.core.log.live_in(0, broker.core.log.end) == 0
    disk.stop()


def test_lives_that_were_killed_leave_no_space_reserved() -> None:
    """Each life begins a segment, and no other that was killed before it may keep what it had reserved for its own."""
    on_disk = OnDisk()
    for _ in range(5):
        on_disk.say(on_disk.connect(), b"r1 rebind q1 e1", b"m1 publish e1 d1")
        on_disk.disk.crash(power_loss=False)
        for _ in range(5):  # these do not live to make a checkpoint
            Broker(disk=on_disk.disk, seed=1, clock=lambda: 0.0).recover()
            on_disk.disk.crash(power_loss=False)
        on_disk.start()
    available, capacity = on_disk.disk.space()
    assert capacity - available < 4 * (segments.AHEAD + progress.AHEAD) + (1 << 16), "that of this life, and messages"


def test_a_start_without_a_checkpoint_is_warned_of_if_the_journal_has_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """One that failed, on a port that was taken, leaves a journal without any: there is nothing to warn of."""
    on_disk = OnDisk()
    for requests, warnings in ((), 0), ((b"r1 rebind q1 e1", b"m1 publish e1 d1"), 1):
        on_disk.say(on_disk.connect(), *requests)
        on_disk.disk.crash(power_loss=False)
        for name in on_disk.disk.content("progress"):
            del on_disk.disk.entries[f"progress/{name}"]
        on_disk.start()
        assert [record.getMessage()[:22] for record in caplog.records] == ["there is no checkpoint"] * warnings
