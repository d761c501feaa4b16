"""The broker on TCP: accepts connections, takes turns, keeps time. It runs on asyncio and has the broker to itself."""

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable
from functools import partial

from mqks.broker import Broker
from mqks.broker.client import Client
from mqks.core.sockets import Poller, give_memory_back
from mqks.server.loop import TurnSelector

log = logging.getLogger(__name__)

BACKLOG = 4096
SOCKET_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    # A host that vanishes without a word is noticed in two minutes: its unacked messages go to somebody else.
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 6),
)
NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
ACCEPTS_AT_ONCE = 64  # before the others get their turn
RETRY_ACCEPT = 1.0  # seconds, when the process has no file descriptor left
HOUSEKEEPING = 0.1  # seconds between looks at those paused for memory
TRICKLE = 10  # every so many looks they are read once, whatever the memory
GIVE_BACK = 50  # every so many looks freed memory goes back to the system, if it is much
MUCH = 16 << 20
FAREWELL = 3.0  # seconds that clients have to take what is buffered when the broker stops


class TcpServer:
    def __init__(self, broker: Broker, max_connections: int, disk: int = -1) -> None:
        """`disk` is a descriptor that is readable when something that the disk was asked for has ended."""
        self._broker = broker
        self._disk = disk
        self._broken: Callable[[], None] | None = None
        self.max_connections = max_connections
        # What the poller calls does not lead back here: no circle keeps the epoll open when the server is gone.
        self._poller = Poller(broker.core, partial(_closed, broker), _failed)
        self._listeners: list[socket.socket] = []
        self._armed: asyncio.TimerHandle | None = None
        self._refusal: tuple[int, bytes] | None = None
        self._looks = 0
        self._peak = 0

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that this server runs on."""
        return asyncio.SelectorEventLoop(TurnSelector(self._poller, self._keep_time))

    def listen(self, host: str, port: int, broken: Callable[[], None]) -> list[str]:
        """Listen on every address of the host; answers where. Port 0 takes a free one. A disk that fails: `broken`."""
        loop = asyncio.get_running_loop()
        self._broken = broken
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for number, (family, _, _, _, address) in enumerate(found, 1):
            try:
                listener = socket.create_server((address[0], port), family=family, backlog=BACKLOG)
            except OSError as error:
                # `localhost` names an IPv6 address also where there is no IPv6: one that works is enough.
                if error.errno in NOT_HERE and (self._listeners or number < len(found)):
                    continue
                raise
            port = listener.getsockname()[1]
            listener.setblocking(False)
            self._listeners.append(listener)
        for listener in self._listeners:
            loop.add_reader(listener, self._accept, listener)
        if self._disk >= 0:
            loop.add_reader(self._disk, self._broker.poll_disk)
        loop.call_later(HOUSEKEEPING, self._keep_house)
        return [address_of(listener.getsockname()) for listener in self._listeners]

    async def stop(self) -> None:
        """Accept and read no more; send what is buffered, as far as clients take it in time; close."""
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            loop.remove_reader(listener)
            listener.close()
        self._broker.histories.end_all()
        self._poller.drain(list(self._broker.clients))
        deadline = loop.time() + FAREWELL
        while any(client.pending_size or client.held for client in self._broker.clients) and loop.time() < deadline:
            await asyncio.sleep(HOUSEKEEPING / 10)
        for client in list(self._broker.clients):
            if client.pending_size:
                log.warning("client %s did not take %d bytes in time", client.peer, client.pending_size)
            self._poller.farewell(client)
        if self._disk >= 0:
            loop.remove_reader(self._disk)

    def close(self) -> None:
        """Let go of all sockets and of the loop, whatever happened before."""
        if self._armed is not None:
            self._armed.cancel()
        for listener in self._listeners:
            listener.close()
        self._cut_off()

    def drop_connections(self) -> int:
        """Close every connection, as a network that fails would, and go on; answers how many there were."""
        for listener in self._listeners:
            self._accept(listener)  # those who are at the door count too
        return self._cut_off()

    def _cut_off(self) -> int:
        clients = list(self._broker.clients)
        for client in clients:
            self._poller.close(client)
        return len(clients)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                connection, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause_accepting(listener, error)
                return
            self._welcome(connection, address_of(address))

    def _pause_accepting(self, listener: socket.socket, error: OSError) -> None:
        if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
            log.error("accept failed: %s", error)
        else:
            log.error("cannot accept more connections for now: %s; raise `ulimit -n`", error.strerror)
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener)
        loop.call_later(RETRY_ACCEPT, self._accept_again, listener)

    def _accept_again(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _welcome(self, connection: socket.socket, peer: str) -> None:
        if len(self._broker.clients) >= self.max_connections:
            self._refuse(connection, peer)
            return
        with contextlib.suppress(OSError):  # it may be gone already: reading will tell
            for level, option, value in SOCKET_OPTIONS:
                connection.setsockopt(level, option, value)
        client = self._broker.connect(peer, connection.fileno())
        try:
            self._poller.add(client)
        except OSError as error:
            log.error("client %s cannot be served: %s", peer, error)
            self._broker.disconnect(client)
            connection.close()
            return
        connection.detach()
        log.debug("client %s connected", peer)

    def _refuse(self, connection: socket.socket, peer: str) -> None:
        """Say so and close; those of one second share an error_id, so that a crowd does not fill the log."""
        second = int(asyncio.get_running_loop().time())
        if self._refusal is None or self._refusal[0] != second:
            self._refusal = second, self._broker.new_dtid()
            log.warning("error %s client=%s reason='--max-connections is reached'", self._refusal[1].decode(), peer)
        with connection, contextlib.suppress(OSError):
            connection.setblocking(False)
            connection.send(b"- error " + self._refusal[1] + b"\n")
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1 << 16)  # closing with bytes unread would reset, and the error might not arrive

    def _keep_time(self) -> None:
        """After turns: go on with histories, and have the loop come back when the broker's next timer is due."""
        self._broker.pump()
        when = self._broker.timers.next
        if when is not None and (self._armed is None or when < self._armed.when()):
            if self._armed is not None:
                self._armed.cancel()
            self._armed = asyncio.get_running_loop().call_at(when, self._tick)

    def _tick(self) -> None:
        self._armed = None
        self._broker.tick()
        self._keep_time()

    def _keep_house(self) -> None:
        self._looks += 1
        if self._broker.broken and self._broken:
            self._broken()
        if self._poller.has_paused:
            self._poller.resume(trickle=self._looks % TRICKLE == 0)
        used = self._broker.core.used
        self._peak = max(self._peak, used)
        if self._looks % GIVE_BACK == 0 and self._peak - used > MUCH:
            give_memory_back()
            self._peak = used
        asyncio.get_running_loop().call_later(HOUSEKEEPING, self._keep_house)


def _closed(broker: Broker, client: Client) -> None:
    broker.disconnect(client)
    log.debug("client %s is gone", client.peer)


def _failed(client: Client, error: Exception) -> None:
    log.error("client %s was cut off by a fault in the broker itself", client.peer, exc_info=error)


def address_of(address: tuple[str, int] | tuple[str, int, int, int]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
