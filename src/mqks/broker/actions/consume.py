"""consume, pause and resume, rebind and subscribe: who takes from a queue, and what goes into it."""

from mqks.broker.bridge import MQKS
from mqks.broker.client import Client
from mqks.broker.errors import BadRequest
from mqks.broker.names import check_event
from mqks.broker.operations import Operations
from mqks.broker.words import CONFIRM, CONSUMER, Flags, Words, parse, seconds, switch
from mqks.names import Mask

CONSUME: Flags = {
    **CONSUMER,
    b"--delete-queue-when-unused": seconds,
    b"--manual-ack": switch,
}
MOST_MASKING = 1_000_000  # masks times events in one request: about a second


def _queue_and_events(words: Words) -> tuple[bytes, list[bytes]]:
    if not words.plain:
        raise BadRequest("expected a queue")
    queue, *events = words.plain
    for flag in (b"--add", b"--remove"):
        for event in words.lists.get(flag, ()):
            check_event(event)
    return queue, [check_event(event) for event in events]


def consume(broker: Operations, client: Client, request_id: bytes, data: bytes) -> None:
    words = parse(data, CONSUME, lists=(b"--add",))
    name, events = _queue_and_events(words)
    broker.check_growth(name, (*events, *words.lists.get(b"--add", ())))
    queue = broker.queue_to_consume(client, request_id, name)
    broker.join(client, request_id, queue, MQKS, b"--manual-ack" in words.flags, words)
    wanted = set(events) if events else set(queue.events)
    wanted.update(words.lists.get(b"--add", ()))
    changed = broker.exchange.set_events(queue, wanted)
    changed |= broker.set_unused(queue, words.flags.get(b"--delete-queue-when-unused"))
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
    words = parse(data, CONFIRM, lists=(b"--remove", b"--remove-mask", b"--add"))
    name, events = _queue_and_events(words)
    queue = broker.queues.get(name)
    wanted = set(events) if events or not words.lists or queue is None else set(queue.events)
    wanted.difference_update(words.lists.get(b"--remove", ()))
    wanted = _unmasked(wanted, words.lists.get(b"--remove-mask", []))
    wanted.update(words.lists.get(b"--add", ()))
    _bind(broker, client, request_id, words, name, wanted)


def _unmasked(events: set[bytes], masks: list[bytes]) -> set[bytes]:
    """The events that no mask matches."""
    if len(masks) * len(events) > MOST_MASKING:
        raise BadRequest("too many masks for so many events: remove them in several requests")
    if not masks:
        return events
    prepared = [Mask(mask) for mask in masks]
    split = {event: event.split(b".") for event in events}
    return {event for event, words in split.items() if not any(mask.matches(words) for mask in prepared)}


def subscribe(broker: Operations, client: Client, request_id: bytes, data: bytes) -> None:
    words = parse(data, CONFIRM)
    name, events = _queue_and_events(words)
    if not events:
        raise BadRequest("expected a queue and events")
    _bind(broker, client, request_id, words, name, set(events))


def _bind(broker: Operations, client: Client, request_id: bytes, words: Words, name: bytes, wanted: set[bytes]) -> None:
    broker.check_growth(name, wanted)
    queue = broker.queue(name)
    if broker.exchange.set_events(queue, wanted):
        broker.tell_update(queue)
    broker.keep(queue)
    if words.confirm:
        broker.core.confirm(client, request_id)
