"""A real broker for the tests of whoever uses MQKS: in memory, on a free port, in a thread of the tests' own process.

    with mqks.testing.broker() as broker:
        with mqks.connect(broker.url) as mq: ...

Importing this costs next to nothing, since pytest loads the plugin in every run: its parts come when they are used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mqks.testing.thread import Broker, broker

__all__ = ["Broker", "broker"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mqks.testing import thread

    return getattr(thread, name)
