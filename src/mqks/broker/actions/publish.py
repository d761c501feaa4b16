"""publish: the forms that the core leaves to us, which are those without data and those with a mistake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqks.broker.auth.access import permit
from mqks.broker.connections.client import Client
from mqks.broker.errors import BadRequest, show
from mqks.broker.protocol.names import check_event
from mqks.broker.protocol.words import MESSAGE, leading_flags

if TYPE_CHECKING:
    from mqks.broker.broker import Broker


def publish(broker: Broker, client: Client, request_id: bytes, data: bytes) -> None:
    words, rest = leading_flags(data, MESSAGE)
    event, _, content = rest.partition(b" ")
    if event.startswith(b"--"):
        raise BadRequest("unknown flag", show(event))
    if not event:
        raise BadRequest("expected an event")
    check_event(event)
    permit(client.rights.may_publish(event), "publish", event)
    broker.authentication.grant(client, event)
    if not broker.once.is_known(words.once, request_id):
        broker.capacity.check_room()
        broker.queue_limits.check_taken(broker.core.router.publish(client, request_id, event, content, words.once))
    if words.confirm:
        broker.core.confirmations.confirm(client, request_id)
