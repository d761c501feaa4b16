"""The session on an event loop: connects, sends, receives, pings, and connects again.

Lines of one step of the loop leave together. All of it runs on the loop, so the session needs no lock.
"""

import asyncio
import contextlib
import inspect
import socket
from collections.abc import Callable
from typing import Any

from mqks.client import forks
from mqks.client.address import Address
from mqks.client.aio_reaching import connected
from mqks.client.errors import AuthRefused, BufferFull, ConnectionLost, MqksError, TlsFailed
from mqks.client.liveness import is_held_back
from mqks.client.options import Options, ReconnectLog, tell, unreachable
from mqks.client.session import Session, log


class AsyncDriver(asyncio.Protocol):
    def __init__(self, address: Address, options: Options) -> None:
        self.address = address
        self.options = options
        self.session = Session(ping=options.ping)
        self.closed: MqksError | None = ConnectionLost(
            "this client was not started: use `async with`, or await start()"
        )
        self._access = options.access
        self._access.warn(address)
        self._transport: asyncio.Transport | None = None
        self._socket: Any = None  # of the transport, which forgets it when a connection with TLS ends
        self._writable = True
        self.flushing = False
        self._down = asyncio.Event()
        self._room: list[asyncio.Future[None]] = []
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when the first connection stands."""
        if self._keeper is not None:
            raise RuntimeError("this client was started already")
        self.loop = asyncio.get_running_loop()
        self.closed = None
        said, until = False, self.loop.time() + self.options.connect_timeout
        while True:
            try:
                within = self.options.try_seconds(until, self.loop.time())
                await connected(self.address, self._access, self, within=within)
                break  # even if it is lost again already: then it is made anew as any other
            except (AuthRefused, TlsFailed) as error:  # trying again will not help
                self.closed = error
                raise
            except OSError as error:
                delay = self.session.connect_failed()
                if self.loop.time() + delay > until:
                    self.closed = unreachable(self.address, error)
                    raise self.closed from None
                if not said:
                    log.warning("%s; trying for %g s", unreachable(self.address, error), self.options.connect_timeout)
                    said = True
                await asyncio.sleep(delay)
        self._keeper = asyncio.create_task(self._keep(), name=f"client of {self.address}")
        self._keeper.add_done_callback(self._ended)
        forks.watch(self)

    async def stop(self) -> None:
        """What is not sent yet is not sent any more; nobody waits any more."""
        self.closed = self.closed or ConnectionLost("this client is closed")
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        self._give_up()
        self.session.end(self.closed)
        self.session.write_notes()
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

    def is_here(self) -> bool:
        """It lives, and the loop it lives on is the one that runs this code."""
        return self.closed is None and asyncio._get_running_loop() is self.loop

    def check_open(self) -> None:
        if self.closed is not None:
            raise self.closed

    def flush_soon(self) -> None:
        if not self.flushing:
            self.flushing = True
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        self.flushing = False
        self.session.write_notes()
        if self._writable and self._transport is not None and (data := self.session.outgoing()):
            self._transport.write(data)
            self._make_room()

    def _make_room(self) -> None:
        room, self._room = self._room, []
        for waiter in room:
            if not waiter.done():
                waiter.set_result(None)

    # Connecting, and again

    async def _keep(self) -> None:
        while True:
            while self.session.connected:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.options.keep_alive):
                        await self._down.wait()
                self._beat()
            log.warning("connection to %s lost, reconnecting", self.address)
            self._tell(self.options.on_disconnect)
            await self._return()
            log.warning("connected to %s again", self.address)
            self._tell(self.options.on_reconnect)

    async def _return(self) -> None:
        """Until there is a connection again."""
        reports = ReconnectLog()
        while not self.session.connected:
            await asyncio.sleep(self.session.connect_failed())
            try:
                await connected(self.address, self._access, self)
            except (AuthRefused, OSError) as error:
                reports.failed(error)

    def _tell(self, hook: Callable[[], object]) -> None:
        if inspect.isawaitable(told := tell(hook)):
            self._telling = asyncio.ensure_future(told)  # held, so that it is not lost on its way

    def forked(self) -> None:
        """In the child: an end, without a word to the broker."""
        self.closed = forks.in_the_child()
        self.session.out.shut = True

    def _ended(self, keeper: "asyncio.Task[None]") -> None:
        """By a fault of its own, or else it is cancelled."""
        if not keeper.cancelled() and (error := keeper.exception()):
            log.error("the client of %s ends, by a fault of its own", self.address, exc_info=error)
            self.closed = MqksError(f"this client has ended, by a fault of its own: {error!r}")
            self._give_up()
            self.session.end(self.closed, fault=True)
            self._make_room()

    def _beat(self) -> None:
        if self._transport is not None and not self.session.tick():
            if is_held_back(self._socket):
                return
            log.warning("%s does not answer", self.address)
            self._give_up()
        self.flush()

    def _give_up(self) -> None:
        if self._transport is not None:
            with contextlib.suppress(OSError):  # it is gone already
                self._socket.shutdown(socket.SHUT_RDWR)  # also for a child that has it too
            self._transport.abort()
            self._transport = None
            self.session.lost()
            self.session.write_notes()
            self._down.set()

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._socket = transport.get_extra_info("socket")
        self._writable = True
        self._down.clear()
        self.session.made()
        self.flush()

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        try:
            self.session.received(data)
        except Exception as error:  # whatever it is that it says
            self.session.note("%s does not speak as a broker does: %r", self.address, error)
            self._give_up()
        self.flush()

    def connection_lost(self, _error: Exception | None) -> None:
        self._give_up()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self.flush()


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
