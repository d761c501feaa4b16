"""Gaps that retention leaves between segments: where no message was removed, nobody who reads misses one."""

import errno
from pathlib import Path

import pytest

from mqks.journal import PositionGone, Reader
from mqks.journal import segments as segments_module
from mqks.journal.columns import Columns
from mqks.journal.ranges import EMPTY
from pyspark_mqks.folder import Folder
from pyspark_mqks.loss import fail
from tests.broker.on_disk import OnDisk
from tests.sim.disk import Killed

DAY = 86400.0


def kept(*between: bytes) -> OnDisk:
    """A queue keeps the messages of the first segment and the last. Those between have one of these lines, or none."""
    on_disk = OnDisk(retain_age=7 * DAY, segment_size=1 << 20)
    client = on_disk.connect()
    on_disk.say(client, b"s1 subscribe q1 e1", b"m1 publish e1 d1")
    for line in (*between, b"", b"", b"m2 publish e1 d2"):
        on_disk.wait(60)
        on_disk.stop()
        if line:
            on_disk.say(on_disk.connect(), line)
    on_disk.wait(1)
    return on_disk


def segments(on_disk: OnDisk) -> list[int]:
    return [int(name[:20]) for name in on_disk.disk.files("journal")]


def retain(on_disk: OnDisk) -> None:
    """What is older than a week goes."""
    for _ in range(2):  # a checkpoint comes first
        on_disk.wait(8 * DAY)


def history(on_disk: OnDisk, words: bytes) -> list[bytes]:
    """The ids that it tells, and how it ends."""
    client = on_disk.connect()
    lines = on_disk.say(client, b"h1 history " + words)
    for _ in range(10):
        on_disk.wait(0.01)
        lines += on_disk.said(client)
    return [line.split(b" ")[3 if line[6:7].isdigit() else 2] for line in lines]


def gap(on_disk: OnDisk) -> tuple[int, int]:
    """The only one."""
    files = {int(name[:20]): size for name, size in on_disk.disk.files("journal").items()}
    ends = [(start + size, following) for (start, size), following in zip(files.items(), list(files)[1:], strict=False)]
    [found] = [(end, following) for end, following in ends if end < following]
    return found


def unfold(on_disk: OnDisk, folder: Path) -> Path:
    for name, inode in on_disk.disk.entries.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(bytes(inode.data))
    return folder


WITHOUT = [b"r1 rebind q2 e1.a", b"x1 hold archive latest --for=60"]  # lines that are no messages


def test_history_goes_on_after_segments_without_messages() -> None:
    on_disk = kept(*WITHOUT)
    retain(on_disk)
    end, following = gap(on_disk)
    time = b"2023-11-14T22:13:20Z"
    assert all(history(on_disk, words) == [b"m1", b"m2", b"--end"] for words in (b"earliest", b"0", time))
    assert all(history(on_disk, b"%d" % place) == [b"m2", b"--end"] for place in (end, following - 1, following))
    raw = history(on_disk, b"%d --raw" % end)
    assert b"e1" in raw and raw[-1] == b"--end"
    on_disk.stop()
    assert history(on_disk, b"earliest") == [b"m1", b"m2", b"--end"], "so it is after a restart"


def test_it_does_not_go_on_where_a_message_was_removed() -> None:
    on_disk = kept(WITHOUT[0], b"m9 publish e9 d9", WITHOUT[1])
    retain(on_disk)
    end, following = gap(on_disk)
    assert history(on_disk, b"earliest")[0] == b"m1"
    assert b"--end" not in history(on_disk, b"earliest") + history(on_disk, b"%d" % end)
    assert history(on_disk, b"%d" % following) == [b"m2", b"--end"]
    assert history(on_disk, b"2023-11-14T22:18:50Z") == [b"m2", b"--end"], "a time is that of the first that there is"


def test_readers_from_outside_go_on_too(tmp_path: Path) -> None:
    on_disk = kept(*WITHOUT)
    retain(on_disk)
    end, following = gap(on_disk)
    folder = unfold(on_disk, tmp_path)
    for start in (end, following - 1):
        assert [message.id for message in Reader(folder).messages(start)] == [b"m2"]
    journal, columns = Folder(str(folder), fail), Columns(("id",))
    assert journal.check(end) == end
    for _ in journal.scan(columns, journal.earliest(), journal.latest()):
        pass
    assert columns.rows == 2
    (folder / EMPTY).unlink()
    with pytest.raises(PositionGone):
        Reader(folder).messages(following - 1)


def test_a_power_loss_at_any_moment_of_the_removal() -> None:
    for step in range(200):
        on_disk = kept(*WITHOUT)
        on_disk.disk.kill_after = step
        try:
            retain(on_disk)
        except Killed:
            on_disk.crash(power_loss=True)
            retain(on_disk)
            assert history(on_disk, b"earliest") == [b"m1", b"m2", b"--end"], step
        else:
            break
    assert on_disk.disk.kill_after is not None
    assert 10 < step < 199


def test_a_long_segment_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as one with messages."""
    monkeypatch.setattr(segments_module, "LOOKED_AT", (50, 300))
    on_disk = kept(b"r1 rebind q2 " + b" ".join(b"e%d" % number for number in range(100)))
    retain(on_disk)
    assert b"--end" not in history(on_disk, b"earliest")


def test_a_full_disk_puts_the_removal_off() -> None:
    on_disk = kept(*WITHOUT)
    before = segments(on_disk)
    on_disk.now += 8 * DAY
    on_disk.disk.fail("create", errno.ENOSPC)
    on_disk.broker.persistence.journal.retain()  # type: ignore[union-attr]
    assert on_disk.broker.broken is None
    assert segments(on_disk) == before
    retain(on_disk)
    assert len(segments(on_disk)) == 2
    assert history(on_disk, b"earliest") == [b"m1", b"m2", b"--end"]


def test_a_disk_that_cannot_be_read_for_a_history_stops_the_broker(caplog: pytest.LogCaptureFixture) -> None:
    """Where it begins is looked up while the request is handled, not in the background."""
    on_disk = kept()
    client = on_disk.connect()
    on_disk.disk.fail("read", errno.EIO)
    [reply] = on_disk.say(client, b"h1 history earliest")
    assert reply.startswith(b"h1 error ")
    assert on_disk.broker.broken is not None
    assert "the journal cannot be read" in on_disk.broker.broken
    assert not [record for record in caplog.records if record.exc_info], "no fault of the broker itself"


def test_a_history_goes_on_where_the_first_segments_are_removed_before_it_has_read_them() -> None:
    """They had no message. Its client did not read meanwhile."""
    on_disk = OnDisk(retain_age=7 * DAY, segment_size=1 << 20, high_water=100)
    for _ in range(3):
        on_disk.wait(60)
        on_disk.stop()
    on_disk.wait(6 * DAY)
    client = on_disk.connect()
    on_disk.broker.feed(client, b"m1 publish e1 d1\n" + b"p1 ping\n" * 100 + b"h1 history earliest\n")
    retain(on_disk)
    assert len(segments(on_disk)) == 1
    lines = on_disk.said(client)
    for _ in range(10):
        on_disk.wait(0.01)
        lines += on_disk.said(client)
    shown, end = lines[100:]
    assert shown.endswith(b" m1 event=e1 d1")
    assert end.startswith(b"h1 ok --end ")


def test_a_history_ends_at_a_batch_that_stands_in_the_wrong_file() -> None:
    """The batch is longer than what the file has of it: to read more would not help."""
    on_disk = OnDisk(segment_size=1000)
    client = on_disk.connect()
    for number in range(6):
        on_disk.say(client, b"m%d publish --confirm e1 %s" % (number, b"d" * 500))
        on_disk.work()
    entries = on_disk.disk.entries
    _, one, other, *_ = (f"journal/{name}" for name in on_disk.disk.files("journal"))
    entries[other].data[:] = entries[one].data[:300]
    on_disk.broker.feed(client, b"h1 history earliest\n")
    for _ in range(50):  # not `work`, which waits until there is nothing more to read
        on_disk.disk.complete(urgent=False)
        on_disk.broker.poll_disk()
        on_disk.broker.turn()
    assert on_disk.said(client)[-1].startswith(b"h1 error ")


def test_what_is_removed_before_a_gap_of_a_crash_is_not_taken_for_it() -> None:
    """Queues keep the first segment and the one after the gap. The one before the gap stays, and the next one goes."""
    on_disk = OnDisk(retain_age=7 * DAY, segment_size=1 << 20)
    on_disk.say(on_disk.connect(), b"s1 subscribe q1 e1", b"m1 publish e1 d1")
    for line in (b"m2 publish e2 d2", b"m3 publish e2 d3"):
        on_disk.wait(60)
        on_disk.stop()
        on_disk.say(on_disk.connect(), line)
    on_disk.wait(60)
    on_disk.disk.crash(power_loss=False)
    *_, torn = on_disk.disk.files("journal")
    on_disk.disk.entries[f"journal/{torn}"].data += b"torn"
    on_disk.start()
    on_disk.say(on_disk.connect(), b"m4 publish e1 d4")
    on_disk.wait(60)
    on_disk.stop()
    assert history(on_disk, b"earliest") == [b"m1", b"m2", b"m3", b"m4", b"--end"]
    retain(on_disk)
    for _ in range(2):
        first, error = history(on_disk, b"earliest")
        assert first == b"m1"
        assert error not in (b"m4", b"--end"), "it passes over m2 and m3 in silence"
        assert history(on_disk, b"%d" % int(torn[:20])) == [b"m3", b"m4", b"--end"]
        on_disk.stop()


def test_a_history_that_has_not_read_what_is_removed_before_a_gap_fails() -> None:
    """Nothing is kept before it. Its client did not read meanwhile."""
    on_disk = OnDisk(retain_age=7 * DAY, segment_size=1 << 20, high_water=100)
    on_disk.say(on_disk.connect(), b"m1 publish e1 d1")
    on_disk.wait(60)
    on_disk.disk.crash(power_loss=False)
    *_, torn = on_disk.disk.files("journal")
    on_disk.disk.entries[f"journal/{torn}"].data += b"torn"
    on_disk.start()
    on_disk.wait(6 * DAY)
    client = on_disk.connect()
    on_disk.broker.feed(client, b"m2 publish e1 d2\n" + b"p1 ping\n" * 100 + b"h1 history earliest\n")
    retain(on_disk)
    assert len(segments(on_disk)) == 1
    lines = on_disk.said(client)
    for _ in range(10):
        on_disk.wait(0.01)
        lines += on_disk.said(client)
    [last] = lines[100:]
    assert last.startswith(b"h1 error ")
