"""Messages as JSON: what they are in the journal, cut to a length that is fit to be shown, or whole. No I/O."""

import re
from datetime import UTC, datetime
from typing import Any, NamedTuple

from mqks.broker.protocol.bridge import name_in
from mqks.journal.messages import take_once
from mqks.names import text
from mqks.web.words import key

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
SHOWN = 2000  # characters of data, where messages are listed
KEPT = 8 * SHOWN  # bytes of a message that are looked at for that, names included


class Parts(NamedTuple):
    """A line of the journal that is a message."""

    id: bytes
    action: bytes
    event: bytes
    data: bytes
    size: int  # of all the data, of which this may be the beginning


def parts(line: bytes, size: int) -> Parts | None:
    """Of a line, or of its beginning: it has `size` bytes. None for what is not a message: control lines, headers.

    A SEVX message of which only the beginning is known has no event here.
    """
    name, _, rest = line.partition(b" ")
    action, _, rest = rest.partition(b" ")
    _, rest = take_once(rest)
    left = size - len(line)
    if action == b"send":
        return Parts(name, action, b"" if left else name_in(rest), rest, len(rest) + left)
    if action == b"publish":
        event, _, data = rest.partition(b" ")
        return Parts(name, action, event, data, len(data) + left)
    return None


def show(position: int, time: float | None, message: Parts, *, retry: int = 0, whole: bool = False) -> dict[str, Any]:
    data = message.data.decode("utf-8", "backslashreplace")
    cut = message.size > len(message.data) or (len(data) > SHOWN and not whole)
    return {
        "position": position,
        "time": None if time is None else at(time),
        "id": text(message.id),
        "action": message.action.decode(),
        "event": text(message.event),
        "key": key(message.event),
        "data": data[:SHOWN] if cut else data,
        "bytes": message.size,
        "retry": retry,
        "truncated": cut,
        "nc": None if cut else _typed(message),
    }


def _typed(message: Parts) -> str | None:
    """The line that would publish it again; without --once, which would drop it. None if nobody can type it: not text,
    or with a control character, which a terminal would take for the end of the line or for worse."""
    event = [] if message.action == b"send" else [message.event]
    try:
        line = b" ".join([message.id, message.action, *event, message.data]).decode()
    except UnicodeDecodeError:
        return None
    return None if CONTROL.search(line) else line


def at(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
