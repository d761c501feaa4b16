"""Reaching a broker, for source and sink: one way to connect, and one way to go on trying while it is away."""

import logging
import socket
import time

from mqks.client.address import Address
from mqks.client.errors import ConnectionLost
from mqks.client.options import CONNECT_SECONDS, unreachable

log = logging.getLogger("mqks.spark")

PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0)  # seconds between attempts; then always the last


def connected(address: Address) -> socket.socket:
    """A connection; each of its calls waits for CONNECT_SECONDS at most, until it is told otherwise."""
    made = socket.create_connection(address, CONNECT_SECONDS)
    if made.getsockname() == made.getpeername():  # as may happen on loopback, when nobody listens there
        made.close()
        raise ConnectionRefusedError("connected to itself")
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


class Patience:
    """How long to go on trying: so many seconds from the first failure on, if nothing works in between."""

    def __init__(self, address: Address, seconds: float) -> None:
        self._address = address
        self._seconds = seconds
        self._since: float | None = None  # the first failure, if nothing has worked since
        self._pauses = iter(PAUSES)

    def wait(self, error: OSError) -> None:
        """After a failure, before the next attempt; raises ConnectionLost when it has been long enough."""
        now = time.monotonic()
        told = unreachable(self._address, error)
        if self._since is None:
            self._since = now
            self._pauses = iter(PAUSES)
            if self._seconds:
                log.warning("%s Trying for %g s (option retryFor)", told, self._seconds)
        left = self._since + self._seconds - now
        if left <= 0:
            raise ConnectionLost(f"{told} It was tried for {self._seconds:g} s (option retryFor)") from error
        time.sleep(min(next(self._pauses, PAUSES[-1]), left))

    def renew(self) -> None:
        """Something has worked."""
        self._since = None

    def leave_out(self, seconds: float) -> None:
        """So long nobody has tried."""
        if self._since is not None:
            self._since += seconds
