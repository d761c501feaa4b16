"""ping, stats and _eval: requests that change nothing. The last two may take long: after each it is others' turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqks.broker.auth.access import permit
from mqks.broker.connections.client import Client
from mqks.broker.errors import BadRequest
from mqks.broker.eval import evaluation, inspection
from mqks.broker.protocol.words import CONFIRM, Flags, count, leading_flags, parse

if TYPE_CHECKING:
    from mqks.broker.broker import Broker

EVAL: Flags = {**CONFIRM, b"--worker": count}


def ping(broker: Broker, client: Client, request_id: bytes, data: bytes) -> None:
    _, rest = leading_flags(data, CONFIRM)
    broker.core.output.say(client, request_id + b" ok " + rest + b"\n")


def stats(broker: Broker, client: Client, request_id: bytes, data: bytes) -> None:
    permit(client.rights.admin, "admin")
    broker.core.parser.rest()
    parse(data, CONFIRM).exactly(0, "nothing after stats")
    broker.slices.start(inspection.stats(broker, client, request_id))


def eval_(broker: Broker, client: Client, request_id: bytes, data: bytes) -> None:
    permit(client.rights.eval, "eval")
    broker.core.parser.rest()
    words, code = leading_flags(data, EVAL)
    if words.flags.get(b"--worker", 0) != 0:
        raise BadRequest("there is only worker 0")
    text = evaluation.evaluate_to_text(broker, code)
    broker.core.output.say(client, request_id + b" ok " + text + b"\n")
