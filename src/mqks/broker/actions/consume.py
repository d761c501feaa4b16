"""consume, pause and resume, rebind and subscribe: who takes from a queue, and what goes into it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqks.broker.auth.access import Asked, Rights, permit, permit_each
from mqks.broker.connections.client import Client
from mqks.broker.errors import BadRequest
from mqks.broker.protocol.bridge import MQKS
from mqks.broker.protocol.names import check_event
from mqks.broker.protocol.words import (
    BIND,
    BYTES,
    CONFIRM,
    CONSUMER,
    LENGTH,
    LONG,
    MOST_WORDS,
    OVERFLOW,
    UNUSED,
    Flags,
    TooManyWords,
    Words,
    parse,
    seconds,
    switch,
)
from mqks.broker.queues.queue import NO_BOUNDS, Bounds, Queue
from mqks.core.parts import Consumer
from mqks.names import Mask

if TYPE_CHECKING:
    from mqks.broker.broker import Broker

CONSUME: Flags = {
    **CONSUMER,
    UNUSED: seconds,
    b"--manual-ack": switch,
}
REBIND_LISTS = (b"--remove", b"--remove-mask", b"--add")
# Of one request, so that it takes some ten milliseconds: words and stars of masks times events, and letters of both,
# since a mask may be all stars, or be found nearly everywhere. With more than MANY events there may be more in
# proportion, so that a usual mask can be tried whatever --max-events is.
MANY = 10_000
TRIES = 10
LETTERS = 5_000
COSTLY = 1_000  # tries, after which others have their turn


def _read(
    broker: Broker,
    client: Client,
    data: bytes,
    may: Asked,
    right: str,
    flags: Flags,
    lists: tuple[bytes, ...] = (),
) -> tuple[Words, bytes, Queue | None, list[bytes]]:
    """The words, the queue (its name, and itself if there is one) and the events of a request that is permitted. What
    costs little comes first: how many words there are, then the right on the queue, and only then the rest."""
    if len(data) > LONG:
        broker.core.parser.rest()
    most = MOST_WORDS + 2 * broker.limits.max_events  # to remove as many events as there may be, and add as many
    try:
        words = parse(data, flags, lists, most, lambda name: permit(may(name), right, name))
    except TooManyWords:
        raise broker.limits.reached("max_events") from None
    if not words.plain:
        raise BadRequest("expected a queue")
    name, *events = words.plain
    added = words.lists.get(b"--add", [])
    for event in (*events, *added, *words.lists.get(b"--remove", ())):
        check_event(event)
    queue = broker.queues.find(name)  # what it has already is nothing new, whoever subscribed it
    permit_each(client.rights.may_bind, "consume.events", {*events, *added} - (queue.events if queue else set()))
    return words, name, queue, events


def consume(broker: Broker, client: Client, request_id: bytes, data: bytes) -> None:
    rights = client.rights
    words, name, there, events = _read(broker, client, data, rights.may_consume, "consume.queues", CONSUME, (b"--add",))
    wanted = set(events) if events or there is None else set(there.events)
    wanted.update(words.lists.get(b"--add", ()))
    bounds = permit_bounds(rights, name, there, words)
    seconds = words.flags.get(UNUSED)
    unused = permit_unused(rights, there, seconds is not None, seconds)
    broker.queues.check_change(name, there, wanted, bounds, unused)
    queue = broker.consumers.queue_to_consume(client, request_id, name, there)
    limits = broker.queue_limits.change(queue, bounds)
    before = _options(broker.consumers.find(client, request_id))
    consumer = broker.consumers.join(client, request_id, queue, MQKS, b"--manual-ack" in words.flags, words)
    changed = broker.exchange.set_events(queue, wanted)
    changed |= broker.queues.set_unused(queue, unused)
    knows = None if b"--add" in words.lists else consumer
    restated = before not in (None, _options(consumer))
    if changed:
        broker.updates.tell_update(queue, but=knows)
    else:
        broker.updates.tell_limits(queue, limits, but=knows, also=consumer if restated and not knows else None)
    broker.definitions.write(queue)
    if words.confirm:
        broker.core.confirmations.confirm(client, request_id, consumer)


def _options(consumer: Consumer | None) -> tuple[object, ...] | None:
    """What a consumer states of itself, and an --update repeats."""
    return None if consumer is None else (consumer.manual_ack, consumer.stated, consumer.prefetch)


def pause(broker: Broker, client: Client, request_id: bytes, data: bytes) -> None:
    _pause(broker, client, request_id, data, True)


def resume(broker: Broker, client: Client, request_id: bytes, data: bytes) -> None:
    _pause(broker, client, request_id, data, False)


def _pause(broker: Broker, client: Client, request_id: bytes, data: bytes, yes: bool) -> None:
    words = parse(data, CONFIRM)
    (consumer_id,) = words.exactly(1, "a consumer")
    consumer = broker.consumers.find(client, consumer_id)
    if consumer is not None:
        broker.core.acks.pause(consumer, yes)
    if words.confirm:
        broker.core.confirmations.confirm(client, request_id)


def rebind(broker: Broker, client: Client, request_id: bytes, data: bytes) -> None:
    words, name, queue, events = _read(broker, client, data, client.rights.may_manage, "manage", BIND, REBIND_LISTS)
    alone = not words.lists and not stated(words)  # then it removes all
    wanted = set(events) if events or alone or queue is None else set(queue.events)
    wanted.difference_update(words.lists.get(b"--remove", ()))
    wanted = _unmasked(broker, wanted, words.lists.get(b"--remove-mask", []))
    wanted.update(words.lists.get(b"--add", ()))
    _bind(broker, client, request_id, words, name, queue, wanted)


def _unmasked(broker: Broker, events: set[bytes], masks: list[bytes]) -> set[bytes]:
    """The events that no mask matches."""
    if not masks or not events:
        return events
    tries = sum(1 + mask.count(b".") + mask.count(b"*") for mask in masks) * (1 + len(events))
    letters = sum(map(len, masks)) * sum(map(len, events))
    room = max(len(events), MANY)
    if tries > TRIES * room or letters > LETTERS * room:
        raise BadRequest("too many masks for so many events: remove them in several requests")
    if tries > COSTLY:
        broker.core.parser.rest()
    prepared = [Mask(mask) for mask in masks]
    split = {event: event.split(b".") for event in events}
    return {event for event, words in split.items() if not any(mask.matches(words) for mask in prepared)}


def subscribe(broker: Broker, client: Client, request_id: bytes, data: bytes) -> None:
    words, name, queue, events = _read(broker, client, data, client.rights.may_consume, "consume.queues", BIND)
    if not events:
        raise BadRequest("expected a queue and events")
    _bind(broker, client, request_id, words, name, queue, set(events))


def _bind(
    broker: Broker,
    client: Client,
    request_id: bytes,
    words: Words,
    name: bytes,
    there: Queue | None,
    wanted: set[bytes],
) -> None:
    bounds = permit_bounds(client.rights, name, there, words)
    broker.queues.check_change(name, there, wanted, bounds, there.unused if there else None)
    queue = broker.queues.make(name) if there is None else there
    limits = broker.queue_limits.change(queue, bounds)
    if broker.exchange.set_events(queue, wanted):
        broker.updates.tell_update(queue)
    else:
        broker.updates.tell_limits(queue, limits)
    broker.definitions.write(queue)
    if words.confirm:
        broker.core.confirmations.confirm(client, request_id)


def stated(words: Words) -> bool:
    """Does a request say something about limits?"""
    return not words.flags.keys().isdisjoint((LENGTH, BYTES, OVERFLOW))


def permit_bounds(rights: Rights, name: bytes, queue: Queue | None, words: Words) -> Bounds:
    """The limits that the queue has from now on. They hold for all who use it, and one that is full stops those who
    publish: to change them is to manage it, also when it is made by that. To state what holds already is free: who
    consumes says it again at each start."""
    had = NO_BOUNDS if queue is None else queue.bounds
    bounds = had.changed(words.flags)
    if bounds != had:
        permit(rights.may_manage(name), "manage", name)
    return bounds


def permit_unused(rights: Rights, queue: Queue | None, stated: bool, seconds: float | None) -> float | None:
    """When the queue goes, from now on: whoever makes it says so. To change that later is to manage it; a consumer that
    may not, and says nothing about it, leaves it as it is."""
    if queue is None or queue.unused_is_sticky or queue.unused == seconds or rights.may_manage(queue.name):
        return seconds
    permit(not stated, "manage", queue.name)
    return queue.unused
