"""Where the dialects meet: an MQKS message as a SEVX event and the other way round. The key "event" is the bridge."""

from typing import Any

from mqks.broker.protocol import jsons
from mqks.journal.messages import take_once
from mqks.names import is_event

MQKS, SEVX = 0, 1  # a consumer's dialect, as the core numbers them


def event_name(content: dict[str, Any]) -> bytes:
    """The name under which MQKS queues know this SEVX event; empty if it has none that is legal."""
    name = content.get("event")
    try:
        encoded = name.encode() if isinstance(name, str) else b""
    except UnicodeEncodeError:  # half of a surrogate pair
        return b""
    return encoded if is_event(encoded) else b""


def name_in(text: bytes) -> bytes:
    try:
        return event_name(jsons.loads(text))
    except (ValueError, AttributeError):  # in a journal that no broker has written
        return b""


def as_content(event: bytes, data: bytes) -> dict[str, Any]:
    """An MQKS message as patterns see it."""
    try:
        value = jsons.loads(data)
    except ValueError:
        value = data.decode("utf-8", "replace")
    return {"event": event.decode("utf-8", "replace"), "data": value}


def _as_json(event: bytes, data: bytes) -> bytes:
    """An MQKS message as the text of a SEVX event: data that is JSON goes as it came."""
    try:
        jsons.loads(data)
    except ValueError:
        data = jsons.dumps(data.decode("utf-8", "replace"))
    return b'{"event": %s, "data": %s}' % (jsons.dumps(event.decode("utf-8", "replace")), data)


def _with_retry(text: bytes, retry: int) -> bytes:
    if not retry:
        return text
    rest = text[1:]
    if rest.lstrip() == b"}":
        return b'{"retry": %d}' % retry
    return b'{"retry": %d, %s' % (retry, rest)


def render(line: bytes, dialect: int, retry: int) -> bytes:
    """What a consumer of this dialect is told about a message in the log, after "{id} ok "."""
    message_id, action, rest = line.split(b" ", 2)
    _, rest = take_once(rest)
    if dialect == SEVX:
        text = rest if action == b"send" else _as_json(*rest.split(b" ", 1))
        return message_id + b" " + _with_retry(text, retry)
    if action == b"send":
        event, data = name_in(rest), rest
    else:
        event, data = rest.split(b" ", 1)
    return b"%s event=%s%s %s" % (message_id, event, b",retry=%d" % retry if retry else b"", data)
