"""Going on to try for a broker while it is away, the same way for source and sink."""

import logging
import time

from mqks.client.address import Address
from mqks.client.errors import ConnectionLost, TlsFailed
from mqks.client.hello import ANSWER_SECONDS
from mqks.client.options import SHORTEST_TRY, unreachable

log = logging.getLogger("mqks.spark")

PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0)  # seconds between attempts; then always the last


class Patience:
    """How long to go on trying: so many seconds from the first failure on, if nothing works in between."""

    def __init__(self, address: Address, seconds: float) -> None:
        self._address = address
        self._seconds = seconds
        self._since: float | None = None  # the first failure, if nothing has worked since
        self._pauses = iter(PAUSES)

    @property
    def within(self) -> float | None:
        """Seconds for the next try, if less is left than a try has by default."""
        if self._since is None:
            return None
        left = self._since + self._seconds - time.monotonic()
        return max(left, SHORTEST_TRY) if left < ANSWER_SECONDS else None

    def wait(self, error: OSError) -> None:
        """After a failure, before the next attempt; raises ConnectionLost when it has been long enough, or when trying
        will not help."""
        if isinstance(error, TlsFailed):
            raise error
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
