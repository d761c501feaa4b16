"""What is refused and what goes on when the disk is short, and how it is freed; on a disk in memory."""

import pytest

from mqks.journal.disk import Reserve
from tests.broker.on_disk import OnDisk

MUCH = 1 << 40  # bytes


def test_what_is_to_stay_free_of_the_disk_stays_free() -> None:
    on_disk = OnDisk(min_free=1 << 30)
    disk, client = on_disk.disk, on_disk.connect()
    assert on_disk.say(client, b"r1 rebind q1 e1", b"m1 publish e1 d1") == []
    disk.capacity = 1 << 30  # of which something is used: others have filled the rest
    on_disk.wait(1.0)
    [refused] = on_disk.say(client, b"m2 publish e1 d2")
    assert refused.startswith(b"m2 error ")
    journal = on_disk.broker.persistence.journal
    assert journal and journal.full and "less than --min-free-disk, 1073741824)" in journal.full
    assert on_disk.say(client, b"c1 consume q1 --manual-ack") == [b"c1 ok m1 event=e1 d1"]
    assert on_disk.say(client, b"a1 ack --confirm c1 m1") == []
    on_disk.work()
    assert on_disk.said(client) == [b"a1 ok "], "what was taken can be settled"
    checkpoints = {name for name in disk.entries if name.endswith(".checkpoint")}
    on_disk.wait(60.0)
    assert {name for name in disk.entries if name.endswith(".checkpoint")} != checkpoints, (
        "else nothing could be removed"
    )
    disk.capacity = MUCH
    on_disk.wait(1.0)
    assert on_disk.say(client, b"m3 publish e1 d3") == [b"c1 ok m3 event=e1 d3"]
    assert journal.full is None


def test_a_start_on_a_disk_that_is_short() -> None:
    on_disk = OnDisk()
    on_disk.say(on_disk.connect(), b"r1 rebind q1 e1", b"m1 publish e1 d1")
    on_disk.work()
    on_disk.options = {"min_free": 2 * MUCH}
    for begin_again in (on_disk.crash, on_disk.stop):
        begin_again()
        client = on_disk.connect()
        [refused] = on_disk.say(client, b"m2 publish e1 d2")
        assert refused.startswith(b"m2 error ")
    assert on_disk.drain() == [b"m1 event=e1 d1"]


def filled(**options: int) -> OnDisk:
    """A queue has messages in many small segments, of which only acks can free the disk."""
    on_disk = OnDisk(segment_size=1 << 20, retain_bytes=1 << 20, **options)
    client = on_disk.connect()
    on_disk.say(client, b"r1 rebind q1 e1")
    for number in range(300):
        on_disk.say(client, b"m%d publish e1 %s" % (number, b"x" * 100_000))
        on_disk.work()
    return on_disk


def takes_again(on_disk: OnDisk) -> bool:
    on_disk.wait(60.0)  # a checkpoint, and segments go
    on_disk.wait(1.0)
    return on_disk.say(on_disk.connect(), b"again publish e1 d1") == []


def test_a_disk_that_was_short_for_long_is_freed_by_acks_alone() -> None:
    on_disk = filled(min_free=8 << 20)
    on_disk.disk.capacity -= on_disk.disk.space()[0] - (8 << 20) + 1
    on_disk.wait(60.0)  # with a checkpoint of all that was published
    on_disk.wait(60.0)
    assert on_disk.broker.persistence.journal and on_disk.broker.persistence.journal.full
    assert len(on_disk.drain()) == 300
    assert takes_again(on_disk)


def test_a_start_with_less_than_is_reserved_and_more_than_is_spared() -> None:
    """Checkpoints are made, else nothing would ever go."""
    on_disk = filled(min_free=8 << 20)
    on_disk.wait(1.0)
    on_disk.disk.crash(power_loss=True)  # so that nothing is reserved
    on_disk.disk.capacity -= on_disk.disk.space()[0] - (10 << 20)
    on_disk.start()
    journal = on_disk.broker.persistence.journal
    assert journal and journal.full and "--min-free-disk" not in journal.full
    assert len(on_disk.drain()) == 300
    assert takes_again(on_disk)


def test_acks_do_not_put_off_the_look_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each finds that the disk has no room, and old segments go only when somebody looks."""
    on_disk = OnDisk()
    client = on_disk.connect()
    on_disk.say(client, b"c1 consume q1 e1 --manual-ack", *(b"m%d publish e1 d1" % number for number in range(10)))
    on_disk.work()
    on_disk.said(client)
    journal = on_disk.broker.persistence.journal
    assert journal
    looks = []
    monkeypatch.setattr(journal, "retain", lambda: looks.append(on_disk.now))
    monkeypatch.setattr(Reserve, "has_room", lambda *_: False)
    on_disk.now = 0.0
    for number in range(10):
        on_disk.say(client, b"a1 ack c1 m%d" % number)
        on_disk.wait(0.5)
    assert journal.full
    assert looks == [1.0, 2.0, 3.0, 4.0, 5.0]
