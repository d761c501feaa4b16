"""verify: each kind of mistake is told, and nothing else."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mqks.journal import JournalError
from mqks.journal.format import build_batch, dtid_floor
from mqks.journal.verify import Gap, Problem, Report, verify
from tests.journal.making import SECOND, Making, small


@pytest.fixture
def made(tmp_path: Path) -> Making:
    return small(tmp_path / "data")


def texts(report: Report) -> list[str]:
    return [problem.text for problem in report.problems]


def test_a_good_journal(made: Making) -> None:
    done: list[tuple[int, int]] = []
    report = verify(made.folder, lambda at, total: done.append((at, total)))
    assert report == Report(segments=2, batches=4, lines=6, bytes=668)
    assert report.good
    assert done == sorted(done)
    assert done[-1] == (668, 668)


def test_no_journal(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="no journal"):
        verify(tmp_path)


def test_an_empty_last_segment_is_good(made: Making) -> None:
    made.segment()
    made.path.write_bytes(b"")
    assert verify(made.folder).good
    assert verify(made.folder).torn is None


def test_gaps_are_no_problem(made: Making) -> None:
    made.segment(gap=100)
    made.batch(b"m5 publish e1 d5")
    removed = made.path
    start = made.segment()
    made.batch(b"m6 publish e1 d6")
    removed.unlink()
    report = verify(made.folder)
    assert report.good
    assert report.gaps == [Gap(668, start)]


@pytest.mark.parametrize(
    ("spoil", "offset", "text"),
    [
        (lambda data: data.replace(b"d1", b"dX"), 42, "the checksum of the batch is wrong (150 bytes)"),
        (
            lambda data: data.replace(b"batch", b"botch", 1),
            42,
            "there is no batch header where one should be (150 bytes)",
        ),
        (lambda data: data.replace(b"segment", b"sigment"), 0, "its first line is not that of a segment (42 bytes)"),
        (lambda data: data[:-1], 192, "the file ends inside a batch (134 bytes)"),
        (lambda data: data[:200], 192, "the file ends inside the header of a batch (8 bytes)"),
        (lambda data: data + b"x", 327, "the file ends inside the header of a batch (1 bytes)"),
    ],
)
def test_damage_in_a_sealed_segment(made: Making, spoil: Callable[[bytes], bytes], offset: int, text: str) -> None:
    path = made.folder / "journal" / f"{0:020d}.mqks"
    path.write_bytes(spoil(path.read_bytes()))
    assert verify(made.folder).problems[0] == Problem(path.name, offset, text)


def test_a_torn_end_is_no_problem_but_damage_before_it_is(made: Making) -> None:
    made.append(b"2026")
    report = verify(made.folder)
    assert (report.good, report.torn) == (
        True,
        Problem(made.path.name, 341, "the file ends inside the header of a batch (4 bytes)"),
    )
    data = made.path.read_bytes()
    made.path.write_bytes(data.replace(b"unseen", b"unsXen"))  # not known to be on disk: torn as well
    report = verify(made.folder)
    assert report.good
    assert report.torn
    assert report.torn.offset == 209
    made.path.write_bytes(data.replace(b"a b", b"a X"))  # a later batch says that it was on disk
    report = verify(made.folder)
    assert report.problems == [Problem(made.path.name, 42, "the checksum of the batch is wrong (167 bytes)")]
    assert report.torn
    assert report.torn.offset == 341


def test_the_chain(made: Making) -> None:
    made.crc ^= 1
    made.batch(b"m5 publish e1 d5")
    made.crc ^= 1
    made.segment()
    made.batch()
    text = "the batch does not name the checksum of the one before"
    assert [(problem.offset, problem.text) for problem in verify(made.folder).problems] == [(341, text), (42, text)]


def test_the_first_batch_of_all_follows_nothing(tmp_path: Path) -> None:
    made = Making(tmp_path / "data")
    made.crc = 1
    made.batch()
    assert len(verify(made.folder).problems) == 1


def test_counts_times_and_synced(made: Making) -> None:
    made.batch(b"m5 publish e1 d5", time=made.time - SECOND)
    made.batch(synced=made.end + 1)
    text = build_batch(dtid_floor(made.time), made.end, b"no newline", made.end, made.crc)
    made.append(text)
    report = verify(made.folder)
    assert texts(report) == [
        "the batch is older than the one before",
        f"the batch calls {made.end - len(text) - 111 + 1} synced, which is beyond itself",
        "the last line of the batch has no end",
    ]


def test_names_overlaps_and_versions(made: Making) -> None:
    (made.folder / "journal" / "notes.txt").touch()
    made.end -= 1
    made.segment()
    made.path.write_bytes(made.path.read_bytes().replace(b"segment 1", b"segment 2"))
    assert texts(verify(made.folder)) == [
        "this is not the name of a segment: move it elsewhere",
        "it starts before the end of the one before, 668",
        "00000000000000000667.mqks is of format 2, which this mqks does not know: use a newer one",
    ]
