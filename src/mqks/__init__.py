"""MQKS, Message Queue Kept Simple: a broker you can talk to with nc.

Importing this costs next to nothing: what it offers is imported when it is named.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mqks.client.aio import AsyncClient, AsyncConsumer, AsyncMessage
    from mqks.client.blocking import Client, Consumer, Message
    from mqks.client.connecting import connect
    from mqks.client.errors import AuthRefused, BufferFull, ConnectionLost, MqksError, Refused, TlsFailed
    from mqks.client.message import Record
    from mqks.client.outbox import Outbox

    __version__: str

_HOMES = {
    "aio": ("AsyncClient", "AsyncConsumer", "AsyncMessage"),
    "blocking": ("Client", "Consumer", "Message"),
    "connecting": ("connect",),
    "errors": ("AuthRefused", "BufferFull", "ConnectionLost", "MqksError", "Refused", "TlsFailed"),
    "message": ("Record",),
    "outbox": ("Outbox",),
}

__all__ = [
    "AsyncClient",
    "AsyncConsumer",
    "AsyncMessage",
    "AuthRefused",
    "BufferFull",
    "Client",
    "ConnectionLost",
    "Consumer",
    "Message",
    "MqksError",
    "Outbox",
    "Record",
    "Refused",
    "TlsFailed",
    "__version__",
    "connect",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("mqks")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"mqks.client.{home}"), name)
    raise AttributeError(f"module 'mqks' has no attribute {name!r}")
