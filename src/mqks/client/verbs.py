"""What the verbs of both clients ask for, checked: requests as text, and what is wanted; not how it is waited for."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol

from mqks.client import limits as of_queue
from mqks.client import protocol
from mqks.client.errors import MqksError
from mqks.client.limits import QueueLimits
from mqks.client.message import to_text
from mqks.client.wanted import WantedConsumer, WantedHistory, WantedReceiver
from mqks.client.wire import Message
from mqks.names import is_name

PIECE = 64 << 10  # bytes that are worth a send of their own
WINDOW = 1000  # confirms of publish_many that may be missing at a time

Place = int | str | datetime
Outgoing = tuple[str, object] | tuple[str, object, str]  # event, data, and an id if it has one already


class Sink(Protocol):
    """Where it goes what comes."""

    def deliver(self, items: list[Any], size: int) -> None: ...
    def end(self, error: MqksError | None) -> None: ...


def consumer(
    sink: Sink, message: type[Message], queue: str, events: Iterable[str], add_events: Iterable[str], **options: Any
) -> WantedConsumer:
    return WantedConsumer(
        name(queue),
        names(events),
        add_events=names(add_events),
        message=message,
        deliver=sink.deliver,
        ended=sink.end,
        **options,
    )


def receiver(
    sink: Sink, message: type[Message], queue: str, pattern: Mapping[str, Any], **options: Any
) -> WantedReceiver:
    return WantedReceiver(name(queue), pattern, message=message, deliver=sink.deliver, ended=sink.end, **options)


def history(
    sink: Sink, start: Place, to: Place | None, events: Iterable[str], limit: int | None, follow: bool
) -> WantedHistory:
    return WantedHistory(
        place(start),
        to=None if to is None else place(to),
        events=names(events),
        limit=limit,
        follow=follow,
        deliver=sink.deliver,
        ended=sink.end,
    )


def once_flag(once: bool | str, has_id: bool, own_scope: str) -> str:
    """An id that the client makes is only ever repeated by this client, so a scope of its own keeps apart ids of two
    clients that are equal by chance; an id that was given means the same from everywhere."""
    if once is True:
        return protocol.once_flag("" if has_id else own_scope)
    return protocol.once_flag(name(once)) if once else ""


def rebind(
    queue: str,
    events: Iterable[str] | None,
    remove: Iterable[str],
    remove_mask: Iterable[str],
    add: Iterable[str],
    limits: QueueLimits,
) -> str:
    lists = {"--remove": names(remove), "--remove-mask": names(remove_mask), "--add": names(add)}
    plain = names(events or ())
    if events is None and not any(lists.values()) and not limits:
        raise ValueError("nothing to rebind: give events ([] removes all), remove, remove_mask, add or a limit")
    if events is not None and not plain:  # with a list and no events, the protocol would keep what there was
        plain, lists = lists["--add"], {}
        if not plain and limits:
            raise ValueError("limits with no events at all keep those that there are: rebind twice")
    return protocol.rebind(name(queue), plain, lists, of_queue.flags(limits))


def delete_queue(queue: str, unused: bool | float) -> str:
    return protocol.delete_queue(name(queue), when_unused=unused)


def ping(data: object) -> str:
    return protocol.ping(to_text(data))


CLOSING = ping("closing")  # with data: the original server does not answer a ping without


def evaluate(code: str) -> str:
    return protocol.evaluate(to_text(" ".join(code.split())))


def hold(hold_name: str, position: int | str, seconds: float) -> str:
    return protocol.hold(name(hold_name), position, seconds)


def place(given: Place) -> str:
    """A position, a time (UTC unless it says otherwise), earliest or latest."""
    return given.isoformat() if isinstance(given, datetime) else name(str(given))


def name(word: str) -> str:
    if not is_name(protocol.encode(word)):
        raise ValueError(f"{word!r} is no name: no spaces, and not -, --… or {{…")
    return word


def names(words: Iterable[str]) -> list[str]:
    if isinstance(words, str):
        raise ValueError(f"expected a list of names, not the string {words!r}")
    return [name(word) for word in words]
