"""The rows of a DataFrame as text: a table for people, CSV and JSON lines for programs. It touches nothing but Spark.

For people, what does not fit the terminal is cut and control characters are escaped: no message can drive the terminal
of whoever looks at it. For programs nothing is lost: times are ISO in UTC, VARIANT and nested values are JSON, bytes
are base64, and NULL is an empty field in CSV (an empty text is quoted).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from mqks.formatting import counted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

NULL = "NULL"
MORE = "…"
LEAST = 6  # characters that a column keeps, however many there are
ISO = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"
IN_JSON = {"timeZone": "UTC", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "ignoreNullFields": "false"}
NESTED = {"variant", "struct", "array", "map"}
NUMBERS = {"byte", "short", "integer", "long", "float", "double", "decimal"}

Cells = Sequence[str | None]

# ── from Spark ──


def table(frame: DataFrame, *, limit: int, width: int | None = None) -> Iterator[str]:
    """The first `limit` rows below each other. `width` is where a line ends; None: nothing is cut."""
    rows = texts(frame, readable=True).limit(limit + 1).collect()
    if len(frame.columns) == 1 and any("\n" in (row[0] or "") for row in rows):
        yield from (visible(line) for row in rows for line in (row[0] or NULL).splitlines())  # a text, as of EXPLAIN
        return
    right = [field.dataType.typeName() in NUMBERS for field in frame.schema]
    yield from aligned(frame.columns, rows[:limit], right, width)
    if len(rows) > limit:
        yield f"the first {limit:,} rows: there are more"
    else:
        yield counted(len(rows), "row")


def csv(frame: DataFrame) -> Iterator[str]:
    """A head, then each row, for any number of rows."""
    yield csv_line(frame.columns)
    yield from map(csv_line, texts(frame).toLocalIterator(prefetchPartitions=True))


def json(frame: DataFrame) -> Iterator[str]:
    """Each row as an object, for any number of rows."""
    from pyspark.sql import functions as F

    named = [f"`{name.replace('`', '``')}`" for name in frame.columns]
    lines = frame.select(F.to_json(F.struct(*named), IN_JSON))
    yield from (row[0] for row in lines.toLocalIterator(prefetchPartitions=True))


def texts(frame: DataFrame, *, readable: bool = False) -> DataFrame:
    """Each column as a string; `readable` for people, else for programs."""
    from pyspark.sql import functions as F

    numbered = frame.toDF(*map(str, range(len(frame.columns))))  # two columns may have one name
    return numbered.select(
        *(as_text(F.col(str(index)), field.dataType, readable) for index, field in enumerate(frame.schema))
    )


def as_text(column: Column, kind: DataType, readable: bool) -> Column:
    from pyspark.sql import functions as F

    name = kind.typeName()
    if name in NESTED:
        return F.to_json(column, IN_JSON)
    if name == "binary":
        return F.base64(column)
    if name == "timestamp":
        in_utc = F.to_utc_timestamp(column, F.current_timezone())
        return in_utc.cast("string") if readable else F.date_format(in_utc, ISO)
    return column.cast("string")


# ── as text ──


def csv_line(cells: Iterable[str | None]) -> str:
    return ",".join(map(csv_cell, cells))


def csv_cell(cell: str | None) -> str:
    if cell is None:
        return ""
    if cell and not any(mark in cell for mark in ',"\r\n') and cell == cell.strip():
        return cell
    return '"' + cell.replace('"', '""') + '"'


def aligned(heads: Sequence[str], rows: Iterable[Cells], right: Sequence[bool], width: int | None) -> Iterator[str]:
    """The heads, a line, and the rows; `right` says of each column whether it is aligned there."""
    shown = [[NULL if cell is None else visible(cell) for cell in row] for row in [heads, *rows]]
    widths = [max(map(room, column)) for column in zip(*shown, strict=True)]
    if width is not None:
        widths = fitted(widths, width)
    shown.insert(1, ["─" * column for column in widths])
    for row in shown:
        cells = (
            fill(cut(cell, column), column, to_right) for cell, column, to_right in zip(row, widths, right, strict=True)
        )
        line = "  ".join(cells).rstrip()
        yield line if width is None else cut(line, width)


def fitted(widths: list[int], width: int) -> list[int]:
    """The widest columns give what is too much, so that short ones stay whole."""
    left = width - 2 * (len(widths) - 1)
    most = max(widths, default=0)
    while most > LEAST and sum(min(column, most) for column in widths) > left:
        most -= 1
    return [min(column, most) for column in widths]


def visible(text: str) -> str:
    """One line, in which what a terminal would act on is escaped."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def room(text: str) -> int:
    """Places that it takes on a terminal."""
    return len(text) if text.isascii() else sum(map(places, text))


def places(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, width: int) -> str:
    if room(text) <= width:
        return text
    while text and room(text) >= width:
        text = text[: max(min(len(text) - 1, width), 0)]
    return text + MORE


def fill(text: str, width: int, to_right: bool) -> str:
    blank = " " * (width - room(text))
    return blank + text if to_right else text + blank
