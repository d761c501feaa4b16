"""A connection to the broker that is opened again in every life of it, and what all who have one share.

All of them run in one event loop. A speaker's `act` runs while its connection lives; each line that comes goes to
`line`. Whatever breaks an invariant goes to `Stage.findings`.
"""

import asyncio
import contextlib
import random
import socket
import ssl
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable
from dataclasses import dataclass, field

from tests.crash.ledger import EXAMPLES, Faults, Ledger
from tests.soak.verdict import Deeds

PATIENCE = 60.0  # seconds until an answer counts as not coming: stalls, full disks and a busy machine are shorter
HOST = "127.0.0.1"


class Findings(Faults):
    """The ledger's faults, and those of other kinds."""

    def add(self, kind: str, text: str) -> None:
        self.count[kind] += 1
        if self.count[kind] <= EXAMPLES:
            self.examples.append(f"{kind}: {text}")


@dataclass
class Door:
    """Where the broker is in this life, and how it is to be spoken to; `open` while it listens."""

    port: int = 0
    http_port: int = 0
    tls: ssl.SSLContext | None = None
    token: str | None = None
    life: int = 0
    open: asyncio.Event = field(default_factory=asyncio.Event)
    shut: asyncio.Event = field(default_factory=asyncio.Event)  # the broker has ended, or is about to
    inside: set[str] = field(default_factory=set)  # who keeps books, and has not closed those of its connection

    def close(self) -> None:
        self.open.clear()
        self.shut.set()

    async def let_in(self) -> None:
        """Nobody comes in before all have left: what one held in the old life, another may get at once in the new."""
        while self.inside:
            await asyncio.sleep(0.01)
        self.shut.clear()
        self.open.set()


@dataclass
class Stage:
    """What everybody sees."""

    door: Door
    ledger: Ledger = field(default_factory=Ledger)
    findings: Findings = field(default_factory=Findings)
    done: Counter[str] = field(default_factory=Counter)  # what was done, by action
    deeds: defaultdict[tuple[int, str], Deeds] = field(default_factory=lambda: defaultdict(Deeds))  # by life and queue
    publishing: bool = True
    over: bool = False
    cuts_until: float = 0.0  # until then connections are cut without a word: keepalive takes long to notice that
    excuse: float = 0.0  # until then errors are no wonder, since the disk is or was filled
    full: str = ""  # what the broker says of its disk if it is full and should not be: told once, as such

    def __post_init__(self) -> None:
        self.ledger.faults = self.findings

    def error(self, who: str, asked: str, line: bytes) -> None:
        """An error came where none should."""
        if self.excused:
            self.done["refused while the disk was full"] += 1
        else:
            self.findings.add("error", f"{who}, life {self.door.life}: {asked}: {line[:200]!r}")

    @property
    def excused(self) -> bool:
        return bool(self.full) or time.monotonic() <= self.excuse

    def disk_is(self, full: str | None) -> None:
        """What the broker says of its disk."""
        self.full = (full or "") if time.monotonic() > self.excuse else ""
        if self.full and not self.findings.count["disk"]:
            self.findings.add("disk", f"life {self.door.life}, and nobody has filled it: {self.full}")


class Speaker(asyncio.Protocol):
    """One connection at a time, for as long as the run lasts."""

    local: str | None = None  # the address to come from

    def __init__(self, stage: Stage, name: str, rng: random.Random) -> None:
        self.stage, self.name, self.rng = stage, name, random.Random(rng.getrandbits(64))
        self.transport: asyncio.Transport | None = None
        self.lost = asyncio.Event()
        self.life = 0  # of the broker, when it was connected
        self._rest = b""
        self._greeted: asyncio.Future[bytes] | None = None

    # ---- What a kind of speaker does

    def begin(self) -> None:
        """A connection is there, and the broker knows who it is."""

    async def act(self) -> None:
        """Goes on while the connection lives; when it returns, the connection is closed."""
        await self.lost.wait()

    def line(self, line: bytes) -> None:
        """A whole line has come."""

    def took(self) -> None:
        """All that had come was taken."""

    def ended(self) -> None:
        """The connection is over."""

    async def before_return(self) -> None:
        """Until it may connect again."""

    # ---- The connection

    async def live(self) -> None:
        try:
            await self._live()
        finally:
            reset(self.transport)
            self.stage.door.inside.discard(self.name)

    async def _live(self) -> None:
        while not self.stage.over:
            if not await within(self.stage.door.open.wait(), 1.0):
                continue
            if not await self._connected():
                await asyncio.sleep(0.05 + self.rng.random() * 0.2)
                continue
            self.begin()
            acting = asyncio.create_task(self.act())
            losing = asyncio.create_task(self.lost.wait())
            try:
                await asyncio.wait((acting, losing), return_when=asyncio.FIRST_COMPLETED)
                self.hang_up()
                await losing
            finally:
                acting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await acting
            self.ended()
            await self.before_return()

    async def _connected(self) -> bool:
        door, loop = self.stage.door, asyncio.get_running_loop()
        self.lost.clear()
        self.life = door.life
        self._rest = b""
        self._greeted = loop.create_future() if door.token else None
        name = "localhost" if door.tls else None
        local = (self.local, 0) if self.local else None
        try:
            await loop.create_connection(
                lambda: self, HOST, door.port, ssl=door.tls, server_hostname=name, local_addr=local
            )
        except OSError:  # the broker has gone meanwhile
            return False
        if self._greeted is None:
            return True
        self.send(b"auth auth %s\n" % (door.token or "").encode())
        greeting, losing = self._greeted, asyncio.create_task(self.lost.wait())
        await asyncio.wait((greeting, losing), timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        losing.cancel()
        self._greeted = None
        if greeting.done() and greeting.result() == b"auth ok ":
            return True
        if not self.lost.is_set():
            said = greeting.result() if greeting.done() else b"nothing"
            self.stage.findings.add("error", f"{self.name}: auth was answered {said!r}")
            self.hang_up()
        return False

    def hang_up(self, *, at_once: bool = False) -> None:
        if self.transport is not None:
            if at_once:
                self.transport.abort()
            else:
                self.transport.close()

    async def rest(self, seconds: float) -> None:
        """Read nothing for a while, unless the broker ends: that is to be noticed."""
        transport = self.transport
        if transport is not None and not transport.is_closing():
            transport.pause_reading()
            await within(self.stage.door.shut.wait(), seconds)
            if not transport.is_closing():
                transport.resume_reading()

    def send(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if self._greeted is not None and not self._greeted.done():
                self._greeted.set_result(line)
            else:
                self.line(line)
        self.took()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.transport = None
        self.lost.set()


def reset(transport: asyncio.Transport | None) -> None:
    """Close so that the broker notices at once: to one who only ends its sending, a history goes on."""
    if transport is not None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()


async def within(awaited: Awaitable[object], seconds: float) -> bool:
    try:
        await asyncio.wait_for(awaited, seconds)
    except TimeoutError:
        return False
    return True
