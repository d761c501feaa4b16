"""How things are shown: for people or as JSON, with colours or without.

What comes from a broker was written by others. On a terminal, and in tables, its control characters are escaped: no
message and no name can drive the terminal of whoever looks at it. In a pipe data is given on byte by byte.
"""

import json
import os
import sys
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TextIO

from mqks import names

BOLD, DIM, RED, YELLOW, CYAN = "1", "2", "31", "33", "36"
PLAIN = "\x1b[0m"


def has_colours(out: TextIO) -> bool:
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str, wanted: bool) -> str:
    return f"\x1b[{colour}m{text}{PLAIN}" if wanted else text


def visible(text: str) -> str:
    """One line without control characters, direction marks or bytes that are not UTF-8: these are escaped."""
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, as Python keeps it in text
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def in_utf8(text: str) -> str:
    """Bytes that are not UTF-8 are escaped."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def shown_name(name: str) -> str:
    """A name as the broker writes it in JSON."""
    return names.text(name.encode("utf-8", "surrogateescape"))


def as_json(value: object) -> str:
    """One line of ASCII, without a single control character."""
    return json.dumps(value).replace("\x7f", "\\u007f")


def complain(text: object) -> None:
    """A line for people, beside the output."""
    print(f"mqks: {visible(str(text))}", file=sys.stderr, flush=True)


def message_fields(message_id: str, event: str, data: str, **more: object) -> dict[str, object]:
    """A message as JSON; data is text, or `data_base64` where it is not UTF-8."""
    fields: dict[str, object] = {"id": shown_name(message_id), "event": shown_name(event)}
    try:
        data.encode()
        fields["data"] = data
    except UnicodeEncodeError:
        fields["data_base64"] = b64encode(data.encode("utf-8", "surrogateescape")).decode()
    return {**fields, **more}


class Messages:
    """Messages, one per line, on stdout."""

    def __init__(self, json: bool) -> None:
        self._out = sys.stdout.buffer
        self._json = json
        self._escapes = sys.stdout.isatty()
        self._colours = has_colours(sys.stdout)

    def show(self, message_id: str, event: str, data: str, **more: int) -> None:
        self._out.write(self.line(message_id, event, data, **more))

    def line(self, message_id: str, event: str, data: str, **more: int) -> bytes:
        """`more`: a retry, a position."""
        if self._json:
            line = as_json(message_fields(message_id, event, data, **more))
        else:
            line = self._text(message_id, event, data, **more)
        return line.encode("utf-8", "surrogateescape") + b"\n"

    def flush(self) -> None:
        self._out.flush()

    def _text(self, message_id: str, event: str, data: str, position: int | None = None, retry: int = 0) -> str:
        if self._escapes:
            message_id, event, data = map(visible, (message_id, event, data))
        where = "" if position is None else paint(str(position), DIM, self._colours) + " "
        again = paint(f",retry={retry}", YELLOW, self._colours) if retry else ""
        return (
            f"{where}{paint(message_id, DIM, self._colours)} {paint(event or '-', CYAN, self._colours)}{again} {data}"
        )


def table(rows: Iterable[Iterable[object]], colours: bool = False, widest: int = 0) -> Iterator[str]:
    """Columns below each other, the first row as their heads; numbers to the right. `widest`: where lines are cut."""
    values = [list(row) for row in rows]
    cells = [[_cell(value) for value in row] for row in values]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [any(isinstance(value, int | float) for value in column) for column in zip(*values, strict=True)]
    for number, row in enumerate(cells):
        places = zip(row, widths, right, strict=True)
        aligned = (cell.rjust(width) if to_right else cell.ljust(width) for cell, width, to_right in places)
        line = cut("  ".join(aligned).rstrip(), widest)
        yield paint(line, BOLD, colours) if number == 0 else line


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"
    return visible(str(value))


def cut(line: str, width: int) -> str:
    return line if not width or len(line) <= width else line[: width - 1] + "…"


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def queue_fields(stats: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The queues of a broker's `stats`, sorted by name, each with its name."""
    return [{"queue": name, **fields} for name, fields in sorted(stats["queues"].items())]
