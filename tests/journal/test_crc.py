"""The core's CRC-32 is zlib's: at every length, from every address, in any pieces, on any processor."""

import random
import zlib
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqks.core.crc import crc32

DATA = random.Random(3).randbytes(5100)
FOLDED = 64  # bytes at a time, then 16, then 8, then 1
ways = pytest.mark.parametrize("tables", [False, True], ids=["folding", "tables"])


@ways
def test_the_value_that_everyone_has(tables: bool) -> None:
    assert crc32(b"123456789", 0, tables) == 0xCBF43926


@ways
def test_every_length(tables: bool) -> None:
    view = memoryview(DATA)
    wrong = [size for size in range(5001) if crc32(view[:size], 0, tables) != zlib.crc32(view[:size])]
    assert wrong == []


@ways
def test_every_start_around_every_border(tables: bool) -> None:
    view = memoryview(DATA)
    for start in range(FOLDED + 1):
        for blocks in range(5):
            for more in (0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63):
                piece = view[start : start + blocks * FOLDED + more]
                assert crc32(piece, 0x12345678, tables) == zlib.crc32(piece, 0x12345678), (start, blocks, more)


@ways
@pytest.mark.parametrize("byte", [0x00, 0x01, 0x80, 0xFF])
def test_all_bytes_alike(byte: int, tables: bool) -> None:
    for size in (63, 64, 65, 127, 128, 129, 1 << 20):
        for before in (0, 1, 0x80000000, 0xFFFFFFFF):
            data = bytes([byte]) * size
            assert crc32(data, before, tables) == zlib.crc32(data, before)


@ways
def test_each_bit_counts(tables: bool) -> None:
    data = bytearray(DATA[: 3 * FOLDED + 27])
    seen = {crc32(data, 0, tables)}
    for bit in range(len(data) * 8):
        data[bit // 8] ^= 1 << bit % 8
        seen.add(crc32(data, 0, tables))
        data[bit // 8] ^= 1 << bit % 8
    assert len(seen) == len(data) * 8 + 1


@given(st.lists(st.binary(max_size=300)), st.integers(0, 2**32 - 1), st.booleans())
def test_in_pieces(pieces: list[bytes], before: int, tables: bool) -> None:
    state = before
    for piece in pieces:
        state = crc32(piece, state, tables)
    assert state == zlib.crc32(b"".join(pieces), before)


@given(st.integers(0, 100), st.integers(0, 5000), st.integers(0, 5000))
def test_cut_anywhere(start: int, size: int, cut: int) -> None:
    whole = memoryview(DATA)[start : start + size]
    assert crc32(whole[cut:], crc32(whole[:cut])) == zlib.crc32(whole)


def test_takes_whatever_holds_bytes() -> None:
    for data in (b"abc" * 40, bytearray(b"abc" * 40), memoryview(b"abc" * 40), array("I", range(40))):
        assert crc32(data) == zlib.crc32(data)


def test_lets_go_of_what_it_took() -> None:
    data = bytearray(100)
    crc32(data)
    data.extend(b"more")  # BufferError while anybody holds it


def test_refuses_what_it_cannot_read() -> None:
    with pytest.raises(TypeError):
        crc32("text")  # type: ignore[arg-type]
    with pytest.raises(BufferError):
        crc32(memoryview(DATA)[::2])
    for before in (-1, 2**32):
        with pytest.raises(OverflowError):
            crc32(b"", before)
