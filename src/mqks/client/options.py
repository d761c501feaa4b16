"""How a client behaves, the same for both of them."""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypedDict

from mqks.client.access import Access
from mqks.client.address import Address
from mqks.client.errors import AuthRefused, ConnectionLost, TlsFailed
from mqks.client.hello import NotABroker, TurnedAway

SHORTEST_TRY = 0.05  # seconds


def nothing() -> None:
    """What is called where the user gives nothing to call."""


class OptionWords(TypedDict, total=False):
    """The keywords of `connect`."""

    token: str | None
    ca: str | os.PathLike[str] | None
    cert: str | os.PathLike[str] | None
    key: str | os.PathLike[str] | None
    verify: bool
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
    token: str | None = field(default=None, repr=False)
    """Who we are to a broker that wants to know; by default what MQKS_TOKEN has."""
    ca: str | os.PathLike[str] | None = None
    """Whose certificates are trusted with mqkss://, a file or a folder; by default MQKS_CA, else the system's."""
    cert: str | os.PathLike[str] | None = None
    """The client's own certificate, for a broker that wants one; by default MQKS_CLIENT_CERT."""
    key: str | os.PathLike[str] | None = None
    """Its key, if it is not in the same file; by default MQKS_CLIENT_KEY."""
    verify: bool = True
    """False: the broker's certificate is not checked, so that anybody may be taken for it."""
    connect_timeout: float = 10.0
    """Seconds for the first connection: TCP, TLS and the first answer, in as many tries as fit. 0: one try, which has
    `timeout` seconds. Later connections are tried for as long as it takes."""
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

    def try_seconds(self, until: float, now: float) -> float:
        """For a try at the first connection, of all that end at `until`. The last one is not cut to nothing: it shall
        fail for a reason of its own."""
        return max(until - now, SHORTEST_TRY) if self.connect_timeout else self.timeout

    def __post_init__(self) -> None:
        if self.connect_timeout < 0:
            raise ValueError("connect_timeout is at least 0")
        if self.timeout <= 0 or self.keep_alive <= 0 or self.max_buffer <= 0:
            raise ValueError("timeout, keep_alive and max_buffer are more than 0")
        if self.when_full not in ("wait", "error"):
            raise ValueError(f"when_full is 'wait' or 'error', not {self.when_full!r}")

    @property
    def access(self) -> Access:
        return Access(self.token, self.ca, self.cert, self.key, self.verify).found()


def tell(hook: Callable[[], object]) -> object:
    """Call what the user gave: what it raises must not end the client."""
    try:
        return hook()
    except Exception:
        logging.getLogger("mqks.client").exception("%s failed", hook)
        return None


HINTS: tuple[tuple[type[OSError], str], ...] = (  # the first that fits
    (TurnedAway, ""),
    (NotABroker, "; is this the broker's port (25000 by default)?"),
    (TimeoutError, "; is mqksd running there, and is this its port (25000 by default)?"),
    (OSError, "; is mqksd running there?"),
)


class ReconnectLog:
    """While a client tries to come back: what will not pass by itself is logged once, since somebody has to mend it."""

    def __init__(self) -> None:
        self._said = False

    def failed(self, error: Exception) -> None:
        if isinstance(error, AuthRefused | TlsFailed | TurnedAway) and not self._said:
            self._said = True
            logging.getLogger("mqks.client").error("%s; trying on", error)


def unreachable(address: Address, error: OSError) -> ConnectionLost:
    reason = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
    hint = next(hint for kind, hint in HINTS if isinstance(error, kind))
    return ConnectionLost(f"cannot reach {address}: {reason}{hint}")
