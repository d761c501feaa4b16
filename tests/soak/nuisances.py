"""Those who misbehave, all the time: they read slowly or never, write slowly, write rubbish, vanish, have no token.

Nobody else may suffer from them: that is what the others find out.
"""

import asyncio
import random
import socket
import time
from collections import deque

from tests.soak.crowd import EVENTS, NAMES
from tests.soak.link import HOST, PATIENCE, Speaker, Stage, reset, within

TCP_REPAIR = 19  # a socket closed in this mode says nothing to its peer; it needs CAP_NET_ADMIN
MAX_LINE = 256 << 10  # of the broker, so that lines that are too long are cheap
KEPT = 5  # connections that nobody reads, by one nuisance


def some_consumer(rng: random.Random) -> bytes:
    queue, events = rng.randrange(NAMES), (rng.randrange(EVENTS) for _ in range(8))
    return b"c-noise-%d consume noise-%d %s\n" % (queue, queue, b" ".join(b"noise.%d" % event for event in events))


class SlowReader(Speaker):
    """Takes what its small buffer holds, and then nothing for a while."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

    async def act(self) -> None:
        self.stage.done["slow reader"] += 1
        for _ in range(self.rng.randint(5, 50)):
            self.send(some_consumer(self.rng) + b"h%d history earliest --limit=200\n" % self.rng.randrange(100))
            await self.rest(self.rng.uniform(0.2, 2.0))
            await asyncio.sleep(0.01)


class HalfOpen(Speaker):
    """Consumes and is no more: cut without a word where that is allowed, else neither read nor closed for long."""

    def __init__(self, stage: Stage, name: str, rng: random.Random) -> None:
        super().__init__(stage, name, rng)
        self._kept: deque[asyncio.Transport] = deque()

    async def act(self) -> None:
        assert self.transport is not None
        self.send(some_consumer(self.rng))
        await asyncio.sleep(self.rng.uniform(0.5, 3.0))
        if self.transport is None or self.transport.is_closing():
            return
        if time.monotonic() < self.stage.cuts_until and self._vanish():
            self.stage.done["half-open, cut"] += 1
            return
        self.stage.done["half-open, never read"] += 1
        self.transport.pause_reading()
        self._kept.append(self.transport)
        self.transport.set_protocol(asyncio.Protocol())
        self.connection_lost(None)
        if len(self._kept) > KEPT:
            self._kept.popleft().abort()

    def _vanish(self) -> bool:
        assert self.transport is not None
        try:
            self.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
        except PermissionError:
            return False
        self.transport.abort()
        return True

    async def live(self) -> None:
        try:
            await super().live()
        finally:
            for transport in self._kept:
                reset(transport)


class SlowWriter(Speaker):
    """A line that never ends, a byte at a time."""

    async def act(self) -> None:
        self.stage.done["slow writer"] += 1
        for byte in b"slow publish noise.1 " + b"x" * self.rng.randint(1, 1000):
            self.send(bytes([byte]))
            await asyncio.sleep(self.rng.uniform(0.05, 0.5))


RUBBISH = (
    b"what?",
    b"g1 nonsense %(text)s",
    b"g1 publish",
    b"g1 publish noise.1,retry=7 %(text)s",
    b"g1 publish --once= noise.1",
    b"g1 consume",
    b"g1 consume q e --prefetch=%(text)s",
    b"g1 consume --wrong q",
    b"g1 rebind",
    b"g1 ack only-one",
    b"g1 history yesterday",
    b"g1 history 99999999999999999999",
    b"g1 hold x latest",
    b"g1 _eval %(text)s(",
    b"g1 _eval state._broker",
    b"g1 _eval 9**9**9**9",
    b"g1 send {{%(text)s",
    b'g1 send {"a": NaN}',
    b'g1 recv {"queue": "x"}',
    b'g1 recv {"queue": 1, "pattern": {}}',
    b'g1 ack {"receiver_id": "x"}',
    b"g1 _ping []",
    b"g1 ping \t",
    b"g1 ping \0",
    b"--flag ping",
    b"{} ping",
    b"g1 ping " + b"y" * (MAX_LINE + 1),
    b"g1 " + b'{"a":' * 1000,
    b"g1 send " + b'{"a":' * 2000 + b"1" + b"}" * 2000 + b"]",
)


class Rubbish(Speaker):
    """Lines that are all wrong: each is answered with an error, and the connection lives on."""

    def begin(self) -> None:
        self.errors, self.expected = 0, 0
        self.quiet = asyncio.Event()

    async def act(self) -> None:
        for _ in range(self.rng.randint(5, 50)):
            self.quiet.clear()
            for form in self.rng.choices(RUBBISH, k=self.rng.randint(1, 10)):
                text = bytes(self.rng.choice(b"abc.*{}[]()\"'\\\xff\x80 ") for _ in range(self.rng.randint(1, 30)))
                self.send(form.replace(b"%(text)s", text) + b"\n")
                self.expected += 1
                self.stage.done["rubbish"] += 1
            self.send(b"quiet ping\n")
            if not await within(self.quiet.wait(), PATIENCE):
                self.stage.findings.add("unanswered", f"{self.name}: a ping after rubbish")
                return
            await asyncio.sleep(self.rng.expovariate(2))
        self.send(self.rng.randbytes(self.rng.randint(1, 3000)))  # and after real rubbish it goes, in mid-line
        self.hang_up()

    def line(self, line: bytes) -> None:
        if line == b"quiet ok ":
            if self.errors != self.expected:
                self.stage.findings.add("unexpected", f"{self.name}: {self.expected} wrong, {self.errors} errors")
                self.expected = self.errors
            self.quiet.set()
        elif b" error " in line:
            self.errors += 1
        else:
            self.stage.findings.add("unexpected", f"{self.name} got {line[:200]!r}")


class Stranger(Speaker):
    """Has no token where one is needed, and does not speak TLS where that is spoken; from an address of its own, since
    attempts of one address are made to wait."""

    local = "127.0.0.2"

    async def live(self) -> None:
        while not self.stage.over:
            if not await within(self.stage.door.open.wait(), 1.0):
                continue
            await self._knock()
            await asyncio.sleep(self.rng.uniform(0.5, 3.0))

    async def _knock(self) -> None:
        door = self.stage.door
        wrong = bytes(self.rng.choice(b"abcdefgh") for _ in range(43))
        said = self.rng.choice((b"", b"\x16\x03\x01", b"p1 ping\n", b"a1 auth all.%s\n" % wrong))
        self.stage.done["stranger"] += 1
        try:
            reader, writer = await asyncio.open_connection(HOST, door.port, local_addr=(self.local, 0))
        except OSError:
            return
        try:
            writer.write(said)
            answer = await asyncio.wait_for(reader.read(1000), 2.0)
        except (OSError, TimeoutError):
            return
        finally:
            writer.close()
        if (door.tls or door.token) and b" ok " in answer:
            self.stage.findings.add("let in", f"{self.name} said {said!r} and was answered {answer!r}")


NUISANCES: tuple[type[Speaker], ...] = (SlowReader, HalfOpen, SlowWriter, Rubbish, Stranger)
