"""What HTTP takes of the broker's memory: it is charged there, and bounded where others could fill it.

A connection has a fixed price, and all of them have a share of the memory: anybody can open one, and publishers need
the rest. So with little memory fewer of them are let in. The body of a request is charged until the request is
answered; with full memory only a short one is taken. Answers wait in the buffers of connections until their clients
read them: all together they have MOST_UNREAD, and an answer beyond that is an error.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Self

from starlette.exceptions import HTTPException

from mqks.core.hub import Core

MEMORY_FULL = "--max-memory is reached: consume or delete some queue"
UNREAD = "too much waits for clients over HTTP that do not read: ask again later"
CONNECTION_COST = 256 << 10  # bytes, with the state of a stream, and with what asyncio has for TLS
CONNECTION_SHARE = 4  # all connections take at most a fourth of the memory
BODY_COPIES = 4  # as bytes, as JSON values, as the line to publish, and that line on its way
SHORT_BODY = 4096  # bytes
SHORT_ANSWER = 64 << 10  # bytes
MOST_UNREAD = 16 << 20  # bytes

Take = Callable[[int], None]


class Places(NamedTuple):
    """How many connections there may be at a time."""

    usual: int = 64  # of browsers and scrapers: with the broker's inside ones they must fit the files that are ours
    unknown: int = 16  # of those, by one address, that had no request yet that its rights let through
    spare: int = 16  # beyond those: who watches the broker is answered though others take all there are

    @classmethod
    def within(cls, memory: int) -> Self:
        """They take at most so many bytes, but there is one of each."""
        most, count = cls(), memory // CONNECTION_COST
        spare = max(1, min(most.spare, count // 5))
        usual = max(1, min(most.usual, count - spare))
        return cls(usual, max(1, min(most.unknown, usual // 2)), spare)


class HttpMemory:
    def __init__(self, core: Core, unread: Callable[[], int]) -> None:
        """`unread` tells how many bytes wait for all clients."""
        self._core = core
        self._unread = unread
        self.places = Places.within(core.account.max_memory // CONNECTION_SHARE)

    def connection(self, change: int) -> None:
        """One connection more, or, below zero, less."""
        self._core.account.charge(change * CONNECTION_COST)

    @contextmanager
    def body(self) -> Iterator[Take]:
        """While a request is served; to be called with the size of each piece of its body."""
        size = 0

        def take(more: int) -> None:
            nonlocal size
            if self._core.account.full and size + more > SHORT_BODY:
                raise HTTPException(503, MEMORY_FULL)
            size += more
            self._core.account.charge(BODY_COPIES * more)

        try:
            yield take
        finally:
            self._core.account.charge(-BODY_COPIES * size)

    def check_answer(self, size: int) -> None:
        if size > SHORT_ANSWER and self._unread() + size > MOST_UNREAD:
            raise HTTPException(503, UNREAD)
