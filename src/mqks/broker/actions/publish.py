"""publish: the forms that the core leaves to us, which are those without data and those with a mistake."""

from mqks.broker.client import Client
from mqks.broker.errors import BadRequest, show
from mqks.broker.names import check_event
from mqks.broker.operations import Operations
from mqks.broker.words import CONFIRM, leading_flags


def publish(broker: Operations, client: Client, request_id: bytes, data: bytes) -> None:
    words, rest = leading_flags(data, CONFIRM)
    event, _, content = rest.partition(b" ")
    if event.startswith(b"--"):
        raise BadRequest("unknown flag", show(event))
    if not event:
        raise BadRequest("expected an event")
    check_event(event)
    broker.check_room()
    broker.core.publish(client, request_id, event, content)
    if words.confirm:
        broker.core.confirm(client, request_id)
