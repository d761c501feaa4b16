"""Hashes of rows, and which of equal rows each one is: what ids are made of, for rows that come without.

A row has the same hash always and everywhere: it depends on its bytes alone, not on the process, the batch or the
machine. It is 64 bits and keeps nobody out who looks for two rows with one hash; nothing is lost if he finds them,
since rows with one hash are counted. Numpy does the work, one word of all rows at a time.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]

WORD = 8  # bytes that are mixed at a time
PIECE = 1024  # bytes of a row that are hashed one after the other; a longer row is the hash of its pieces' hashes
MASKS = np.array([(1 << 8 * size) - 1 for size in range(WORD + 1)], dtype=np.uint64)  # of a word with so many bytes
FIRST, SECOND, THIRD = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
HALF, SOME = np.uint64(32), np.uint64(29)
HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), dtype=np.uint16)
GROWTH = 4  # how much smaller each sorted run of the hashes seen is than the one before it, at least


def hash_rows(*columns: Any) -> Hashes:
    """One hash of each row, over these columns: large_binary arrays of one length, without nulls."""
    total = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        starts, sizes = places(column)
        total = _mixed(total * SECOND ^ _hashes(_bytes(column), starts, sizes))
    return total


def places(column: Any) -> tuple[Places, Places]:
    """Where in its bytes each value of a large_binary array starts, and its size."""
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int64)[column.offset : column.offset + len(column) + 1]
    return offsets[:-1], np.diff(offsets)


def mix_in(hashes: Hashes, numbers: Places) -> Hashes:
    """Hashes that depend on these numbers too."""
    return _mixed(hashes ^ _mixed(numbers.astype(np.uint64) * FIRST))


def to_hex(hashes: Hashes) -> Any:
    """As 16 characters each: a large_binary array."""
    digits = HEX[hashes.astype(">u8").view(np.uint8)]
    return pa.Array.from_buffers(pa.binary(2 * WORD), len(hashes), [None, pa.py_buffer(digits)]).cast(pa.large_binary())


class Equals:
    """Counts equal rows: of those with one hash, the first is 0, the next 1, and so on.

    It remembers all hashes that it was shown, 8 bytes each, in sorted runs that are merged when they are of a size.
    """

    def __init__(self) -> None:
        self._runs: list[Hashes] = []

    def count(self, hashes: Hashes) -> Places:
        order = np.argsort(hashes, kind="stable")
        ordered = hashes[order]
        before = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)  # among themselves
        for run in self._runs:
            at = np.searchsorted(run, ordered)
            seen = np.flatnonzero(run[np.minimum(at, len(run) - 1)] == ordered)
            before[seen] += np.searchsorted(run, ordered[seen], "right") - at[seen]
        self._remember(ordered)
        counts = np.empty_like(before)
        counts[order] = before
        return counts

    def _remember(self, run: Hashes) -> None:
        if not len(run):
            return
        while self._runs and len(self._runs[-1]) < GROWTH * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")  # quick for what is sorted in parts
        self._runs.append(run)


def _bytes(column: Any) -> npt.NDArray[np.uint8]:
    """The bytes of an array, and so many more that a word can be read at each of them."""
    buffer = column.buffers()[2]
    data = np.frombuffer(buffer, dtype=np.uint8) if buffer else np.empty(0, dtype=np.uint8)
    return np.concatenate([data, np.zeros(WORD, dtype=np.uint8)])


def _hashes(data: npt.NDArray[np.uint8], starts: Places, sizes: Places) -> Hashes:
    found = _short(data, starts, np.minimum(sizes, PIECE))
    rows = np.flatnonzero(sizes > PIECE)
    if len(rows):
        pieces = -(-sizes[rows] // PIECE)
        row = np.repeat(rows, pieces)
        firsts = np.cumsum(pieces) - pieces
        at = (np.arange(len(row)) - np.repeat(firsts, pieces)) * PIECE
        of_pieces = _short(data, starts[row] + at, np.minimum(sizes[row] - at, PIECE))
        words = np.append(of_pieces, np.uint64(0)).astype("<u8").view(np.uint8)
        found[rows] = _mixed(_hashes(words, firsts * WORD, pieces * WORD) ^ FIRST)
    return found


def _short(data: npt.NDArray[np.uint8], starts: Places, sizes: Places) -> Hashes:
    """Of rows that are so short that a turn for each of their words is quick."""
    words: npt.NDArray[np.uint64] = np.ndarray(len(data) - WORD + 1, "<u8", data, 0, (1,))  # one at each byte
    order = np.argsort(-sizes, kind="stable")
    starts, sizes = starts[order], sizes[order]
    state = _mixed(sizes.astype(np.uint64) + FIRST)
    for at in range(0, int(sizes[0]) if len(sizes) else 0, WORD):
        rows = int(np.searchsorted(-sizes, -at))  # those that have more than `at` bytes come first
        word = words[starts[:rows] + at] & MASKS[np.minimum(sizes[:rows] - at, WORD)]
        state[:rows] = (state[:rows] ^ word) * FIRST
        state[:rows] ^= state[:rows] >> HALF
    found = np.empty_like(state)
    found[order] = _mixed(state)
    return found


def _mixed(state: Hashes) -> Hashes:
    """Each bit of the answer depends on each bit of what comes in."""
    state = (state ^ state >> HALF) * SECOND
    state = (state ^ state >> SOME) * THIRD
    return state ^ state >> HALF
