"""HTTP in the broker's own event loop: uvicorn's connections on sockets that are handed in, without its signals,
its process or its clock. It starts with the broker and stops before it.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterable
from functools import partial
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from mqks.broker import Broker
from mqks.broker.connections.client import origin
from mqks.client.errors import Refused
from mqks.logs import Entry
from mqks.web.api import Api
from mqks.web.app import application
from mqks.web.framing import StrictConnection
from mqks.web.gate import Authority, Gate
from mqks.web.guard import MET, SPARE, Guard, peer
from mqks.web.inside import Door, Ended, Inside
from mqks.web.listening import Listening, Secure
from mqks.web.memory import HttpMemory
from mqks.web.state import Figures

log = logging.getLogger(__name__)

MEMORY = "memory"  # in the state that all connections begin with
IDLE = 5  # seconds that one may be silent before and after its requests
FINISH, TAKE = "finish its request", "take what it was sent"
PATIENCE = {FINISH: 10.0, TAKE: 60.0}  # seconds that a client has for what is its turn
FAREWELL = 1.0  # seconds for answers that are on their way when the broker stops
SECOND = 1.0


class Connection(H11Protocol):
    """One of few, since they must not take the files that the broker's own clients need; and none for longer than its
    client does its part. uvicorn itself has a time only for those who are silent between two requests.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, loop)
        self.conn = StrictConnection(h11.SERVER)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.came = self.loop.time()
        self.known = False
        self.origin = origin(peer(self.client))
        self._memory: HttpMemory = self.app_state[MEMORY]
        self.spare = self._is_too_much()
        self._pauses = 0
        self._turn: tuple[str, object] | None = None
        self._since = 0.0  # of its turn
        # One who comes and says nothing goes like one who has said all.
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)
        self._memory.connection(1)
        self.app_state = {MET: self._met}
        if self.spare:
            self.app_state[SPARE] = True
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._memory.connection(-1)

    def _met(self) -> None:
        self.known = True

    def _is_too_much(self) -> bool:
        """Are there as many already as may be, or of this address as many who may be anybody?"""
        others = [each for each in self.connections if isinstance(each, Connection) and each is not self]
        taken = [each for each in others if not each.spare]
        unknown = sum(not each.known and each.origin == self.origin for each in taken)
        return len(taken) >= self._memory.places.usual or unknown >= self._memory.places.unknown

    def _make_room(self) -> None:
        """A spare connection is for one short answer: the one that has been there longest is the least needed."""
        spare = [
            each
            for each in self.connections
            if isinstance(each, Connection) and each.spare and not each.transport.is_closing()
        ]
        if len(spare) > self._memory.places.spare:
            min(spare, key=lambda each: each.came).cut("others came, and there are too many")

    def send_400_response(self, msg: str) -> None:
        """uvicorn tries it even where an answer has begun already, and lets another one follow it."""
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:
            self.cut("it sent what is no HTTP while it was answered")
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # nobody is there for what the request was about to get
            self.cycle.message_event.set()

    def pause_writing(self) -> None:
        self._pauses += 1
        super().pause_writing()

    def look(self, now: float) -> None:
        """Called each second: a client that keeps us waiting for too long is cut off."""
        turn = self._clients_turn()
        if turn != self._turn:
            self._turn, self._since = turn, now
        elif turn is not None and now - self._since >= PATIENCE[turn[0]]:
            self.cut(f"it did not {turn[0]} in time")

    def _clients_turn(self) -> tuple[str, object] | None:
        """What we wait for; each request, and each time that it stops to read, is another turn."""
        if self.transport.is_closing():
            return TAKE, None
        if self.flow.write_paused:
            return TAKE, self._pauses
        if self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
            return FINISH, self.cycle
        return None

    def cut(self, reason: str) -> None:
        said = "the connection of {client} over HTTP is cut off: {reason}"
        log.warning(Entry(said, client=peer(self.client), reason=reason))
        self.transport.abort()


class WebServer:
    def __init__(
        self,
        broker: Broker,
        door: Door,
        tls: Secure | None = None,
        *,
        authority: Authority | None = None,
        insecure: bool = False,
    ) -> None:
        """Without an authority only this host itself may ask, unless it is to be `insecure`."""
        self._broker = broker
        self._tls = tls
        self._authority = authority
        self._only_here = authority is None and not insecure
        self._listening: Listening | None = None
        self._inside = Inside(door)
        self._stopping = asyncio.Event()
        self._figures: Figures | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._server: uvicorn.Server | None = None

    async def start(self, sockets: list[socket.socket], broker_address: str, names: Iterable[str]) -> list[str]:
        """Serve on these, which listen already, under these names; answers the URLs. The broker's own address is for
        being shown."""
        self._figures = Figures(self._broker, broker_address)
        gate = Gate(self._authority, self._figures)
        api = Api(self._broker, self._figures, self._inside, self._stopping, gate)
        memory = HttpMemory(self._broker.core, self._unread)
        served = application(api, gate, memory, max_body=self._broker.core.output.max_line)
        app = Guard(served, names, self._figures, only_here=self._only_here)
        config = uvicorn.Config(
            app,
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=IDLE,
        )
        config.load()
        self._server = uvicorn.Server(config)
        await self._server.on_tick(0)
        self._listening = Listening(
            sockets,
            partial(Connection, config, self._server.server_state, {MEMORY: memory}),
            self._tls,
            self._broker.mistakes.refused,
        )
        self._figures.start()
        self._tasks = [
            asyncio.create_task(self._keep_time(self._server)),
            asyncio.create_task(self._read_back(self._figures)),
        ]
        return [_url(each, "http" if self._tls is None else "https") for each in sockets]

    def _unread(self) -> int:
        """Bytes that wait for all clients."""
        connections = self._server.server_state.connections if self._server else ()
        return sum(each.transport.get_write_buffer_size() for each in connections)

    async def stop(self) -> None:
        """Streams end at once; an answer on its way has a moment."""
        self._stopping.set()
        if self._listening is not None:
            self._listening.close()
        if self._figures is not None:
            self._figures.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await _close(self._server)

    async def _read_back(self, figures: Figures) -> None:
        try:
            await figures.follow(self._inside)
        except (Refused, Ended, OSError):  # what retention removed meanwhile, a stop, no connection: they begin anew
            log.info("what the pipeline told before this start could not be read back")
        except Exception:
            log.exception("what the pipeline told before this start could not be read back")

    @staticmethod
    async def _keep_time(server: uvicorn.Server) -> None:
        """What uvicorn's own loop does, which wakes ten times a second: keep the date that answers carry. And what it
        does not do."""
        while True:
            await server.on_tick(0)
            now = asyncio.get_running_loop().time()
            for connection in list(server.server_state.connections):
                if isinstance(connection, Connection):
                    connection.look(now)
            await asyncio.sleep(SECOND)


async def _close(server: uvicorn.Server) -> None:
    state = server.server_state
    for connection in list(state.connections):
        connection.shutdown()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FAREWELL):
            while state.connections or state.tasks:
                await asyncio.sleep(0.01)
    for connection in list(state.connections):
        connection.transport.abort()  # it does not read what it is sent
    for task in list(state.tasks):
        task.cancel()
    await asyncio.gather(*state.tasks, return_exceptions=True)


def _url(listener: socket.socket, scheme: str) -> str:
    return f"{scheme}://{peer(listener.getsockname()[:2])}/"
