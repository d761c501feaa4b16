"""The source over a folder: the same rows as the journal's own reader gives, however the folder is cut into parts."""

import random
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from mqks.journal import JournalError, Reader
from mqks.journal.columns import Columns
from pyspark_mqks.arrow import SchemaError
from pyspark_mqks.folder import Folder
from pyspark_mqks.loss import fail
from pyspark_mqks.options import SourceOptions
from pyspark_mqks.source import BatchReader, Range
from tests.journal.making import SECOND, TIME, Making, small
from tests.spark.scanning import ALL, Row, batch_reader, expected, read, rows, scanned

WORDS = st.sampled_from([b"e1", b"order.new", b"order.paid", "gr\u00fc\u00df.dich".encode(), b"bad\xff.name"])
DATA = st.one_of(
    st.binary(max_size=12).map(lambda data: data.replace(b"\n", b"")),
    st.text(max_size=8).map(lambda text: text.encode().replace(b"\n", b"")),
)
FLAGS = st.sampled_from([b"", b"--once ", b"--once=scope "])
JSON = st.sampled_from([b"{}", b'{"event": "order.new"}', b'{"a": {"event": "e1"}}', b'{"event": "\\u0065"}', b"{"])
LINES = st.one_of(
    st.builds(lambda flag, event, data: b"m1 publish %s%s %s" % (flag, event, data), FLAGS, WORDS, DATA),
    st.builds(lambda flag, json: b"s1 send %s%s" % (flag, json), FLAGS, JSON),
    st.sampled_from([b"20260131120000000000aaaa rebind q1 e1", b"20260131120000000000aaaa hold h 0 1"]),
)
STEPS = st.lists(
    st.one_of(st.lists(LINES, max_size=6), st.sampled_from(["segment", "gap", "sync", "empty segment"])), max_size=12
)


def write(folder: Path, steps: list[list[bytes] | str], fsync: str) -> Making:
    made = Making(folder, fsync=fsync)
    for step in steps:
        match step:
            case "segment":
                made.segment(fsync=fsync)
            case "gap":
                made.segment(fsync=fsync, gap=77)
            case "sync":
                made.sync()
            case "empty segment":
                made.segment(fsync=fsync)
                made.segment(fsync=fsync)
            case list(lines):
                made.batch(*lines)
    return made


@given(steps=STEPS, fsync=st.sampled_from(["always", "never"]), parts=st.integers(1, 9), seed=st.integers(0, 1 << 32))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_journals(
    tmp_path_factory: pytest.TempPathFactory, steps: list[list[bytes] | str], fsync: str, parts: int, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("journal") / "data"
    made = write(folder, steps, fsync)
    options = {"path": folder, "minPartitions": parts}
    assert scanned(options) == expected(folder)
    start, stop = sorted(random.Random(seed).choices(range(Reader(folder).latest + 1), k=2))
    found = scanned(options | {"startingOffsets": start, "endingOffsets": stop})
    assert found == expected(folder, start=start, stop=stop)
    time = TIME + (made.time - TIME) / 2
    assert scanned(options | {"startingTimestamp": time.isoformat()}) == expected(folder, start=time)
    assert scanned(options | {"endingTimestamp": time.isoformat()}) == expected(folder, stop=time)
    assert scanned(options | {"events": "order.*,e1"}) == expected(folder, events=["order.*", "e1"])


def scan(folder: Path, start: int, stop: int) -> list[int]:
    """The positions of the rows in the batches that begin there."""
    columns = Columns(["position"])
    for _ in Folder(str(folder), fail).scan(columns, start, stop):
        pass
    values = memoryview(columns.take()[0][0]).cast("q")
    return list(values)


def test_cut_at_every_byte(tmp_path: Path) -> None:
    made = small(tmp_path / "data")
    made.segment(gap=30)
    made.batch(b"m5 publish e1 after the gap")
    made.sync()
    made.sync()
    end = Reader(made.folder).latest
    whole = scan(made.folder, 0, end)
    assert whole == [row["position"] for row in expected(made.folder)]
    for cut in range(end + 1):
        assert scan(made.folder, 0, cut) + scan(made.folder, cut, end) == whole, cut


def test_live_tail_shows_only_what_can_be_seen(tmp_path: Path) -> None:
    made = small(tmp_path / "data")
    assert [row["id"] for row in scanned({"path": made.folder})] == ["m1", "m2", "s1", "m3"]
    made.sync()  # now m4 is on disk
    made.append(b"20260131120009000000aaaa batch 000000000")  # torn
    assert [row["id"] for row in scanned({"path": made.folder})] == ["m1", "m2", "s1", "m3", "m4"]


def test_an_empty_journal(tmp_path: Path) -> None:
    made = Making(tmp_path / "data")
    assert scanned({"path": made.folder}) == []
    made.path.unlink()
    assert scanned({"path": made.folder}) == []
    with pytest.raises(JournalError, match="no journal"):
        scanned({"path": tmp_path / "elsewhere"})


def test_long_lines_and_many_tiny_batches(tmp_path: Path) -> None:
    made = Making(tmp_path / "data", fsync="never")
    for size in (1 << 20, 300, (3 << 20) + 5):
        made.batch(b"long publish e1 " + b"x" * size)
    for number in range(3000):
        made.batch(b"m%d publish e1 d" % number, time=TIME)
    options = {"path": made.folder, "maxPartitionBytes": "700k"}
    assert scanned(options) == expected(made.folder)
    assert len(batch_reader(options).partitions()) > 5


def test_no_bytes_are_lost_that_are_no_text(tmp_path: Path) -> None:
    made = Making(tmp_path / "data", fsync="never")
    made.batch(b"m1 publish e1 \xff\xfe", "m2 publish e1 \u20ac".encode(), b"m\x80 publish e\x80 ok")
    first, second, third = scanned({"path": made.folder})
    assert (first["data"], first["raw"]) == ("\ufffd\ufffd", b"\xff\xfe")
    assert (second["data"], second["raw"]) == ("\u20ac", None)
    assert (third["id"], third["event"], third["data"], third["raw"]) == ("m\ufffd", "e\ufffd", "ok", None)


# ── what is asked for ──


def test_only_the_columns_that_are_asked_for(tmp_path: Path) -> None:
    made = small(tmp_path / "data")
    assert scanned({"path": made.folder}, ["event", "position"])[0] == {"event": "e1", "position": 153}
    for name in ALL:
        assert scanned({"path": made.folder}, [name]) == [{name: row[name]} for row in expected(made.folder)]


def test_wrong_schema(tmp_path: Path) -> None:
    options = SourceOptions.parse({"path": str(tmp_path)})
    for name, kind in (("topic", StringType()), ("position", IntegerType())):
        with pytest.raises(SchemaError, match=f"no column '{name} .*there are position bigint, time timestamp"):
            BatchReader(options, StructType([StructField(name, kind)]))
    with pytest.raises(SchemaError, match="twice"):
        BatchReader(options, StructType([StructField("id", StringType())] * 2))
    with pytest.raises(SchemaError, match="no column; there are"):
        BatchReader(options, StructType([]))


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ({"subscribe": "e1"}, ["m1", "m3"]),
        ({"subscribe": "order.new,e2"}, ["m2", "s1"]),
        ({"subscribePattern": "e[0-9]"}, ["m1", "s1", "m3"]),
        ({"subscribePattern": "e"}, []),
        ({"events": "order.*"}, ["m2"]),
        ({"exceptEvents": "order.*,e2"}, ["m1", "m3"]),
        ({"subscribe": "e1,order.new", "exceptEvents": "e1"}, ["m2"]),
    ],
)
def test_events_by_options(tmp_path: Path, options: dict[str, object], ids: list[str]) -> None:
    made = small(tmp_path / "data")
    assert [row["id"] for row in scanned(options | {"path": made.folder})] == ids


AFTER_2_S = TIME + 2 * SECOND
FILTERS: list[tuple[list[Filter], list[str]]] = [
    ([EqualTo(("event",), "e1")], ["m1", "m3"]),
    ([EqualNullSafe(("event",), "e2")], ["s1"]),
    ([In(("event",), ("e2", "order.new", None))], ["m2", "s1"]),
    ([StringStartsWith(("event",), "ord")], ["m2"]),
    ([StringStartsWith(("event",), "e"), In(("event",), ("e1", "order.new"))], ["m1", "m3"]),
    ([EqualTo(("event",), "e1"), EqualTo(("event",), "e2")], []),
    ([EqualTo(("time",), AFTER_2_S)], ["s1"]),
    ([GreaterThan(("time",), AFTER_2_S)], ["m3"]),
    ([GreaterThanOrEqual(("time",), AFTER_2_S), LessThanOrEqual(("time",), AFTER_2_S)], ["s1"]),
    ([LessThan(("time",), AFTER_2_S)], ["m1", "m2"]),
    ([LessThan(("time",), AFTER_2_S + timedelta(days=1)), GreaterThan(("time",), TIME)], ["m1", "m2", "s1", "m3"]),
    ([EqualTo(("position",), 170)], ["m2"]),
    ([GreaterThan(("position",), 170), LessThan(("position",), 518)], ["s1"]),
    ([GreaterThanOrEqual(("position",), 170), LessThanOrEqual(("position",), 303)], ["m2", "s1"]),
    ([LessThan(("position",), -5)], []),
    ([GreaterThan(("position",), 1 << 62)], []),
    # not understood: all is read
    ([Not(EqualTo(("event",), "e1")), IsNotNull(("event",)), StringContains(("data",), "x")], ["m1", "m2", "s1", "m3"]),
    ([EqualTo(("time",), AFTER_2_S.replace(tzinfo=None))], ["m1", "m2", "s1", "m3"]),
]


@pytest.mark.parametrize(("filters", "ids"), FILTERS, ids=str)
def test_pushed_filters(tmp_path: Path, filters: list[Filter], ids: list[str]) -> None:
    made = small(tmp_path / "data")
    reader = batch_reader({"path": made.folder})
    assert reader.pushFilters(filters) == filters
    assert [row["id"] for row in rows(reader)] == ids


def test_a_filter_sees_names_as_the_column_has_them(tmp_path: Path) -> None:
    made = Making(tmp_path / "data", fsync="never")
    made.batch(b"m1 publish e\xff d", b"m2 publish e d")
    reader = batch_reader({"path": made.folder})
    reader.pushFilters([EqualTo(("event",), "e\ufffd")])
    assert [row["id"] for row in rows(reader)] == ["m1"]


def test_a_time_range_reads_only_its_batches(tmp_path: Path) -> None:
    made = Making(tmp_path / "data", fsync="never")
    for number in range(100):
        made.batch(b"m%d publish e1 d" % number)
    reader = batch_reader({"path": made.folder})
    reader.pushFilters([GreaterThan(("time",), TIME + 49 * SECOND), LessThanOrEqual(("time",), TIME + 52 * SECOND)])
    (part,) = reader.partitions()
    assert isinstance(part, Range)
    found: list[Row] = read(reader, part)
    assert [row["id"] for row in found] == ["m49", "m50", "m51"]
    assert part.start == found[0]["position"] - 111
    assert part.stop - part.start < 500
