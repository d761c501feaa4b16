"""ack and reject, one or --all: done with what was delivered, or back to the queue with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mqks.broker.connections.client import Client
from mqks.broker.errors import BadRequest
from mqks.broker.protocol.words import CONFIRM, Flags, parse, switch
from mqks.core.parts import Consumer

if TYPE_CHECKING:
    from mqks.broker.broker import Broker

SETTLE: Flags = {**CONFIRM, b"--all": switch}


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
    words = parse(data, SETTLE)
    everything = b"--all" in words.flags
    if len(words.plain) != (1 if everything else 2):
        raise BadRequest("expected a consumer and a message id or --all")
    consumer = broker.consumers.find(client, words.plain[0])
    if consumer is not None:
        settle(consumer, None if everything else words.plain[1])
    elif words.confirm:
        broker.consumers.check_not_elsewhere(words.plain[0])
    if words.confirm:
        broker.core.confirmations.confirm(client, request_id, settled=True)
