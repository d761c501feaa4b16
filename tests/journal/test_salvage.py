"""salvage: every valid batch stays at its position, and the damaged file is kept as it was."""

import fcntl
import shutil
from pathlib import Path

import pytest

from mqks.journal import JournalError, Reader, UnknownVersion
from mqks.journal import salvage as salvaging
from mqks.journal.files import SegmentFile
from mqks.journal.salvage import Salvaged, salvage
from mqks.journal.verify import Lost, scan, verify
from tests.journal.making import Making


@pytest.fixture
def made(tmp_path: Path) -> Making:
    """One sealed segment of six batches, and a live one of three."""
    made = Making(tmp_path / "data", fsync="interval")
    for number in range(6):
        made.batch(b"m%d publish e1 d%d" % (number, number))
    made.segment(fsync="interval")
    for number in range(6, 9):
        made.batch(b"m%d publish e1 d%d" % (number, number))
    return made


def sealed(made: Making) -> Path:
    return made.folder / "journal" / f"{0:020d}.mqks"


def spoil(path: Path, *numbers: int) -> bytes:
    """Makes the batches with these messages invalid; answers the file as it is then."""
    data = path.read_bytes()
    for number in numbers:
        data = data.replace(b"e1 d%d\n" % number, b"eX d%d\n" % number)
    path.write_bytes(data)
    return data


def left(made: Making) -> list[tuple[int, bytes]]:
    """The messages, with their positions, once a broker has started anew, so that all is sealed."""
    return [(message.position, message.line) for message in Reader(made.folder).messages()]


def kept(made: Making, *lost: int) -> list[tuple[int, bytes]]:
    return [line for number, line in enumerate(made.lines) if number not in lost]


def files(made: Making) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (made.folder / "journal").iterdir()}


def test_nothing_to_do(made: Making) -> None:
    before = files(made)
    assert salvage(made.folder) == []
    made.append(b"torn")
    assert salvage(made.folder) == []
    spoil(made.path, 8)  # nothing says that it was on disk
    assert salvage(made.folder) == []
    assert files(made).keys() == before.keys()
    assert not (made.folder / "aside").exists()


@pytest.mark.parametrize("lost", [(0,), (2,), (5,), (1, 2), (1, 3), (0, 2, 4), (0, 5), (0, 1, 2, 3, 4, 5)])
def test_a_sealed_segment(made: Making, lost: tuple[int, ...]) -> None:
    data = spoil(sealed(made), *lost)
    (done,) = salvage(made.folder)
    assert left(made) == kept(made, *lost)
    report = verify(made.folder)
    assert report.good
    assert report.batches == 9 - len(lost)
    assert done.aside is not None
    assert (done.segment, done.aside.read_bytes()) == (sealed(made).name, data)
    assert done.aside == made.folder / "aside" / f"{0:020d}.mqks.damaged"
    assert sum(end - start for start, end, _ in done.lost) == len(lost) * 128
    assert sum(end - start for start, end in done.kept) == len(data) - len(lost) * 128
    assert salvage(made.folder) == []


def test_the_new_segment_stands_in_the_place_of_what_is_lost(made: Making) -> None:
    spoil(sealed(made), 2)
    (done,) = salvage(made.folder)
    third = 44 + 3 * 128  # position of the first batch after the lost one
    assert [segment.start for segment in Reader(made.folder).segments()] == [0, third - 44, made.start]
    assert [segment.fsync for segment in Reader(made.folder).segments()] == ["interval"] * 3
    assert done == Salvaged(
        f"{0:020d}.mqks",
        made.folder / "aside" / f"{0:020d}.mqks.damaged",
        [(0, third - 128), (third, made.start)],
        [(third - 128, third, "the checksum of the batch is wrong")],
    )


@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
@pytest.mark.parametrize("lost", [(), (0,), (1,)])
def test_the_first_line_is_lost(tmp_path: Path, fsync: str, lost: tuple[int, ...]) -> None:
    made = Making(tmp_path / "data", fsync=fsync)
    for number in range(3):
        made.batch(b"m%d publish e1 d%d" % (number, number))
    first = made.path
    made.segment()
    data = spoil(first, *lost)
    first.write_bytes(b"X" + data[1:])
    assert not verify(made.folder).good
    (done,) = salvage(made.folder)
    assert left(made) == kept(made, *lost)
    assert verify(made.folder).good
    assert done.aside is not None
    assert done.aside.read_bytes() == b"X" + data[1:]
    if 0 not in lost:
        assert Reader(made.folder).segments()[0].fsync == fsync
    else:
        assert not first.exists()


def test_the_last_segment_keeps_its_torn_end_for_the_broker(made: Making) -> None:
    made.append(b"torn")
    spoil(made.path, 7)
    (done,) = salvage(made.folder)
    assert [start - made.start for start, _, _ in done.lost] == [44 + 128]
    report = verify(made.folder)
    assert report.good
    assert report.torn
    assert left(made) == kept(made, 7)
    last = max((made.folder / "journal").iterdir())
    assert last.read_bytes().endswith(b"torn")
    assert int(last.stem) + last.stat().st_size == made.end


def test_several_segments_and_nothing_aside_is_overwritten(made: Making) -> None:
    spoil(sealed(made), 1)
    spoil(made.path, 6)
    (made.folder / "aside").mkdir()
    (made.folder / "aside" / f"{0:020d}.mqks.damaged").write_bytes(b"precious")
    first, second = salvage(made.folder)
    assert (made.folder / "aside" / f"{0:020d}.mqks.damaged").read_bytes() == b"precious"
    assert first.aside and second.aside
    assert first.aside.name == f"{0:020d}.mqks.damaged.1"
    assert second.aside.name == f"{made.start:020d}.mqks.damaged"
    assert left(made) == kept(made, 1, 6)


def test_every_byte_overwritten(made: Making, tmp_path: Path) -> None:
    """Whatever byte is damaged: what was valid stays, and what salvage leaves is good."""
    original = files(made)
    path = sealed(made)
    for at in range(path.stat().st_size):
        shutil.rmtree(made.folder)
        (made.folder / "journal").mkdir(parents=True)
        for name, data in original.items():
            (made.folder / "journal" / name).write_bytes(data)
        path.write_bytes(original[path.name][:at] + b"\x00" + original[path.name][at + 1 :])
        with SegmentFile(made.folder, 0) as file:
            valid = [found[0].position for found in scan(file, file.size) if not isinstance(found, Lost)]
        assert len(valid) >= 5
        (done,) = salvage(made.folder)
        assert verify(made.folder).good, at
        assert [batch.position for batch in Reader(made.folder).batches(stop=made.start)] == valid, at
    assert done.aside is not None
    assert tmp_path in done.aside.parents


def test_whoever_is_interrupted_starts_again(made: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped before each thing that it does to the folder, then run again."""
    made.append(b"torn")
    for path, lost in ((sealed(made), (1, 3)), (made.path, (7,))):
        spoil(path, *lost)
    damaged = files(made)
    steps = ("_copy_aside", "_write_segment", "_cut", "_sync")
    for step in steps:
        for call in range(1, 20):
            shutil.rmtree(made.folder)
            (made.folder / "journal").mkdir(parents=True)
            for name, data in damaged.items():
                (made.folder / "journal" / name).write_bytes(data)
            calls = 0
            original = getattr(salvaging, step)

            def stop(*args: object, original=original, call=call) -> object:  # type: ignore[no-untyped-def]
                nonlocal calls
                calls += 1
                if calls == call:
                    raise InterruptedError
                return original(*args)

            with monkeypatch.context() as patched:
                patched.setattr(salvaging, step, stop)
                try:
                    salvage(made.folder)
                    break
                except InterruptedError:
                    pass
            salvage(made.folder)
            assert left(made) == kept(made, 1, 3, 7), (step, call)
            assert verify(made.folder).good, (step, call)
            last = max((made.folder / "journal").iterdir())
            assert last.read_bytes().endswith(b"torn")
        assert call > 1


def test_not_while_a_broker_runs(made: Making) -> None:
    with (made.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(JournalError, match="stop the broker first"):
            salvage(made.folder)
    assert salvage(made.folder) == []


def test_another_version_is_not_touched(made: Making) -> None:
    spoil(sealed(made), 1)
    made.path.write_bytes(made.path.read_bytes().replace(b"segment 1", b"segment 2"))
    before = files(made)
    with pytest.raises(UnknownVersion):
        salvage(made.folder)
    assert files(made) == before


def test_no_journal(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="no journal"):
        salvage(tmp_path)
    assert list(tmp_path.iterdir()) == []
