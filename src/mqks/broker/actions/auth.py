"""auth: the first request of one who has a token. Nothing of it is ever told to the log: see Mistakes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqks.broker.connections.client import Client
from mqks.broker.errors import BadRequest
from mqks.broker.protocol.words import CONFIRM, leading_flags

if TYPE_CHECKING:
    from mqks.broker.broker import Broker


def auth(broker: Broker, client: Client, request_id: bytes, data: bytes) -> None:
    token = leading_flags(data, CONFIRM)[1].strip(b" ")
    if not token or b" " in token:
        raise BadRequest("expected a token")
    broker.authentication.admit(client, request_id, token)
