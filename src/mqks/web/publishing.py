"""What is posted to /api/publish, as the line that says the same in the broker's protocol. No I/O."""

from collections.abc import Callable
from typing import Any, NamedTuple

from mqks.client import protocol
from mqks.names import is_event, is_name
from mqks.web.answers import dumps

KEYS = {"event", "data", "id", "once"}
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
    event = _name(body["event"], "event", is_event)
    message_id = new_id() if body.get("id") is None else _name(body["id"], "id", is_name).encode()
    once, data = _once(body.get("once")), _data(body.get("data", ""))
    request = protocol.publish(event, data, confirm=True, once=once)
    return Publish(message_id, event.encode(), protocol.unended_line(message_id, request))


def _name(value: Any, what: str, legal: Callable[[bytes], bool]) -> str:
    if isinstance(value, str) and _is_whole(value) and legal(value.encode()):
        return value
    raise ValueError(f"{what} must be a name: text without spaces, that does not begin with -- or {{")


def _once(value: Any) -> str:
    if value is None or value is False:
        return ""
    return protocol.once_flag() if value is True else protocol.once_flag(_name(value, "once", is_name))


def _data(value: Any) -> str:
    """A text goes as it is, anything else as its JSON."""
    if not isinstance(value, str):
        return _json(value)
    if not _is_whole(value):
        raise ValueError("data has half of a surrogate pair: send whole characters")
    if protocol.not_in_data(value):
        raise ValueError("data may not have a newline, TAB or NUL: send an object instead, whose JSON escapes them")
    return value


def _is_whole(value: str) -> bool:
    """Without half of a surrogate pair."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _json(value: Any) -> str:
    try:
        return dumps(value).decode()
    except RecursionError:
        raise ValueError("data is nested too deeply") from None
