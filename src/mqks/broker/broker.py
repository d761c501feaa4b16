"""The broker without I/O: bytes of clients in, bytes for them out, time as a given clock tells it.

The server and the tests use the same door: connect, feed, turn, sent, disconnect, tick. The core reads the lines
and does what is hot; every other line comes back here, to be found an action or an error.
"""

import logging
import random
import secrets
import time
from collections.abc import Callable
from typing import Any

from mqks.broker.actions import find
from mqks.broker.auth.access import EVERYTHING, Rights
from mqks.broker.auth.entrance import SAY_WHO, Entrance
from mqks.broker.connections.client import CONNECTION_COST, Client
from mqks.broker.durable import Durable
from mqks.broker.errors import BadRequest, Fault, show
from mqks.broker.limits import Limits
from mqks.broker.persistence.history import Histories
from mqks.broker.persistence.once import Dedup
from mqks.broker.protocol.bridge import render
from mqks.broker.protocol.early import is_early
from mqks.broker.queues.queue import Queue
from mqks.core.hub import Core
from mqks.core.parts import Connection
from mqks.core.parts import Queue as CoreQueue
from mqks.dtid import Dtids
from mqks.journal.disk import Disk
from mqks.journal.journal import Options
from mqks.logs import Entry
from mqks.names import is_name

log = logging.getLogger(__name__)

SHORT_LINES = "until a client has said who it is, its lines have at most 4096 bytes"
NO_HTTP = "this is not HTTP; the dashboard has a port of its own"
NO_TLS = "it speaks TLS to a plain port: connect with mqks://, or give the broker --tls-cert"
TLS_RECORD = b"\x16\x03"  # what a handshake begins with, in all versions
HTTP_METHODS = (b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE", b"PRI")
LIMITS_OF_LINES = {1: "max_line", 3: "max_memory"}  # by the core's flaw; the other one is a character


class Broker(Durable):
    def __init__(
        self,
        *,
        max_line: int = 1 << 20,
        max_memory: int = 1 << 30,
        high_water: int = 256 * 1024,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        seed: int | None = None,
        dedup_window: float = 3600.0,
        dedup_count: int = 1_000_000,
        dedup_part_bits: int = 11,
        limits: Limits | None = None,
        disk: Disk | None = None,
        insecure: bool = False,
        **options: Any,
    ) -> None:
        """With a disk, `recover` comes first; the options are those of the journal."""
        rng = random.Random(secrets.randbits(64) if seed is None else seed)  # nosec B311  # ids need not be secret
        core = Core(
            self,
            max_line=max_line,
            max_memory=max_memory,
            high_water=high_water,
            seed=secrets.randbits(64) if seed is None else seed,
        )
        dedup = Dedup(
            rng.randbytes(16) if seed is not None else secrets.token_bytes(16),
            dedup_window,
            dedup_count,
            dedup_part_bits,
        )
        super().__init__(core, clock, wall, Dtids(wall, rng), disk, Options(**options), dedup, limits or Limits())
        self.histories = Histories(self)
        self.entrance = Entrance(self, insecure=insecure)

    # ── the door ──

    def connect(
        self,
        peer: str,
        fd: int = -1,
        *,
        inside: bool = False,
        rights: Rights = EVERYTHING,
        cost: int = CONNECTION_COST,
    ) -> Client:
        """One who comes by a socket and takes so many bytes of memory, or from inside this process: that one is served
        alike, with these rights, but is in no figures."""
        client = Client(peer, self.timers.clock(), inside=inside, cost=cost)
        self.core.attach(client, fd)
        self.welcome(client)
        self.entrance.greet(client, rights)
        return client

    def feed(self, client: Client, data: bytes) -> None:
        """Bytes as they came, cut anywhere."""
        self.core.feed(client, data)

    def turn(self) -> None:
        """The end of a turn: what was fed is answered, now messages go out."""
        for client in self.core.resumable():
            self.core.resume(client)
        self.core.write_out()
        self.core.deliver()
        self.core.write_out()
        self.pump()

    def pump(self) -> None:
        """Those who read history and have taken what they were sent get more; what is done in slices goes on."""
        self.histories.pump(self.core.take_roomy())
        self.slices.turn()

    def sent(self, client: Client, size: int) -> None:
        """So many bytes of what was pending have left."""
        self.core.sent(client, size)

    def input_ended(self, client: Client) -> None:
        """The client sends no more, and its input was processed: its consumers leave, and its histories end with what
        there is. It may still read replies."""
        self.histories.input_ended(client)
        self.slices.start(self.leave_all(client, disconnected=False))

    def disconnect(self, client: Client) -> None:
        self.histories.forget(client)
        self.mistakes.forget(client)
        self.entrance.forget(client)
        if client.unfinished:
            said = "the connection of {client} ended in the middle of a line: {bytes} bytes of it are dropped"
            log.info(Entry(said, client=client.peer, bytes=client.unfinished))
        if client.unheard and not client.stranger:
            said = "client {client} went while it was not heard: {bytes} bytes that it had sent are dropped"
            log.warning(Entry(said, client=client.peer, bytes=client.unheard))
        self.core.detach(client)
        self.farewell(client)
        self.slices.start(self.leave_all(client, disconnected=True))

    def refuse(self, peer: str, bad: BadRequest) -> bytes:
        """Somebody is turned away; answers the error_id to tell."""
        self.refused += 1
        return self.mistakes.refused(peer, bad)

    def overdue(self) -> list[Client]:
        """Those who keep the broker waiting for too long; they have been told, and are to be cut off."""
        found = self.pace.overdue(self.clients)
        for client in found:
            error_id = self.mistakes.made(client, self.limits.reached("line_timeout"), bytes=client.unfinished)
            self.core.say(client, b"- error %s\n" % error_id)
        stalled = self.pace.stalled(self.clients)
        for client in stalled:
            self.mistakes.made(client, self.limits.reached("max_memory"), unread=client.pending_size)
        return list(dict.fromkeys(found + stalled))

    def close(self) -> None:
        self.slices.finish()
        self.mistakes.tell_rest()
        self.overflow.tell_rest()
        super().close()

    def tick(self) -> None:
        self.timers.run_due()

    # ── what the core asks for ──

    def request(self, connection: Connection, line: bytes, flaw: int) -> None:
        assert isinstance(connection, Client)
        request_id, space, rest = line.partition(b" ")
        name, _, data = rest.partition(b" ")
        if connection.early_only and (flaw or not is_early(name, data)):
            connection.early_only = False
        self.asking = connection
        try:
            if another := other_protocol(line, is_first=connection.lines <= 1):
                self.entrance.cut_short(connection)
                request_id = b"-"
                raise BadRequest(another)
            if not is_name(request_id) or (flaw and len(request_id) >= self.core.max_line):
                request_id = b"-"
            if flaw:
                raise self._flawed(connection, flaw)
            if request_id == b"-":
                raise BadRequest("no legal request_id")
            if connection.stranger and name != b"auth":
                raise BadRequest(SAY_WHO)
            action = find(name, data)
            if action is None:
                raise BadRequest("unknown action", show(name)) if space else BadRequest("no action")
            action(self, connection, request_id, data)
        except BadRequest as bad:
            self._fail(connection, request_id, line, bad)
        except Exception as unforeseen:
            self._fail(connection, request_id, line, Fault.unforeseen(unforeseen))
        finally:
            self.asking = None

    def _flawed(self, client: Client, flaw: int) -> BadRequest:
        limit = LIMITS_OF_LINES.get(flaw)
        if limit is None:
            return BadRequest("the line has a TAB or NUL character")
        bad = self.limits.reached(limit)
        return BadRequest(SHORT_LINES) if client.stranger and limit == "max_line" else bad

    def spent(self, connection: Connection) -> None:
        """It has sent so many lines: see `--max-rate`."""
        assert isinstance(connection, Client)
        self.pace.spent(connection)

    @staticmethod
    def render(line: bytes, dialect: int, retry: int) -> bytes:
        return render(line, dialect, retry)

    def inspect(self, event: bytes, data: bytes) -> list[Queue]:
        take = self.listeners.get(event)
        if take is not None:
            try:
                take(data)
            except Exception:  # whoever published has no part in it
                log.exception("a message of an event that the broker itself listens to could not be taken")
        return self.exchange.inspect(event, data)

    def wanting(self, event: bytes, data: bytes) -> list[Queue]:
        return self.exchange.inspect(event, data)

    def exceeds(self, queue: CoreQueue) -> None:
        assert isinstance(queue, Queue)
        self.overflow.trim_soon(queue)

    def overflowed(self, queue: CoreQueue) -> None:
        assert isinstance(queue, Queue)
        self.overflow.began(queue)

    def _fail(self, client: Client, request_id: bytes, line: bytes, bad: BadRequest) -> None:
        """Tell the client an error_id and the log what it is."""
        error_id = self.mistakes.made_of_line(client, bad, line)
        self.core.say(client, b"%s error %s\n" % (request_id, error_id))
        if client.stranger:
            self.entrance.put_off(client)


def other_protocol(line: bytes, is_first: bool) -> str | None:
    """What to say to a browser. What would follow is what some web page likes to send, and nobody on this host has
    meant it; in TLS it stands in what the other side may choose: a session id, a ticket, the name of a host."""
    if is_first and line.startswith(TLS_RECORD):
        return NO_TLS
    return NO_HTTP if speaks_http(line) else None


def speaks_http(line: bytes) -> bool:
    """A line that a browser begins with, and that no client of ours says: the first of a request, or its host."""
    first, _, rest = line.partition(b" ")
    if first in HTTP_METHODS:
        return rest.startswith((b"/", b"*", b"http://", b"https://"))
    return first.lower() == b"host:"
