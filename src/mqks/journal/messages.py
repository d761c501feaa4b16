"""A line of the journal as a message, and which events are wanted: no I/O."""

import json
import re
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

# What an event may be called, as in docs/PROTOCOL.md; the journal knows nothing of the broker that checks it.
_NAME = re.compile(rb"(?!--|\{|-\Z)[^ \t\0\r\n]+")
_LOOKS_RETRIED = re.compile(rb",retry=[0-9]+\Z")


class Message(NamedTuple):
    """One message, in bytes as it came. A SEVX message has the legal name under its key "event" as event, or none."""

    position: int
    time: datetime
    id: bytes
    action: bytes
    event: bytes
    data: bytes

    @property
    def line(self) -> bytes:
        """As it stands in the journal, without the newline."""
        if self.action == b"send":
            return b"%s send %s" % (self.id, self.data)
        return b"%s publish %s %s" % (self.id, self.event, self.data)


def parse_message(line: bytes, position: int, time: datetime) -> Message | None:
    """None for control lines: what became of queues and holds."""
    name, _, rest = line.partition(b" ")
    action, _, rest = rest.partition(b" ")
    if action == b"publish":
        event, _, data = rest.partition(b" ")
        return Message(position, time, name, action, event, data)
    if action == b"send":
        return Message(position, time, name, action, event_of(rest), rest)
    return None


def event_of(text: bytes) -> bytes:
    """The name under which MQKS queues know a SEVX event."""
    try:
        content = json.loads(text)
        event = content.get("event", "").encode()
    except (ValueError, AttributeError, RecursionError):
        return b""
    return event if _NAME.fullmatch(event) and not _LOOKS_RETRIED.search(event) else b""


class Events:
    """The events that are wanted: names, and masks whose * stands for any run of characters but the dot.

    A mask never matches an event without a dot.
    """

    def __init__(self, wanted: Iterable[str | bytes]) -> None:
        given = [item.encode() if isinstance(item, str) else item for item in wanted]
        masks = [rb"[^.]*".join(map(re.escape, re.split(rb"\*+", item))) for item in given if b"*" in item]
        self._names = {item for item in given if b"*" not in item}
        self._mask = re.compile(b"|".join(masks), re.DOTALL) if masks else None

    def __contains__(self, event: object) -> bool:
        if event in self._names:
            return True
        return (
            self._mask is not None
            and isinstance(event, bytes)
            and b"." in event
            and self._mask.fullmatch(event) is not None
        )
