"""What coroutines wait for: messages and records as they come, and answers to many requests."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Generator
from typing import Any, Generic, TypeVar

from mqks.client.aio_driver import AsyncDriver, resolve
from mqks.client.errors import MqksError
from mqks.client.wanted import Wanted
from mqks.client.wire import Message

T = TypeVar("T")


class Settled(Awaitable[bool]):
    """What ack and reject answer without confirm: may be awaited, need not be."""

    def __init__(self, sent: bool) -> None:
        self._sent = sent

    def __bool__(self) -> bool:
        return self._sent

    def __await__(self) -> Generator[Any, None, bool]:
        return self._sent
        yield


SENT, STALE = Settled(True), Settled(False)


class Stream(Generic[T]):
    """What comes for one consumer or history, between the session and whoever takes it."""

    def __init__(self, driver: AsyncDriver) -> None:
        self._driver = driver
        self._wanted: Wanted | None = None
        self.items: deque[T] = deque()
        self._size = 0
        self._changed = asyncio.Event()
        self._ready = asyncio.Event()
        self._over = False
        self._error: MqksError | None = None
        self._abandoned = False
        self.taken: dict[str, Message] = {}  # with manual ack: those that the user has and did not settle

    def open(self, wanted: Wanted) -> None:
        self._driver.check_open()
        self._wanted = wanted
        wanted.ready = self._ready.set
        self._driver.session.want(wanted)
        self._driver.flush_soon()

    def deliver(self, items: list[T], size: int) -> None:
        self.items.extend(items)
        self._size += size
        self._changed.set()

    def end(self, error: MqksError | None) -> None:
        self._over = True
        self._error = error
        self._changed.set()
        self._ready.set()
        if self._abandoned:
            self.abandon()

    async def ready(self) -> None:
        await self._ready.wait()
        if self._error is not None:
            raise self._error

    async def more(self) -> bool:
        """Waits until there is something in `items`; False: there will be no more."""
        self._forget_stale()
        while not self.items:
            if self._size:
                assert self._wanted is not None
                self._driver.session.taken(self._wanted, self._size)
                self._size = 0
                self._driver.flush_soon()
            if self._over:
                if self._error is not None:
                    raise self._error
                return False
            self._changed.clear()
            await self._changed.wait()
        return True

    def _forget_stale(self) -> None:
        """What was taken over a connection that is gone, and comes again."""
        if self.taken and self._wanted and self._wanted.is_stale(next(iter(self.taken.values()))):
            self.taken = {id: one for id, one in self.taken.items() if not self._wanted.is_stale(one)}

    def settle(self, message: Message | None, action: str, confirm: bool) -> Awaitable[bool]:
        """Ack or reject a message, or with None all that the broker has sent, taken or not."""
        assert self._wanted is not None
        if message is not None:
            self.taken.pop(message.id, None)
        answer: asyncio.Future[str] | None = self._driver.loop.create_future() if confirm else None
        if not self._driver.session.settle(self._wanted, message, action, resolve(answer) if answer else None):
            return STALE
        self._driver.flush_soon()
        return asyncio.ensure_future(_confirmed(answer)) if answer else SENT

    def settle_all(self, action: str, confirm: bool) -> Awaitable[bool]:
        """The same in one request, where it means the same: not while others wait here that the user has not seen."""
        if self.items:
            return self.settle_taken(action, confirm)
        self.taken.clear()
        return self.settle(None, action, confirm)

    def settle_taken(self, action: str, confirm: bool) -> Awaitable[bool]:
        """Ack or reject all that the user has."""
        if not self.taken:
            return SENT
        *others, last = list(self.taken.values())
        for message in others:
            self.settle(message, action, False)
        return self.settle(last, action, confirm)  # answers keep their order, so this one is for all of them

    def leave(self) -> None:
        """Nobody takes from it any more."""
        assert self._wanted is not None
        self._driver.session.unwant(self._wanted)
        self._driver.flush_soon()

    def abandon(self) -> None:
        """Nobody can take from it any more: what settled itself on arrival is lost, and that is said."""
        self._abandoned = True
        if self._over and self.items and self._wanted is not None and not self._wanted.manual_ack:
            text = "messages of queue %s that came and that nobody took: %d"
            self._driver.session.note(text, self._wanted.queue, len(self.items))
            self.items.clear()


class Answers:
    """Answers to many requests, waited for together."""

    def __init__(self, driver: AsyncDriver) -> None:
        self._driver = driver
        self._most = 0
        self._waiter: asyncio.Future[None] | None = None
        self.missing = 0
        self.errors: list[MqksError] = []

    def done(self, result: str | MqksError) -> None:
        self.missing -= 1
        if isinstance(result, MqksError):
            self.errors.append(result)
        if self.missing <= self._most and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, most: int = 0) -> None:
        """Until no more than this many are missing."""
        self._driver.flush()
        while self.missing > most:
            self._most, self._waiter = most, self._driver.loop.create_future()
            await self._waiter


async def _confirmed(answer: "asyncio.Future[str]") -> bool:
    await answer
    return True
