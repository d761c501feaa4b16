"""history and hold: the log read again, and kept from going before it was read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqks.broker.auth.access import SHORT, Asked, permit, remembering
from mqks.broker.connections.client import Client
from mqks.broker.errors import BadRequest
from mqks.broker.persistence.history import NO_END, Stream, dtid_at, position_in
from mqks.broker.protocol.names import check_name
from mqks.broker.protocol.words import CONFIRM, LONG, Flags, count, parse, seconds, switch, text
from mqks.names import Events

if TYPE_CHECKING:
    from mqks.broker.broker import Broker

MOST_MASKS = 100  # of one history: each is tried on each message
REMEMBERED = 256  # events of which a history with masks knows whether they are wanted: most messages are of few events
# Bytes of memory; measured, and rounded up.
WANTED_COST = 250  # for a name, and for a word or a star of a mask, beside its letters
REMEMBERED_COST = 250  # for an event that is remembered, likewise
HISTORY: Flags = {
    **CONFIRM,
    b"--to": text,
    b"--events": text,
    b"--limit": count,
    b"--follow": switch,
    b"--raw": switch,
}
HOLD: Flags = {**CONFIRM, b"--for": lambda value: seconds(text(value))}


def history(broker: Broker, client: Client, request_id: bytes, data: bytes) -> None:
    permit(bool(client.rights.history), "history")
    words = parse(data, HISTORY)
    (where,) = words.exactly(1, "where to begin")
    stream = Stream(client, request_id, broker.histories.place(where))
    stream.follow = b"--follow" in words.flags
    stream.raw = b"--raw" in words.flags
    stream.given_up = not where.isdigit()  # who names a position has read up to there, and must know what is missing
    if stream.raw and (b"--events" in words.flags or b"--limit" in words.flags):
        raise BadRequest("--raw gives whole batches: it takes no --events and no --limit")
    if stream.raw:
        permit(client.rights.reads_all, "history of all events")
    if (to := words.flags.get(b"--to")) is not None:
        if to.isdigit():
            stream.stop = min(position_in(to), NO_END)
        elif to in (b"earliest", b"latest"):
            stream.stop = broker.histories.place(to)
        else:
            stream.until = dtid_at(to)
    _set_wanted(broker, stream, words.flags.get(b"--events"))
    stream.limit = words.flags.get(b"--limit", NO_END)
    broker.histories.begin(stream)


def _set_wanted(broker: Broker, stream: Stream, events: bytes | None) -> None:
    """Which events are shown: those that are asked for, of those that may be read."""
    rights = stream.client.rights
    if events is None:
        stream.wants = None if rights.reads_all else rights.may_read
        return
    asked = _asked(broker, stream, events)
    stream.wants = asked if rights.reads_all else lambda event: asked(event) and rights.may_read(event)


def _asked(broker: Broker, stream: Stream, events: bytes) -> Asked:
    """Is an event one of these names, or does a mask match it? How many there are is counted before they are split."""
    if len(events) > LONG:
        broker.core.parser.rest()
    number = 1 + events.count(b",")
    _check_number(broker, stream.client, number)
    given = [check_name(event) for event in events.split(b",")]
    masks = [event for event in given if b"*" in event]
    if len(masks) > MOST_MASKS:
        raise BadRequest("too many masks in --events", f"{MOST_MASKS} are taken")
    inside = sum(mask.count(b".") + mask.count(b"*") for mask in masks)
    _check_number(broker, stream.client, number + inside)
    stream.kept = WANTED_COST * (number + inside) + len(events)
    asked = Events(given).__contains__
    if not masks:
        return asked  # any number of names is found at once
    stream.tries = len(masks) + inside
    stream.kept += REMEMBERED * (REMEMBERED_COST + SHORT)
    return remembering(asked, REMEMBERED)


def _check_number(broker: Broker, client: Client, number: int) -> None:
    """May it want so many events? Words and stars of masks count as well, since each is kept."""
    if number > broker.limits.max_events and not client.inside:
        raise broker.limits.reached("max_events")


def hold(broker: Broker, client: Client, request_id: bytes, data: bytes) -> None:
    permit(client.rights.reads_all, "history of all events")
    words = parse(data, HOLD)
    name, where = words.exactly(2, "a name and a position")
    position = broker.histories.place(where)
    if b"--for" not in words.flags:
        raise BadRequest("expected --for={seconds}")
    broker.persistence.hold(name, position, words.flags[b"--for"])
    if words.confirm:
        broker.core.confirmations.confirm(client, request_id)
