"""SEVX: the same broker with JSON as the language of requests. Every request is answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mqks.broker.actions.consume import permit_bounds, permit_unused
from mqks.broker.auth.access import permit
from mqks.broker.connections.client import Client
from mqks.broker.errors import BadRequest
from mqks.broker.eval import evaluation
from mqks.broker.protocol import jsons
from mqks.broker.protocol.bridge import SEVX, event_name
from mqks.broker.protocol.names import check_name
from mqks.broker.protocol.words import (
    AT_ONCE,
    CONFIRM,
    CONSUMER,
    LONG,
    MESSAGE,
    Flags,
    Words,
    before_json,
    number_of_seconds,
)
from mqks.broker.queues.patterns import MOST_VALUES, Pattern, values_in
from mqks.broker.queues.queue import Queue
from mqks.core.parts import Consumer

if TYPE_CHECKING:
    from mqks.broker.broker import Broker

EVENT_TWICE = 'the key "event" is there twice: for some consumer it may be the other event'


def _request(
    data: bytes, required: tuple[str, ...], optional: tuple[str, ...] = (), flags: Flags = CONFIRM
) -> tuple[Words, dict[str, Any]]:
    """The flags and the JSON object of a request, with all the keys it needs and no others."""
    words, text = before_json(data, flags)
    request = jsons.load_object(text)
    for key in required:
        if key not in request:
            raise BadRequest("a key is missing", key)
    for key in request:
        if key not in required and key not in optional:
            raise BadRequest("unknown key", ascii(key[:200]))
    return words, request


def _name(request: dict[str, Any], key: str) -> bytes:
    try:
        return check_name(request[key].encode())
    except (AttributeError, UnicodeEncodeError):
        raise BadRequest("a name must be a string", key) from None


def _flag(request: dict[str, Any], key: str) -> bool:
    value = request.get(key, False)
    if not isinstance(value, bool):
        raise BadRequest("a flag must be true or false", key)
    return value


def auth(broker: Broker, client: Client, request_id: bytes, data: bytes) -> None:
    _, request = _request(data, ("token",))
    broker.authentication.admit(client, request_id, _name(request, "token"))


def send(broker: Broker, client: Client, request_id: bytes, data: bytes) -> None:
    words, text = before_json(data, MESSAGE)
    content = jsons.load_object(text)
    event = event_name(content)
    permit(client.rights.may_publish(event), "publish", event)
    if not client.rights.publishes_all and jsons.is_said_twice("event", text):
        raise BadRequest(EVENT_TWICE)
    client.publishes = True
    if not broker.once.is_known(words.once, request_id):
        broker.capacity.check_room()
        queues = broker.exchange.queues_for(content)
        full = broker.core.router.send(client, request_id, text, queues, words.once)
        broker.queue_limits.check_taken(full)
        broker.exchange.count(content)
    broker.core.confirmations.confirm(client, request_id)


def _unused(request: dict[str, Any]) -> float | None:
    value = request.get("delete_queue_when_unused", True)
    if value is True:
        return AT_ONCE
    if value is False or value is None:
        return None
    if not isinstance(value, int | float):
        raise BadRequest("delete_queue_when_unused must be true, false or a number of seconds")
    return number_of_seconds(value, "delete_queue_when_unused")


def _pattern(content: Any, there: Queue | None) -> Pattern:
    """The pattern that is asked for. What a queue has, of an older broker, may have more values than a new one."""
    if not isinstance(content, dict):
        raise BadRequest("a pattern must be a JSON object")
    had = there.pattern if there else None
    if values_in(content, MOST_VALUES) > MOST_VALUES and (had is None or had.content != content):
        raise BadRequest(f"the pattern has more than {MOST_VALUES} values")
    return Pattern(content)


def recv(broker: Broker, client: Client, request_id: bytes, data: bytes) -> None:
    if len(data) > LONG:
        broker.core.parser.rest()
    words, request = _request(data, ("pattern", "queue"), ("delete_queue_when_unused", "manual_ack"), CONSUMER)
    unused = _unused(request)
    manual_ack = _flag(request, "manual_ack")
    name = _name(request, "queue")
    permit(client.rights.may_consume(name), "consume.queues", name)
    there = broker.queues.find(name)
    pattern = _pattern(request["pattern"], there)
    changes = there is None or not pattern.same_as(there.pattern)
    if changes:
        event = event_name(pattern.content)
        permit(client.rights.may_bind(event), "consume.events", event)
    bounds = permit_bounds(client.rights, name, there, words)
    unused = permit_unused(client.rights, there, "delete_queue_when_unused" in request, unused)
    broker.queues.check_change(
        name, there, there.events if there else set(), bounds, unused, pattern if changes else None
    )
    queue = broker.consumers.queue_to_consume(client, request_id, name, there)
    limits = broker.queue_limits.change(queue, bounds)
    consumer = broker.consumers.join(client, request_id, queue, SEVX, manual_ack, words)
    if changes:
        broker.exchange.set_pattern(queue, pattern)
        broker.updates.tell_pattern(queue, but=consumer)
    if broker.queues.set_unused(queue, unused):
        broker.updates.tell_update(queue, but=consumer)
    else:
        broker.updates.tell_limits(queue, limits, but=consumer)
    broker.definitions.write(queue)
    broker.core.confirmations.confirm(client, request_id, consumer)


def ack(broker: Broker, client: Client, request_id: bytes, data: bytes) -> None:
    _settle(broker, client, request_id, data, broker.core.acks.ack)


def reject(broker: Broker, client: Client, request_id: bytes, data: bytes) -> None:
    _settle(broker, client, request_id, data, broker.core.acks.reject)


def _settle(
    broker: Broker,
    client: Client,
    request_id: bytes,
    data: bytes,
    settle: Callable[[Consumer, bytes | None], None],
) -> None:
    _, request = _request(data, ("receiver_id",), ("event_id", "all"))
    everything = _flag(request, "all")
    if everything == ("event_id" in request):
        raise BadRequest("expected event_id or all: true")
    receiver_id = _name(request, "receiver_id")
    consumer = broker.consumers.find(client, receiver_id)
    event_id = None if everything else _name(request, "event_id")
    if consumer is not None:
        settle(consumer, event_id)
    else:
        broker.consumers.check_not_elsewhere(receiver_id)
    broker.core.confirmations.confirm(client, request_id, settled=True)


def delete_queue(broker: Broker, client: Client, request_id: bytes, data: bytes) -> None:
    _, request = _request(data, ("queue",))
    name = _name(request, "queue")
    permit(client.rights.may_manage(name), "manage", name)
    queue = broker.queues.find(name)
    if queue is not None:
        broker.queues.delete(queue)
    broker.core.confirmations.confirm(client, request_id)


def delete_receiver(broker: Broker, client: Client, request_id: bytes, data: bytes) -> None:
    _, request = _request(data, ("receiver_id",))
    receiver_id = _name(request, "receiver_id")
    consumer = broker.consumers.find(client, receiver_id)
    if consumer is not None:
        broker.consumers.leave(consumer)
    else:
        broker.consumers.check_not_elsewhere(receiver_id)
    broker.core.confirmations.confirm(client, request_id)


def ping(broker: Broker, client: Client, request_id: bytes, data: bytes) -> None:
    _, text = before_json(data, CONFIRM)
    _request(text, ("data",))
    broker.core.output.say(client, request_id + b" ok " + text + b"\n")


def eval_(broker: Broker, client: Client, request_id: bytes, data: bytes) -> None:
    permit(client.rights.eval, "eval")
    broker.core.parser.rest()  # as in look.py
    _, request = _request(data, ("code",))
    if not isinstance(request["code"], str):
        raise BadRequest("code must be a string")
    result = evaluation.evaluate_to_json(broker, request["code"])
    broker.core.output.say(client, request_id + b" ok " + jsons.dumps({"result": result}) + b"\n")
