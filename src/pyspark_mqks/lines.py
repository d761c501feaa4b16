"""Rows of a DataFrame as lines of the protocol: columns checked, ids given or made, all of a record batch at once.

Nothing is done per row in Python but where a row is wrong and has to be named. It does no I/O.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from mqks.client import protocol
from mqks.names import LOOKS_RETRIED, NO_NAME
from pyspark_mqks.hashing import Equals, hash_rows, mix_in, places, to_hex

BLOCK = 512 << 10  # bytes of lines that are made, and sent, in one piece, unless one line is longer
SHOWN = 100  # characters of a value in an error

BYTES = pa.large_binary()  # what all text is here, so that no column is too long
TEXT: tuple[type[DataType], ...] = (StringType, BinaryType)
WHOLE: tuple[type[DataType], ...] = (LongType, IntegerType, ShortType, ByteType)
COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "event": TEXT,
    "data": TEXT,
    "id": TEXT,
    "position": WHOLE,
    "action": TEXT,
}
NEEDED = ("event", "data")
THERE_ARE = "there are event, data (string or binary; null is empty), and if wanted id, position (long) and action"

PUBLISH, SEND = b"publish", b"send"
NO_NAMES = "no spaces, not empty, not -, --… or {…"
NOT_IN_DATA = ("[" + "".join(f"\\x{ord(character):02x}" for character in protocol.NOT_IN_DATA) + "]").encode()
NO_OBJECT = rb"^[^{]|^$"


class BadRow(ValueError):
    """A row that cannot be a line; the text names it and says why."""


class Block(NamedTuple):
    """Lines that are sent in one piece."""

    lines: memoryview
    ends: npt.NDArray[np.int64]  # where in it each line ends


@dataclass(frozen=True)
class Columns:
    """Which column of the DataFrame is what: a name of COLUMNS → its number."""

    numbers: dict[str, int]

    @classmethod
    def of(cls, schema: StructType) -> "Columns":
        numbers: dict[str, int] = {}
        for number, field in enumerate(schema.fields):
            name = field.name.lower()
            if name not in COLUMNS:
                raise ValueError(f"the mqks sink has no column {field.name!r}: {THERE_ARE}; drop it")
            if name in numbers:
                raise ValueError(f"the mqks sink was given two columns {name!r}")
            if not isinstance(field.dataType, COLUMNS[name]):
                kind = field.dataType.simpleString()
                cure = f"; cast it, or write to_json({field.name})" if name == "data" else ""
                raise ValueError(f"the mqks sink cannot take column {name!r} as {kind}: {THERE_ARE}{cure}")
            numbers[name] = number
        missing = [name for name in NEEDED if name not in numbers]
        if missing:
            raise ValueError(f"the mqks sink needs a column {missing[0]!r}: {THERE_ARE}")
        return cls(numbers)

    def __contains__(self, name: str) -> bool:
        return name in self.numbers

    def text(self, batch: Any, name: str) -> Any:
        """A column as a large_binary array, nulls as they are."""
        column = batch.column(self.numbers[name])
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        return column.cast(BYTES)


class Lines:
    """The lines of one task. `place` tells apart equal rows that have neither id nor position."""

    def __init__(
        self,
        columns: Columns,
        *,
        scope: str | None,
        place: str = "",
        max_line: int = 1 << 20,
        most_rows: int | None = None,
    ) -> None:
        once = "" if scope is None else protocol.once_flag(scope)
        self._columns = columns
        self._publish = protocol.encode(f" {protocol.publish_head(confirm=True, once=once)}")
        self._send = protocol.encode(f" {protocol.send_head(once=once)}")
        self._place = place.encode()
        self._max_line = max_line
        self._most_rows = most_rows
        self._equals = Equals()
        self.rows = 0  # so far

    def blocks(self, batch: Any) -> Iterator[Block]:
        """The lines of a record batch. All its rows are checked before the first block is there."""
        if not batch.num_rows:
            return
        data = pc.fill_null(self._columns.text(batch, "data"), pa.scalar(b"", BYTES))
        event = self._columns.text(batch, "event")
        sends = self._sends(batch)
        self._check_event(event if sends is None else pc.if_else(sends, pa.scalar(b"e", BYTES), event))
        self._check_data(data, sends)
        head: Any = pa.scalar(self._publish, BYTES)
        after: Any = pa.scalar(b" ", BYTES)
        if sends is not None:
            event = pc.if_else(sends, pa.scalar(b"", BYTES), event)
            head = pc.if_else(sends, pa.scalar(self._send, BYTES), head)
            after = pc.if_else(sends, pa.scalar(b"", BYTES), after)
        id = self._ids(batch, event, data)
        parts = (id, head, event, after, data)
        sizes = np.zeros(len(data), dtype=np.int64)
        for part in parts:
            sizes += _sizes(part)
        self._check_sizes(sizes, id)
        for start, stop in self._cuts(sizes):
            yield _block([part if isinstance(part, pa.Scalar) else part[start:stop] for part in parts])
        self.rows += len(data)

    def _sends(self, batch: Any) -> Any:
        """Which rows are for `send`; None: none is."""
        if "action" not in self._columns:
            return None
        action = pc.fill_null(self._columns.text(batch, "action"), pa.scalar(PUBLISH, BYTES))
        sends = pc.equal(action, pa.scalar(SEND, BYTES))
        known = pc.or_(sends, pc.equal(action, pa.scalar(PUBLISH, BYTES)))
        self._refuse(pc.invert(known), action, "action", "is neither publish nor send")
        return sends if pc.any(sends).as_py() else None

    # ── ids ──

    def _ids(self, batch: Any, event: Any, data: Any) -> Any:
        if "id" in self._columns:
            id = self._columns.text(batch, "id")
            self._refuse(pc.is_null(id), id, "id", "is null: give each row one, or leave the column out")
            self._refuse(pc.match_substring_regex(id, NO_NAME), id, "id", f"is no id for a message: {NO_NAMES}")
            return id
        hashes = hash_rows(event, data)
        if "position" not in self._columns:
            place = pa.scalar(self._place, BYTES)
            return _joined([to_hex(hashes), place, _digits(pa.array(self._equals.count(hashes)))], b"-")
        position = batch.column(self._columns.numbers["position"]).cast(pa.int64())
        self._refuse(pc.is_null(position), position, "position", "is null: give each row one, or leave the column out")
        self._refuse(pc.less(position, 0), position, "position", "is below 0")
        counts = self._equals.count(mix_in(hashes, position.to_numpy()))
        id = _joined([_digits(position), to_hex(hashes)], b"-")
        if not counts.any():
            return id
        # Equal rows that come from one message; it would be a pity to lose the second.
        return pc.if_else(pa.array(counts > 0), _joined([id, _digits(pa.array(counts))], b"-"), id)

    # ── what cannot be a line ──

    def _check_event(self, event: Any) -> None:
        self._refuse(pc.is_null(event), event, "event", "is null")
        names = pc.unique(event)  # most rows have one of few events
        for pattern, why in (
            (NO_NAME, f"is no name for an event: {NO_NAMES}"),
            (LOOKS_RETRIED, "is no name for an event: it ends as a retry does"),
        ):
            bad = pc.match_substring_regex(names, pattern)
            if pc.any(bad).as_py():
                self._refuse(pc.is_in(event, names.filter(bad)), event, "event", why)

    def _check_data(self, data: Any, sends: Any) -> None:
        starts, sizes = places(data)
        contents = np.frombuffer(data.buffers()[2] or b"", dtype=np.uint8)[starts[0] : starts[-1] + sizes[-1]]
        if (contents <= ord("\n")).any():  # quicker than to ask for each row, and almost always no
            why = "has a newline, a TAB or a NUL, which no line may have: as JSON it is fine, e.g. by to_json"
            self._refuse(pc.match_substring_regex(data, NOT_IN_DATA), data, "data", why)
        if sends is not None:
            bad = pc.and_(sends, pc.match_substring_regex(data, NO_OBJECT))
            self._refuse(bad, data, "data", "is no JSON object, as send needs one")

    def _check_sizes(self, sizes: npt.NDArray[np.int64], id: Any) -> None:
        bad = sizes > self._max_line
        if bad.any():
            size = sizes[int(np.argmax(bad))]
            why = f"makes a line of {size} bytes, and the broker takes {self._max_line} (--max-line)"
            self._refuse(pa.array(bad), id, "id", why)

    def _refuse(self, bad: Any, column: Any, name: str, why: str) -> None:
        """Raises for the first bad row, if there is one."""
        at = pc.index(bad, True).as_py()
        if at >= 0:
            value = column[at].as_py()
            shown = value.decode(errors="replace") if isinstance(value, bytes) else value
            if isinstance(shown, str) and len(shown) > SHOWN:
                shown = f"{shown[:SHOWN]}…"
            raise BadRow(f"row {self.rows + at} of this task cannot be published: {name} {shown!r} {why}")

    def _cuts(self, sizes: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
        """From which row to which each block goes."""
        number = np.cumsum(sizes) // BLOCK
        new = np.diff(number) > 0
        if self._most_rows is not None:
            new |= np.diff(np.arange(len(sizes)) // self._most_rows) > 0
        cuts = [0, *(np.flatnonzero(new) + 1).tolist(), len(sizes)]
        return ((start, stop) for start, stop in pairwise(cuts) if start < stop)


def _block(parts: list[Any]) -> Block:
    """The last part is data. A \\r before the end of a line is dropped, so one that is data needs another one."""
    end = protocol.SAFE_END if pc.any(pc.ends_with(parts[-1], b"\r")).as_py() else b"\n"
    lines = _joined([*parts, pa.scalar(end, BYTES)], b"")
    starts, sizes = places(lines)
    ends = starts + sizes - starts[0]
    return Block(memoryview(lines.buffers()[2])[int(starts[0]) :][: int(ends[-1])], ends)


def _joined(parts: list[Any], separator: bytes) -> Any:
    return pc.binary_join_element_wise(*parts, pa.scalar(separator, BYTES))


def _digits(numbers: Any) -> Any:
    return numbers.cast(pa.large_string()).cast(BYTES)


def _sizes(part: Any) -> int | npt.NDArray[np.int64]:
    """Of each row, or of any."""
    return len(part.as_py()) if isinstance(part, pa.Scalar) else places(part)[1]
