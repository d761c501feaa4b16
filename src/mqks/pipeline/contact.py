"""A connection to the broker for what must never hold up or end a job: holds and progress.

While the broker is away, nothing is waited for: what was wanted is tried again the next time, and this is said once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from mqks.client.blocking import Client
from mqks.client.errors import MqksError

log = logging.getLogger(__name__)

TIMEOUT = 3.0  # seconds for an answer


class Contact:
    """For one thread."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: Client | None = None
        self._told = False

    def attempt(self, what: str, ask: Callable[[Client], object]) -> bool:
        """Did it work?"""
        try:
            if self._client is None:
                self._client = Client(self._url, connect_timeout=0, timeout=TIMEOUT)
            if not self._client.connected:  # it connects again by itself
                raise ConnectionError(f"{self._url} is away")
            ask(self._client)
        except (MqksError, OSError) as error:  # TimeoutError is an OSError
            if not self._told:
                log.warning("%s did not work and will be tried again: %s", what, error)
            self._told = True
            return False
        if self._told:
            log.info("%s works again", what)
        self._told = False
        return True

    def close(self) -> None:
        if self._client is not None:
            self._client.close(0)
            self._client = None
