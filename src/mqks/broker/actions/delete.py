"""delete_consumer and delete_queue. To delete what is not there is fine: what was asked for holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqks.broker.auth.access import permit
from mqks.broker.connections.client import Client
from mqks.broker.protocol.words import CONFIRM, Flags, parse, seconds

if TYPE_CHECKING:
    from mqks.broker.broker import Broker

DELETE_QUEUE: Flags = {**CONFIRM, b"--when-unused": seconds}


def delete_consumer(broker: Broker, client: Client, request_id: bytes, data: bytes) -> None:
    words = parse(data, CONFIRM)
    (consumer_id,) = words.exactly(1, "a consumer")
    consumer = broker.consumers.find(client, consumer_id)
    if consumer is not None:
        broker.consumers.leave(consumer)
    if not broker.histories.leave(client, consumer_id) and consumer is None and words.confirm:
        broker.consumers.check_not_elsewhere(consumer_id)
    if words.confirm:
        broker.core.confirmations.confirm(client, request_id)


def delete_queue(broker: Broker, client: Client, request_id: bytes, data: bytes) -> None:
    words = parse(data, DELETE_QUEUE)
    (name,) = words.exactly(1, "a queue")
    permit(client.rights.may_manage(name), "manage", name)
    queue = broker.queues.find(name)
    if queue is not None:
        if b"--when-unused" in words.flags:
            broker.queues.delete_when_unused(queue, words.flags[b"--when-unused"])
        else:
            broker.queues.delete(queue)
    if words.confirm:
        broker.core.confirmations.confirm(client, request_id)
