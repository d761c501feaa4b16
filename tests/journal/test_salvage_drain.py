"""A salvaged folder under a broker: every queue drains, and exactly the messages of the damaged batches are missing.

Each case damages a folder, salvages it in one of the two ways, and then asks all who read it: the queues, before and
after a restart and another salvage, `history`, `verify`, the reader from outside and the columns of the Spark source.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mqks.journal import JournalError, Reader
from mqks.journal.columns import Columns
from mqks.journal.files import SegmentView
from mqks.journal.format import Header
from mqks.journal.salvage import salvage
from mqks.journal.verify import verify
from pyspark_mqks.folder import Folder
from pyspark_mqks.loss import warn
from tests.broker.on_disk import OnDisk
from tests.journal.test_broker_damage import RECV, Files, Life, Story, said
from tests.sim import salvaging
from tests.sim.plan import Warnings

__all__ = ["said"]  # a fixture


KINDS: dict[str, dict[str, Any]] = {
    "killed": {},
    "stopped": {},
    "no checkpoint": {"checkpoint_bytes": 1 << 30},  # but the one of its start
    "never": {"checkpoint_bytes": 1 << 30, "fsync": "never"},  # no batch says that another is on disk
}


@pytest.fixture(scope="module", params=KINDS)
def story(request: pytest.FixtureRequest) -> Story:
    """Two queues, many small batches in some segments, a part of the queues in the index, some acks."""
    story = Story({})
    life = Life({}, **KINDS[request.param])
    life.say(b"s1 subscribe --confirm q1 e1", RECV, b"d1 delete_consumer --confirm c2")
    for number in range(1, 41):
        id = b"m%d" % number
        life.say(b'%s send {"k": 1}' % id if number % 3 == 0 else b"%s publish --confirm e1 data of %s" % (id, id))
        story.there.add(id)
    given = [line.split(b" ")[2] for line in life.say(b"c1 consume q1 --manual-ack --prefetch=3")]
    for id in given[1:]:
        assert b"a1 ok " in life.say(b"a1 ack --confirm c1 " + id)
        story.there.remove(id)
        if request.param == "never":  # an ack is as safe as what was written before it, and that is not synced
            story.acked.add(id)
    life.broker.disconnect(life.client)
    life.broker.turn()
    if request.param == "stopped":
        life.broker.close()
    story.files = life.files()
    assert len(segments(story.files)) == 4
    return story


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """The power stays on."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


class Batch(NamedTuple):
    header: Header
    offset: int  # in the segment
    ids: set[bytes]  # of its messages


def batches(name: str, data: bytes) -> list[Batch]:
    view = SegmentView(int(name[8:28]), lambda size, offset: data[offset : offset + size])
    line = view.first_line()
    assert line is not None
    found = view.batches(line.size, len(data))
    return [
        Batch(header, header.position - view.start, {one.split(b" ")[0] for one in bytes(raw).splitlines()[1:]})
        for header, raw in found
    ]


def segments(files: Files) -> list[str]:
    return sorted(name for name in files if name.startswith("journal/"))


def spoil(data: bytes, spoilt: Iterable[Batch]) -> bytes:
    """One bit of the checksum of each of these batches is flipped."""
    changed = bytearray(data)
    for batch in spoilt:
        changed[batch.offset + 100] ^= 1
    return bytes(changed)


# ── the two ways to salvage ──


def by_command(files: Files, folder: Path) -> Life:
    """`mqks journal salvage`, then a start as always."""
    return Life(salvaged(files, folder))


def at_start(files: Files, folder: Path) -> Life:
    """A start with --salvage."""
    return Life(salvaged(files, folder), salvage=True)


def salvaged(files: Files, folder: Path) -> Files:
    fold(files, folder)
    salvage(folder)
    assert salvage(folder) == [], "it leaves nothing to be salvaged"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fold(files: Files, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


Way = Callable[[Files, Path], Life]
WAYS = pytest.mark.parametrize("way", [by_command, at_start], ids=["command", "start"])


class Broken(Exception):
    """The broker had to stop."""


def left(life: Life) -> set[bytes]:
    """What comes out of the queues, each once."""
    lines = [line for line in life.say(RECV, b"c1 consume q1") if line != b"c2 ok "]
    if life.broker.broken:
        raise Broken(life.broker.broken)
    ids = [line.split(b" ")[2] for line in lines]
    assert len(set(ids)) == len(ids)
    return set(ids)


def check_readers(life: Life, folder: Path, ids: set[bytes]) -> None:
    """Who reads the journal finds these messages, and no damage."""
    lines = life.say(b"h1 history earliest")
    for _ in segments(life.files()):  # one that has nothing left takes a few turns in which nothing is said
        lines += life.say()
    assert lines[-1].startswith(b"h1 ok --end "), lines[-1]
    assert {line.split(b" ")[3] for line in lines[:-1]} == ids
    life.broker.close()
    fold(life.files(), folder)
    assert verify(folder).good
    assert {message.id for message in Reader(folder).messages()} == ids
    journal, columns = Folder(str(folder), warn), Columns(("id",))
    for _ in journal.scan(columns, journal.earliest(), journal.latest()):
        pass
    assert columns.rows == len(ids)


def ids_of(found: Iterable[Batch]) -> set[bytes]:
    return {id for batch in found for id in batch.ids if id.startswith(b"m")}


def all_ids(files: Files) -> set[bytes]:
    return ids_of(batch for name in segments(files) for batch in batches(name, files[name]))


def check(life: Life, folder: Path, story: Story, lost: set[bytes], torn: bool = False) -> None:
    """All but these messages is there, for everyone, also after a restart and after another salvage. If the journal is
    torn, as by a crash, acks after that did not happen."""
    again = Life(life.files())
    for one in (life, again, at_start(again.files(), folder)):
        if one.broker.queues.by_name.keys() == {b"q1", b"q2"}:  # else the damage took what only a control line told
            assert left(one) - (story.acked if torn else set()) == story.there - lost
    check_readers(again, folder, all_ids(story.files) - lost)


# ── what is damaged ──


@WAYS
@pytest.mark.parametrize("which", [slice(1), slice(-1, None), slice(None), slice(1, 3)], ids=str)
def test_spoilt_batches(story: Story, tmp_path: Path, way: Way, which: slice) -> None:
    for name in segments(story.files)[:-1]:
        spoilt = batches(name, story.files[name])[which]
        files = story.files | {name: spoil(story.files[name], spoilt)}
        check(way(files, tmp_path), tmp_path, story, ids_of(spoilt))


@WAYS
@pytest.mark.parametrize("which", [slice(1), slice(1, 3)], ids=str)
def test_spoilt_batches_of_the_last_segment(story: Story, tmp_path: Path, way: Way, which: slice) -> None:
    """What no later batch calls synced may be what a crash has torn: then all from there on is cut off."""
    name = segments(story.files)[-1]
    found = batches(name, story.files[name])
    spoilt = found[which]
    files = story.files | {name: spoil(story.files[name], spoilt)}
    proved = any(batch.header.synced > spoilt[-1].header.position for batch in found[which.stop :])
    lost = ids_of(spoilt if proved else found[which.start or 0 :])
    check(way(files, tmp_path), tmp_path, story, lost, torn=not proved)


def damaged_files(files: Files, name: str) -> Iterator[tuple[str, Files, set[bytes]]]:
    """What may become of a segment: how, the folder then, and which messages it lacks."""
    data, found = files[name], batches(name, files[name])
    for size in (0, found[0].offset, found[1].offset + 50, found[2].offset, len(data) - 1):
        gone = (batch for batch in found if batch.offset + batch.header.size > size)
        yield f"cut to {size}", files | {name: data[:size]}, ids_of(gone)
    yield "removed", {other: data for other, data in files.items() if other != name}, ids_of(found)
    others = [other for other in segments(files) if other != name]
    for other in (others[0], others[-1]):
        lost = ids_of((*found, *batches(other, files[other])))
        yield f"swapped with {other}", files | {name: files[other], other: data}, lost


@WAYS
def test_a_damaged_file(story: Story, tmp_path: Path, way: Way, said: Warnings) -> None:
    """The command does not know which files were removed by retention: the start then asks for --salvage itself."""
    for name in segments(story.files)[:-1]:
        for how, files, lost in damaged_files(story.files, name):
            said.said.clear()
            try:
                left(Life(files))
            except (JournalError, Broken) as refused:
                assert "salvage" in str(refused), (name, how)
            else:
                assert said.said or not lost & story.there, (name, how)
            said.said.clear()
            try:
                life = way(files, tmp_path)
            except JournalError as refused:
                assert way is by_command and "start with --salvage" in str(refused), (name, how)
                life = at_start(files, tmp_path)
            if any("the journal was cut" in text for text in said.said):  # so a crash may have left it, for all we know
                nothing_synced = bool(story.acked)
                assert way is by_command or nothing_synced, (name, how)
                assert left(life) <= (story.there | story.acked) - lost, (name, how)
            else:
                check(life, tmp_path, story, lost)


def test_the_last_segment_ends_between_two_batches(story: Story, tmp_path: Path) -> None:
    """Only progress knows that more was on disk. `verify` finds what the start refuses, and the command gives it up."""
    name = segments(story.files)[-1]
    found = batches(name, story.files[name])
    refusals = 0
    for number, batch in enumerate(found):
        files = story.files | {name: story.files[name][: batch.offset]}
        fold(files, tmp_path)
        report = verify(tmp_path)
        try:
            Life(files)
        except JournalError as refused:
            refusals += 1
            assert "put the missing files back, or start with --salvage" in str(refused)
            assert any("missing after its end" in problem.text for problem in report.problems)
            check(by_command(files, tmp_path), tmp_path, story, ids_of(found[number:]))
            if number:
                check_damage_before_the_missing_end(files, name, tmp_path, found[number - 1])
        else:
            assert report.good
    assert (refusals > 0) == (not story.acked), "with --fsync=never nothing is known to be on disk"


def check_damage_before_the_missing_end(files: Files, name: str, folder: Path, batch: Batch) -> None:
    """The end was given up. What stands before it was on disk too: damage there is refused, and not cut off."""
    left_over = salvaged(files, folder)
    damaged = left_over | {name: spoil(left_over[name], [batch])}
    with pytest.raises(JournalError, match=r"is damaged at byte \d+"):
        Life(damaged)


def test_no_segment_is_left(story: Story, tmp_path: Path) -> None:
    """verify and the command take an empty folder for what it is: all that was on disk is missing."""
    files = {name: data for name, data in story.files.items() if not name.startswith("journal/")}
    fold(files, tmp_path)
    (tmp_path / "journal").mkdir()
    report = verify(tmp_path)
    assert not report.good, "even with --fsync=never the first line was on disk"
    assert len(salvage(tmp_path)) == len(report.problems)
    assert salvage(tmp_path) == []
    assert verify(tmp_path).good


def test_a_refused_start_changes_nothing_and_a_salvage_keeps_what_only_progress_knows_to_be_synced() -> None:
    """No batch after the damaged one says that it was on disk: both were written before the sync of the first ended."""
    on_disk = OnDisk()
    client = on_disk.connect()
    on_disk.say(client, b"c1 consume q1 e1 --manual-ack --prefetch=1")
    on_disk.work()
    on_disk.say(client, b"m1 publish --confirm e1 d1")
    on_disk.say(client, b"m2 publish --confirm e1 d2")
    on_disk.say(client, b"m3 publish --confirm e1 d3")
    on_disk.work()
    on_disk.say(client, b"a1 ack c1 m1")
    on_disk.disk.crash(power_loss=False)
    [(name, content)] = on_disk.disk.content("journal").items()
    on_disk.disk.entries[f"journal/{name}"].data[content.index(b"m2 publish")] ^= 1
    damaged = on_disk.disk.content("journal")
    with pytest.raises(JournalError, match=r"is damaged at byte \d+: the checksum"):
        on_disk.start()
    assert on_disk.disk.content("journal") == damaged
    on_disk.disk.crash(power_loss=False)
    salvaging.run(on_disk.disk)
    on_disk.salvage = True
    on_disk.start()
    assert [line.split(b" ")[0] for line in on_disk.drain()] == [b"m3"]


def test_a_last_segment_that_only_a_checkpoint_knows_to_be_synced_is_salvaged() -> None:
    """It was swapped with another after a clean stop. What it should have is given up, and all else can be read."""
    on_disk = OnDisk(segment_size=1000)
    client = on_disk.connect()
    on_disk.say(client, b"s1 subscribe q1 e1")
    for number in range(6):
        on_disk.say(client, b"m%d publish --confirm e1 %s" % (number, b"d" * 500))
        on_disk.work()
    on_disk.broker.disconnect(client)
    on_disk.disk.works_by_itself = True
    on_disk.broker.close()
    on_disk.disk.crash(power_loss=False)
    entries = on_disk.disk.entries
    names = [f"journal/{name}" for name in on_disk.disk.files("journal")]
    one, other = names[1], names[-1]
    entries[one], entries[other] = entries[other], entries[one]
    salvaging.run(on_disk.disk)
    on_disk.salvage = True
    on_disk.start()
    reader = on_disk.connect()
    lines = on_disk.say(reader, b"h1 history earliest", b"c1 consume q1")
    for _ in range(20):
        on_disk.wait(0.01)
        lines += on_disk.said(reader)
    assert on_disk.broker.broken is None
    *shown, end = [line for line in lines if line.startswith(b"h1 ")]
    assert end.startswith(b"h1 ok --end ")
    consumed = [line.split(b" ")[2] for line in lines if line.startswith(b"c1 ")]
    assert consumed == [line.split(b" ")[3] for line in shown]
    assert len(consumed) >= len(names) - 2
