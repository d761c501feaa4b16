"""The codec: how requests to a broker are written, and how its replies are cut.

Both clients, the commands, the broker's HTTP side and Spark build and read all lines by this module. `wire` is its
compiled half: it writes plain publishes, reads deliveries, and cuts replies and records. Spark's sink joins lines as
columns, from the heads and patterns here. Requests are action and data as text; `line` puts an id in front. Nothing
here does I/O.

Text is UTF-8 with surrogateescape, so that data that is no text goes and comes unharmed.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from mqks.client.errors import Refused
from mqks.client.wire import parse_history as parse_history
from mqks.client.wire import parse_reply as parse_reply

NOBODY = "-"  # the id of a reply to the connection itself
SAFE_END = b"\r\n"  # the broker drops one \r before the end of a line: so data that ends in one keeps its own
STATS = "stats"
CONSUME = "consume --confirm "
EARLIEST, LATEST = "earliest", "latest"

NOT_IN_DATA = {"\n": "a newline", "\t": "a TAB", "\0": "a NUL"}
RETRIED = re.compile(r'\{"retry": ([0-9]{1,9})[,}]')  # as the broker puts it before what was sent

ERROR_MARK = b" error "  # in replies to publishes only one that refuses has it
_PUBLISHES = ("publish", "send")
_DELETION = "--delete-queue-when-unused"


def encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def not_in_data(data: str) -> str | None:
    """What is in it that no line can carry."""
    return next((name for character, name in NOT_IN_DATA.items() if character in data), None)


# ── requests ──


def line(id: str, request: str) -> str:
    return f"{id} {request}\n"


def unended_line(id: bytes, request: str) -> bytes:
    """Its end is `SAFE_END`."""
    return b"%s %s" % (id, encode(request))


def id_of(line: str) -> str:
    return line.partition(" ")[0]


def is_publish(line: str) -> bool:
    return line.split(" ", 2)[1] in _PUBLISHES


def publish(event: str, data: str, *, confirm: bool, once: str = "") -> str:
    if confirm and not once:  # for each message, so not by way of the head
        return f"publish --confirm {event} {data}"
    return f"{publish_head(confirm=confirm, once=once)}{event} {data}"


def publish_head(*, confirm: bool, once: str = "") -> str:
    """What stands before the event."""
    if once:
        return f"publish --confirm {once} " if confirm else f"publish {once} "
    return "publish --confirm " if confirm else "publish "


def send(event: str, *, once: str = "") -> str:
    return send_head(once=once) + event


def send_head(*, once: str = "") -> str:
    """What stands before the event's JSON."""
    return f"send {once} " if once else "send "


def once_flag(scope: str = "") -> str:
    return f"--once={scope}" if scope else "--once"


def consume(queue: str, events: Iterable[str], add_events: Iterable[str], flags: Iterable[str]) -> str:
    added = list(add_events)
    return CONSUME + _words(queue, *events, *(["--add", *added] if added else []), *flags)


def rebind(queue: str, events: Iterable[str], lists: Mapping[str, Iterable[str]], flags: Iterable[str]) -> str:
    """`lists`: words after a flag, such as `--remove`."""
    named = [(flag, list(words)) for flag, words in lists.items()]
    given = [word for flag, words in named if words for word in (flag, *words)]
    return _words("rebind --confirm", queue, *flags, *events, *given)


def delivery_flags(manual_ack: bool, prefetch: int) -> list[str]:
    return ["--manual-ack"] * manual_ack + [f"--prefetch={prefetch}"] * bool(prefetch)


def deletion_flags(unused: bool | float) -> list[str]:
    """When the queue goes with its last consumer."""
    return _unused_flags(_DELETION, unused)


def is_deletion_flag(word: str) -> bool:
    return word.startswith(_DELETION)


def _unused_flags(flag: str, unused: bool | float) -> list[str]:
    """True is at once, a number so many seconds later, to the millisecond, False not at all."""
    if unused is False:
        return []
    return [flag if unused is True else f"{flag}={round(float(unused), 3)}"]


def settle(action: str, consumer_id: str, message_id: str | None, *, confirm: bool) -> str:
    """`ack` or `reject` of one message, or with None of all."""
    return f"{action}{' --confirm' * confirm} {consumer_id} {message_id or '--all'}"


def pause(consumer_id: str) -> str:
    return f"pause {consumer_id}"


def resume(consumer_id: str) -> str:
    return f"resume {consumer_id}"


def delete_consumer(consumer_id: str) -> str:
    return f"delete_consumer --confirm {consumer_id}"


def delete_queue(queue: str, *, when_unused: bool | float = False) -> str:
    return _words("delete_queue --confirm", queue, *_unused_flags("--when-unused", when_unused))


def ping(data: str) -> str:
    return f"ping --confirm {data}"


def auth(token: str) -> str:
    return f"auth {token}"


def evaluate(code: str, *flags: str) -> str:
    return _words("_eval", *flags, code)


def hold(name: str, position: int | str, seconds: float) -> str:
    return f"hold --confirm {name} {position} --for={seconds:.3f}"


def history(
    start: object,
    *,
    to: object = None,
    events: Iterable[str] = (),
    limit: int | None = None,
    follow: bool = False,
    raw: bool = False,
) -> str:
    masks = ",".join(events)
    return _words(
        "history",
        str(start),
        *["--raw"] * raw,
        *[f"--limit={limit}"] * (limit is not None),
        *[f"--to={to}"] * (to is not None),
        *["--follow"] * follow,
        *[f"--events={masks}"] * bool(masks),
    )


def _words(*words: str) -> str:
    return " ".join(words)


# ── requests of SEVX, whose data is JSON ──


def recv(asked: Mapping[str, Any], flags: Iterable[str]) -> str:
    return _words("recv", *flags, json.dumps(asked))


def settle_event(action: str, receiver_id: str, event_id: str | None) -> str:
    """`ack` or `reject` of one event, or with None of all."""
    which: dict[str, Any] = {"event_id": event_id} if event_id else {"all": True}
    return f"{action} {json.dumps({'receiver_id': receiver_id, **which})}"


def delete_receiver(receiver_id: str) -> str:
    return f"delete_receiver {json.dumps({'receiver_id': receiver_id})}"


def delete_receivers_queue(queue: str) -> str:
    return f"delete_queue {json.dumps({'queue': queue})}"


# ── replies ──


def answer(line: str, request: str) -> str:
    """The data of the reply to this request. Refused: the broker does not do it."""
    _, ok, data = parse_reply(line)
    if not ok:
        raise Refused(request, data)
    return data


def history_end(answer: str) -> int:
    """The position at which a history ended. ValueError: this is not its end."""
    end = parse_history(answer)
    if not isinstance(end, str):
        raise ValueError(f"not the end of a history: {answer[:100]!r}")
    return int(end)


class Update(NamedTuple):
    """What a queue has now, as its consumers are told."""

    events: list[str]
    flags: list[str]


def parse_update(answer: str) -> Update:
    """From what comes for a consumer and is no message."""
    flag, *words = answer.split(" ")
    if flag != "--update":
        raise ValueError(f"not an answer to a consumer: {answer[:100]!r}")
    flags = [word for word in words[1:] if word.startswith("--")]
    return Update([word for word in words[1:] if not word.startswith("--")], flags)


def parse_cut_history(answer: str) -> tuple[str, str, str, str] | str:
    """As `parse_history`, of a line of which the end may be missing: what is not there is empty."""
    if answer.startswith("--end "):
        return parse_history(answer)
    position, id, event, data = [*answer.split(" ", 3), "", "", ""][:4]
    return position, id, event.removeprefix("event="), data


def is_pattern_update(answer: str) -> bool:
    """What came for a receiver: a change, not an event."""
    return answer[:1] == "{"


def parse_pattern_update(answer: str) -> dict[str, Any] | None:
    """The pattern that a receiver's queue has now; None: it was deleted."""
    try:
        pattern = json.loads(answer)["update"]["pattern"]
    except (LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"not an answer to a receiver: {answer[:100]!r}") from error
    if pattern is not None and not isinstance(pattern, dict):
        raise ValueError(f"not a pattern: {answer[:100]!r}")
    return pattern


def parse_event(answer: str) -> tuple[str, str, int]:
    """Id, JSON and number of retries of an event that came for a receiver."""
    id, _, data = answer.partition(" ")
    retried = RETRIED.match(data)
    return id, data, int(retried[1]) if retried else 0
