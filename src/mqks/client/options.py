"""How a client behaves, the same for both of them."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypedDict

from mqks.client.address import Address
from mqks.client.errors import ConnectionLost

CONNECT_SECONDS = 2.0  # for one attempt: short, so that a broker that comes back is found soon


def nothing() -> None:
    """What is called where the user gives nothing to call."""


class OptionWords(TypedDict, total=False):
    """The keywords of `connect`."""

    connect_timeout: float
    timeout: float
    keep_alive: float
    max_buffer: int
    when_full: Literal["wait", "error"]
    ping: str
    on_disconnect: Callable[[], object]
    on_reconnect: Callable[[], object]


@dataclass(frozen=True)
class Options:
    connect_timeout: float = 10.0
    """Seconds to keep trying for the first connection; 0: try once. Later ones are tried for as long as it takes."""
    timeout: float = 10.0
    """Seconds that a blocking request, and `close`, wait for the broker's answer."""
    keep_alive: float = 2.0
    """Seconds between pings; a connection without an answer is given up after two of them."""
    max_buffer: int = 16 << 20
    """Bytes of publishes that wait while the broker is away or slow."""
    when_full: Literal["wait", "error"] = "wait"
    """What a publish does when that many are waiting: wait for room, or raise BufferFull."""

    ping: str = "ping keep-alive"
    """The request that is sent each `keep_alive` seconds."""
    on_disconnect: Callable[[], object] = nothing
    """Called when the connection is lost: on the event loop, or in a thread of its own."""
    on_reconnect: Callable[[], object] = nothing
    """Called when there is one again, and all that was wanted has been asked for."""

    def __post_init__(self) -> None:
        if self.connect_timeout < 0:
            raise ValueError("connect_timeout is at least 0")
        if self.timeout <= 0 or self.keep_alive <= 0 or self.max_buffer <= 0:
            raise ValueError("timeout, keep_alive and max_buffer are more than 0")
        if self.when_full not in ("wait", "error"):
            raise ValueError(f"when_full is 'wait' or 'error', not {self.when_full!r}")


def tell(hook: Callable[[], object]) -> object:
    """Call what the user gave: what it raises must not end the client."""
    try:
        return hook()
    except Exception:
        logging.getLogger("mqks.client").exception("%s failed", hook)
        return None


def unreachable(address: Address, error: Exception) -> ConnectionLost:
    reason = "no answer" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or str(error)
    return ConnectionLost(f"cannot reach {address}: {reason}; is mqksd running there?")
