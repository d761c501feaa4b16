"""Record batches as lines: what is on them, which ids they get, and which rows are refused; no Spark session."""

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from mqks.names import is_event, is_name
from pyspark_mqks import lines as lines_module
from pyspark_mqks.hashing import PIECE, Equals, hash_rows, to_hex
from pyspark_mqks.lines import BadRow, Columns, Lines

Rows = dict[str, list[Any]]

TYPES: dict[str, DataType] = {"position": LongType()}


def columns(*names: str) -> Columns:
    return Columns.of(StructType([StructField(name, TYPES.get(name, StringType())) for name in names]))


def made(rows: Rows, *, scope: str | None = "test", **options: Any) -> list[bytes]:
    """The lines of one record batch, without their ends."""
    return lines_of(Lines(columns(*rows), scope=scope, **options), rows)


def lines_of(lines: Lines, rows: Rows) -> list[bytes]:
    found = []
    for block in lines.blocks(batch(rows)):
        assert len(block.lines) == block.ends[-1]
        starts = [0, *block.ends[:-1]]
        found += [bytes(block.lines[start:end]) for start, end in zip(starts, block.ends, strict=True)]
    assert all(line.endswith(b"\n") for line in found)
    return [line[:-1] for line in found]


def batch(rows: Rows) -> Any:
    return pa.record_batch({name: column(name, values) for name, values in rows.items()})


def column(name: str, values: list[Any]) -> Any:
    if name == "position":
        return pa.array(values, pa.int64())
    return pa.array(values, pa.binary() if any(isinstance(value, bytes) for value in values) else pa.string())


def ids(lines: list[bytes]) -> list[bytes]:
    return [line.partition(b" ")[0] for line in lines]


# ── lines ──


def test_lines() -> None:
    rows: Rows = {"event": ["e1", "e2"], "data": ["d 1", '{"n": 1}'], "id": ["m1", "m2"]}
    assert made(rows) == [
        b"m1 publish --confirm --once=test e1 d 1",
        b'm2 publish --confirm --once=test e2 {"n": 1}',
    ]
    assert made(rows, scope=None) == [b"m1 publish --confirm e1 d 1", b'm2 publish --confirm e2 {"n": 1}']


def test_columns_in_any_order_and_case() -> None:
    lines = Lines(Columns.of(StructType([StructField(n, StringType()) for n in ("ID", "Data", "event")])), scope="s")
    sent = pa.record_batch({"ID": ["m1"], "Data": ["d1"], "event": ["e1"]})
    assert [bytes(block.lines) for block in lines.blocks(sent)] == [b"m1 publish --confirm --once=s e1 d1\n"]


def test_null_data_is_empty_and_bytes_are_kept() -> None:
    assert made({"event": ["e1"] * 3, "data": [None, b"\xff\x00"[:1], "é".encode()], "id": ["a", "b", "c"]}) == [
        b"a publish --confirm --once=test e1 ",
        b"b publish --confirm --once=test e1 \xff",
        b"c publish --confirm --once=test e1 \xc3\xa9",
    ]


def test_a_carriage_return_at_the_end_is_data() -> None:
    """The broker drops one before the newline, so each line of such a block gets one more."""
    assert made({"event": ["e1", "e1"], "data": ["a\r", "b"], "id": ["1", "2"]}) == [
        b"1 publish --confirm --once=test e1 a\r\r",
        b"2 publish --confirm --once=test e1 b\r",
    ]


def test_actions() -> None:
    rows: Rows = {
        "action": ["publish", "send", None],
        "event": ["e1", None, "e3"],
        "data": ["d1", '{"event": "e2"}', "d3"],
        "id": ["1", "2", "3"],
    }
    assert made(rows) == [
        b"1 publish --confirm --once=test e1 d1",
        b'2 send --once=test {"event": "e2"}',
        b"3 publish --confirm --once=test e3 d3",
    ]
    assert made(rows, scope=None)[1] == b'2 send {"event": "e2"}'


def test_blocks_are_cut_by_size_and_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "BLOCK", 1000)
    rows: Rows = {"event": ["e1"] * 100, "data": ["x" * 60] * 99 + ["x" * 5000], "id": [str(n) for n in range(100)]}
    lines = Lines(columns(*rows), scope="s")
    sizes = [len(block.lines) for block in lines.blocks(batch(rows))]
    assert len(sizes) == 11  # 10 of about 1000, and the long line
    assert max(sizes[:-1]) < 1200
    assert made(rows) == made(rows, most_rows=7)
    few = Lines(columns(*rows), scope="s", most_rows=7)
    assert max(len(block.ends) for block in few.blocks(batch(rows))) == 7


def test_no_rows_no_blocks() -> None:
    lines = Lines(columns("event", "data"), scope="s")
    assert list(lines.blocks(batch({"event": ["e1"], "data": ["d"]}).slice(1))) == []


def test_slices_and_large_and_dictionary_columns() -> None:
    """Whatever Arrow makes of strings."""
    rows: Rows = {"event": ["e1", "e2", "e3"], "data": ["d1", None, "d3"], "id": ["a", "b", "c"]}
    whole = batch(rows)
    for sent in (
        whole.slice(1),
        whole.slice(1).cast(pa.schema([(name, pa.large_string()) for name in rows])),
        pa.record_batch({name: pa.array(values[1:]).dictionary_encode() for name, values in rows.items()}),
    ):
        lines = Lines(columns(*rows), scope="test")
        assert b"".join(bytes(block.lines) for block in lines.blocks(sent)) == (
            b"b publish --confirm --once=test e2 \nc publish --confirm --once=test e3 d3\n"
        )


# ── ids ──


def test_ids_from_positions_do_not_depend_on_the_place() -> None:
    rows: Rows = {"event": ["e1", "e1", "e2"], "data": ["d1", "d2", "d1"], "position": [7, 7, 9]}
    first = made(rows, place="0")
    assert [id.partition(b"-")[0] for id in ids(first)] == [b"7", b"7", b"9"]
    assert len(set(ids(first))) == 3
    again = [made({name: [values[at]] for name, values in rows.items()}, place="5-3")[0] for at in (2, 0, 1)]
    assert again == [first[2], first[0], first[1]]


def test_equal_rows_of_one_position_are_all_kept() -> None:
    rows: Rows = {"event": ["e1"] * 4, "data": ["d1", "d1", "d2", "d1"], "position": [7, 7, 7, 8]}
    found = ids(made(rows))
    assert len(set(found)) == 4
    assert found[1] == found[0] + b"-1"


def test_equal_rows_without_ids_are_all_kept() -> None:
    """In one record batch and over several; wherever they stand in the partition, they have the same ids again."""
    rng = random.Random(5)
    data = [str(rng.randrange(50)) for _ in range(1000)]
    lines = Lines(columns("event", "data"), scope="test", place="3")
    found = [line for at in range(0, 1000, 90) for line in lines_of(lines, rows_of(data[at : at + 90]))]
    assert len(set(ids(found))) == 1000
    rng.shuffle(data)
    assert set(made(rows_of(data), place="3")) == set(found)
    assert not set(made(rows_of(data), place="4")) & set(found)


def rows_of(data: list[str]) -> Rows:
    return {"event": ["e1"] * len(data), "data": data}


def test_what_is_event_and_what_is_data_is_told_apart() -> None:
    pairs = [("e", "1x"), ("e1", "x"), ("e1x", "")]
    found = ids(made({"event": [event for event, _ in pairs], "data": [data for _, data in pairs]}))
    assert len({id.partition(b"-")[0] for id in found}) == 3


def test_hashes_stay_as_they_are() -> None:
    """Ids are compared with those of another run, maybe of another version: a change here doubles rows."""
    found = to_hex(hash_rows(*(pa.array([value], pa.large_binary()) for value in (b"user.1.connected", b'{"n": 1}'))))
    assert found.to_pylist() == [b"68ee89e6a4730202"]


@given(st.lists(st.binary(max_size=40) | st.integers(0, 3 * PIECE).map(bytes), min_size=1, max_size=9))
def test_a_hash_depends_on_the_row_alone(values: list[bytes]) -> None:
    whole = pa.array(values, pa.large_binary())
    hashes = hash_rows(whole).tolist()
    assert hashes == [int(hash_rows(pa.array([value], pa.large_binary()))[0]) for value in values]
    assert hashes == [int(hash_rows(whole.slice(at, 1))[0]) for at in range(len(values))]
    assert len(set(hashes)) == len(set(values))


@pytest.mark.parametrize("size", [1, 7, 8, 9, 33, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 5, 130 * PIECE])
def test_each_bit_counts(size: int) -> None:
    rng = random.Random(size)
    row = rng.randbytes(size)
    bits = rng.sample(range(8 * size), min(8 * size, 20))
    other = [bytes(byte ^ (1 << bit % 8 if at == bit // 8 else 0) for at, byte in enumerate(row)) for bit in bits]
    hashes = hash_rows(pa.array([row, *other, row[:-1], row + b"\0"], pa.large_binary()))
    assert len(set(hashes.tolist())) == len(bits) + 3
    differing = [int(hash ^ hashes[0]).bit_count() for hash in hashes[1:]]
    assert 22 < sum(differing) / len(differing) < 42  # about half of 64


@given(st.lists(st.lists(st.integers(0, 5), max_size=20), max_size=20))
def test_equals_are_counted(batches: list[list[int]]) -> None:
    equals, seen = Equals(), dict.fromkeys(range(6), 0)
    for numbers in batches:
        found = equals.count(np.array(numbers, dtype=np.uint64)).tolist()
        for number, count in zip(numbers, found, strict=True):
            assert count == seen[number]
            seen[number] += 1


# ── what is refused ──


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"event": None}, "event None is null"),
        ({"event": "two words"}, "event 'two words' is no name for an event: no spaces"),
        ({"event": ""}, "event '' is no name"),
        ({"event": "--once"}, "event '--once' is no name"),
        ({"event": "e,retry=1"}, "event 'e,retry=1' is no name for an event: it ends as a retry does"),
        ({"id": None}, "id None is null"),
        ({"id": "{id"}, "id '{id' is no id for a message"),
        ({"id": "a\rb"}, "is no id for a message"),
        ({"position": None}, "position None is null"),
        ({"position": -1}, "position -1 is below 0"),
        ({"data": "two\nlines"}, r"data 'two\\nlines' has a newline"),
        ({"data": "a\tb"}, "has a newline, a TAB or a NUL"),
        ({"data": "a\0b"}, "has a newline, a TAB or a NUL"),
        ({"data": "\n" + "x" * 200}, "x…' has a newline"),
        ({"action": "delete"}, "action 'delete' is neither publish nor send"),
        ({"action": "send", "data": "no JSON"}, "data 'no JSON' is no JSON object"),
        ({"action": "send", "data": None}, "data '' is no JSON object"),
        ({"data": "x" * 280}, "id 'm3' makes a line of 316 bytes, and the broker takes 300 .--max-line."),
    ],
)
def test_a_bad_row_is_named(row: dict[str, Any], why: str) -> None:
    """The fourth of the second batch is the first that is bad."""
    good: dict[str, Any] = {"event": "e1", "data": "d\x01\x08", "id": "m1", "action": "publish", "position": 1}
    if "position" in row:
        del good["id"]
    rows: Rows = {name: [value] * 3 + [row.get(name, value)] * 2 + [value] for name, value in good.items()}
    if "id" in rows and "id" not in row:
        rows["id"] = [f"m{number}" for number in range(6)]
    lines = Lines(columns(*good), scope="test", max_line=300)
    lines_of(lines, {name: [value] * 10 for name, value in good.items()})
    with pytest.raises(BadRow, match=f"row 13 of this task cannot be published: .*{why}"):
        next(lines.blocks(batch(rows)))


def test_a_line_as_long_as_it_may_be() -> None:
    size = len(b"m1 publish --confirm --once=test e1 ")
    made({"event": ["e1"], "data": ["x" * (100 - size)], "id": ["m1"]}, max_line=100)
    made({"event": ["e1"], "data": ["x" * (99 - size) + "\r"], "id": ["m1"]}, max_line=100)
    with pytest.raises(BadRow):
        made({"event": ["e1"], "data": ["x" * (101 - size)], "id": ["m1"]}, max_line=100)


@given(st.binary(max_size=12) | st.from_regex(rb"[-{a ]{0,3}(,retry=[0-9]{0,2})?[\r\n\t\0]?", fullmatch=True))
def test_names_are_what_the_broker_takes(name: bytes) -> None:
    for column_name, is_legal in (("event", is_event(name)), ("id", is_name(name))):
        row: Rows = {"event": [b"e1"], "data": ["d"], "id": [b"m1"], column_name: [name]}
        try:
            made(row)
        except BadRow:
            assert not is_legal
        else:
            assert is_legal


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"event": StringType()}, "needs a column 'data': there are event, data"),
        ({"data": StringType()}, "needs a column 'event'"),
        ({"event": StringType(), "data": StringType(), "time": TimestampType()}, "no column 'time': there are event"),
        ({"event": StringType(), "data": VariantType()}, r"column 'data' as variant.*write to_json\(data\)"),
        ({"event": StringType(), "data": StringType(), "position": DoubleType()}, "column 'position' as double"),
        ({"event": StringType(), "data": StringType(), "EVENT": BinaryType()}, "two columns 'event'"),
    ],
)
def test_columns_that_will_not_do(fields: dict[str, DataType], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Columns.of(StructType([StructField(name, kind) for name, kind in fields.items()]))
