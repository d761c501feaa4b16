"""history and hold: the log read again, and kept from going before it was read."""

from functools import lru_cache

from mqks.broker.client import Client
from mqks.broker.durable import Durable
from mqks.broker.errors import BadRequest
from mqks.broker.history import NO_END, Stream, dtid_at
from mqks.broker.names import check_name
from mqks.broker.words import CONFIRM, Flags, count, parse, seconds, switch, text
from mqks.names import Events

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
    words = parse(data, HISTORY)
    (where,) = words.exactly(1, "where to begin")
    stream = Stream(client, request_id, broker.histories.place(where))
    stream.follow = b"--follow" in words.flags
    stream.raw = b"--raw" in words.flags
    if stream.raw and (b"--events" in words.flags or b"--limit" in words.flags):
        raise BadRequest("--raw gives whole batches: it takes no --events and no --limit")
    if (to := words.flags.get(b"--to")) is not None:
        if to.isdigit():
            stream.stop = min(int(to[:19]), NO_END)
        elif to in (b"earliest", b"latest"):
            stream.stop = broker.histories.place(to)
        else:
            stream.until = dtid_at(to)
    if (events := words.flags.get(b"--events")) is not None:
        wanted = Events(check_name(event) for event in events.split(b","))
        stream.wants = lru_cache(maxsize=4096)(wanted.__contains__)  # most messages are of few events
    stream.limit = words.flags.get(b"--limit", NO_END)
    broker.histories.begin(stream)


def hold(broker: Durable, client: Client, request_id: bytes, data: bytes) -> None:
    words = parse(data, HOLD)
    name, where = words.exactly(2, "a name and a position")
    position = broker.histories.place(where)
    if b"--for" not in words.flags:
        raise BadRequest("expected --for={seconds}")
    broker.hold(name, position, words.flags[b"--for"])
    if words.confirm:
        broker.core.confirm(client, request_id)
