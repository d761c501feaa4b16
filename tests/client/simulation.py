"""Sessions against the broker, simulated: one seed is one run, always the same one.

    python -m tests.client.simulation 17 [--trace]                replays one
    python -m tests.client.simulation --seeds=0:100000 --jobs=2   runs many

Real sessions and a real broker meet over a fake network, a fake disk and a fake clock. For some seconds connections
stall, break and vanish, and the broker dies and comes back. Then all heals, and 5 seconds later every wanted consumer
must be alive; when all is quiet, the ledger must agree with the journal.
"""

import random
import sys
from collections.abc import Callable, Iterator

from mqks.broker import Broker
from mqks.client import session as session_module
from mqks.client import wanted as wanted_module
from tests.client import verdict
from tests.client.driver import SimDriver
from tests.client.network import Clock, Pipe, Wire
from tests.client.server import Server
from tests.client.users import Handler, Ledger, Publisher, QueuePlan, Reader, Sent
from tests.client.witness import Ear, Witness, listening
from tests.seeds import main
from tests.sim.links import Violation

QUEUES = (
    QueuePlan("auto", ("e1", "e2")),
    QueuePlan("manual", ("e1", "e3"), manual_ack=True),
    QueuePlan("few", ("e2",), manual_ack=True, prefetch=3),
    QueuePlan("shared", ("e2", "e3"), manual_ack=True),
    QueuePlan("stays", ("e1",), manual_ack=True, unused=300.0),
    QueuePlan("pattern", ("e1",), manual_ack=True, sevx=True),
    QueuePlan("brief", ("e3",), unused=0.5, safe=False),
    QueuePlan("deleted", ("e1",), manual_ack=True, safe=False),
)
SMALL = ("auto", "manual", "pattern")
EVENTS = ("e1", "e2", "e3")
EXTRA = ("x1", "x2")  # bound and unbound by somebody else
HEALING = 5.0
QUIET = 3.0  # seconds for what is left to come and be acked
PROBES = 12  # one for each dead consumer that may still be in the way, and more


def knows_once() -> bool:
    """Does this broker have `publish --once`?"""
    with listening(Ear()):
        broker = Broker(seed=1)
        client = broker.connect("127.0.0.1:0")
        broker.feed(client, b"m1 publish --confirm --once e1 d1\n")
    return b" error " not in client.pending()


ONCE = knows_once()


class Simulation:
    def __init__(
        self, seed: int, trace: Callable[[str], None] | None = None, cut: tuple[str, int] | None = None
    ) -> None:
        """`cut`: nothing happens but that the first connection breaks after so many bytes up or down."""
        self.rng = rng = random.Random(seed)
        self.trace = trace
        self.clock = Clock()
        self.cut, self.small, self.faulty = cut, cut is not None, cut is None
        self.uncut = False
        self.healed = False
        self.dark_until = 0.0
        self.ledger = Ledger()
        self.ear = Ear()
        self.server = Server(self.clock, rng, self.say)
        for plan in QUEUES:
            if plan.safe:
                self.server.ask(f"d rebind --confirm {plan.name} {' '.join(plan.events)}", b"d ok")
        drivers = 1 if self.small else rng.randint(1, 3)
        self.drivers = [SimDriver(f"s{n}", self.clock, rng, self, self.say) for n in range(drivers)]
        self.handlers = [Handler(rng.choice(self.drivers), rng, self.ledger, plan) for plan in self._wanted()]
        self.readers = [
            Reader(rng.choice(self.drivers), rng, self.ledger, start)
            for start in ("earliest", "latest")
            if rng.random() < 0.5
        ]
        events = (*EVENTS, *EXTRA)
        self.publishers = [Publisher(driver, rng, self.ledger, events, ONCE) for driver in self.drivers]
        self.probes = 0
        users = (*self.handlers, *self.readers)
        self.witnesses = {
            driver: Witness(driver, [user for user in users if user.driver is driver], self.ledger)
            for driver in self.drivers
        }

    def _wanted(self) -> Iterator[QueuePlan]:
        for plan in QUEUES:
            if not self.small or plan.name in SMALL:
                yield from [plan] * (2 if plan.name == "shared" else 1)

    def say(self, text: str) -> None:
        if self.trace is not None:
            self.trace(f"{self.clock.now:8.4f} {text}")

    # ── the network, as drivers see it ──

    @property
    def dark(self) -> bool:
        return self.clock.now < self.dark_until

    def reach(self) -> Wire | None:
        if not self.server.up:
            return None
        wire = self.server.accept()
        if self.cut is not None:
            (wire.up if self.cut[0] == "up" else wire.down).cut = self.cut[1]
            self.cut = None
        elif self.faulty and self.rng.random() < 0.05:
            wire.up.hole = wire.down.hole = True
        return wire

    def left(self, wire: Wire) -> None:
        if self.healed:
            wire.heal()

    # ── faults ──

    def fault(self) -> None:
        faults: tuple[tuple[float, Callable[[], None]], ...] = (
            (6, self.cut_soon),
            (4, self.stall),
            (4, self.make_hole),
            (2, self.reset),
            (1, self.black_out),
            (4, self.die),
            (1, self.slow_disk),
        )
        self.rng.choices([fault for _, fault in faults], [weight for weight, _ in faults])[0]()

    def _wires(self) -> list[Wire]:
        """One, if there is any."""
        wires = [driver.wire for driver in self.drivers if driver.wire is not None]
        return [self.rng.choice(wires)] if wires else []

    def _pipes(self) -> list[Pipe]:
        """Of a connection: one direction, or both."""
        return [
            pipe for wire in self._wires() for pipe in self.rng.choice(([wire.up], [wire.down], [wire.up, wire.down]))
        ]

    def cut_soon(self) -> None:
        for pipe in self._pipes()[:1]:
            pipe.cut = self.rng.randint(1, self.rng.choice((10, 100, 1000)))
            self.say(f"fault: a cut after {pipe.cut} bytes")

    def stall(self) -> None:
        until = self.clock.now + self.rng.choice((0.2, 1.0, 3.0, 6.0))
        for pipe in self._pipes():
            pipe.stalled = until
            self.say(f"fault: a stall until {until}")

    def make_hole(self) -> None:
        for wire in self._wires():
            self.say("fault: a hole")
            wire.make_hole(self.rng.choice((wire.up, wire.down)))

    def reset(self) -> None:
        for wire in self._wires():
            self.say("fault: a reset")
            wire.reset()

    def black_out(self) -> None:
        self.dark_until = self.clock.now + self.rng.choice((0.5, 1.5, 4.0))
        self.say(f"fault: dark until {self.dark_until}")
        for wire in self.server.wires.values():
            wire.up.stalled = wire.down.stalled = self.dark_until

    def slow_disk(self) -> None:
        self.server.slow_until = self.clock.now + 3.0

    def die(self) -> None:
        way = self.rng.choice(("kill", "power", "inside", "stop"))
        if not self.server.up:
            return
        if way == "inside":
            self.server.disk.kill_after = self.rng.randrange(20)
        elif way == "stop":
            self.server.stop()
        else:
            self.server.kill(power_loss=way == "power")
        self.clock.after(self.rng.choice((0.0, 0.3, 1.0, 3.0)), self.come_back)

    def come_back(self) -> None:
        if not self.server.up:
            self.server.start()

    # ── somebody else ──

    def meddle(self) -> None:
        """Queues are bound to more and to less, and one is deleted."""
        queue, event = self.rng.choice([plan for plan in QUEUES if not plan.sevx]).name, self.rng.choice(EXTRA)
        request = self.rng.choice((f"rebind {queue} --add {event}", f"rebind {queue} --remove {event}"))
        self.server.tell("x1 delete_queue deleted" if self.rng.random() < 0.2 else f"x1 {request}")

    # ── a run ──

    def run(self) -> None:
        kept = wanted_module.PAGE, session_module.MOST_WAITING
        wanted_module.PAGE, session_module.MOST_WAITING = self.rng.choice(((3, 500), (20, 5000), (1000, 1 << 22)))
        try:
            with listening(self.ear):
                self._run()
        finally:
            wanted_module.PAGE, session_module.MOST_WAITING = kept

    def _run(self) -> None:
        for _ in range(3 if self.small else self.rng.randint(5, 25)):
            self.rng.choice(self.publishers).act()
            if self.faulty and self.rng.random() < 0.4:
                self.fault()
            if self.faulty and self.rng.random() < 0.2:
                self.meddle()
            self.clock.run(self.rng.choice((0.0, 0.01, 0.1, 0.3, 1.0)) if self.faulty else 0.15)
        self.heal()
        self.clock.run(HEALING)
        verdict.alive(self)
        for handler in self.handlers:
            handler.drain()
        self.probe()
        self.settle()
        verdict.agrees(self)

    def heal(self) -> None:
        self.say("HEAL")
        self.healed, self.faulty = True, False
        self.dark_until = self.server.slow_until = 0.0
        self.server.disk.kill_after = None
        self.come_back()
        self.uncut = any(pipe.cut is not None for wire in self.server.all_wires for pipe in (wire.up, wire.down))
        for wire in self.server.all_wires:
            wire.heal()

    def probe(self) -> None:
        """Each handler is given something, unless another of its queue is. Dead consumers that the broker does not
        know to be dead swallow some."""
        names = {handler.name for handler in self.handlers}
        for _ in range(PROBES):
            if not names:
                return
            before = {name: len(self.ledger.came.get(name, [])) for name in names}
            for plan in QUEUES:
                if plan.name in names:
                    self._probe(plan)
            self.clock.run(1.0)
            names = {name for name in names if len(self.ledger.came.get(name, [])) == before[name]}
        raise Violation(f"alive, and deaf: {names}")

    def _probe(self, plan: QueuePlan) -> None:
        self.probes += 1
        id, event = f"probe{self.probes}", plan.events[0] if plan.sevx else f"probe.{plan.name}"
        self.ledger.sent[id] = Sent(id, "probe", self.probes, event, id, id)
        binding = [] if plan.sevx else [f"x1 rebind {plan.name} --add {event}"]
        self.server.tell(*binding, f"{id} publish {event} {id}")

    def settle(self) -> None:
        """The broker finds out who is dead, everybody acks what comes, and all comes to rest."""
        self.say("SETTLE")
        for wire in list(self.server.wires.values()):
            if wire.is_zombie:
                wire.end_broker()
        for _ in range(20):
            before = self.ledger.now
            self.clock.run(QUIET)
            if self.ledger.now == before:
                return
        raise Violation("it does not come to rest")


if __name__ == "__main__":
    sys.exit(main(Simulation, "python -m tests.client.simulation", __doc__))
