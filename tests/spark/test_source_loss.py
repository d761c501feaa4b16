"""What is missing or damaged, read from the folder and from a broker: an error that names it, or all the other rows."""

import logging
import os
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import cast

import pytest

from mqks import connect
from mqks.journal import JournalError, Reader, files
from mqks.journal.columns import Columns
from mqks.testing import broker
from pyspark_mqks import folder
from pyspark_mqks.folder import Folder
from pyspark_mqks.loss import DataLoss
from pyspark_mqks.source import Range
from tests.journal.making import SECOND, TIME, Making
from tests.spark.scanning import batch_reader, read, scanned, stream_reader

KEEP = {"retain_age": "3650d", "retain_bytes": "1G", "fsync": "never"}
ON = {"failOnDataLoss": "false"}

Given = dict[str, object]


class Kept:
    """Three segments of ten batches with one message each, m0 to m29, and a live one; and how to read them."""

    def __init__(self, folder: Path) -> None:
        self.made = made = Making(folder, fsync="never")
        self.batches: list[int] = []
        self.segments = [made.path]
        for number in range(30):
            if number in (10, 20):
                made.segment(fsync="never")
                self.segments.append(made.path)
            self.batches.append(made.batch(b"m%d publish e1 some data" % number))
        made.segment(fsync="never")
        self.given: Given = {"path": folder, "minPartitions": 7}

    def spoil(self, number: int, offset: int = 120, data: bytes = b"~") -> None:
        """Write over a part of the batch of that message."""
        path = self.segments[number // 10]
        with path.open("r+b") as file:
            file.seek(self.batches[number] - int(path.stem) + offset)
            file.write(data)

    def all_but(self, *numbers: int) -> list[str]:
        return [f"m{number}" for number in range(30) if number not in numbers]

    def ids(self, **options: object) -> list[str]:
        return [row["id"] for row in scanned(self.given | options)]


@pytest.fixture(params=["path", "url"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path / "data")
    if request.param == "path":
        yield made
        return
    with broker(data=tmp_path / "data", **KEEP) as running:
        made.given = {"url": running.url, "minPartitions": 7}
        yield made


def test_nothing_is_missing(kept: Kept) -> None:
    assert kept.ids() == kept.all_but()
    assert kept.ids(startingOffsets=kept.batches[12], endingOffsets=kept.batches[15]) == ["m12", "m13", "m14"]
    middle = kept.batches[12] + 111  # of a batch
    assert kept.ids(startingOffsets=middle, endingOffsets=middle + 1) == ["m12"]
    assert kept.ids(startingOffsets=middle + 1, endingOffsets=middle + 1) == []


SPOILT = {
    "data": (120, b"~"),
    "checksum": (93, b"00000000"),
    "header": (24, b" hatch "),
    "size": (52, b"0000000300"),
    "whole": (0, b"\xff" * 130),
}


@pytest.mark.parametrize("what", SPOILT)
@pytest.mark.parametrize("number", [0, 13, 19])
def test_a_damaged_batch(kept: Kept, what: str, number: int, caplog: pytest.LogCaptureFixture) -> None:
    kept.spoil(number, *SPOILT[what])
    with pytest.raises(DataLoss, match=r"positions \d+ to \d+ cannot be read.*failOnDataLoss"):
        kept.ids()
    assert kept.ids(**ON) == kept.all_but(number)
    told = [line.args for line in caplog.records if line.name == "mqks.spark" and line.levelno == logging.WARNING]
    assert any(start <= kept.batches[number] < end for start, end, _ in cast(list[tuple[int, int, str]], told))


def test_damage_is_found_however_the_journal_is_cut(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "data")
    kept.spoil(13)
    kept.spoil(15, *SPOILT["header"])
    kept.spoil(16, *SPOILT["size"])
    begin, end = kept.batches[12], kept.batches[18]
    for cut in range(begin, end + 1):
        failed, found = 0, []
        for start, stop in ((begin, cut), (cut, end)):
            given = kept.given | {"startingOffsets": begin, "endingOffsets": end, "minPartitions": 1}
            failing, going_on = batch_reader(given), batch_reader(given | ON)
            part = Range(start, stop, begin, end)
            found += [row["id"] for row in read(going_on, part)]
            try:
                read(failing, part)
            except DataLoss:
                failed += 1
        assert found == ["m12", "m14", "m17"], cut
        assert failed, cut


def test_damage_that_is_not_asked_for_does_not_matter(kept: Kept) -> None:
    kept.spoil(13)
    assert kept.ids(startingOffsets=kept.batches[14]) == kept.all_but(*range(14))
    assert kept.ids(endingOffsets=kept.batches[13]) == kept.all_but(*range(13, 30))


def test_two_damaged_batches(kept: Kept) -> None:
    kept.spoil(3)
    kept.spoil(14)
    kept.spoil(15)
    assert kept.ids(**ON) == kept.all_but(3, 14, 15)


def test_a_missing_segment(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "data")
    kept.segments[1].unlink()
    for parts in (1, 2, 3, 7, 50):
        kept.given["minPartitions"] = parts
        with pytest.raises(DataLoss, match=r"not in the folder any more"):
            kept.ids()
        assert kept.ids(**ON) == kept.all_but(*range(10, 20))
    with pytest.raises(DataLoss, match="is gone"):
        kept.ids(startingOffsets=kept.batches[13])
    assert kept.ids(startingOffsets=kept.batches[13], **ON) == kept.all_but(*range(20))


@pytest.mark.parametrize("parts", [1, 7])
def test_a_missing_segment_of_a_broker(tmp_path: Path, parts: int) -> None:
    """A broker starts without it only if a salvage has given it up."""
    kept = Kept(tmp_path / "data")
    begin, end = (int(path.stem) for path in kept.segments[1:])
    kept.segments[1].unlink()
    (tmp_path / "data" / "lost").write_text(f"{begin} {end}\n")
    with broker(data=tmp_path / "data", **KEEP) as running:
        kept.given = {"url": running.url, "minPartitions": parts}
        with pytest.raises(DataLoss, match=rf"positions {begin} to \d+ cannot be read.*its log says why"):
            kept.ids()
        assert kept.ids(**ON) == kept.all_but(*range(10, 20))
        assert kept.ids(startingOffsets=kept.batches[13], **ON) == kept.all_but(*range(20))


@pytest.mark.parametrize("left", [0, 10, 41])
def test_an_emptied_segment(tmp_path: Path, left: int) -> None:
    kept = Kept(tmp_path / "data")
    with kept.segments[1].open("r+b") as file:
        file.truncate(left)
    with pytest.raises(DataLoss):
        kept.ids()
    assert kept.ids(**ON) == kept.all_but(*range(10, 20))


def test_a_truncated_segment(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "data")
    for size in (kept.batches[15], kept.batches[15] + 50, kept.batches[15] + 120):
        with kept.segments[1].open("r+b") as file:
            file.truncate(size - int(kept.segments[1].stem))
        with pytest.raises(DataLoss):
            kept.ids()
        kept.segments[1].write_bytes(kept.segments[1].read_bytes() + b"x")  # so that the next one is smaller too
        assert kept.ids(**ON) == kept.all_but(*range(15, 20))


def test_a_damaged_first_line(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "data")
    with kept.segments[1].open("r+b") as file:
        file.write(b"what?")
    with pytest.raises(DataLoss, match="first line"):
        kept.ids()
    assert kept.ids(**ON) == kept.all_but()
    for number in range(10, 20):  # a part may begin at a batch, and then has nothing to do with it
        assert kept.ids(startingOffsets=kept.batches[number], minPartitions=1) == kept.all_but(*range(number))
    stream = stream_reader({**ON, "path": tmp_path / "data", "startingOffsets": "earliest", "maxOffsetsPerTrigger": 1})
    at, found = stream.initialOffset(), []
    while (end := stream.latestOffset(at, stream.getDefaultReadLimit())) != at:
        found += [row["id"] for part in stream.partitions(at, end) for row in read(stream, part)]
        at = end
    assert found == kept.all_but()


def test_damage_in_the_live_segment(tmp_path: Path) -> None:
    """It is read as a sealed one is: what is behind the damage is shown, as far as it is known to be on disk."""
    made = Making(tmp_path / "data")
    batches = [made.batch(b"m%d publish e1 d" % number) for number in range(7)]  # the last one is not synced
    with made.path.open("r+b") as file:
        file.seek(batches[2] + 115)
        file.write(b"~")

    def ids(**options: object) -> list[str]:
        return [row["id"] for row in scanned({"path": made.folder} | options)]

    with pytest.raises(DataLoss, match=f"positions {batches[2]} to {batches[3]} cannot be read"):
        ids()
    assert ids(**ON) == ["m0", "m1", "m3", "m4", "m5"]
    assert ids(endingOffsets=batches[2]) == ["m0", "m1"]
    assert ids(startingOffsets=batches[4]) == ["m4", "m5"]
    assert ids(startingTimestamp=(TIME + 6 * SECOND).isoformat()) == ["m5"]
    stream = stream_reader(ON | {"path": made.folder})
    at = stream.initialOffset()
    assert stream.latestOffset(at, stream.getDefaultReadLimit()) == at
    made.sync()
    end = stream.latestOffset(at, stream.getDefaultReadLimit())
    assert [row["id"] for part in stream.partitions(at, end) for row in read(stream, part)] == ["m6"]


def test_a_journal_that_is_shorter_than_it_was(kept: Kept) -> None:
    """As of a broker whose folder was replaced by an older copy, between planning and reading."""
    latest = stream_reader(kept.given).reportLatestOffset()["position"]
    longer = latest + 1000
    for start in (0, latest - 10, latest, latest + 10):
        part = Range(start, longer, 0, longer)
        with pytest.raises(DataLoss, match=rf"to {longer} cannot be read: the journal .*ends at"):
            read(batch_reader(kept.given), part)
        found = [row["id"] for row in read(batch_reader(kept.given | ON), part)]
        assert found == (kept.all_but() if start == 0 else [])


@pytest.mark.parametrize("more", [0, 50, 120])
def test_a_segment_that_is_cut_while_it_is_read(tmp_path: Path, more: int) -> None:
    """Between two batches, in a header, in the lines."""
    made = Making(tmp_path / "data", fsync="never")
    batches = [made.batch(b"m%d publish e1 " % number + b"x" * 300_000) for number in range(20)]
    path, end = made.path, made.end
    made.segment(fsync="never")
    told: list[tuple[int, int]] = []
    columns = Columns(["id"])
    scan = Folder(str(made.folder), lambda start, stop, _: told.append((start, stop))).scan(columns, 0, made.end)
    next(scan)
    os.truncate(path, batches[10] + more)
    for _ in scan:
        pass
    assert columns.rows == 10
    assert told == [(batches[10], end)]


def test_a_segment_goes_before_a_gap_of_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention takes it between the look into the folder and the open: the gap after it is no excuse."""
    made = Making(tmp_path / "data", fsync="never")
    made.batch(b"m1 publish e1 d")
    first = made.path
    following = made.segment(fsync="never", gap=30)
    made.batch(b"m2 publish e1 d")
    (part,) = batch_reader({"path": made.folder}).partitions()
    seen = files.starts(made.folder)
    first.unlink()
    looks = chain([seen], repeat(seen[1:]))
    monkeypatch.setattr(folder, "starts", lambda _: next(looks))
    with pytest.raises(DataLoss, match=f"positions 0 to {following} cannot be read"):
        read(batch_reader({"path": made.folder}), part)


def test_beyond_the_end(kept: Kept) -> None:
    for name in ("startingOffsets", "endingOffsets"):
        with pytest.raises(DataLoss, match="end"):
            kept.ids(**{name: 1 << 40})
    assert kept.ids(startingOffsets=1 << 40, **ON) == []
    assert kept.ids(endingOffsets=1 << 40, **ON) == kept.all_but()


# ── retention ──


def test_a_segment_goes_between_planning_and_reading(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "data")
    failing, going_on = batch_reader(kept.given), batch_reader(kept.given | ON)
    parts = going_on.partitions()
    kept.segments[0].unlink()
    assert [row["id"] for part in parts for row in read(going_on, part)] == kept.all_but(*range(10))
    with pytest.raises(DataLoss):
        [read(failing, part) for part in parts]


@pytest.mark.parametrize("way", ["path", "url"])
def test_a_broker_removes_what_is_to_be_read(tmp_path: Path, way: str) -> None:
    folder = tmp_path / "data"
    small = {"segment_size": "64K", "retain_bytes": "128K", "fsync": "never"}
    with broker(data=folder, **small) as running, connect(running.url) as client:

        def publish(first: int, last: int) -> None:
            for number in range(first, last):
                client.publish("e1", f"{number} " + "x" * 40_000, confirm=True)

        publish(0, 3)
        given: Given = {"path": folder} if way == "path" else {"url": running.url}
        failing, going_on = batch_reader(given), batch_reader(given | ON)
        stream = stream_reader(given | {"startingOffsets": "earliest"})
        start = stream.initialOffset()
        parts = going_on.partitions()
        number = 3
        while Reader(folder).earliest == 0:
            publish(number, number + 1)
            number += 1
        running.restart()  # which ends whatever it still has open
        found = [int(row["data"].split()[0]) for part in parts for row in read(going_on, part)]
        assert found == list(range(3))[3 - len(found) :]
        with pytest.raises(DataLoss, match=r"positions 0 to \d+ cannot be read"):
            [read(failing, part) for part in parts]
        with pytest.raises(DataLoss, match=r"positions 0 to \d+ cannot be read"):
            stream.latestOffset(start, stream.getDefaultReadLimit())


def test_a_broker_without_a_journal() -> None:
    with broker() as running, pytest.raises(JournalError, match="--memory"):
        with connect(running.url) as client:
            client.publish("e1", "d1", confirm=True)
        scanned({"url": running.url})


@pytest.mark.parametrize("data", [b"other", b"longer than it was"])
def test_a_copy_that_was_put_back(tmp_path: Path, data: bytes) -> None:
    """Positions that were given out after it was made are given out again, for other messages."""
    first, second = Making(tmp_path / "before"), Making(tmp_path / "put back")
    for made, lines in ((first, [b"m1 publish e1 d1", b"m2 publish e1 first"]), (second, [b"m1 publish e1 d1"])):
        for line in lines:
            made.batch(line)
        made.sync()
    stream = stream_reader({"path": first.folder})
    end = stream.latestOffset(stream.initialOffset() | {"position": 0}, stream.getDefaultReadLimit())
    again = stream_reader({"path": first.folder})
    assert again.latestOffset(end, again.getDefaultReadLimit()) == end

    for number in range(9):
        second.batch(b"m%d publish e1 " % number + data)
    second.sync()
    said = rf"up to position {end['position']}, or a copy of it that was put back"
    with pytest.raises(DataLoss, match=said):
        stream_reader({"path": second.folder}).latestOffset(end, stream.getDefaultReadLimit())
    with pytest.raises(DataLoss, match=said):
        stream_reader({"path": second.folder}).partitions(end, end)
    going_on = stream_reader({"path": second.folder, **ON})
    assert going_on.latestOffset(end, going_on.getDefaultReadLimit()) != end
