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
from mqks.broker.bridge import render
from mqks.broker.client import Client, Flood
from mqks.broker.durable import Durable
from mqks.broker.errors import BadRequest, show
from mqks.broker.history import Histories
from mqks.broker.once import Dedup
from mqks.broker.queue import Queue
from mqks.core.hub import Core
from mqks.core.parts import Connection
from mqks.dtid import Dtids
from mqks.journal.disk import Disk
from mqks.journal.journal import Options
from mqks.names import is_name

log = logging.getLogger(__name__)

FLAWS = {
    1: "the line is longer than --max-line",
    2: "the line has a TAB or NUL character",
    3: "out of memory for a long line: --max-memory is reached",
}
SHOWN_OF_A_LINE = 1024
LOGGED_ONE_BY_ONE = 10  # of one mistake, on one connection, in one second


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
        disk: Disk | None = None,
        **options: Any,
    ) -> None:
        """With a disk, `recover` comes first; the options are those of the journal."""
        rng = random.Random(secrets.randbits(64) if seed is None else seed)
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
        super().__init__(core, clock, wall, Dtids(wall, rng), disk, Options(**options), dedup)
        self.histories = Histories(self)

    # ── the door ──

    def connect(self, peer: str, fd: int = -1) -> Client:
        client = Client(peer)
        self.core.attach(client, fd)
        self.clients[client] = None
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
        """Those who read history and have taken what they were sent get more."""
        if roomy := self.core.take_roomy():
            self.histories.pump(roomy)

    def sent(self, client: Client, size: int) -> None:
        """So many bytes of what was pending have left."""
        self.core.sent(client, size)

    def disconnect(self, client: Client) -> None:
        for consumer in list((client.consumers or {}).values()):
            self.leave(consumer, disconnected=True)
        self.histories.forget(client)
        for reason, flood in (client.floods or {}).items():
            self._end_flood(client, reason, flood)
        if client.unfinished:
            log.info(
                "client %s went in the middle of a line: %d bytes of it are dropped", client.peer, client.unfinished
            )
        self.core.detach(client)
        del self.clients[client]

    def tick(self) -> None:
        self.timers.run_due()

    # ── what the core asks for ──

    def request(self, connection: Connection, line: bytes, flaw: int) -> None:
        assert isinstance(connection, Client)
        request_id, space, rest = line.partition(b" ")
        try:
            if not is_name(request_id) or (flaw and len(request_id) >= self.core.max_line):
                request_id = b"-"
            if flaw:
                raise BadRequest(FLAWS[flaw])
            if request_id == b"-":
                raise BadRequest("no legal request_id")
            name, _, data = rest.partition(b" ")
            action = find(name, data)
            if action is None:
                raise BadRequest("unknown action", show(name)) if space else BadRequest("no action")
            action(self, connection, request_id, data)
        except BadRequest as bad:
            self._fail(connection, request_id, line, bad)
        except Exception as unforeseen:
            log.exception("a request met a fault in the broker itself")
            self._fail(connection, request_id, line, BadRequest("internal error", repr(unforeseen)))

    @staticmethod
    def render(line: bytes, dialect: int, retry: int) -> bytes:
        return render(line, dialect, retry)

    def inspect(self, event: bytes, data: bytes) -> list[Queue]:
        return self.exchange.inspect(event, data)

    def _fail(self, client: Client, request_id: bytes, line: bytes, bad: BadRequest) -> None:
        """Tell the client an error_id and the log what it is; a flood of one mistake shares the last id logged."""
        self.errors += 1
        second = int(self.timers.clock())
        if client.floods is None:
            client.floods = {}
        flood = client.floods.get(bad.reason)
        if flood is None or flood.second != second:
            self._end_flood(client, bad.reason, flood)
            flood = client.floods[bad.reason] = Flood(second)
        if flood.logged < LOGGED_ONE_BY_ONE:
            flood.logged += 1
            flood.error_id = self.new_dtid()
            log.warning(
                "error %s client=%s reason=%s line=%s",
                flood.error_id.decode(),
                client.peer,
                ascii(str(bad)),
                ascii(line[:SHOWN_OF_A_LINE].decode("utf-8", "backslashreplace")),
            )
        else:
            flood.unlogged += 1
        self.core.say(client, request_id + b" error " + flood.error_id + b"\n")

    @staticmethod
    def _end_flood(client: Client, reason: str, flood: Flood | None) -> None:
        if flood is not None and flood.unlogged:
            log.warning(
                "error %s client=%s reason=%s was met %d times more in that second",
                flood.error_id.decode(),
                client.peer,
                ascii(reason),
                flood.unlogged,
            )
