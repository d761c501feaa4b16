"""A clock and a network for the simulation: bytes in pieces, late, stuck, swallowed, or cut off at any of them.

A direction of a connection keeps its order. It may stand still for a while (a stall); it may become a hole, and then
what goes in never comes out and nobody is told; it may break after so many bytes more. An end that is closed answers
what still arrives with a reset, as TCP does. All chance comes from the given random.Random.
"""

import heapq
import random
from collections.abc import Callable

from mqks.broker.connections.client import Client

LATENCY = 0.0005
MOST_LATENCY = 0.004
LOOK_AGAIN = 0.1  # seconds, whether a stall is over
RETRANSMITTING = 0.3  # seconds until a kernel that hears of no arrival sends nothing new
ROOM = (200, 4000, 1 << 16)  # bytes that a kernel takes for a direction


class Clock:
    """Time passes when something is due."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def __call__(self) -> float:
        return self.now

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (self.now + seconds, self._count, call))

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self._due and self._due[0][0] <= until:
            self.now, _, call = heapq.heappop(self._due)
            call()
        self.now = until


class Pipe:
    """One direction of a connection."""

    def __init__(self, clock: Clock, rng: random.Random, arrive: Callable[[bytes], None]) -> None:
        self.clock = clock
        self.rng = rng
        self.arrive = arrive
        self.size = rng.choice(ROOM)
        self.moved: Callable[[], None] = lambda: None  # told when there is room again
        self.hole = False
        self.stalled = 0.0  # until then
        self.cut: int | None = None  # so many bytes more
        self.at_cut: Callable[[], None] = lambda: None
        self.at_end: Callable[[], None] | None = None  # the sender has closed; called when all has arrived
        self.sent = bytearray()  # all of it
        self.arrived = 0  # so much of it did
        self._buffer = bytearray()
        self._swallowed = 0
        self._moving = False

    @property
    def room(self) -> int:
        return self.size - len(self._buffer) - self._swallowed

    def send(self, data: bytes) -> None:
        self.sent += data
        self._buffer += data
        self._go()

    def end(self, told: Callable[[], None]) -> None:
        self.at_end = told
        self._go()

    def drop(self) -> None:
        """What is on its way does not arrive."""
        self._buffer.clear()
        self._swallowed = 0

    def _go(self) -> None:
        if not self._moving:
            self._moving = True
            late = min(max(self.stalled - self.clock.now, 0.0), LOOK_AGAIN)
            self.clock.after(late + self.rng.uniform(LATENCY, MOST_LATENCY), self._move)

    def _move(self) -> None:
        self._moving = False
        if self.stalled > self.clock.now:
            self._go()
        elif self.hole:
            self._swallowed += len(self._buffer)
            self._buffer.clear()
        elif self._buffer:
            self._move_piece()
        elif self.at_end is not None:
            told, self.at_end = self.at_end, None
            told()

    def _move_piece(self) -> None:
        size = len(self._buffer) if self.rng.random() < 0.5 else self.rng.randint(1, len(self._buffer))
        if self.cut is not None:
            size = min(size, self.cut)
            self.cut -= size
        piece = bytes(self._buffer[:size])
        del self._buffer[:size]
        if piece:
            self.arrive(piece)
        if self.cut == 0:
            self.cut = None
            self.at_cut()
        else:
            self.moved()
            if self._buffer or self.at_end:
                self._go()


class Wire:
    """A connection between a driver and the broker. Whoever makes it says what happens at its ends."""

    def __init__(self, clock: Clock, rng: random.Random, client: Client, life: int) -> None:
        self.clock = clock
        self.rng = rng
        self.client = client
        self.life = life  # of the broker
        self.client_open = self.broker_open = True
        self.up = Pipe(clock, rng, self._at_broker)
        self.down = Pipe(clock, rng, self._at_client)
        self.up.at_cut = self.down.at_cut = self.reset
        self.to_broker: Callable[[bytes], None]
        self.to_client: Callable[[bytes], None]
        self.broker_lost: Callable[[], None]
        self.client_lost: Callable[[], None]

    @property
    def lost(self) -> bytes:
        """Lines that the broker has sent, and that did not arrive, or not as a whole."""
        return bytes(self.down.sent[self.down.sent.rfind(b"\n", 0, self.down.arrived) + 1 :])

    @property
    def is_zombie(self) -> bool:
        """The broker has it, and nobody is there."""
        return self.broker_open and not self.client_open

    def _at_broker(self, data: bytes) -> None:
        if self.broker_open:
            self.to_broker(data)
        elif not self.down.hole:
            self._later(self.end_client)

    def _at_client(self, data: bytes) -> None:
        if self.client_open:
            self.down.arrived += len(data)
            self.to_client(data)
        elif not self.up.hole:
            self._later(self.end_broker)

    def _later(self, call: Callable[[], None]) -> None:
        self.clock.after(self.rng.uniform(LATENCY, MOST_LATENCY), call)

    def end_client(self) -> None:
        if self.client_open:
            self.client_open = False
            self.client_lost()

    def end_broker(self) -> None:
        if self.broker_open:
            self.broker_open = False
            self.broker_lost()

    def make_hole(self, pipe: Pipe) -> None:
        """What goes one way is gone; soon the other way stands still too, since nobody hears that anything arrives."""
        pipe.hole = True
        other = self.down if pipe is self.up else self.up
        self.clock.after(self.rng.uniform(0.0, RETRANSMITTING), lambda: setattr(other, "hole", True))

    def reset(self) -> None:
        """It breaks: nothing arrives any more. Each end is told, or is not and has to find out by itself."""
        for pipe, told in ((self.down, self.end_client), (self.up, self.end_broker)):
            pipe.drop()
            pipe.hole = True
            if self.rng.random() < 0.8:
                self._later(told)

    def client_closes(self) -> None:
        self.client_open = False
        if self.rng.random() < 0.5:
            self.up.drop()
        self.up.end(self.end_broker)

    def broker_dies(self, *, silently: bool) -> None:
        """The process is gone: the kernel closes for it, unless the machine is gone too."""
        self.broker_open = False
        if silently:
            self.up.hole = self.down.hole = True
        if self.rng.random() < 0.3:
            self.down.drop()
        self.down.end(self.end_client)

    def heal(self) -> None:
        """What stood still moves. A hole stays one as long as both ends believe in it: nobody remembers the way."""
        self.up.stalled = self.down.stalled = 0.0
        self.up.cut = self.down.cut = None
        if not (self.client_open and self.broker_open):
            self.up.drop()
            self.down.drop()
            self.up.hole = self.down.hole = False
