"""A driver for the simulation: it does with a session what both real drivers do, on a fake clock and a fake network."""

import random
from collections.abc import Callable
from typing import Protocol

from mqks.client.hello import CONNECT_SECONDS
from mqks.client.session import Session
from tests.client.network import Clock, Wire
from tests.sim.links import Violation

KEEP_ALIVE = 2.0
SYN_AGAIN = 1.0  # seconds until a kernel asks once more
LATE = 0.05  # seconds that a flush may take


class Network(Protocol):
    """What a driver sees of it."""

    @property
    def dark(self) -> bool: ...

    def reach(self) -> Wire | None: ...

    def left(self, wire: Wire) -> None: ...


class SimDriver:
    def __init__(
        self, name: str, clock: Clock, rng: random.Random, network: Network, say: Callable[[str], None]
    ) -> None:
        self.name = name
        self.clock = clock
        self.rng = rng
        self.network = network
        self.say = say
        self.count = 0
        self.session = Session(ids=self._new_id, rng=rng)
        self.wire: Wire | None = None
        self.wires: list[Wire] = []  # that it had
        self.heard: Callable[[bytes], None] = lambda _: None  # told what the session is about to be told
        self.changed: Callable[[], None] = lambda: None  # told when it was
        self.says: Callable[[bytes], None] = lambda _: None  # told what it is about to say
        self._flushing = False
        self._attempt()

    def _new_id(self) -> str:
        self.count += 1
        return f"{self.name}.{self.count}"

    # ── connecting, and again ──

    def _attempt(self, since: float = 0.0) -> None:
        if self.network.dark:
            if since + SYN_AGAIN < CONNECT_SECONDS:
                self.clock.after(SYN_AGAIN, lambda: self._attempt(since + SYN_AGAIN))
            else:
                self.clock.after(CONNECT_SECONDS - since, self._failed)
            return
        wire = self.network.reach()
        if wire is None:
            self.clock.after(0.001, self._failed)
        else:
            wire.to_client = lambda data: self._received(wire, data)
            wire.client_lost = lambda: self._gone(wire)
            wire.up.moved = self.flush_soon
            self._made(wire)

    def _failed(self) -> None:
        self.clock.after(self.session.connect_failed(), self._attempt)

    def _made(self, wire: Wire) -> None:
        self.say(f"{self.name} connected")
        self.wire = wire
        self.wires.append(wire)
        self.session.made()
        self.flush()
        self.clock.after(KEEP_ALIVE, lambda: self._beat(wire))

    def _beat(self, wire: Wire) -> None:
        if wire is self.wire:
            if self.session.tick():
                self.flush()
                self.clock.after(KEEP_ALIVE, lambda: self._beat(wire))
            else:
                self.say(f"{self.name} gives up a dead connection")
                wire.client_closes()
                self.network.left(wire)
                self._gone(wire)

    def _gone(self, wire: Wire) -> None:
        if wire is self.wire:
            self.say(f"{self.name} lost its connection")
            self.wire = None
            self.session.lost()
            self.session.write_notes()
            self.changed()
            self.clock.after(self.session.connect_failed(), self._attempt)

    # ── bytes ──

    def _received(self, wire: Wire, data: bytes) -> None:
        if wire is self.wire:
            self.say(f"{self.name} < {data!r}")
            self.heard(data)
            try:
                self.session.received(data)
            except ValueError as error:
                raise Violation(f"cannot read what the broker said: {error!r} {data!r}") from error
            self.changed()
            self.flush_soon()

    def flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self.clock.after(self.rng.uniform(0.0, LATE) if self.rng.random() < 0.2 else 0.0, self.flush)

    def flush(self) -> None:
        self._flushing = False
        self.session.write_notes()
        if self.wire is not None and self.wire.up.room > 0 and (data := self.session.outgoing()):
            self.say(f"{self.name} > {data!r}")
            self.says(data)
            self.wire.up.send(data)
