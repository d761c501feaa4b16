"""A line of the journal as a message: no I/O."""

import json
from datetime import datetime
from typing import NamedTuple

from mqks.names import is_event


class Message(NamedTuple):
    """One message, in bytes as it came. A SEVX message has the legal name under its key "event" as event, or none."""

    position: int
    time: datetime
    id: bytes
    action: bytes
    event: bytes
    data: bytes
    once: bytes | None = None  # the scope in which its id was to be taken once; None: it was not

    @property
    def line(self) -> bytes:
        """As it stands in the journal, without the newline."""
        flag = b"" if self.once is None else b"--once=%s " % self.once if self.once else b"--once "
        if self.action == b"send":
            return b"%s send %s%s" % (self.id, flag, self.data)
        return b"%s publish %s%s %s" % (self.id, flag, self.event, self.data)


def is_message(line: bytes) -> bool:
    """Or is it a control line, or a header?"""
    return line.split(b" ", 2)[1:2] in ([b"publish"], [b"send"])


def parse_message(line: bytes, position: int, time: datetime) -> Message | None:
    """None for control lines: what became of queues and holds."""
    name, _, rest = line.partition(b" ")
    action, _, rest = rest.partition(b" ")
    once, rest = take_once(rest)
    if action == b"publish":
        event, _, data = rest.partition(b" ")
        return Message(position, time, name, action, event, data, once)
    if action == b"send":
        return Message(position, time, name, action, event_of(rest), rest, once)
    return None


def take_once(rest: bytes) -> tuple[bytes | None, bytes]:
    """What stands after the action of a message: the scope of its --once, if it has the flag, and all after that."""
    if not rest.startswith(b"--"):
        return None, rest
    flag, _, rest = rest.partition(b" ")
    return flag.partition(b"=")[2], rest


def event_of(text: bytes) -> bytes:
    """The name under which MQKS queues know a SEVX event."""
    try:
        content = json.loads(text)
        event = content.get("event", "").encode()
    except (ValueError, AttributeError, RecursionError):
        return b""
    return event if is_event(event) else b""
