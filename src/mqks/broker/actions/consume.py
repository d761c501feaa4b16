"""consume, pause and resume, rebind and subscribe: who takes from a queue, and what goes into it."""

from collections.abc import Iterable

from mqks.broker.access import permit, permit_each
from mqks.broker.bridge import MQKS
from mqks.broker.client import Client
from mqks.broker.errors import BadRequest
from mqks.broker.names import check_event
from mqks.broker.operations import Operations
from mqks.broker.overflow import permit_bounds, permit_unused, stated
from mqks.broker.words import BIND, CONFIRM, CONSUMER, Flags, Words, parse, seconds, switch
from mqks.names import Mask

UNUSED = b"--delete-queue-when-unused"
CONSUME: Flags = {
    **CONSUMER,
    UNUSED: seconds,
    b"--manual-ack": switch,
}
# Of one request, so that it takes about a second: masks times events, and the same of their letters, since a mask may
# be all stars, or be found nearly everywhere.
MOST_MASKING = 1_000_000
MOST_LETTERS = 400 * MOST_MASKING


def _queue_and_events(words: Words) -> tuple[bytes, list[bytes]]:
    if not words.plain:
        raise BadRequest("expected a queue")
    queue, *events = words.plain
    for flag in (b"--add", b"--remove"):
        for event in words.lists.get(flag, ()):
            check_event(event)
    return queue, [check_event(event) for event in events]


def _permit_new(broker: Operations, client: Client, name: bytes, events: Iterable[bytes]) -> None:
    """Events that the queue has already are nothing new, whoever subscribed it to them."""
    queue = broker.queues.get(name)
    permit_each(client.rights.may_bind, "consume.events", events if queue is None else set(events) - queue.events)


def consume(broker: Operations, client: Client, request_id: bytes, data: bytes) -> None:
    words = parse(data, CONSUME, lists=(b"--add",))
    name, events = _queue_and_events(words)
    permit(client.rights.may_consume(name), "consume.queues", name)
    there = broker.queues.get(name)
    wanted = set(events) if events or there is None else set(there.events)
    wanted.update(words.lists.get(b"--add", ()))
    _permit_new(broker, client, name, wanted)
    permit_bounds(client.rights, name, there, words)
    seconds = words.flags.get(UNUSED)
    unused = permit_unused(client.rights, there, seconds is not None, seconds)
    broker.check_growth(name, wanted)
    queue = broker.queue_to_consume(client, request_id, name)
    broker.overflow.bound(queue, words)
    broker.join(client, request_id, queue, MQKS, b"--manual-ack" in words.flags, words)
    changed = broker.exchange.set_events(queue, wanted)
    changed |= broker.set_unused(queue, unused)
    if changed:
        own = None if b"--add" in words.lists else client.consumers[request_id]
        broker.tell_update(queue, but=own)
    broker.keep(queue)
    if words.confirm:
        broker.core.confirm(client, request_id, client.consumers[request_id])


def pause(broker: Operations, client: Client, request_id: bytes, data: bytes) -> None:
    _pause(broker, client, request_id, data, True)


def resume(broker: Operations, client: Client, request_id: bytes, data: bytes) -> None:
    _pause(broker, client, request_id, data, False)


def _pause(broker: Operations, client: Client, request_id: bytes, data: bytes, yes: bool) -> None:
    words = parse(data, CONFIRM)
    (consumer_id,) = words.exactly(1, "a consumer")
    consumer = broker.consumer(client, consumer_id)
    if consumer is not None:
        broker.core.pause(consumer, yes)
    if words.confirm:
        broker.core.confirm(client, request_id)


def rebind(broker: Operations, client: Client, request_id: bytes, data: bytes) -> None:
    words = parse(data, BIND, lists=(b"--remove", b"--remove-mask", b"--add"))
    name, events = _queue_and_events(words)
    permit(client.rights.may_manage(name), "manage", name)
    queue = broker.queues.get(name)
    alone = not words.lists and not stated(words)  # then it removes all
    wanted = set(events) if events or alone or queue is None else set(queue.events)
    wanted.difference_update(words.lists.get(b"--remove", ()))
    wanted = _unmasked(wanted, words.lists.get(b"--remove-mask", []))
    wanted.update(words.lists.get(b"--add", ()))
    _bind(broker, client, request_id, words, name, wanted)


def _unmasked(events: set[bytes], masks: list[bytes]) -> set[bytes]:
    """The events that no mask matches."""
    letters = sum(map(len, masks)) * sum(map(len, events))
    if len(masks) * len(events) > MOST_MASKING or letters > MOST_LETTERS:
        raise BadRequest("too many masks for so many events: remove them in several requests")
    if not masks:
        return events
    prepared = [Mask(mask) for mask in masks]
    split = {event: event.split(b".") for event in events}
    return {event for event, words in split.items() if not any(mask.matches(words) for mask in prepared)}


def subscribe(broker: Operations, client: Client, request_id: bytes, data: bytes) -> None:
    words = parse(data, BIND)
    name, events = _queue_and_events(words)
    if not events:
        raise BadRequest("expected a queue and events")
    permit(client.rights.may_consume(name), "consume.queues", name)
    _bind(broker, client, request_id, words, name, set(events))


def _bind(broker: Operations, client: Client, request_id: bytes, words: Words, name: bytes, wanted: set[bytes]) -> None:
    _permit_new(broker, client, name, wanted)
    permit_bounds(client.rights, name, broker.queues.get(name), words)
    broker.check_growth(name, wanted)
    queue = broker.queue(name)
    broker.overflow.bound(queue, words)
    if broker.exchange.set_events(queue, wanted):
        broker.tell_update(queue)
    broker.keep(queue)
    if words.confirm:
        broker.core.confirm(client, request_id)
