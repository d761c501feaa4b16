"""history and hold: the log read again, and kept from going before it was read."""

from collections.abc import Callable
from functools import lru_cache

from mqks.broker.access import REMEMBERED, SHORT, Rights, permit
from mqks.broker.client import Client
from mqks.broker.durable import Durable
from mqks.broker.errors import BadRequest
from mqks.broker.history import NO_END, Stream, dtid_at, position_in
from mqks.broker.names import check_name
from mqks.broker.words import CONFIRM, Flags, count, parse, seconds, switch, text
from mqks.names import Events

MOST_MASKS = 100  # of one history: each is tried on each message
HISTORY: Flags = {
    **CONFIRM,
    b"--to": text,
    b"--events": text,
    b"--limit": count,
    b"--follow": switch,
    b"--raw": switch,
}
HOLD: Flags = {**CONFIRM, b"--for": lambda value: seconds(text(value))}


def history(broker: Durable, client: Client, request_id: bytes, data: bytes) -> None:
    permit(bool(client.rights.history), "history")
    words = parse(data, HISTORY)
    (where,) = words.exactly(1, "where to begin")
    stream = Stream(client, request_id, broker.histories.place(where))
    stream.follow = b"--follow" in words.flags
    stream.raw = b"--raw" in words.flags
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
    stream.wants = _wants(client.rights, words.flags.get(b"--events"))
    stream.limit = words.flags.get(b"--limit", NO_END)
    broker.histories.begin(stream)


def _wants(rights: Rights, events: bytes | None) -> Callable[[bytes], bool] | None:
    """Which events are shown: those that are asked for, of those that may be read."""
    if events is None:
        return None if rights.reads_all else rights.may_read
    given = [check_name(event) for event in events.split(b",")]
    if sum(b"*" in event for event in given) > MOST_MASKS:
        raise BadRequest("too many masks in --events", f"{MOST_MASKS} are taken, and any number of names")
    asked = Events(given)
    if asked.only_names and rights.reads_all:  # of which any number are found at once
        return asked.__contains__
    wants = asked.__contains__ if rights.reads_all else lambda event: event in asked and rights.may_read(event)
    remembered = lru_cache(REMEMBERED)(wants)  # most messages are of few events
    return lambda event: remembered(event) if len(event) <= SHORT else wants(event)


def hold(broker: Durable, client: Client, request_id: bytes, data: bytes) -> None:
    permit(client.rights.reads_all, "history of all events")
    words = parse(data, HOLD)
    name, where = words.exactly(2, "a name and a position")
    position = broker.histories.place(where)
    if b"--for" not in words.flags:
        raise BadRequest("expected --for={seconds}")
    broker.hold(name, position, words.flags[b"--for"])
    if words.confirm:
        broker.core.confirm(client, request_id)
