"""The format: what docs/JOURNAL.md says is what the code does."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from mqks.journal.format import (
    HEADER_SIZE,
    PIECE,
    Batches,
    Header,
    Stop,
    batch_crc,
    build_batch,
    dtid_floor,
    find_header,
    header_line,
    parse_header,
    parse_segment_line,
    position_of,
    rfind_header,
    segment_line,
    segment_name,
    time_of,
)

DTID = b"20260131120000250000k3Fq"
PAGE = Path(__file__).parents[2] / "docs" / "JOURNAL.md"


def example() -> bytes:
    block = re.search(r"```journal\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block
    return block[1].encode()


def walk(
    data: bytes, offset: int = 42, previous: int | None = None, chain: bool = True
) -> tuple[list[Header], Batches]:
    batches = Batches(lambda size, at: data[at : at + size], 0, offset, len(data), previous=previous, chain=chain)
    return [header for header, _ in batches], batches


def test_the_example_on_the_page_is_true() -> None:
    data = example()
    assert len(data) == 327
    line = parse_segment_line(data)
    assert line is not None
    assert (line.version, line.fsync, line.size) == (1, "always", 42)
    headers, batches = walk(data, previous=0)
    assert batches.stop is Stop.END
    assert [(header.position, header.bytes, header.count, header.synced) for header in headers] == [
        (42, 63, 2, 42),
        (216, 0, 0, 216),
    ]
    assert data.index(b"m1 publish") == 153
    assert data.index(b"s1 send") == 184


def test_the_table_of_fields_on_the_page_is_true() -> None:
    fields = re.findall(r"^\| (\w+) \| (\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [name for name, _ in fields] == list(Header._fields)
    words = header_line(Header(DTID, 1, 2, 3, 4, 5, 6)).split(b" ")
    words.pop(1)  # batch
    starts = [0, *(sum(map(len, words[:nr])) + nr + len("batch ") for nr in range(1, 7))]
    assert [int(at) for _, at in fields] == starts


def test_a_header_goes_and_comes_back() -> None:
    header = Header(DTID, 42, 63, 2, 41, 0xCE887222, 0xFF)
    line = header_line(header)
    assert len(line) == HEADER_SIZE
    assert parse_header(line) == parse_header(memoryview(line)) == header
    assert (header.size, header.end) == (174, 216)


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line[:-1],
        lambda line: line + b"x",
        lambda line: line.replace(b"batch", b"botch"),
        lambda line: line.replace(b"00000042 ", b"0000042 "),
        lambda line: line.replace(b"00000042 ", b"+0000042 "),
        lambda line: line.replace(b"00000042 ", b"\xd9\xa0000042 "),
        lambda line: line.replace(b"ce887222", b"CE887222"),
        lambda line: line.replace(b"k3Fq", b"k3F-"),
        lambda line: line.replace(b"20260131", b"20261331"),
        lambda line: line.replace(b"20260131", b"20260132"),
        lambda line: line.replace(b"20260131", b"00000131"),
        lambda line: line[:-1] + b"\r",
        lambda _: b"",
    ],
)
def test_what_is_no_header(change: Callable[[bytes], bytes]) -> None:
    line = header_line(Header(DTID, 42, 63, 2, 41, 0xCE887222, 0xFF))
    assert parse_header(line) is not None
    assert parse_header(change(line)) is None


@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
def test_a_segment_line_goes_and_comes_back(fsync: str) -> None:
    line = segment_line(DTID, fsync)
    assert parse_segment_line(line + b"more\n") == (DTID, 1, fsync, len(line))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        DTID + b" segment 1 always",
        DTID + b" segment 1 sometimes\n",
        DTID + b" segment 1\n",
        b"x segment 1 always\n",
    ],
)
def test_what_is_no_segment_line(line: bytes) -> None:
    assert parse_segment_line(line) is None


@pytest.mark.parametrize("rest", [b"", b" always", b" anything else"])
def test_a_later_version_is_known_as_one(rest: bytes) -> None:
    line = parse_segment_line(DTID + b" segment 12" + rest + b"\n")
    assert line is not None
    assert line.version == 12


def test_names_of_segments() -> None:
    assert segment_name(67) == "00000000000000000067.mqks"
    assert position_of("00000000000000000067.mqks") == 67
    for name in ("67.mqks", "00000000000000000067", "00000000000000000067.mqks.1", "x0000000000000000067.mqks", "lock"):
        assert position_of(name) is None


def test_headers_are_found_from_any_byte() -> None:
    data = example()
    places = [42, 216]
    for at in range(len(data) + 1):
        assert find_header(data, at) == next((place for place in places if place >= at), -1)
        assert rfind_header(data, at) == next((place for place in reversed(places) if place < at), -1)
    assert rfind_header(data) == 216


def test_what_only_looks_like_a_header_is_not_found() -> None:
    header = header_line(Header(DTID, 0, 0, 0, 0, 0, 0))
    for data in (header, b"m1 publish e1 " + header, b"\n" + header[:-1], b"\n" + b" batch " * 40 + b"\n"):
        assert find_header(data) == rfind_header(data) == -1


def test_one_changed_byte_changes_the_checksum() -> None:
    batch = build_batch(DTID, 42, b"m1 publish e1 d1\n", 42, 7)
    crc = batch_crc(batch)
    assert parse_header(batch[:HEADER_SIZE]) == (DTID, 42, 17, 1, 42, crc, 7)
    for at in range(len(batch)):
        changed = bytearray(batch)
        changed[at] ^= 1
        assert (batch_crc(changed) == crc) == (93 <= at < 101)


def test_the_walk_says_where_and_why_it_stops() -> None:
    data = example()
    for size in range(42, 327):
        headers, batches = walk(data[:size])
        assert batches.offset == (42 if size < 216 else 216)
        assert batches.stop is (Stop.END if size in (42, 216) else Stop.TORN)
        assert len(headers) == (size >= 216)
    for at, new, reason in (
        (200, b"X", "checksum"),
        (42 + 50, b"?", "no batch header"),
        (42 + 31, b"00000000000000000043", "position 43"),
    ):
        _, batches = walk(data[:at] + new + data[at + len(new) :])
        assert (batches.stop, batches.offset) == (Stop.BAD, 42)
        assert reason in batches.reason


def test_the_walk_follows_the_chain() -> None:
    first = build_batch(DTID, 0, b"", 0, 5)
    data = first + build_batch(DTID, 111, b"", 0, 6)
    assert walk(data, 0)[1].offset == 111
    assert "checksum of the one before" in walk(data, 0)[1].reason
    assert walk(data, 0, chain=False)[1].stop is Stop.END
    assert walk(data, 0, previous=4)[1].offset == 0
    assert walk(data, 0, previous=5)[1].offset == 111


def test_the_walk_reads_large_pieces_and_each_byte_once() -> None:
    data, position, crc, count = b"", 0, 0, 0
    for size in (10, 300_000, 5, PIECE + 7, 3 * PIECE, 1, 0, 200_000):
        batch = build_batch(DTID, position, b"m1 publish e1 " + b"x" * size + b"\n", 0, crc)
        crc, position, count, data = batch_crc(batch), position + len(batch), count + 1, data + batch
    reads = []

    def read(size: int, at: int) -> bytes:
        reads.append((at, size))
        return data[at : at + size]

    batches = Batches(read, 0, 0, len(data), previous=0)
    assert b"".join(bytes(batch) for _, batch in batches) == data
    assert batches.stop is Stop.END
    assert sum(size for _, size in reads) == len(data)
    assert len(reads) <= len(data) // PIECE + 2


def test_a_batch_that_claims_too_much_is_not_read() -> None:
    data = header_line(Header(DTID, 0, 9_999_999_999, 1, 0, 0, 0)) + b"m1 publish e1 d1\n"
    headers, batches = walk(data, 0)
    assert (headers, batches.stop) == ([], Stop.TORN)


def test_a_file_that_shrinks_meanwhile_is_torn() -> None:
    data = example()
    batches = Batches(lambda size, at: data[: 216 - 5][at : at + size], 0, 42, 216)
    assert (list(batches), batches.stop, batches.offset) == ([], Stop.TORN, 42)


def test_times() -> None:
    time = datetime(2026, 1, 31, 12, 0, 0, 250000, UTC)
    assert time_of(DTID) == time
    assert dtid_floor(time) == b"202601311200002500000000" <= DTID
    assert (
        dtid_floor(time.astimezone(timezone(timedelta(hours=5))))
        == dtid_floor(time.replace(tzinfo=None))
        == dtid_floor(time)
    )
    assert dtid_floor(time + timedelta(microseconds=1)) > DTID
    assert dtid_floor(datetime(7, 1, 1)).startswith(b"00070101")
    assert time_of(b"20260230120000000000aaaa").month == 3
