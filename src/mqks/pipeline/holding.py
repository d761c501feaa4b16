"""A named hold at the broker: no segment goes by retention before a job has read it.

It is moved on as the job gets on, and renewed by a thread of its own while nothing happens. It is left to expire when
the job ends, so that one that is stopped for a while finds all that came meanwhile.
"""

from __future__ import annotations

import threading
from functools import partial

from mqks.client.blocking import Client
from mqks.pipeline.contact import Contact

DAY = 86_400.0
RETRY = 5.0  # seconds until the next try when the broker is away


class Hold:
    def __init__(self, url: str, name: str, *, seconds: float = DAY, retry: float = RETRY) -> None:
        """`seconds` is how long it lasts without being renewed: how long a job may be down and lose nothing."""
        self._url = url
        self._name = name
        self._seconds = seconds
        self._retry = retry
        self._news = threading.Condition()
        self._position: int | str | None = None
        self._moved = self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"hold {name}", daemon=True)
        self._thread.start()

    def move(self, position: int | str) -> None:
        """All before it is not needed any more. Returns at once."""
        with self._news:
            self._position = position
            self._moved = True
            self._news.notify()

    def close(self) -> None:
        """Without ending the hold; a last move is still told if the broker is there."""
        with self._news:
            self._closed = True
            self._news.notify()
        self._thread.join()

    def _run(self) -> None:
        contact = Contact(self._url)
        wait: float | None = None
        while True:
            with self._news:
                self._news.wait_for(lambda: self._moved or self._closed, wait)
                position, closed, moved = self._position, self._closed, self._moved
                self._moved = False
            if position is not None and (moved or not closed):
                ask = partial(Client.hold, name=self._name, position=position, seconds=self._seconds)
                held = contact.attempt(f"the hold {self._name}", ask)
                wait = self._seconds / 4 if held else min(self._retry, self._seconds / 4)
            if closed:
                contact.close()
                return
