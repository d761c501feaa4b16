"""The session on an event loop: connects, sends, receives, pings, and connects again.

Lines of one step of the loop leave together. All of it runs on the loop, so the session needs no lock.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

from mqks.client.address import Address
from mqks.client.errors import BufferFull, ConnectionLost, MqksError
from mqks.client.liveness import is_held_back
from mqks.client.options import CONNECT_SECONDS, Options, tell, unreachable
from mqks.client.session import Session, log
from mqks.client.wanted import Wanted
from mqks.client.wire import Message

T = TypeVar("T")


class AsyncDriver(asyncio.Protocol):
    def __init__(self, address: Address, options: Options) -> None:
        self.address = address
        self.options = options
        self.session = Session()
        self.closed: MqksError | None = ConnectionLost(
            "this client was not started: use `async with`, or await start()"
        )
        self._transport: asyncio.Transport | None = None
        self._writable = True
        self._flushing = False
        self._down = asyncio.Event()
        self._room: list[asyncio.Future[None]] = []
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when the first connection stands."""
        self.loop = asyncio.get_running_loop()
        self.closed = None
        until = self.loop.time() + self.options.connect_timeout
        while not self.session.connected:
            try:
                await self._connect()
            except OSError as error:
                delay = self.session.connect_failed()
                if self.loop.time() + delay > until:
                    self.closed = unreachable(self.address, error)
                    raise self.closed from None
                await asyncio.sleep(delay)
        self._keeper = asyncio.create_task(self._keep(), name=f"client of {self.address}")

    async def stop(self) -> None:
        """What is not sent yet is not sent any more; nobody waits any more."""
        self.closed = self.closed or ConnectionLost("this client is closed")
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        self._give_up()
        self.session.end(self.closed)
        self._make_room()

    async def room(self) -> None:
        """Waits for room in the buffer, or raises BufferFull, as the options have it."""
        while self.closed is None:
            self.flush()
            if self.session.size < self.options.max_buffer:
                return
            if self.options.when_full == "error":
                raise BufferFull(
                    f"{self.options.max_buffer} bytes of publishes wait already, since {self.address} is away or slow"
                )
            room: asyncio.Future[None] = self.loop.create_future()
            self._room.append(room)
            await room
        raise self.closed

    async def ask(self, request: str) -> str:
        self.check_open()
        answer: asyncio.Future[str] = self.loop.create_future()
        id = self.session.ask(request, resolve(answer))
        self.flush_soon()
        try:
            return await answer
        finally:
            self.session.forget(id)

    def check_open(self) -> None:
        if self.closed is not None:
            raise self.closed

    def flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        self._flushing = False
        if self._writable and self._transport is not None and (data := self.session.outgoing()):
            self._transport.write(data)
            self._make_room()

    def _make_room(self) -> None:
        room, self._room = self._room, []
        for waiter in room:
            if not waiter.done():
                waiter.set_result(None)

    # Connecting, and again

    async def _connect(self) -> None:
        async with asyncio.timeout(CONNECT_SECONDS):
            await self.loop.create_connection(lambda: self, self.address.host, self.address.port)

    async def _keep(self) -> None:
        while True:
            while self.session.connected:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.options.keep_alive):
                        await self._down.wait()
                self._beat()
            log.warning("connection to %s lost, reconnecting", self.address)
            tell(self.options.on_disconnect)
            while not self.session.connected:
                await asyncio.sleep(self.session.connect_failed())
                with contextlib.suppress(OSError):
                    await self._connect()
            log.info("connected to %s again", self.address)
            tell(self.options.on_reconnect)

    def _beat(self) -> None:
        if self._transport is not None and not self.session.tick():
            if is_held_back(self._transport.get_extra_info("socket")):
                return
            log.warning("%s does not answer", self.address)
            self._give_up()
        self.flush()

    def _give_up(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
            self.session.lost()
            self._down.set()

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._writable = True
        self._down.clear()
        self.session.made()
        self.flush()

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        try:
            self.session.received(data)
        except ValueError as error:
            log.error("%s does not speak as a broker does: %s", self.address, error)
            self._give_up()
        self.flush()

    def connection_lost(self, _error: Exception | None) -> None:
        self._give_up()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self.flush()


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

    async def ready(self) -> None:
        await self._ready.wait()
        if self._error is not None:
            raise self._error

    async def more(self) -> bool:
        """Waits until there is something in `items`; False: there will be no more."""
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
        """Ack or reject a message, or with None all of them."""
        assert self._wanted is not None
        answer: asyncio.Future[str] | None = self._driver.loop.create_future() if confirm else None
        if not self._driver.session.settle(self._wanted, message, action, resolve(answer) if answer else None):
            return STALE
        self._driver.flush_soon()
        return asyncio.ensure_future(_confirmed(answer)) if answer else SENT

    def drop(self) -> int:
        """Forget what nobody has taken; answers how much it was."""
        left = len(self.items)
        self.items.clear()
        return left


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


def resolve(answer: "asyncio.Future[str]") -> Callable[[str | MqksError], None]:
    """What puts a reply into the future."""

    def done(result: str | MqksError) -> None:
        if answer.done():
            return
        if isinstance(result, MqksError):
            answer.set_exception(result)
        else:
            answer.set_result(result)

    return done


async def _confirmed(answer: "asyncio.Future[str]") -> bool:
    await answer
    return True
