"""What coroutines wait for: messages and records as they come, and answers to many requests."""

import asyncio
from collections.abc import Awaitable, Generator
from typing import Any

from mqks.client.aio_driver import AsyncDriver, resolve
from mqks.client.errors import MqksError
from mqks.client.stream import BaseStream, T
from mqks.client.wanted import Wanted
from mqks.client.wire import Message


class Settled(Awaitable[bool]):
    """What ack and reject answer without confirm: may be awaited, need not be."""

    def __init__(self, sent: bool) -> None:
        self._sent = sent

    def __bool__(self) -> bool:
        return self._sent

    def __await__(self) -> Generator[Any, None, bool]:
        return self._sent
        yield


SENT, NOT_SENT = Settled(True), Settled(False)


class Stream(BaseStream[T, Awaitable[bool]]):
    """What comes, between the session and the coroutines that take it."""

    sent = SENT
    _driver: AsyncDriver

    def __init__(self, driver: AsyncDriver) -> None:
        super().__init__(driver)
        self._changed = asyncio.Event()
        self._ready = asyncio.Event()

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

    def settle(self, message: Message | None, action: str, confirm: bool) -> Awaitable[bool]:
        answer: asyncio.Future[str] | None = self._driver.loop.create_future() if confirm else None
        if not self._settle(message, action, resolve(answer) if answer else None):
            return NOT_SENT
        self._driver.flush_soon()
        return asyncio.ensure_future(self._confirmed(message, answer)) if answer else SENT

    async def _confirmed(self, message: Message | None, answer: "asyncio.Future[str]") -> bool:
        try:
            await answer
        except BaseException:
            self._unsettle(message)
            raise
        return True

    def leave(self) -> None:
        assert self._wanted is not None
        self._driver.session.unwant(self._wanted)
        self._driver.flush_soon()


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
