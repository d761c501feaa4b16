"""What came and went in all, and of each event: counters that are read each second, and the rates between them."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from heapq import nsmallest
from typing import Any, NamedTuple, TypeVar

from mqks.broker import Broker
from mqks.web.sampling import WINDOW, Look, Spark

EVENTS_AT_ONCE = 2000  # that may be counted each second; with full memory no more of them are counted
LOOK_COST = 120  # bytes of memory for an event in a look, with its share of the rates; measured, and rounded up
MOST_SHOWN = 1000  # events, wherever

T = TypeVar("T")
N = TypeVar("N", int, float)


class Counter(NamedTuple):
    means: str
    read: Callable[[Broker], int]


COUNTERS = {
    "published": Counter("Messages taken.", lambda broker: broker.core.router.published),
    "delivered": Counter(
        "Deliveries, of which one message may have several.", lambda broker: broker.core.delivery.delivered
    ),
    "acked": Counter("Manual acks.", lambda broker: broker.core.acks.acked),
    "rejected": Counter("Rejects.", lambda broker: broker.core.acks.rejected),
    "dropped": Counter("Messages that full queues dropped.", lambda broker: broker.core.limits.dropped),
    "errors": Counter("Requests answered with an error.", lambda broker: broker.mistakes.errors),
    "duplicates": Counter(
        "Publishes with --once that were known and dropped.", lambda broker: broker.core.seen.duplicates
    ),
    "refused": Counter(
        "Clients turned away, such as when there were too many.", lambda broker: broker.connections.refused
    ),
    "auth_failures": Counter("Tokens that were refused.", lambda broker: broker.authentication.failures),
    "received_bytes": Counter("Bytes taken from clients.", lambda broker: broker.core.parser.bytes_in),
    "sent_bytes": Counter("Bytes given to clients.", lambda broker: broker.core.delivery.bytes_out),
}


class Totals:
    """The counters of the whole broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._looks: deque[tuple[float, dict[str, int]]] = deque()
        self._spark: Spark | None = None

    def step(self, now: float) -> None:
        counts = self.read()
        self._looks.append((now, counts))
        while len(self._looks) > 2 and self._looks[1][0] <= now - WINDOW:
            self._looks.popleft()
        look = Look(now, counts["published"], counts["delivered"])
        if self._spark is None:
            self._spark = Spark(look)
        self._spark.add(look)

    def read(self) -> dict[str, int]:
        """As they are now."""
        return {name: counter.read(self._broker) for name, counter in COUNTERS.items()}

    def rates(self) -> dict[str, float]:
        if len(self._looks) < 2:
            return dict.fromkeys(COUNTERS, 0.0)
        (began, first), (ended, last) = self._looks[0], self._looks[-1]
        return {name: round((last[name] - first[name]) / (ended - began), 1) for name in COUNTERS}

    def spark(self) -> dict[str, list[float]]:
        lists = self._spark.lists() if self._spark else {"in": [], "out": []}
        return {"in": lists["in"], "out": lists["out"]}


class Events:
    """Rates of the subscribed events. With very many of them counts are taken less often."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._looks: deque[tuple[float, dict[bytes, int]]] = deque()
        self._made: dict[str, Any] = {}  # of these looks, once asked for
        self._cost = 0  # bytes of memory that are charged for them

    def step(self, now: float) -> None:
        events = self._broker.core.events
        if self._looks and now - self._looks[-1][0] < len(events) / EVENTS_AT_ONCE:
            return
        self._made.clear()
        if self._broker.core.account.full and len(events) > EVENTS_AT_ONCE:
            self._looks.clear()
        else:
            self._looks.append((now, self._read()))
        while len(self._looks) > 2 and self._looks[1][0] <= now - WINDOW:
            self._looks.popleft()
        before, self._cost = self._cost, LOOK_COST * sum(1 + len(counts) for _, counts in self._looks)
        self._broker.core.account.charge(self._cost - before)

    def _read(self) -> dict[bytes, int]:
        """As they are now; without events that only the broker itself listens to."""
        events = self._broker.core.events
        counts = dict(events.counts())
        for event in self._broker.listeners:
            if not events.queues(event):
                counts.pop(event, None)
        return counts

    @property
    def counts(self) -> dict[bytes, int]:
        """As they were at the last look."""
        return self._looks[-1][1] if self._looks else {}

    def _once(self, what: str, make: Callable[[], T]) -> T:
        made: T = self._made[what] if what in self._made else self._made.setdefault(what, make())
        return made

    @property
    def rates(self) -> dict[bytes, float]:
        return self._once("rates", lambda: dict(self._differences()))

    @property
    def rate(self) -> float:
        """Of all of them."""
        return self._once("rate", lambda: sum(self.rates.values()))

    def _differences(self) -> Iterable[tuple[bytes, float]]:
        if len(self._looks) < 2:
            yield from dict.fromkeys(self.counts, 0.0).items()
            return
        (began, first), (ended, last) = self._looks[0], self._looks[-1]
        for event, count in last.items():
            before = first.get(event, 0)
            # One that went and came again began at 0.
            yield event, (count - before if count >= before else count) / (ended - began)

    def busiest(self, most: int) -> list[tuple[bytes, float]]:
        return self._once("busiest", lambda: _largest(self.rates))[:most]

    def most_counted(self) -> list[tuple[bytes, int]]:
        return self._once("counted", lambda: _largest(self.counts))


def _largest(of_events: Mapping[bytes, N]) -> list[tuple[bytes, N]]:
    return nsmallest(MOST_SHOWN, of_events.items(), key=lambda pair: (-pair[1], pair[0]))
