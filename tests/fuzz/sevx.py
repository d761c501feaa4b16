"""SEVX: any text where JSON should be.

An input is a pattern, a newline, and an event; or just an event. What must hold: a text that is no strict JSON in UTF-8
is refused, and one that is comes back as it was sent, if it begins with its object; the event reaches the receiver
exactly if the pattern matches by the words of the protocol, followed one by one; and all who tell a SEVX event's name,
from its JSON or from the journal, tell the same.
"""

import json
from typing import Any

from mqks.broker.protocol.bridge import event_name, name_in
from mqks.broker.queues.patterns import MOST_NESTED
from mqks.journal.columns import Columns
from mqks.journal.format import build_batch
from mqks.journal.messages import event_of
from tests.fuzz.lines import StrictBroker
from tests.journal.test_columns import rows_of

DTID = b"20260131120000000000aaaa"
SHALLOW = MOST_NESTED - 2  # whatever is not nested more deeply is looked at


def loaded(text: bytes) -> dict[str, Any] | None:
    """Strict JSON, and an object; by the standard library's words alone."""

    def refuse(name: str) -> float:
        raise ValueError(name)

    def finite(number: str) -> float:
        return refuse(number) if float(number) in (float("inf"), -float("inf")) else float(number)

    try:
        value = json.loads(text.decode(), parse_constant=refuse, parse_float=finite)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def matches(pattern: Any, value: Any) -> bool:
    if isinstance(pattern, dict) and isinstance(value, dict):
        return all(key in value and matches(wanted, value[key]) for key, wanted in pattern.items())
    return equal(pattern, value)


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    return bool(one == other)


def depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


def sevx(data: bytes) -> None:
    pattern, given, event = data.replace(b"\t", b"").replace(b"\0", b"").partition(b"\n")
    if not given:
        pattern, event = b"{}", pattern
    event = event.partition(b"\n")[0].removesuffix(b"\r")
    wanted, content = loaded(pattern), loaded(event)
    taken, heard = told(pattern, event)
    if content is None:
        assert heard == [] or not event.startswith(b"{"), "what is no JSON was taken"
        return
    check_names(event, content)
    if not event.lstrip(b" ").startswith(b"{"):
        assert heard == [], "only spaces and flags may stand before the object"
        return
    if wanted is None or max(depth(wanted), depth(content)) > SHALLOW:
        return
    assert taken, "a pattern was refused"
    assert heard == [event.strip(b" ")] * matches(wanted, content), (wanted, content)


def told(pattern: bytes, event: bytes) -> tuple[bool, list[bytes]]:
    """Was the pattern taken; and what was the receiver given?"""
    broker = StrictBroker(max_line=1 << 16)
    receiver, sender = broker.connect("127.0.0.1:1"), broker.connect("127.0.0.1:2")
    broker.feed(receiver, b'r recv {"pattern": %s, "queue": "q"}\n' % pattern.replace(b"\r", b""))
    taken = receiver.pending() == b"r ok \n"
    broker.sent(receiver, receiver.pending_size)
    broker.feed(sender, b"e send %s\n" % event)
    assert sender.pending().startswith((b"e ok ", b"e error ")), "a send was not answered"
    broker.turn()
    heard = receiver.pending().split(b"\n")[:-1]
    return taken, [line.removeprefix(b"r ok e ") for line in heard] if taken else []


def check_names(event: bytes, content: dict[str, Any]) -> None:
    """Who has an event's name from its JSON, from the log, from a journal's line and from a batch for Spark."""
    columns = Columns(("event",))
    columns.feed(build_batch(DTID, 0, b"m send %s\n" % event.replace(b"\r", b" ").replace(b"\n", b" "), 0, 0), 0)
    ((in_batch,),) = rows_of(columns, ("event",))
    assert event_name(content) == name_in(event) == event_of(event) == in_batch
