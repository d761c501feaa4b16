"""Who comes by HTTP is let in here, each with the certificate of the moment: one that was read again is in use at once,
and connections that there are stay as they are.

It accepts on sockets that are handed in and gives what comes to a protocol of asyncio. Handshakes that go on are few,
since nothing else counts them yet. One more takes the place of another at once, so that those who stall keep nobody
away: of those who have said nothing the oldest one's; of the others the oldest one's of the address that has most.
"""

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from mqks.acceptor import Acceptor
from mqks.broker.connections.client import origin
from mqks.broker.errors import BadRequest
from mqks.logs import Entry
from mqks.web.guard import peer

log = logging.getLogger(__name__)

ACCEPTS_AT_ONCE = 8  # before the broker gets its turn
MOST_SILENT = 32  # that have not said a byte; more than are accepted until it is seen that one has
MOST_GREETED = 32  # handshakes at a time
HANDSHAKE = 10.0  # seconds that one may take, from the beginning
FAREWELL = 5.0  # seconds for the client to say that it has heard the end


class Secure(Protocol):
    """TLS, as the server has it."""

    @property
    def context(self) -> ssl.SSLContext: ...
    @staticmethod
    def fault(error: ssl.SSLError) -> BadRequest: ...


class Listening:
    def __init__(
        self,
        sockets: Sequence[socket.socket],
        protocol: Callable[[], asyncio.Protocol],
        tls: Secure | None,
        refused: Callable[[str, BadRequest], object],
    ) -> None:
        """Listens from now on, in the loop that runs. Of whom no TLS can be spoken with: `refused`."""
        self._protocol = protocol
        self._tls = tls
        self._refused = refused
        self._loop = asyncio.get_running_loop()
        self._silent: dict[socket.socket, asyncio.TimerHandle] = {}  # until when; in the order in which they came
        self._greeted: dict[asyncio.Task[None], str] = {}  # by which address; likewise
        for each in sockets:
            each.setblocking(False)
        self._acceptor = Acceptor(sockets, self._accepted, _not_accepted, at_once=ACCEPTS_AT_ONCE)
        self._acceptor.start()

    def close(self) -> None:
        self._acceptor.stop()
        for silent in list(self._silent):
            self._hush(silent)
        for task in self._greeted:
            task.cancel()

    def _accepted(self, connection: socket.socket, address: tuple[str, int]) -> None:
        connection.setblocking(False)
        if self._tls is None:
            self._begin(connection, peer(address[:2]), HANDSHAKE)
        else:
            self._listen(connection, peer(address[:2]))

    def _listen(self, connection: socket.socket, client: str) -> None:
        """Wait for the first byte: clients that mean it send it at once."""
        self._silent[connection] = self._loop.call_later(HANDSHAKE, self._hush, connection)
        self._loop.add_reader(connection, self._heard, connection, client)
        if len(self._silent) > MOST_SILENT:
            self._hush(next(iter(self._silent)))

    def _heard(self, connection: socket.socket, client: str) -> None:
        left = self._silent[connection].when() - self._loop.time()
        self._forget(connection)
        if len(self._greeted) >= MOST_GREETED:
            self._make_room()
        self._begin(connection, client, max(left, 0.001))

    def _hush(self, connection: socket.socket) -> None:
        self._forget(connection)
        connection.close()

    def _forget(self, connection: socket.socket) -> None:
        self._silent.pop(connection).cancel()
        self._loop.remove_reader(connection)

    def _make_room(self) -> None:
        crowds = Counter(self._greeted.values())
        most = max(crowds.values())
        oldest = next(task for task, address in self._greeted.items() if crowds[address] == most)
        del self._greeted[oldest]
        oldest.cancel()

    def _begin(self, connection: socket.socket, client: str, seconds: float) -> None:
        task = self._loop.create_task(self._greet(connection, client, seconds))
        self._greeted[task] = origin(client)
        task.add_done_callback(partial(self._greet_no_more, connection))

    def _greet_no_more(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._greeted.pop(task, None)
        if task.cancelled():  # perhaps before it had begun
            connection.close()

    async def _greet(self, connection: socket.socket, client: str, seconds: float) -> None:
        try:
            if self._tls is None:
                await self._loop.connect_accepted_socket(self._protocol, connection)
            else:
                await self._loop.connect_accepted_socket(
                    self._protocol,
                    connection,
                    ssl=self._tls.context,
                    ssl_handshake_timeout=seconds,
                    ssl_shutdown_timeout=FAREWELL,
                )
        except ssl.SSLError as error:
            assert self._tls
            self._refused(client, self._tls.fault(error))
        except OSError as error:  # it went, or took too long
            log.debug(Entry("client {client} over HTTP did not come in: {reason}", client=client, reason=error))


def _not_accepted(error: OSError, exhausted: bool) -> None:
    advice = "; raise `ulimit -n`" if exhausted else ""
    log.error(Entry("cannot accept HTTP for now: {reason}" + advice, reason=error.strerror))
