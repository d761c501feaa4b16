"""The broker in the simulation: its process, which is killed and started again, over a fake disk and a fake network."""

import random
from collections.abc import Callable
from typing import Any

from mqks.broker import Broker
from mqks.broker.connections.client import Client
from tests.client.network import Clock, Wire
from tests.sim.disk import FakeDisk, Killed
from tests.sim.links import Violation

EPOCH = 1_700_000_000.0
SLOWEST_DISK = 0.01  # seconds for a job, most of the time
KEPT = 1 << 30  # bytes of journal: nothing is removed, so that the end can look at all of it


class Server:
    def __init__(self, clock: Clock, rng: random.Random, say: Callable[[str], None]) -> None:
        self.clock = clock
        self.rng = rng
        self.say = say
        self.disk = FakeDisk(rng)
        self.wires: dict[Client, Wire] = {}
        self.all_wires: list[Wire] = []
        self.life = 0
        self.power_losses = 0
        self.slow_until = 0.0  # the disk is
        self._options: dict[str, Any] = {
            "high_water": rng.choice((150, 4000, 1 << 16)),
            "segment_size": rng.choice((2000, 8000, 1 << 16)),
            "tail_memory": rng.choice((1000, 1 << 20)),
            "checkpoint_bytes": rng.choice((3000, 1 << 20)),
            "spill_after": rng.choice((4, 1024)),
            "retain_bytes": KEPT,
        }
        self._working = self._waiting = False
        self._ticking: float | None = None
        self.up = False
        self.start()

    # ── its process ──

    def start(self) -> None:
        self.life += 1
        self.broker = Broker(
            seed=self.rng.getrandbits(32),
            clock=self.clock,
            wall=lambda: EPOCH + self.clock.now,
            disk=self.disk,
            **self._options,
        )
        self.broker.recover()
        self.disk.kill_after = None
        self._working = self._waiting = False
        self._ticking = None
        self.up = True
        self.say(f"the broker is up, life {self.life}")
        self.wake()

    def kill(self, *, power_loss: bool) -> None:
        if self.up:
            self.say("POWER LOSS" if power_loss else "KILL")
            self.up = False
            self.power_losses += power_loss
            silently = power_loss and self.rng.random() < 0.7
            wires, self.wires = self.wires, {}
            for wire in wires.values():
                wire.broker_dies(silently=silently)
            self.disk.crash(power_loss=power_loss)

    def stop(self) -> None:
        self.say("CLEAN STOP")
        self._do(self._stop)

    def _stop(self) -> None:
        """As the server does it when it is told to stop."""
        self.broker.histories.end_all()
        self._move()
        for wire in list(self.wires.values()):
            wire.broker_dies(silently=False)
            self.broker.disconnect(wire.client)
        self.wires.clear()
        self.disk.works_by_itself = True
        self.broker.close()
        self.up = False
        self.disk.crash(power_loss=False)

    def _do(self, call: Callable[[], object]) -> None:
        """What the broker does, unless it dies of it."""
        if not self.up:
            return
        try:
            call()
        except Killed:
            self.kill(power_loss=self.rng.random() < 0.3)
            return
        if self.broker.broken:
            raise Violation(f"the broker is broken: {self.broker.broken}")

    # ── its connections ──

    def accept(self) -> Wire:
        client = self.broker.connect(f"127.0.0.1:{len(self.wires)}")
        wire = self.wires[client] = Wire(self.clock, self.rng, client, self.life)
        self.all_wires.append(wire)
        broker = self.broker
        wire.to_broker = lambda data: self._feed(client, data)
        wire.broker_lost = lambda: self._disconnect(broker, client)
        wire.down.moved = self.wake
        return wire

    def _feed(self, client: Client, data: bytes) -> None:
        if client in self.wires:
            self._do(lambda: self.broker.feed(client, data))
            self.wake()

    def _disconnect(self, broker: Broker, client: Client) -> None:
        if broker is self.broker and client in self.wires:
            del self.wires[client]
            self._do(lambda: broker.disconnect(client))
            self.wake()

    def tell(self, *lines: str) -> None:
        """Requests of somebody else, who is near and waits for nothing."""
        self.say(f"tell {lines}")
        self._do(lambda: self._tell(lines))
        self.wake()

    def _tell(self, lines: tuple[str, ...]) -> None:
        client = self.broker.connect("127.0.0.1:0")
        for line in lines:
            self.broker.feed(client, line.encode() + b"\n")
        if b" error " in client.pending():
            raise Violation(f"refused: {lines} {client.pending()!r}")
        self.broker.disconnect(client)

    def ask(self, request: str, last: bytes) -> list[str]:
        """All that it answers, up to the line that begins so, while the disk works."""
        client = self.broker.connect("127.0.0.1:0")
        self.broker.feed(client, request.encode() + b"\n")
        said = b""
        while not said.endswith(b"\n") or not said.splitlines()[-1].startswith(last):
            self._work()
            self.disk.complete(urgent=True)
            self.disk.complete(urgent=False)
            self.broker.poll_disk()
            said += (piece := client.pending())
            self.broker.sent(client, len(piece))
        self.broker.disconnect(client)
        return said.decode().splitlines()

    # ── its work ──

    def wake(self) -> None:
        if not self._working:
            self._working = True
            self.clock.after(0.0002, self._awake(self.broker, self._work))

    def _awake(self, broker: Broker, call: Callable[[], None]) -> Callable[[], None]:
        """For the broker that asked for it."""

        def do() -> None:
            if broker is self.broker:
                self._do(call)

        return do

    def _work(self) -> None:
        self._working = False
        self._move()
        if any(self.disk.jobs.values()) and not self._waiting:
            self._waiting = True
            slow = 0.5 if self.clock.now < self.slow_until else SLOWEST_DISK
            self.clock.after(self.rng.uniform(0.0, slow), self._awake(self.broker, self._disk_works))
        when = self.broker.timers.next
        if when is not None and (self._ticking is None or when < self._ticking):
            self._ticking = when
            self.clock.after(max(0.0, when - self.clock.now), self._awake(self.broker, self._tick))

    def _move(self) -> None:
        """Turns, until nothing more can go out."""
        moved = True
        while moved:
            self.broker.turn()
            moved = False
            for client, wire in self.wires.items():
                size = min(client.pending_size, wire.down.room)
                if size > 0:
                    wire.down.send(client.pending()[:size])
                    self.broker.sent(client, size)
                    moved = True

    def _disk_works(self) -> None:
        self._waiting = False
        if not self.disk.complete(urgent=self.rng.random() < 0.7):
            self.disk.complete(urgent=True)
            self.disk.complete(urgent=False)
        self.broker.poll_disk()
        self._work()

    def _tick(self) -> None:
        self._ticking = None
        self.broker.tick()
        self._work()
