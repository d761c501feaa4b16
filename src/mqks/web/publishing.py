"""What is posted to /api/publish, as the line that says the same in the broker's protocol. No I/O."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from mqks.names import is_event, is_name
from mqks.web.answers import dumps

KEYS = {"event", "data", "id", "once"}
FORBIDDEN = re.compile(rb"[\n\t\0]")
SHAPE = 'send an object such as {"event": "user.created", "data": {"id": 1}}'


class Publish(NamedTuple):
    id: bytes  # the message's
    event: bytes
    line: bytes  # the request


def publish(body: Any, new_id: Callable[[], bytes]) -> Publish:
    """A ValueError says what to do about what is wrong."""
    if not isinstance(body, dict):
        raise ValueError(SHAPE)
    if unknown := sorted(body.keys() - KEYS):
        raise ValueError(f"unknown key {unknown[0][:100]!r}: a message has event, data, id and once")
    if "event" not in body:
        raise ValueError(f"event is missing: {SHAPE}")
    name = _name(body["event"], "event", is_event)
    message_id = new_id() if body.get("id") is None else _name(body["id"], "id", is_name)
    line = b"%s publish --confirm %s%s %s" % (message_id, _once(body.get("once")), name, _data(body.get("data", "")))
    return Publish(message_id, name, line)


def _name(value: Any, what: str, legal: Callable[[bytes], bool]) -> bytes:
    try:
        name = value.encode() if isinstance(value, str) else b""
    except UnicodeEncodeError:  # half of a surrogate pair
        name = b""
    if not legal(name):
        raise ValueError(f"{what} must be a name: text without spaces, that does not begin with -- or {{")
    return name


def _once(value: Any) -> bytes:
    if value is None or value is False:
        return b""
    return b"--once " if value is True else b"--once=%s " % _name(value, "once", is_name)


def _data(value: Any) -> bytes:
    """A text goes as it is, anything else as its JSON."""
    if not isinstance(value, str):
        return _json(value)
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise ValueError("data has half of a surrogate pair: send whole characters") from None
    if FORBIDDEN.search(data):
        raise ValueError("data may not have a newline, TAB or NUL: send an object instead, whose JSON escapes them")
    return data


def _json(value: Any) -> bytes:
    try:
        return dumps(value)
    except RecursionError:
        raise ValueError("data is nested too deeply") from None
