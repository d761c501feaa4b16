"""The compiled reader of batches against the plain one: the same messages, from any bytes a journal may hold."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mqks.journal.columns import NAMES, Columns
from mqks.journal.format import HEADER_SIZE, build_batch, parse_header, time_of
from mqks.journal.messages import parse_message
from tests.journal.making import LIKE_A_HEADER

DTID = b"20260131120000250000k3Fq"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

words = st.sampled_from([b"e1", b"user.7.on", b"-", b"--x", b"{", b"e,retry=1", b"\xff", "событие".encode(), b""])
texts = st.binary(max_size=12).map(lambda data: data.replace(b"\n", b" "))
jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.sampled_from(["event", "e1", "--e", "a b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["event", "e", '"', ""]), inner),
    max_leaves=8,
)
spaced = st.sampled_from([(", ", ": "), (",", ":"), (" ,  ", " : ")])
contents = st.builds(
    lambda value, separators, ascii_only: json.dumps(value, separators=separators, ensure_ascii=ascii_only),
    st.dictionaries(st.sampled_from(["event", "e", "event2", ""]), jsons) | jsons,
    spaced,
    st.booleans(),
).map(lambda text: text.encode("utf-8", "replace"))
flags = st.sampled_from([b"", b"--once ", b"--once=scope ", b"--once"])
lines = (
    st.builds(lambda i, f, e, d: b"%s publish %s%s %s" % (i, f, e, d), words, flags, words, texts)
    | st.builds(lambda i, f, d: b"%s send %s%s" % (i, f, d), words, flags, contents)
    | st.sampled_from([b"", b"x", b"x publish", b"x publish ", b"x publish e", b"x send", b"x send ", b"d rebind q e"])
    | texts
)


def rows_of(columns: Columns, names: tuple[str, ...] = NAMES) -> list[tuple[object, ...]]:
    """The buffers as rows, as Arrow would read them."""
    rows = columns.rows
    unpacked: list[list[object]] = []
    for name, buffers in zip(names, columns.take(), strict=True):
        if name in ("position", "time"):
            unpacked.append(list(memoryview(buffers[0]).cast("q")))
            continue
        *valid, offsets, data = buffers
        starts = memoryview(offsets).cast("i")
        values: list[object] = [data[starts[i] : starts[i + 1]] for i in range(rows)]
        if valid:
            values = [value if valid[0][i // 8] >> i % 8 & 1 else None for i, value in enumerate(values)]
        unpacked.append(values)
    assert all(len(column) == rows for column in unpacked)
    return list(zip(*unpacked, strict=True))


def expected(batch: bytes, position: int) -> list[tuple[object, ...]]:
    """The same by the plain parser."""
    header = parse_header(batch[:HEADER_SIZE])
    assert header is not None
    rows: list[tuple[object, ...]] = []
    at = position + HEADER_SIZE
    for line in batch[HEADER_SIZE:].split(b"\n")[:-1]:
        message = parse_message(line, at, time_of(header.dtid))
        at += len(line) + 1
        if message is not None:
            time = (message.time - EPOCH) // timedelta(microseconds=1)
            text = [as_text(part) for part in (message.id, message.action, message.event, message.data)]
            rows.append((message.position, time, *text, None if text[3] == message.data else message.data))
    return rows


def as_text(data: bytes) -> bytes:
    return data.decode("utf-8", "replace").encode()


@given(st.lists(lines, max_size=12), st.integers(0, 10**6))
@example([b'm send {"event": "e1", "event": "e2"}', b'm send {"a": {"event": "e1"}}', b'm send ["event", "x"]'], 0)
@example([b"m publish e " + b"\xf0\x9f\x98" + b" x", b"m publish e \xed\xa0\x80", b"m publish e \xc0\x80"], 7)
@example([LIKE_A_HEADER, b"m publish e d", LIKE_A_HEADER], 7)
@example([b'm send {"event": "e1"}}', b'm send {"event": "e1"'], 0)
@example([b"m send " + b'{"event": "e1", "a": ' + b"[" * 70 + b"]" * 70 + b"}"], 7)
def test_the_same_messages_as_the_plain_parser(these: list[bytes], position: int) -> None:
    batch = build_batch(DTID, position, b"".join(line + b"\n" for line in these), 0, 0)
    columns = Columns(NAMES)
    assert columns.feed(batch, position) == len(batch)
    assert rows_of(columns) == expected(batch, position)


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)))
def test_times(time: datetime) -> None:
    dtid = f"{time.year:04d}{time:%m%d%H%M%S%f}aaaa".encode()
    columns = Columns(["time"])
    columns.feed(build_batch(dtid, 0, b"m publish e d\n", 0, 0), 0)
    assert rows_of(columns, ("time",)) == [((time_of(dtid) - EPOCH) // timedelta(microseconds=1),)]


def journal() -> tuple[bytes, list[int]]:
    """Three batches, and where each begins."""
    text, starts = b"", []
    for nr in range(3):
        starts.append(len(text))
        text += build_batch(DTID, len(text), b"m%d publish e%d d\nn%d publish x.y d\n" % (nr, nr, nr), 0, 0)
    return text, starts


def test_a_piece_cut_anywhere_gives_its_whole_batches() -> None:
    text, starts = journal()
    for end in range(len(text) + 1):
        columns = Columns(["position"])
        took = columns.feed(text[:end], 0)
        assert took == max(at for at in [*starts, len(text)] if at <= end)
        assert columns.why == ("" if took == end else "short")
        assert columns.rows == 2 * [*starts, len(text)].index(took)
        if end - took >= HEADER_SIZE:
            assert columns.need == starts[1]


def test_it_goes_on_until_the_first_bad_byte() -> None:
    text, starts = journal()
    for at in range(starts[1], starts[2]):
        wrong = bytearray(text)
        wrong[at] ^= 1
        columns = Columns(["position"])
        assert columns.feed(bytes(wrong), 0) == starts[1]
        assert columns.why in ("bad", "short")  # short, where the damage is in the size
        assert columns.rows == 2


def test_it_reads_only_batches_that_begin_before_stop() -> None:
    text, starts = journal()
    for stop in range(len(text) + 1):
        columns = Columns(["position"])
        took = columns.feed(text, 0, stop)
        assert columns.rows == 2 * sum(at < stop for at in starts)
        assert columns.why == ("" if took == len(text) else "stop")


def test_rows_from_start_to_stop() -> None:
    text, _ = journal()
    everything = Columns(["position"])
    everything.feed(text, 0)
    positions = [position for (position,) in rows_of(everything, ("position",))]
    for start in range(0, len(text), 5):
        for stop in range(start, len(text), 7):
            columns = Columns(["position"], start=start, stop=stop)
            columns.feed(text, 0)
            assert rows_of(columns, ("position",)) == [
                (p,) for p in positions if isinstance(p, int) and start <= p < stop
            ]


def test_each_event_is_asked_for_once() -> None:
    text, _ = journal()
    asked: list[bytes] = []

    def wants(event: bytes) -> bool:
        asked.append(event)
        return event == b"x.y"

    columns = Columns(["id", "event"], wants=wants)
    columns.feed(text, 0)
    assert rows_of(columns, ("id", "event")) == [(b"n0", b"x.y"), (b"n1", b"x.y"), (b"n2", b"x.y")]
    assert sorted(asked) == [b"e0", b"e1", b"e2", b"x.y"]


def test_an_error_in_the_filter_comes_out() -> None:
    def wants(event: bytes) -> bool:
        raise LookupError(event)

    with pytest.raises(LookupError):
        Columns(["id"], wants=wants).feed(journal()[0], 0)


def test_a_name_that_is_no_column() -> None:
    with pytest.raises(ValueError, match="tuple"):
        Columns(["position", "colour"])


def test_it_is_empty_after_taking() -> None:
    text, _ = journal()
    columns = Columns(NAMES)
    for _ in range(3):
        columns.feed(text, 0)
        assert columns.size > 0
        assert len(rows_of(columns)) == 6
        assert (columns.rows, columns.size) == (0, 0)
