"""Progress that a power loss kept, though it took messages that were written before it: it did not happen.

Progress and journal are files of their own, which the disk gets in any order. Here it gets all of the progress, and of
the journal only what was synced.
"""

import struct

import pytest

from mqks.broker.connections.client import Client
from mqks.core.crc import crc32
from mqks.journal import JournalError, progress
from mqks.journal.journal import LAZY
from tests.broker.on_disk import OnDisk
from tests.sim.disk import FakeDisk

MESSAGES = 50

# What settles messages of q1, of which c1 has the first 25, and depends on something that is not synced.
DEPENDING = {
    "drop of the oldest": [b"r1 rebind q1 --max-length=60 --overflow=drop-oldest", b"~"],
    "drop of the oldest by bytes": [b"r1 rebind q1 --max-bytes=2000 --overflow=drop-oldest", b"~"],
    "drop by a lower limit": [b"r1 rebind q1 --max-length=10 --overflow=drop-oldest"],
    "ack": [b"m publish e9 d", b"a1 ack c1 --all"],
    "reject": [b"m publish e9 d", b"a1 reject c1 --all"],
    "auto ack": [b"m publish e9 d", b"c1 consume q1"],
    "a queue that is not there": [b"r1 rebind q2 e1", b"c2 consume q2", b"~"],
}


def kept_progress(disk: FakeDisk) -> None:
    """The power goes."""
    for name, inode in disk.entries.items():
        if name.startswith("progress/"):
            inode.durable = bytearray(inode.data)
        inode.unsynced.clear()
    disk.crash(power_loss=True)


def with_messages(**options: object) -> tuple[OnDisk, Client]:
    on_disk = OnDisk(**options)
    client = on_disk.connect()
    on_disk.say(client, b"c1 consume q1 e1 --manual-ack --prefetch=25")
    on_disk.say(client, *(b"m%d publish --confirm e1 d" % number for number in range(MESSAGES)))
    on_disk.wait(LAZY)
    assert len([line for line in on_disk.said(client) if line.endswith(b" ok ")]) == MESSAGES
    return on_disk, client


def left(on_disk: OnDisk) -> list[int]:
    return sorted(int(line.split(b" ")[0][1:]) for line in on_disk.drain())


@pytest.mark.parametrize("requests", DEPENDING.values(), ids=DEPENDING.keys())
def test_progress_that_depends_on_what_is_lost_did_not_happen(
    requests: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    on_disk, client = with_messages()
    newer = [b"m%d publish e1 d" % number for number in range(100, 200)]
    on_disk.say(client, *(one for request in requests for one in (newer if request == b"~" else [request])))
    on_disk.broker.turn()
    kept_progress(on_disk.disk)
    on_disk.start()
    assert set(on_disk.broker.queues.by_name) == {b"q1"}
    assert left(on_disk) == list(range(MESSAGES))
    assert "is cut at byte" in caplog.text
    # The journal is longer now than what was needed, and nothing of it is believed later.
    client = on_disk.connect()
    on_disk.say(client, *(b"m%d publish e1 %s" % (number, b"x" * 1000) for number in range(200, 250)))
    on_disk.crash()
    assert left(on_disk) == list(range(200, 250))


def test_what_was_confirmed_before_it_happened() -> None:
    on_disk, client = with_messages()
    on_disk.say(client, b"a1 ack --confirm c1 m0")
    on_disk.work()
    assert on_disk.said(client)[-1] == b"a1 ok "
    on_disk.say(client, b"m publish e9 d", b"a2 ack c1 m1")
    kept_progress(on_disk.disk)
    on_disk.start()
    assert left(on_disk) == list(range(1, MESSAGES))


def test_progress_knows_how_long_the_journal_was(caplog: pytest.LogCaptureFixture) -> None:
    """Lost between two batches, its end would not be missed otherwise."""
    on_disk, client = with_messages()
    journal = max(name for name in on_disk.disk.entries if name.startswith("journal/"))
    size = len(on_disk.disk.entries[journal].data)
    on_disk.say(client, b"m50 publish --confirm e1 d")
    on_disk.work()
    on_disk.say(client, b"a1 ack c1 m0")
    on_disk.wait(LAZY)
    on_disk.disk.crash(power_loss=False)
    inode = on_disk.disk.entries[journal]
    del inode.data[size:], inode.durable[size:]
    with pytest.raises(JournalError, match=f"lacks what stood from position {size} on.*or start with --salvage"):
        on_disk.start()
    on_disk.disk.crash(power_loss=False)
    on_disk.broker.__init__(disk=on_disk.disk, seed=1, clock=lambda: 0.0)  # type: ignore[misc]
    on_disk.broker.recover(salvage=True)
    assert "are missing" in caplog.text
    assert left(on_disk) == list(range(1, MESSAGES)), "what was acked stays so"
    on_disk.crash()
    assert left(on_disk) == [], "it is known what is lost: no further start is refused"


def test_logs_of_the_first_version_are_read() -> None:
    on_disk, client = with_messages()
    on_disk.say(client, b"a1 ack c1 m0", b"r1 reject c1 m1")
    on_disk.wait(LAZY)
    on_disk.disk.crash(power_loss=False)
    logs = [name for name in on_disk.disk.entries if name.endswith(".log")]
    for name in logs:
        inode = on_disk.disk.entries[name]
        found = list(progress.records(bytes(inode.data), name))
        old = bytes(inode.data[: found[0].start if found else None])  # its head
        old += b"".join(map(as_version_1, found))
        inode.data, inode.durable = bytearray(old), bytearray(old)
    on_disk.start()
    lines = on_disk.drain()
    assert len(lines) == MESSAGES - 1
    assert b"m1 event=e1,retry=1 d" in lines


def as_version_1(record: progress.Record) -> bytes:
    sizes = struct.pack("<IQ", len(record.words), 0)
    return struct.pack("<8sI", b"mqksprog", crc32(record.words, crc32(sizes))) + sizes + record.words
