"""The broker on TCP: accepts connections, takes turns, keeps time. It runs on asyncio and has the broker to itself."""

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable, Sequence
from functools import partial

from mqks.acceptor import Acceptor
from mqks.broker import Broker
from mqks.broker.auth.access import EVERYTHING, Rights
from mqks.broker.connections.client import CONNECTION_COST, TLS_COST, Client
from mqks.broker.errors import BadRequest
from mqks.core.sockets import Poller
from mqks.logs import Entry
from mqks.server.loop import TurnSelector
from mqks.server.memory import Memory
from mqks.server.tls import NotTls, Tls, TlsFault, Wrapped

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
HOUSEKEEPING = 0.1  # seconds between looks at those paused for memory
TRICKLE = 10  # every so many looks they are read once, whatever the memory
OVERDUE = 10  # every so many looks those are cut off who keep the broker waiting
GIVE_BACK = 50  # every so many looks freed memory goes back to the system, if it is much
FAREWELL = 3.0  # seconds that clients have to take what is buffered when the broker stops


class PolledSockets:
    """What the broker asks of its clients' sockets: see `Sockets`."""

    def __init__(self, poller: Poller, loop: asyncio.AbstractEventLoop) -> None:
        self._poller = poller
        self._loop = loop

    def hang_up(self, client: Client) -> None:
        """Soon, since it may be in the middle of a line: the turn before that sends what it was told."""
        self._loop.call_soon(self._poller.dismiss, client)

    def dismiss(self, client: Client) -> None:
        self._poller.dismiss(client)

    def cut_off(self, client: Client) -> None:
        self._poller.farewell(client)

    def notice_closes(self, joining: Client) -> None:
        self._poller.notice_closes(joining)


class TcpServer:
    def __init__(self, broker: Broker, disk: int = -1, tls: Tls | None = None) -> None:
        """`disk` is a descriptor that is readable when something that the disk was asked for has ended."""
        self._broker = broker
        self._disk = disk
        self._tls = tls
        self._broken: Callable[[], None] | None = None
        # What the poller calls does not lead back here: no circle keeps the epoll open when the server is gone.
        self._poller = Poller(
            broker.core, broker.input_ended, partial(_closed, broker), partial(_failed, broker), broker.pump
        )
        self._acceptor: Acceptor | None = None
        self._armed: asyncio.TimerHandle | None = None
        self._looks = 0
        self._memory = Memory()

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that this server runs on."""
        return asyncio.SelectorEventLoop(TurnSelector(self._poller, self._keep_time))

    def listen(
        self, host: str, port: int, broken: Callable[[], None], given: Sequence[socket.socket] = ()
    ) -> list[str]:
        """Listen on every address of the host, or on the sockets that are given and listen already; answers where.

        Port 0 takes a free one. A disk that fails: `broken`.
        """
        loop = asyncio.get_running_loop()
        self._broken = broken
        listeners = given or bind(host, port)
        has_room = self._broker.authentication.has_room  # for one more who is not authenticated
        self._acceptor = Acceptor(listeners, self._accepted, _not_accepted, at_once=ACCEPTS_AT_ONCE, has_room=has_room)
        self._acceptor.start()
        if self._disk >= 0:
            loop.add_reader(self._disk, self._poll_disk)
        loop.call_later(HOUSEKEEPING, self._keep_house)
        addresses = [address_of(listener.getsockname()) for listener in listeners]
        self._broker.connections.attach(PolledSockets(self._poller, loop), addresses)
        return addresses

    async def stop(self) -> None:
        """Accept and read no more; send what is buffered, as far as clients take it in time; close."""
        loop = asyncio.get_running_loop()
        if self._acceptor:
            self._acceptor.stop()
        self._broker.histories.end_all()
        self._poller.drain(list(self._broker.connections.clients))
        deadline = loop.time() + FAREWELL
        while (
            any(client.pending_size or client.held for client in self._broker.connections.clients)
            and loop.time() < deadline
        ):
            await asyncio.sleep(HOUSEKEEPING / 10)
        for client in list(self._broker.connections.clients):
            if client.pending_size:
                said = "client {client} did not take {bytes} bytes in time and is cut off"
                log.warning(Entry(said, client=client.peer, bytes=client.pending_size))
            self._poller.farewell(client)
        if self._disk >= 0:
            loop.remove_reader(self._disk)

    def close(self) -> None:
        """Let go of all sockets and of the loop, whatever happened before."""
        if self._armed is not None:
            self._armed.cancel()
        self._broker.connections.detach()  # no circle keeps the epoll open
        if self._acceptor:
            self._acceptor.close()
            self._acceptor = None  # no circle
        self._cut_off(list(self._broker.connections.clients))

    def drop_connections(self) -> int:
        """Close every connection, as a network that fails would, and go on; answers how many there were."""
        if self._acceptor:
            self._acceptor.accept_waiting()  # they count too
        return self._cut_off([client for client in self._broker.connections.clients if not client.inside])

    def _cut_off(self, clients: list[Client]) -> int:
        for client in clients:
            self._poller.close(client)
        return len(clients)

    def _accepted(self, connection: socket.socket, address: tuple[str, int]) -> None:
        self._welcome(connection, address_of(address))

    def _welcome(self, connection: socket.socket, peer: str) -> None:
        cost = CONNECTION_COST + (TLS_COST if self._tls else 0)
        if (
            bad := self._broker.authentication.barred(peer) or self._broker.connections.limit_error(peer, cost)
        ) is not None:
            self._refuse(connection, peer, bad)
            return
        with contextlib.suppress(OSError):  # it may be gone already: reading will tell
            for level, option, value in SOCKET_OPTIONS:
                connection.setsockopt(level, option, value)
        client = self._broker.connect(peer, connection.fileno(), cost=cost)
        try:
            self._poller.add(client, self._wrap(client))
        except OSError as error:
            log.error(Entry("client {client} cannot be served: {reason}", client=peer, reason=error))
            self._broker.disconnect(client)
            connection.close()
            return
        connection.detach()
        log.debug(Entry("client {client} connected", client=peer))

    def _wrap(self, client: Client) -> Wrapped | None:
        """Until its handshake is done nobody knows who it is, whatever it may be after that."""
        if self._tls is None:
            return None
        self._broker.authentication.expect(client)
        return self._tls.wrap(partial(self._broker.authentication.on_handshake_done, client))

    def adopt(self, connection: socket.socket, rights: Rights = EVERYTHING) -> None:
        """Serve one end of a pair of sockets, whose other end is in this process: it is in no figures and no limit."""
        connection.setblocking(False)
        client = self._broker.connect("inside", connection.fileno(), inside=True, rights=rights)
        try:
            self._poller.add(client)
        except OSError:
            self._broker.disconnect(client)
            raise
        connection.detach()

    def _refuse(self, connection: socket.socket, peer: str, bad: BadRequest) -> None:
        """Say so and close. In TLS it could be said only after a handshake, which costs more than is left."""
        error_id = self._broker.connections.refuse(peer, bad)
        with connection, contextlib.suppress(OSError):
            if self._tls is not None:
                return
            connection.setblocking(False)
            connection.send(b"- error " + error_id + b"\n")
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1 << 16)  # closing with bytes unread would reset, and the error might not arrive

    def _poll_disk(self) -> None:
        self._broker.poll_disk()
        self._keep_time()

    def _keep_time(self) -> None:
        """Have the loop come back when the broker's next timer is due."""
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
        if self._looks % OVERDUE == 0:
            for client in self._broker.connections.overdue():
                self._poller.dismiss(client)
        if self._looks % GIVE_BACK == 0:
            self._memory.look(self._broker.core.account.used)
        asyncio.get_running_loop().call_later(HOUSEKEEPING, self._keep_house)


def bind(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on every address of the host, all on one port."""
    listeners: list[socket.socket] = []
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for number, (family, _, _, _, address) in enumerate(found, 1):
        try:
            listener = socket.create_server((address[0], port), family=family, backlog=BACKLOG)
        except OSError as error:
            # `localhost` names an IPv6 address also where there is no IPv6: one that works is enough.
            if error.errno in NOT_HERE and (listeners or number < len(found)):
                continue
            for one in listeners:
                one.close()
            raise
        port = listener.getsockname()[1]
        listener.setblocking(False)
        listeners.append(listener)
    return listeners


def _not_accepted(error: OSError, exhausted: bool) -> None:
    if exhausted:
        said = "cannot accept more connections for now: {reason}; raise `ulimit -n`"
        log.error(Entry(said, reason=error.strerror))
    else:
        log.error(Entry("accept failed: {reason}", reason=error))


def _closed(broker: Broker, client: Client) -> None:
    broker.disconnect(client)
    log.debug(Entry("client {client} is gone", client=client.peer))


def _failed(broker: Broker, client: Client, error: Exception) -> bytes | None:
    """Answers its last words; None where there are none."""
    if isinstance(error, TlsFault):
        error_id = broker.mistakes.made(client, error)
        return b"- error %s\n" % error_id if isinstance(error, NotTls) else b""
    said = "client {client} was cut off by a fault in the broker itself"
    log.error(Entry(said, client=client.peer), exc_info=error)
    return None


def address_of(address: tuple[str, int] | tuple[str, int, int, int]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
