"""Random requests of many kinds against one broker.

Queues and their events are fixed, so that a checker knows where a message belongs. A consumer id begins with the queue
and how it acks: `work/manual/3`. Message ids are never used twice, but by `--once`.
"""

import random
from typing import Self

from verification.process import Gone, Line

LENGTH = 25  # of the queues with a limit
QUEUES: dict[str, tuple[str, ...]] = {
    "work": ("job",),
    "copy": ("job", "note"),
    "newest": ("sample",),
    "bounded": ("order",),
    "json": ("json",),
    "idle": ("job", "order", "once"),
    "once": ("once",),
}
FLAGS = {
    "newest": f" --max-length={LENGTH} --overflow=drop-oldest",
    "bounded": f" --max-length={LENGTH} --overflow=reject",
}
EVENTS = ("job", "note", "sample", "order")
PINGS = 20_000  # more than the broker answers in many turns


def queues_of(event: str) -> list[str]:
    return [name for name, events in QUEUES.items() if event in events]


def set_up(line: Line) -> None:
    """Bind all queues. The last request is `setup`, and all are confirmed when it is."""
    requests = [f"rebind --confirm {name} {' '.join(events)}{FLAGS.get(name, '')}" for name, events in QUEUES.items()]
    line.send(*(f"bind.{at} {request}" for at, request in enumerate(requests[:-1])), f"setup {requests[-1]}")
    for _ in line.until(lambda reply: reply.startswith("setup ")):
        pass


class Workload:
    """Each step does something random. All ids carry a prefix, which another life of the broker must not repeat."""

    def __init__(self, port: int, prefix: str, seed: int) -> None:
        self._port = port
        self._rng = random.Random(seed)
        self._prefix = prefix
        self._count = 0
        self._lines: list[Line] = []
        self._publishers = [self._connect() for _ in range(3)]
        self.control = self._connect()
        self._consumers: dict[str, Line] = {}
        self._ids: dict[str, str] = {}  # of consumers, by queue
        self._once: list[str] = []
        self._steps = (
            (6.0, self._publish),
            (2, self._publish_once),
            (1, self._send),
            (5, self._consume),
            (1, self._leave),
            (0.5, self._replace),
            (1, self._bind),
            (1, self._pause),
            (1, self._read_history),
            (1, self._hold),
            (1, self._delete),
        )

    def run(self, steps: int) -> None:
        """The broker may go away at any time: that ends it."""
        weights = [weight for weight, _ in self._steps]
        actions = [action for _, action in self._steps]
        try:
            for _ in range(steps):
                self._rng.choices(actions, weights)[0]()
                for line in (*self._publishers, self.control):
                    line.take()
        except (Gone, ConnectionError):
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for line in self._lines:
            line.close()

    def _connect(self) -> Line:
        self._lines.append(line := Line(self._port))
        return line

    def _id(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._prefix}.{self._count}"

    def _data(self) -> str:
        size = self._rng.choice((0, 10, 100, 100, 1000, 5000, self._rng.choice((1000, 70000))))
        return "x" * size

    def _confirm(self) -> str:
        return self._rng.choice(("--confirm ", "--confirm ", ""))

    def _publish(self) -> None:
        line = self._rng.choice(self._publishers)
        event = self._rng.choice(EVENTS)
        lines = [
            f"{self._id('m')} publish {self._confirm()}{event} {self._data()}" for _ in range(self._rng.randint(1, 12))
        ]
        line.send(*lines)
        if self._rng.random() < 0.3:
            line.take(0.02)  # so that what follows belongs to another sync

    def _publish_once(self) -> None:
        if not self._once or self._rng.random() < 0.6:
            self._once.append(self._id("o"))
        message = self._rng.choice(self._once[-10:])
        self._rng.choice(self._publishers).send(f"{message} publish {self._confirm()}--once once {message}")

    def _send(self) -> None:
        message = self._id("s")
        self._rng.choice(self._publishers).send(f'{message} send {{"event": "json", "id": "{message}"}}')

    def _consume(self) -> None:
        queue = self._rng.choice(("work", "work", "copy", "bounded", "json"))
        kind = "auto" if queue == "copy" else "manual"
        if queue not in self._consumers:
            self._join(queue, "" if kind == "auto" else f" --manual-ack --prefetch={self._rng.randint(1, 30)}")
        line = self._consumers[queue]
        for delivery in line.take(0.005):
            consumer, result, rest = delivery.split(" ", 2)
            message = rest.split(" ")[0]
            if kind == "auto" or consumer != self._ids[queue] or result == "error" or not rest or message == "--update":
                continue
            chance = self._rng.random()
            if chance < 0.75:
                line.send(f"{self._id('a')} ack {self._confirm()}{consumer} {message}")
            elif chance < 0.85:
                line.send(f"{self._id('r')} reject {self._confirm()}{consumer} {message}")

    def _join(self, queue: str, flags: str) -> None:
        line = self._consumers[queue] = self._connect()
        self._ids[queue] = f"{queue}/{'manual' if flags else 'auto'}/{self._id('')}"
        line.send(f"{self._ids[queue]} consume {queue}{flags}")

    def _replace(self) -> None:
        """A consumer says much and closes, and another takes its place before the broker has read all of that."""
        if "work" not in self._consumers:
            self._join("work", " --manual-ack")
        self._consumers["work"].send(*["hurry ping"] * PINGS)
        self._consumers.pop("work").close()
        self._join("work", " --manual-ack")
        for _ in range(5):
            self._publishers[0].send(*(f"{self._id('m')} publish job {at}" for at in range(20)))
            self._consumers["work"].take(0.005)

    def _leave(self) -> None:
        if self._consumers:
            self._consumers.pop(self._rng.choice(sorted(self._consumers))).close()

    def _bind(self) -> None:
        version = self._count = self._count + 1
        number = int(self._prefix) * 1_000_000 + version
        self.control.send(f"{self._id('b')} rebind {self._confirm()}bound version.{number}")

    def _pause(self) -> None:
        """A consumer stops for a while. It goes on when it is paused again, or leaves."""
        if self._consumers:
            queue = self._rng.choice(sorted(self._consumers))
            action = self._rng.choice(("pause", "resume", "resume"))
            self._consumers[queue].send(f"{self._id('p')} {action} {self._ids[queue]}")

    def _read_history(self) -> None:
        self.control.send(f"{self._id('history')} history earliest --limit={self._rng.randint(1, 50)}")

    def _hold(self) -> None:
        self.control.send(f"{self._id('k')} hold archive latest --for={self._rng.choice((0, 5, 60))}")

    def _delete(self) -> None:
        name = self._rng.choice(("passing.1", "passing.2"))
        self.control.send(
            self._rng.choice((f"{self._id('d')} delete_queue {name}", f"{self._id('d')} rebind {name} job note"))
        )
