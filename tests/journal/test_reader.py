"""Reading from outside: places, times, following, and what may be seen while a broker writes."""

import os
import re
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread

import pytest

from mqks.journal import BeyondEnd, JournalError, Message, PositionGone, Reader, UnknownVersion
from mqks.journal.files import SegmentFile
from tests.journal.making import LIKE_A_HEADER, SECOND, TIME, Making, small
from tests.journal.test_format import PAGE
from tests.running import PATIENCE


def ids(folder: Path, *args: object, **options: object) -> list[bytes]:
    return [message.id for message in Reader(folder).messages(*args, **options)]  # type: ignore[arg-type]


def seen(reader: Reader) -> list[tuple[int, bytes]]:
    return [(message.position, message.line) for message in reader.messages()]


@pytest.fixture
def made(tmp_path: Path) -> Making:
    return small(tmp_path / "data")


# ── what is there ──


def test_messages_of_each_kind(made: Making) -> None:
    first, empty, sevx, other = Reader(made.folder).messages()
    assert first == Message(153, TIME + SECOND, b"m1", b"publish", b"e1", b"d1", None)
    assert (empty.event, empty.data, empty.line) == (b"order.new", b"", b"m2 publish order.new ")
    assert (sevx.action, sevx.event, sevx.data) == (b"send", b"e2", b'{"event": "e2"}')
    assert (other.time, other.data) == (TIME + 3 * SECOND, b"a b")
    assert [message.line for message in (first, empty, sevx, other)] == [
        line for _, line in made.lines if b"rebind" not in line and b"unseen" not in line
    ]


def test_messages_that_were_published_once(tmp_path: Path) -> None:
    made = Making(tmp_path / "data", fsync="never")
    made.batch(b"m1 publish --once e1 --once", b"m2 publish --once=a=b e2 ", b's1 send --once=c {"event": "e3"}')
    messages = list(Reader(made.folder).messages())
    assert [(message.once, message.event, message.data) for message in messages] == [
        (b"", b"e1", b"--once"),
        (b"a=b", b"e2", b""),
        (b"c", b"e3", b'{"event": "e3"}'),
    ]
    assert [(message.position, message.line) for message in messages] == made.lines
    assert [message.id for message in Reader(made.folder).messages(events=["e2"])] == [b"m2"]


@pytest.mark.parametrize(
    ("json", "event"),
    [
        (b'{"event": "a.b"}', b"a.b"),
        (b'{"event": 1}', b""),
        (b'{"event": ""}', b""),
        (b'{"event": "a b"}', b""),
        (b'{"event": "--x"}', b""),
        (b'{"event": "x,retry=3"}', b""),
        (b'{"event": "\\ud800"}', b""),
        (b"{}", b""),
        (b"[" * 100_000, b""),
    ],
)
def test_the_event_of_a_sevx_message(tmp_path: Path, json: bytes, event: bytes) -> None:
    made = Making(tmp_path / "data", fsync="never")
    made.batch(b"s1 send " + json)
    (message,) = Reader(made.folder).messages()
    assert (message.event, message.data) == (event, json)


def test_batches_are_as_in_the_file(made: Making) -> None:
    batches = list(Reader(made.folder).batches())
    assert [batch.position for batch in batches] == [42, 192, 369]
    assert [batch.end for batch in batches] == [192, 327, 536]
    assert [batch.count for batch in batches] == [2, 1, 2]
    assert batches[0].time == TIME + SECOND
    assert batches[0].lines == b"m1 publish e1 d1\nm2 publish order.new \n"
    files = b"".join(path.read_bytes() for path in sorted((made.folder / "journal").iterdir()))
    assert all(files[batch.position : batch.end] == batch.raw for batch in batches)
    assert b"".join(Reader(made.folder).raw()) == b"".join(batch.raw for batch in batches)


def test_raw_comes_in_large_pieces_of_whole_batches(tmp_path: Path) -> None:
    made = Making(tmp_path / "data", fsync="never")
    for _ in range(100):
        made.batch(b"m1 publish e1 " + b"x" * 1000)
    pieces = list(Reader(made.folder).raw(size=10_000))
    assert all(piece[25:30] == b"batch" and len(piece) > 10_000 for piece in pieces[:-1])
    assert b"".join(pieces) == made.path.read_bytes()[41:]


def test_segments(made: Making) -> None:
    made.segment(fsync="interval")
    first, second, third = Reader(made.folder).segments()
    assert (first.start, first.end, first.sealed, first.fsync) == (0, 327, True, "always")
    assert (first.first, first.last) == (TIME + SECOND, TIME + 2 * SECOND)
    assert (second.start, second.size, second.sealed) == (327, 341, True)
    assert (third.first, third.last, third.sealed, third.fsync) == (None, None, False, "interval")


def test_no_journal_and_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="no journal"):
        Reader(tmp_path)
    (tmp_path / "journal").mkdir()
    reader = Reader(tmp_path)
    assert (reader.earliest, reader.latest, reader.segments(), seen(reader)) == (0, 0, [], [])
    assert reader.find_time(TIME) == 0
    assert list(reader.messages(0)) == list(reader.messages("latest")) == []
    with pytest.raises(BeyondEnd):
        reader.messages(1)


def test_another_version_is_refused(made: Making) -> None:
    made.path.write_bytes(made.path.read_bytes().replace(b"segment 1 ", b"segment 2 "))
    with pytest.raises(UnknownVersion, match=r"00327\.mqks is of format 2"):
        ids(made.folder)


# ── where to start and to stop ──


def test_a_message_that_looks_like_a_header_is_a_message_from_any_byte(tmp_path: Path) -> None:
    made = Making(tmp_path / "data", fsync="never")
    made.batch(b"m1 publish e1 d1", LIKE_A_HEADER, b"m3 publish e1 d3")
    made.batch(LIKE_A_HEADER)
    for start in range(made.end):
        found = [(message.position, message.line) for message in Reader(made.folder).messages(start)]
        assert found == [each for each in made.lines if each[0] >= start]


def test_a_start_at_any_byte(made: Making) -> None:
    made.sync()
    reader = Reader(made.folder)
    everything = list(reader.messages())
    for position in range(reader.latest + 1):
        assert list(reader.messages(position)) == [one for one in everything if one.position >= position]
        assert list(reader.messages(0, position)) == [one for one in everything if one.position < position]
        assert [batch.position for batch in reader.batches(position)] == [
            batch.position for batch in reader.batches() if batch.end > position
        ]


def test_a_start_inside_a_batch_of_many_megabytes(tmp_path: Path) -> None:
    made = Making(tmp_path / "data", fsync="never")
    made.batch(b"m1 publish e1 d1")
    made.batch(*(b"b%d publish e1 " % nr + b" batch " * 20_000 for nr in range(8)))
    made.batch(b"m2 publish e1 d2")
    made.segment()
    for nr, (position, line) in enumerate(made.lines):
        assert next(Reader(made.folder).messages(position)).line == line
        assert len(ids(made.folder, position + 1)) == len(made.lines) - nr - 1


def test_names_of_places(made: Making) -> None:
    reader = Reader(made.folder)
    assert (reader.earliest, reader.latest) == (0, 536)
    assert ids(made.folder, "latest") == []
    assert ids(made.folder, "earliest", "latest") == ids(made.folder)
    with pytest.raises(ValueError, match="no place in a journal"):
        reader.messages("soon")


def test_events_and_masks(made: Making) -> None:
    assert ids(made.folder, events=["e1"]) == [b"m1", b"m3"]
    assert ids(made.folder, events=["order.*", b"e2"]) == [b"m2", b"s1"]
    assert ids(made.folder, events=["*", "*.*.*", "orde*new", "o*r.n*", "*.x"]) == [b"m2"]
    assert ids(made.folder, events=[]) == []


def test_positions_that_cannot_be_read(made: Making) -> None:
    made.segment()
    made.batch(b"m5 publish e1 d5")
    (made.folder / "journal" / f"{0:020d}.mqks").unlink()
    reader = Reader(made.folder)
    with pytest.raises(PositionGone, match="position 326 is gone: the journal starts at 327"):
        reader.messages(326)
    with pytest.raises(PositionGone):
        reader.raw(0)
    with pytest.raises(BeyondEnd, match=f"beyond the end of the journal, {made.end}"):
        reader.batches(made.end + 1)
    assert list(reader.messages(made.end)) == []
    assert ids(made.folder, "earliest") == [b"m3", b"m4"]


def test_a_gap_is_stepped_over(made: Making) -> None:
    """Where recovery cut, one may also start: what was there was not to be seen. Where something was removed, not."""
    cut = made.segment(gap=100)
    made.batch(b"m5 publish e1 d5")
    removed = made.segment()
    made.batch(b"m6 publish e1 d6")
    path = made.path
    last = made.segment()
    made.batch(b"m7 publish e1 d7", synced=0)
    made.sync()
    path.unlink()
    assert ids(made.folder) == [b"m1", b"m2", b"s1", b"m3", b"m4", b"m5", b"m7"]
    for start in (cut - 100, cut - 50, cut - 1, cut):
        assert ids(made.folder, start) == [b"m5", b"m7"]
    assert ids(made.folder, removed) == [b"m7"]  # all before it has been read
    for start in (removed + 1, last - 1):
        with pytest.raises(PositionGone, match=f"goes on at {last}"):
            Reader(made.folder).messages(start)


# ── times ──


def test_find_time(made: Making) -> None:
    made.sync()
    reader = Reader(made.folder)
    starts = [batch.position for batch in reader.batches()]
    for number in range(4):
        for less in (timedelta(microseconds=1), timedelta(seconds=1) / 2, timedelta()):
            assert reader.find_time(TIME + SECOND * (number + 1) - less) == starts[number]
    assert reader.find_time(TIME - 1000 * SECOND) == 42
    assert reader.find_time(TIME + 4.1 * SECOND) == reader.latest == 668
    assert ids(made.folder, TIME + 2 * SECOND, TIME + 3 * SECOND) == [b"s1"]


def test_batches_of_one_time_are_found_at_the_first(tmp_path: Path) -> None:
    made = Making(tmp_path / "data", fsync="never")
    for number in range(300):
        made.batch(b"m%d publish e1 d1" % number, time=TIME + SECOND * (number // 100))
        if number % 70 == 69:
            made.segment(fsync="never")
    assert [next(iter(ids(made.folder, TIME + SECOND * second))) for second in range(3)] == [b"m0", b"m100", b"m200"]


def test_a_time_is_not_found_by_a_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Making(tmp_path / "data", fsync="never")
    for _ in range(16):
        for _ in range(250):
            made.batch(b"m1 publish e1 " + b"x" * 2000)
        made.segment(fsync="never")
    total = 0
    opened = []

    def read(self: SegmentFile, size: int, offset: int) -> bytes:
        nonlocal total
        opened.append(self.start)
        data = os.pread(self._fd, size, offset)
        total += len(data)
        return data

    monkeypatch.setattr(SegmentFile, "read", read)
    reader = Reader(made.folder)
    for number in (1, 777, 2500, 3999):
        total = 0
        opened.clear()
        position = reader.find_time(TIME + SECOND * number)
        assert total < 150_000  # of 8 MB
        assert len(set(opened)) <= 6  # of 17 files
        assert next(reader.batches(position)).time == TIME + SECOND * number


# ── while a broker writes ──


def test_what_is_not_synced_is_not_seen(made: Making) -> None:
    reader = Reader(made.folder)
    assert b"m4" not in ids(made.folder)
    made.batch(b"m5 publish e1 d5", synced=made.end - 1)
    assert b"m4" not in ids(made.folder)
    end = made.sync()
    assert (reader.latest, ids(made.folder)[-2:]) == (end, [b"m4", b"m5"])


@pytest.mark.parametrize("fsync", ["interval", "never"])
def test_where_nothing_waits_for_the_disk_all_is_seen(tmp_path: Path, fsync: str) -> None:
    made = Making(tmp_path / "data", fsync=fsync)
    made.batch(b"m1 publish e1 d1", synced=0)
    assert (ids(made.folder), Reader(made.folder).latest) == ([b"m1"], made.end)


def test_in_a_sealed_segment_all_is_seen(made: Making) -> None:
    made.segment()
    assert b"m4" in ids(made.folder)


@pytest.mark.parametrize("last", [b"", b"2026", b"20260131120000000000aaaa segment 1 always"])
def test_a_last_segment_without_its_first_line(made: Making, last: bytes) -> None:
    made.segment()
    made.path.write_bytes(last)
    reader = Reader(made.folder)
    assert (reader.latest, reader.segments()[-1].fsync) == (668, "")
    assert ids(made.folder) == [b"m1", b"m2", b"s1", b"m3", b"m4"]
    assert reader.find_time(TIME + 100 * SECOND) == 668


def test_a_sealed_segment_that_is_empty_has_nothing(made: Making) -> None:
    made.segment()
    made.path.write_bytes(b"")
    made.segment()
    made.batch(b"m5 publish e1 d5")
    made.sync()
    assert ids(made.folder)[-2:] == [b"m4", b"m5"]
    assert ids(made.folder, TIME + 5 * SECOND) == [b"m5"]


class Acts(Event):
    """In place of waiting for a broker: each time that a reader would wait, the next thing happens; then it ends."""

    def __init__(self, *acts: Callable[[], object]) -> None:
        super().__init__()
        self._acts = list(acts)

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout == 0.05
        if not self._acts:
            return True
        self._acts.pop(0)()
        return False


def test_following_sees_what_comes(made: Making) -> None:
    """A sync, a batch written in two parts, new segments, gaps, an empty new segment, and segments that vanish."""
    whole = len(made.path.read_bytes())
    got: list[bytes] = []
    told: list[int] = []

    def tear() -> None:
        made.batch(b"m5 publish e1 d5")
        made.sync()
        data = made.path.read_bytes()
        os.truncate(made.path, whole + 111 + 115)
        acts._acts.insert(0, lambda: told.append(len(got)))
        acts._acts.insert(1, lambda: made.path.write_bytes(data))

    def rotate(gap: int) -> None:
        (made.folder / "journal" / f"{0:020d}.mqks").unlink(missing_ok=True)
        made.segment(gap=gap)
        made.path.rename(made.path.with_suffix(".hidden"))
        made.path.touch()  # the broker was fast enough to make the file, not to write its first line
        acts._acts.insert(0, lambda: made.path.with_suffix(".hidden").rename(made.path))

    acts = Acts(
        made.sync,
        tear,
        lambda: rotate(0),
        lambda: made.batch(b"m6 publish e1 d6"),
        made.sync,
        lambda: rotate(77),
        lambda: made.batch(b"m7 publish e1 d7"),
        lambda: made.segment(),
    )
    for message in Reader(made.folder, stopping=acts).messages(follow=True):
        got.append(message.id)
    assert got == [b"m1", b"m2", b"s1", *(b"m%d" % number for number in range(3, 8))]
    assert told == [5]


def test_following_from_the_end_up_to_a_position(made: Making) -> None:
    acts = Acts(made.sync, lambda: made.batch(b"m5 publish e1 d5"), made.sync)
    pieces = list(Reader(made.folder, stopping=acts).raw("latest", follow=True))
    assert [re.findall(rb"(m\d) publish", piece) for piece in pieces] == [[b"m4"], [], [b"m5"]]
    assert ids(made.folder, made.lines[-1][0], made.lines[-1][0] + 1, follow=True) == [b"m5"]


def test_a_reader_that_retention_has_overtaken_goes_on_with_what_is_left(made: Making) -> None:
    made.segment()
    made.batch(b"m5 publish e1 d5")
    made.segment()
    messages = Reader(made.folder).messages()
    assert next(messages).id == b"m1"
    for path in sorted((made.folder / "journal").iterdir())[:2]:
        path.unlink()
    assert [message.id for message in messages] == [b"m2", b"s1", b"m5"]  # what was open was read to its end


def test_following_ends_when_told_so(made: Making) -> None:
    stopping, started = Event(), Event()

    def follow() -> None:
        for _ in Reader(made.folder, poll=0.001, stopping=stopping).batches(follow=True):
            started.set()

    thread = Thread(target=follow)
    thread.start()
    assert started.wait(PATIENCE)
    stopping.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_python_on_the_page_runs(
    made: Making, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(made.folder, made.folder.parent / "mqks-data")
    monkeypatch.chdir(made.folder.parent)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(code, str(PAGE), "exec"), {})
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "0 536"
    assert "b'm2' b'publish' b'order.new' b''" in shown[1]
    assert len(shown) == 5
