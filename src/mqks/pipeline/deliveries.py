"""What queues delivered, minute by minute: differences of the counters that the broker's `stats` has.

The journal knows what was published, not what became of it; only the broker does. So a thread asks it every few
seconds and publishes what changed. The last word on a minute is said once, and is in the journal then: from there it
reaches the lake as all else does.

A queue that gets the pipeline's own events is left out: telling its figures would change them, without end.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from mqks.pipeline.contact import Contact
from mqks.pipeline.place import OWN, STATS_EVENT, TICK_EVENT

if TYPE_CHECKING:
    from mqks.client.blocking import Client
    from mqks.client.errors import Refused

log = logging.getLogger(__name__)

COUNTERS = {"published": "count", "delivered": "delivered", "acked": "acked", "rejected": "rejected"}
LEVELS = ("ready", "unacked", "consumers")
MOST_NAMES = 1000  # of each kind that the broker is told for a minute; those with the largest figures
LONGEST_NAME = 1000  # bytes; the broker is not told of longer ones, since such a line may be longer than it takes
SCOPE = "mqks.stats"
MINUTE = timedelta(minutes=1)
EVERY = 5.0  # seconds; a divisor of 60, so that a look falls on the end of each minute

Row = dict[str, Any]


@dataclass
class _Minute:
    counted: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS.values(), 0))
    levels: dict[str, int] = field(default_factory=dict)


class Deliveries:
    """Takes what `stats` said and when, tells the rows that are news. No I/O."""

    def __init__(self) -> None:
        self._at: datetime | None = None
        self._last: dict[str, Mapping[str, Any]] = {}
        self._minute: dict[str, _Minute] = {}  # queues that did something in the minute of `_at`

    def take(self, stats: Mapping[str, Any], at: datetime) -> list[Row]:
        queues = {name: queue for name, queue in stats["queues"].items() if not gets_own(queue)}
        rows: list[Row] = []
        if self._at is not None:
            if stats["uptime"] < (at - self._at).total_seconds():
                self._last = {}  # the broker was started after we asked: its counters began at 0
            minute, seconds = begin_of(self._at), (at - begin_of(self._at)).total_seconds()
            over = begin_of(at) > minute
            moved = {name for name, queue in queues.items() if self._add(name, queue)}
            told = self._minute.items() if over else ((name, self._minute[name]) for name in sorted(moved))
            rows = [_row(minute, name, figures, over, min(seconds, 60)) for name, figures in told]
            if over:
                self._minute = {}
        self._at, self._last = at, queues
        return largest(rows)

    def _add(self, name: str, queue: Mapping[str, Any]) -> bool:
        """Add what happened since the last time; did anything?"""
        last = self._last.get(name, {})
        more = {told: _difference(queue[counter], last.get(counter, 0)) for counter, told in COUNTERS.items()}
        levels = {level: queue[level] for level in LEVELS}
        if not any(more.values()) and levels == {level: last.get(level, 0) for level in LEVELS}:
            return False
        minute = self._minute.setdefault(name, _Minute())
        minute.levels = levels
        for told, difference in more.items():
            minute.counted[told] += difference
        return True


def _difference(now: int, before: int) -> int:
    """A counter that went back began anew, since the queue was deleted and made again."""
    return now - before if now >= before else now


def _row(minute: datetime, name: str, figures: _Minute, final: bool, seconds: float) -> Row:
    return {
        "minute": minute.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "kind": "queue",
        "name": name,
        **figures.counted,
        **figures.levels,
        "rate": round(figures.counted["delivered"] / max(seconds, 1), 3),
        "final": final,
    }


def begin_of(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


def largest(rows: list[Row]) -> list[Row]:
    rows = [row for row in rows if len(row["name"].encode()) <= LONGEST_NAME]
    return sorted(rows, key=lambda row: -row["count"] - row["delivered"])[:MOST_NAMES]


def gets_own(queue: Mapping[str, Any]) -> bool:
    """Does it get what the pipeline says: by name, or by a pattern that matches it or might?"""
    pattern = queue["pattern"]
    by_pattern = pattern is not None and pattern.keys() <= {"event", "data"} and pattern.get("event", OWN[0]) in OWN
    return by_pattern or any(event in OWN for event in queue["events"])


def message(row: Row) -> tuple[str, str, str]:
    """An update may come twice, which says nothing new; the last word has an id of its own."""
    digest = hashlib.sha256(row["name"].encode()).hexdigest()[:16]
    return STATS_EVENT, json.dumps(row, ensure_ascii=False), f"{row['minute']}-{row['kind']}-{digest}"


def publish(client: Client, rows: Iterable[Row]) -> None:
    messages: dict[bool, list[tuple[str, str, str]]] = {True: [], False: []}
    for row in rows:
        messages[row["final"]].append(message(row))
    client.publish_many(messages[False], on_refused=refused)
    client.publish_many(messages[True], once=SCOPE, on_refused=refused)


def refused(error: Refused) -> None:
    """It would be refused each time."""
    log.warning("the broker does not take a row of the stats: %s", error)


class Tick:
    """When to publish an event that does no more than move the time on: minutes end by the events that come after them.

    One is due when the minute in which something happened is over, and late data too; then it is quiet.
    """

    def __init__(self, late: timedelta) -> None:
        self._late = late
        self._happened: datetime | None = None

    def happened(self, at: datetime) -> None:
        self._happened = at

    def due(self, now: datetime) -> bool:
        """Answers yes once."""
        if self._happened is None or now <= begin_of(self._happened) + MINUTE + self._late:
            return False
        self._happened = None
        return True


class Asking:
    """The thread. While the broker is away it goes on trying; what could not be told is told later."""

    def __init__(self, url: str, tick: Tick, every: float = EVERY) -> None:
        self._url = url
        self._tick = tick
        self._every = every
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stats of queues", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        contact = Contact(self._url)
        deliveries = Deliveries()
        untold: list[Row] = []

        def ask(client: Client) -> None:
            now = datetime.now(UTC)
            untold.extend(deliveries.take(client.stats(), now))
            if untold:
                publish(client, newest(untold))
                self._tick.happened(now)  # the last word on a queue's minute comes in the next one
            untold.clear()
            if self._tick.due(now):
                client.publish(TICK_EVENT, confirm=True)

        for seconds in self._waits():
            if self._stopping.wait(seconds):
                break
            contact.attempt("the figures of the queues", ask)
        contact.close()

    def _waits(self) -> Iterator[float]:
        """To the next time that `every` divides, on the clock that minutes are told by."""
        yield 0
        while True:
            now = datetime.now(UTC)
            since = now - begin_of(now)
            yield self._every - since.total_seconds() % self._every + 0.001


def newest(rows: Sequence[Row]) -> list[Row]:
    """Of each minute and queue only what was said last."""
    return list({(row["minute"], row["name"]): row for row in rows}.values())
