"""A journal cut anywhere, and with any bit flipped: what readers show then, and what verify tells."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqks.journal import Damaged, JournalError, Reader, UnknownVersion
from mqks.journal.verify import verify
from tests.journal.making import SECOND, TIME, Making, small
from tests.journal.second_reader import Damage, second_reader


def seen(reader: Reader) -> list[tuple[int, bytes, bytes | None]]:
    return [(message.position, message.line, message.once) for message in reader.messages()]


@pytest.fixture
def made(tmp_path: Path) -> Making:
    return small(tmp_path / "data")


def test_damage_in_a_sealed_segment_is_told(made: Making) -> None:
    path = made.folder / "journal" / f"{0:020d}.mqks"
    path.write_bytes(path.read_bytes().replace(b"d1", b"dX"))
    with pytest.raises(Damaged, match=r"00000\.mqks is damaged at byte 42: the checksum .* salvage"):
        seen(Reader(made.folder))
    assert [message.id for message in Reader(made.folder).messages(192)] == [b"s1", b"m3"]
    assert [message.data for message in Reader(made.folder, verify=False).messages(stop=153 + 1)] == [b"dX"]


def test_the_second_reader_agrees(made: Making) -> None:
    assert seen(Reader(made.folder)) == second_reader(made.folder) != []
    made.sync()
    made.segment(gap=3, fsync="interval")
    made.batch(
        b"m6 publish e1 \r\xff", b"m7 publish --once=a e1 --once", b"m8 publish --once e1 ", b"s1 send --once {}"
    )
    made.batch(b"m9 publish e1 --once", b's2 send --once=b {"event": "e1"}')
    assert seen(Reader(made.folder)) == second_reader(made.folder)


def changed_journals(made: Making) -> Iterator[tuple[Path, int]]:
    """The journal cut at every byte of every file, and with every bit flipped: the file, and where."""
    for path in sorted((made.folder / "journal").iterdir()):
        data = path.read_bytes()
        for size in range(len(data)):
            path.write_bytes(data[:size])
            yield path, size
        for at in range(len(data)):
            for bit in range(8):
                path.write_bytes(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
                yield path, at
        path.write_bytes(data)


def test_cut_at_every_byte_and_every_bit_flipped(made: Making) -> None:
    """Either what can be seen, as the second reader sees it, or our error; never a message that was not there."""
    original = set(seen(Reader(made.folder)))
    outcomes: Counter[type | None] = Counter()
    for path, offset in changed_journals(made):
        got: list[tuple[int, bytes, bytes | None]] = []
        error: JournalError | None = None
        try:
            reader = Reader(made.folder)
            reader.segments()
            reader.find_time(TIME + 2.5 * SECOND)
            got.extend((message.position, message.line, message.once) for message in reader.messages())
        except JournalError as told:
            error = told
        outcomes[type(error)] += 1
        assert original.issuperset(got), (path, offset)
        if isinstance(error, UnknownVersion):
            assert offset == len("20260131120000000000aaaa segment ")
        elif isinstance(error, Damaged):
            assert error.segment == path.name
            with pytest.raises(Damage):
                second_reader(made.folder)
        else:
            assert error is None
            assert got == second_reader(made.folder), (path, offset)
    assert outcomes.keys() == {type(None), Damaged, UnknownVersion}


def test_verify_tells_every_cut_and_every_flipped_bit(made: Making) -> None:
    """But for a cut of the last segment between two batches: nothing says that there was more."""
    size = made.path.stat().st_size
    for path, offset in changed_journals(made):
        report = verify(made.folder)
        between = path == made.path and path.stat().st_size < size and offset in (0, 42, 209)
        in_the_first_dtid = offset < 24
        if not in_the_first_dtid and not between:
            assert report.problems or report.gaps or report.torn, (path, offset)
        if path != made.path and not report.gaps:
            assert report.torn is None
