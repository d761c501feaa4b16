"""Kills a real broker again and again while clients load it, and says what was lost, doubled, unexpected, out of order.

    python -m tests.crash.harness --kills=200 [--seed=N] [-- flags for mqksd]

The seed decides what clients do and when the broker dies; what the broker is doing at that moment is up to the machine,
so a seed repeats a run only nearly. In the end all queues are drained, and after one more kill they must be empty.
"""

import argparse
import contextlib
import random
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.crash.brokers import kill, start_broker
from tests.crash.clients import PATIENCE, Client
from tests.crash.consumers import Acker, Consumer, Pulse, UnconfirmedAcker
from tests.crash.ledger import KINDS, PULSES, Ledger
from tests.crash.publishers import Publisher, Rebinder, Sevx, Unconfirmed
from tests.running import Connection, RunningBroker

# queue → its events. Every queue takes `end`, whose messages mark where a drain is over.
QUEUES = {
    "auto": ("e1", "e2", "end"),
    "manual": ("e1", "e3", "end"),
    "unconfirmed": ("e2", "e3", "end"),
    "shared": ("e1", "end"),
    "resting": ("e3", "end"),  # its consumer is away most of the time, so it has a backlog
    "rebound": ("e4", "end"),
}
CONSUMERS: list[tuple[str, str, type[Consumer]]] = [
    ("c1", "auto", Consumer),
    ("c2", "manual", Acker),
    ("c3", "unconfirmed", UnconfirmedAcker),
    ("c4", "shared", Acker),
    ("c5", "shared", Acker),
    ("c6", "resting", Consumer),
    ("c7", "rebound", Consumer),
]
PUBLISHERS: list[tuple[str, type[Publisher], tuple[str, ...]]] = [
    ("p1", Publisher, ("e1", "e2", "e3")),
    ("p2", Publisher, ("e1", "e2", "e3")),
    ("p3", Unconfirmed, ("e1", "e2", "e3")),
    ("p4", Sevx, ("e1", "e2", "e3")),
    ("p5", Rebinder, ("e4",)),
    ("p6", Publisher, ("end",)),
]
RESTING = 0.3  # how often the resting queue has its consumer
WAYS = {"any moment": 4, "in a burst": 8, "while stopping": 2}  # how a life ends, and how often
AGAIN = 0.2  # how often a broker that starts again is killed in the middle of it


@dataclass
class Report:
    """What came out; `text` is for people."""

    ledger: Ledger
    seed: int
    kills: Counter[str]
    seconds: float
    drained: bool
    folder_bytes: int

    @property
    def clean(self) -> bool:
        return self.drained and not self.ledger.faults.count

    @property
    def text(self) -> str:
        ledger = self.ledger
        sent = sum(map(len, ledger.safe.values()))
        safe = sum(map(sum, ledger.safe.values()))
        kept, gone = ledger.in_doubt()
        ways = ", ".join(f"{way} {count}" for way, count in self.kills.items())
        rows = [
            ("kills", f"{self.kills.total():,} ({ways}) in {self.seconds:.0f} s, seed {self.seed}"),
            ("messages sent", f"{sent:,}, of which safe before a kill {safe:,}"),
            ("copies delivered", f"{ledger.delivered_count:,}, of which again, as allowed {ledger.again_count:,}"),
            ("acks", f"{ledger.acked_count:,}"),
            ("copies in doubt", f"{kept + gone:,}: kept {kept:,}, gone {gone:,}"),
            ("data folder", f"{self.folder_bytes / 2**20:,.0f} MiB"),
            *((kind, f"{ledger.faults.count[kind]:,}") for kind in KINDS),
        ]
        lines = [f"{name:>18}  {value}" for name, value in rows]
        if not self.drained:
            lines.append("The queues were not drained in time.")
        return "\n".join([*lines, *ledger.faults.examples])


class Harness:
    def __init__(self, folder: Path, seed: int, flags: tuple[str, ...]) -> None:
        self.folder, self.seed, self.flags = folder, seed, flags
        self.rng = random.Random(seed)
        self.ledger = Ledger()
        autos = {queue: kind is Consumer for _, queue, kind in CONSUMERS}
        takers = Counter(queue for _, queue, _ in CONSUMERS)
        for queue in QUEUES:
            self.ledger.declare(queue, auto=autos[queue], alone=takers[queue] == 1)
        self.publishers = [self._publisher(*row) for row in PUBLISHERS]
        self.end = self.publishers[-1]
        self.end.publishing = False
        by_name = {publisher.name: publisher for publisher in self.publishers}
        self.consumers = [kind(name, self.ledger, self.rng, queue, by_name) for name, queue, kind in CONSUMERS]
        self.pulse = Pulse(self.ledger, self.rng, self.consumers)
        self.clients: list[Client] = [*self.consumers, *self.publishers, self.pulse]
        self.kills: Counter[str] = Counter()
        self.asked = 0  # pings sent to each consumer, to know that nothing is left on its connection
        self.patience = PATIENCE
        self.broker: RunningBroker | None = None

    def _publisher(self, name: str, kind: type[Publisher], events: tuple[str, ...]) -> Publisher:
        queues_of = {
            event.encode(): tuple(queue for queue, bound in QUEUES.items() if event in bound) for event in events
        }
        return kind(name, self.ledger, self.rng, queues_of)

    # ---- The whole run

    def run(self, kills: int, say: bool = False) -> Report:
        started = time.monotonic()
        try:
            self.define_queues()
            tens = 1
            while self.kills.total() < kills:
                self.kill_once()
                if say and self.kills.total() >= 10 * tens:
                    tens += 1
                    print(self.progress(kills, time.monotonic() - started), flush=True)
            drained = self.drain_twice()
        finally:
            if self.broker:
                kill(self.broker)
            for client in self.clients:
                client.finish(killed=True)
        self.ledger.close()
        size = sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())
        return Report(self.ledger, self.seed, self.kills, time.monotonic() - started, drained, size)

    def progress(self, kills: int, seconds: float) -> str:
        ledger = self.ledger
        return (
            f"kills {self.kills.total():4}/{kills}  {seconds:5.0f} s  sent {sum(map(len, ledger.safe.values())):10,}  "
            f"delivered {ledger.delivered_count:10,}  again {ledger.again_count:8,}  "
            f"faults so far {ledger.faults.count.total()}"
        )

    def define_queues(self) -> None:
        """Once. From then on the broker has to remember them: nobody says the events again."""
        self.broker = start_broker(self.folder, *self.flags)
        with contextlib.closing(Connection(self.broker.port)) as connection:
            for queue, events in QUEUES.items():
                answer = connection.ask(f"r1 rebind --confirm {queue} {' '.join(events)}")
                assert answer == "r1 ok ", answer

    def kill_once(self) -> None:
        """Let it live and die; some die again before they have recovered."""
        way = self.rng.choices(list(WAYS), list(WAYS.values()))[0]
        self.live(way)
        while self.rng.random() < AGAIN:
            self.broker = start_broker(self.folder, *self.flags, wait=False)
            self.die("while starting", self.rng.uniform(0.0, 0.5))
        self.broker = start_broker(self.folder, *self.flags)

    def live(self, way: str) -> None:
        """One life under load, and its end."""
        assert self.broker
        self.open([c for c in self.clients if c.name != b"c6" or self.rng.random() < RESTING])
        seconds = self.rng.uniform(0.02, 0.6)
        if way == "any moment":
            killer = threading.Timer(seconds, self.broker.process.kill)
            killer.start()
            self.pump(lambda: False, PATIENCE)
            killer.join()
        else:
            self.pump(lambda: False, seconds)
        if way == "in a burst":
            for publisher in self.publishers[:-1]:
                publisher.burst(self.rng.randint(1, 2000))
                publisher.flush()
        if way == "while stopping":
            self.broker.process.terminate()
        self.die(way, self.rng.uniform(0.0, 0.05 if way == "while stopping" else 0.005))

    def die(self, way: str, seconds: float) -> None:
        """`kill -9`, unless it has ended by itself before; then all that it left in the sockets is read."""
        assert self.broker
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.broker.process.wait(seconds)
        code = kill(self.broker)
        if code == -signal.SIGKILL:
            self.kills[way] += 1
        elif way != "while stopping" or code != 0:
            raise AssertionError(f"mqksd ended by itself with {code}:\n{self.broker.log}")
        assert "Traceback" not in self.broker.log, self.broker.log
        for client in self.clients:
            client.finish(killed=code != 0)
        self.broker = None

    # ---- Load

    def open(self, clients: list[Client]) -> None:
        assert self.broker
        for client in clients:
            with contextlib.suppress(ConnectionError):
                client.open(self.broker.port)

    def pump(self, done: Callable[[], bool], seconds: float) -> bool:
        """Serve all clients until it is done (True), the time is over or the broker has died."""
        assert self.broker
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            open_clients = [client for client in self.clients if client.socket]
            for client in open_clients:
                assert client.socket
                selector.register(client.socket, selectors.EVENT_READ, client)
            while not done():
                if time.monotonic() > deadline:
                    return False
                for key, _ in selector.select(0.005):
                    if not key.data.receive():
                        return self._closed(key.data)
                for client in list(open_clients):
                    client.act()
                    client.flush()
                    if isinstance(client, Acker) and client.wants_to_leave() and not self._leave(client, selector):
                        open_clients.remove(client)
        return True

    def _closed(self, client: Client) -> bool:
        """Only a broker that dies closes connections; `finish` reads the rest of them."""
        assert self.broker
        try:
            code = self.broker.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the broker cut {client.name.decode()} off:\n{self.broker.log}") from None
        assert code == -signal.SIGKILL, f"mqksd ended by itself with {code}:\n{self.broker.log}"
        return False

    def _leave(self, client: Acker, selector: selectors.BaseSelector) -> bool:
        """It closes and comes back at once; False: the broker is dying, and does not let it in."""
        assert client.socket
        selector.unregister(client.socket)
        client.close(killed=False)
        self.open([client])
        if client.socket is None:
            return False
        selector.register(client.socket, selectors.EVENT_READ, client)
        return True

    # ---- The end

    def drain_twice(self) -> bool:
        """Empty all queues; then a last kill, after which nothing may come but a new mark."""
        for client in self.clients:
            if isinstance(client, Publisher):
                client.publishing = False
            if isinstance(client, Acker):
                client.draining = True
        for _ in range(2):
            self.open(self.clients)
            if not self.drain():
                return False
            self.die("drained", 0.0)
            self.broker = start_broker(self.folder, *self.flags)
        return True

    def drain(self) -> bool:
        """True when everything was answered, delivered and settled; a mark at the end of each queue tells."""
        ledger, end = self.ledger, self.end.name
        self.end.burst(1)
        if not self.until(lambda: not any(publisher.awaited for publisher in self.publishers)):
            return False
        mark = len(ledger.safe[end]) - 1
        if not self.until(lambda: all(queue.newest.get(end) == mark for queue in ledger.queues.values())):
            return False
        for _ in range(2):  # the second ping is taken in a later turn than the one that delivered the mark
            self.asked += 1
            for consumer in self.consumers:
                consumer.sync()
            if not self.until(lambda: all(consumer.syncs == self.asked for consumer in self.consumers)):
                return False
        pulses = ledger.pulses + PULSES
        return self.until(lambda: ledger.pulses > pulses and all(consumer.settled for consumer in self.consumers))

    def until(self, done: Callable[[], bool]) -> bool:
        """Pump until it is done; False when nothing was delivered for a while and it still is not."""
        before = -1
        while before != self.ledger.delivered_count:
            before = self.ledger.delivered_count
            if self.pump(done, self.patience):
                return True
        return False


@contextlib.contextmanager
def data_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mqks-crash-") as folder:
        yield Path(folder) / "data"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.harness", description="kill -9 under load.")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("flags", nargs="*", help="flags for mqksd, after --")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with data_folder() as folder:
        report = Harness(folder, options.seed, tuple(options.flags)).run(options.kills, say=True)
    print(report.text)
    return 0 if report.clean else 1


if __name__ == "__main__":
    sys.exit(main())
