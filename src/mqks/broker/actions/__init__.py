"""Every action of every dialect, by name. An action checks its whole request, and that its client may do it, before it
changes anything.

`find` decides the dialect: SEVX has actions of its own, and shared ones are SEVX where their data is JSON.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from mqks.broker.actions import auth, consume, delete, history, look, publish, settle, sevx
from mqks.broker.connections.client import Client
from mqks.broker.protocol import jsons
from mqks.broker.protocol.words import CONFIRM, is_json, leading_flags

if TYPE_CHECKING:
    from mqks.broker.broker import Broker

Action = Callable[["Broker", Client, bytes, bytes], None]

MQKS: dict[bytes, Action] = {
    b"auth": auth.auth,
    b"publish": publish.publish,
    b"consume": consume.consume,
    b"rebind": consume.rebind,
    b"subscribe": consume.subscribe,
    b"pause": consume.pause,
    b"resume": consume.resume,
    b"ack": settle.ack,
    b"reject": settle.reject,
    b"delete_consumer": delete.delete_consumer,
    b"delete_queue": delete.delete_queue,
    b"ping": look.ping,
    b"stats": look.stats,
    b"history": history.history,
    b"hold": history.hold,
    b"_eval": look.eval_,
}

SEVX: dict[bytes, Action] = {
    b"send": sevx.send,
    b"recv": sevx.recv,
    b"delete_receiver": sevx.delete_receiver,
    b"_ping": sevx.ping,
}

SEVX_WHERE_JSON: dict[bytes, Action] = {
    b"auth": sevx.auth,
    b"ack": sevx.ack,
    b"reject": sevx.reject,
    b"delete_queue": sevx.delete_queue,
}


def find(action: bytes, data: bytes) -> Action | None:
    if action in SEVX_WHERE_JSON and is_json(data):
        return SEVX_WHERE_JSON[action]
    if action == b"_eval" and _has_code(data):
        return sevx.eval_
    return MQKS.get(action) or SEVX.get(action)


def _has_code(data: bytes) -> bool:
    _, text = leading_flags(data, CONFIRM)
    try:
        value = jsons.loads(text) if text.startswith(b"{") else None
    except ValueError:
        return False
    return isinstance(value, dict) and "code" in value
