"""The source as a stream, driven as Spark drives it: offsets, limits, and where it ends; over a folder and a broker."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from mqks import connect
from mqks.client.errors import ConnectionLost
from mqks.journal import Reader
from mqks.testing import broker
from pyspark_mqks.loss import DataLoss
from pyspark_mqks.options import OptionError
from pyspark_mqks.source import Offset, StreamReader
from tests.journal.making import SECOND, TIME, Making
from tests.spark.scanning import Row, expected, read, scanned, stream_reader

KEEP = {"retain_age": "3650d", "retain_bytes": "1G", "fsync": "never"}

Given = dict[str, object]


def made_up(folder: Path) -> Making:
    """Three segments of ten batches with two messages each."""
    made = Making(folder, fsync="never")
    for number in range(30):
        if number in (10, 20):
            made.segment(fsync="never", gap=number)
        made.batch(b"a%d publish e1 d" % number, b"b%d publish e2 d" % number)
    return made


@pytest.fixture(params=["path", "url"])
def given(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Given]:
    folder = made_up(tmp_path / "data").folder
    if request.param == "path":
        yield {"path": folder}
        return
    with broker(data=folder, **KEEP) as running:
        yield {"url": running.url}


def follow(reader: StreamReader, at: Offset, limit: ReadLimit | None = None) -> tuple[list[list[Row]], Offset]:
    """The micro-batches until nothing is new, and where the stream is then."""
    limit = limit or reader.getDefaultReadLimit()
    batches = []
    while (end := reader.latestOffset(at, limit)) != at:
        batches.append([row for part in reader.partitions(at, end) for row in read(reader, part)])
        at = end
    return batches, at


def test_all_rows_in_one_batch(given: Given, tmp_path: Path) -> None:
    reader = stream_reader(given | {"startingOffsets": "earliest"})
    assert reader.getDefaultReadLimit() == ReadMaxBytes(256 << 20)
    batches, at = follow(reader, reader.initialOffset())
    assert batches == [expected(tmp_path / "data")]
    assert at["position"] == reader.reportLatestOffset()["position"]
    assert reader.partitions(at, at) == []


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"maxOffsetsPerTrigger": 1}, 2),  # at least one batch of the journal
        ({"maxOffsetsPerTrigger": 2}, 2),
        ({"maxOffsetsPerTrigger": 7}, 6),
        ({"maxOffsetsPerTrigger": 1000}, 60),
        ({"maxBytesPerTrigger": 1}, 2),
        ({"maxBytesPerTrigger": 500}, 6),
        ({"maxBytesPerTrigger": "1m"}, 60),
        ({"maxOffsetsPerTrigger": 7, "maxBytesPerTrigger": 300}, 4),
    ],
)
def test_limits(given: Given, tmp_path: Path, options: Given, most: int) -> None:
    reader = stream_reader(given | {"startingOffsets": "earliest"} | options)
    batches, _ = follow(reader, reader.initialOffset())
    assert [row for batch in batches for row in batch] == expected(tmp_path / "data")
    assert max(map(len, batches)) == most


def test_every_position_is_a_place_to_start(given: Given, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    for start in range(0, Reader(folder).latest, 37):
        options = {"maxOffsetsPerTrigger": 20, "startingOffsets": f'{{"position": {start}}}'}
        reader = stream_reader(given | options)
        batches, _ = follow(reader, reader.initialOffset())
        assert [row for batch in batches for row in batch] == expected(folder, start=start)


@pytest.mark.parametrize("way", ["path", "url"])
def test_batches_without_rows_are_no_reason_for_a_micro_batch(tmp_path: Path, way: str) -> None:
    made = Making(tmp_path / "data", fsync="never")
    for number in range(4):
        made.sync()
        made.batch(*[b"m%d publish e1 d" % number] * 3)
    with broker(data=made.folder, **KEEP) as running:
        options = {"path": made.folder} if way == "path" else {"url": running.url}
        reader = stream_reader(options | {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 2})
        batches, _ = follow(reader, reader.initialOffset())
        assert [len(batch) for batch in batches[:4]] == [3, 3, 3, 3]  # then comes what the broker has added


def test_a_place_in_a_batch_that_cannot_be_seen_yet(tmp_path: Path) -> None:
    made = Making(tmp_path / "data")
    made.batch(b"m1 publish e1 d")
    made.batch(b"m2 publish e1 d", b"m3 publish e1 d")
    reader = stream_reader({"path": made.folder, "startingOffsets": made.lines[-1][0]})
    start = reader.initialOffset()
    assert follow(reader, start) == ([], start)
    made.sync()
    ((row,),), _ = follow(reader, start)
    assert row["id"] == "m3"


def test_all_that_there_is(given: Given, tmp_path: Path) -> None:
    """Spark may want no limit, whatever the options say."""
    reader = stream_reader(given | {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 2})
    assert reader.getDefaultReadLimit() == ReadMaxRows(2)
    batches, _ = follow(reader, reader.initialOffset(), ReadAllAvailable())
    assert batches == [expected(tmp_path / "data")]


def test_from_a_time(given: Given, tmp_path: Path) -> None:
    time = TIME + 15 * SECOND
    reader = stream_reader(given | {"startingTimestamp": time.isoformat()})
    batches, _ = follow(reader, reader.initialOffset())
    assert batches == [expected(tmp_path / "data", start=time)]


def test_a_new_stream_begins_at_the_end(given: Given) -> None:
    reader = stream_reader(given)
    assert reader.initialOffset() == reader.reportLatestOffset()
    assert follow(reader, reader.initialOffset())[0] == []


def test_a_stream_goes_on_where_another_ended(given: Given, tmp_path: Path) -> None:
    options = given | {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 10}
    found: list[Row] = []
    at = stream_reader(options).initialOffset()
    while True:
        reader = stream_reader(options)  # a new driver each time
        end = reader.latestOffset(at, reader.getDefaultReadLimit())
        if end == at:
            break
        found += [row for part in stream_reader(options).partitions(at, end) for row in read(reader, part)]
        at = end
    assert found == expected(tmp_path / "data")


def test_available_now_ends_where_it_began(tmp_path: Path) -> None:
    made = made_up(tmp_path / "data")
    before = expected(made.folder)
    reader = stream_reader({"path": made.folder, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 10})
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    made.batch(b"late publish e1 d")
    batches, at = follow(reader, start)
    assert [row for batch in batches for row in batch] == before
    again = stream_reader({"path": made.folder})
    again.prepareForTriggerAvailableNow()
    (rest,), _ = follow(again, at)
    assert [row["id"] for row in rest] == ["late"]


def test_an_offset_beyond_the_end(given: Given) -> None:
    beyond = {"position": 1 << 40}
    reader = stream_reader(given)
    with pytest.raises(DataLoss, match="end"):
        reader.latestOffset(beyond, reader.getDefaultReadLimit())
    reader = stream_reader(given | {"failOnDataLoss": "false"})
    assert reader.latestOffset(beyond, reader.getDefaultReadLimit()) == reader.reportLatestOffset()


def test_no_end(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="endingOffsets is for a batch, and this is a stream"):
        stream_reader({"path": tmp_path, "endingOffsets": "latest"})


# ── brokers ──


@pytest.mark.parametrize("way", ["path", "url"])
@pytest.mark.parametrize("fsync", ["always", "never"])
def test_live_tail(tmp_path: Path, way: str, fsync: str) -> None:
    """All that a broker confirms shows up, in order and once, while it goes on writing."""
    folder = tmp_path / "data"
    with broker(data=folder, fsync=fsync, segment_size="64K") as running, connect(running.url) as client:
        reader = stream_reader({"path": folder} if way == "path" else {"url": running.url})
        at = reader.initialOffset()
        found: list[str] = []
        for batch in range(40):
            client.publish_many([("e1", f"{batch}.{number} " + "x" * 100) for number in range(50)])
            rows, at = follow(reader, at)
            found += [row["data"].split()[0] for each in rows for row in each]
        while len(found) < 2000:  # with fsync=always the last ones are shown when the broker says that they are on disk
            rows, at = follow(reader, at)
            found += [row["data"].split()[0] for each in rows for row in each]
        assert found == [f"{batch}.{number}" for batch in range(40) for number in range(50)]
        assert Reader(folder).segments()[-1].start > 0


def test_a_broker_that_goes_and_comes_back(tmp_path: Path) -> None:
    """In the middle of a scan the broker stops; reading goes on after the last whole batch."""
    folder = tmp_path / "data"
    with broker(data=folder, fsync="never") as running:
        with connect(running.url) as client:
            client.publish_many([("e1", f"{number} " + "x" * 100_000) for number in range(100)])
        reader = stream_reader({"url": running.url, "startingOffsets": "earliest"}, ["data"])
        start, end = reader.initialOffset(), reader.reportLatestOffset()
        (part,) = reader.partitions(start, end)
        found: list[int] = []
        for times, batch in enumerate(reader.read(part)):
            found += [int(row["data"].split()[0]) for row in batch.to_pylist()]
            if times == 0:
                running.restart()
        assert found == list(range(100))


def test_a_broker_that_stays_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with broker(data=tmp_path / "data", fsync="never") as running:
        with connect(running.url) as client:
            client.publish("e1", "d1", confirm=True)
        assert len(scanned({"url": running.url})) == 1
        running.stop()
        with pytest.raises(ConnectionLost, match=r"cannot reach .* 0.1 s \(option retryFor\)"):
            scanned({"url": running.url, "retryFor": "0.1"})
        (told,) = [record.getMessage() for record in caplog.records if record.name == "mqks.spark"]
        assert "Trying for 0.1 s" in told


def test_a_stream_stays_where_it_is_while_nothing_comes_that_it_wants(tmp_path: Path) -> None:
    made = Making(tmp_path / "data", fsync="never")
    made.batch(b"m1 publish e1 d")
    reader = stream_reader({"path": made.folder, "startingOffsets": "earliest", "exceptEvents": "own"})
    _, at = follow(reader, reader.initialOffset())
    for number in range(3):
        made.batch(b"o%d publish own d" % number)
        assert reader.latestOffset(at, reader.getDefaultReadLimit()) == at
    made.batch(b"o3 publish own d", b"m2 publish e1 d")
    batches, end = follow(reader, at)
    assert [[row["id"] for row in rows] for rows in batches] == [["m2"]]
    assert end["position"] == made.end
    made.batch(b"o4 publish own " + b"d" * (1 << 20))  # too much to look through
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) != end
