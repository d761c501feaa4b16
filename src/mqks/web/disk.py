"""The journal's figures: how safe messages are, how much there is, how long the disk will last. It only reads."""

from collections import deque
from typing import Any

from mqks.broker import Broker
from mqks.broker.queues.queue import Queue
from mqks.journal.journal import Journal
from mqks.journal.retention import bytes_to_retain
from mqks.journal.timing import Histogram
from mqks.web.words import named

LOOK_EVERY = 10.0  # seconds between looks at the journal's growth
MEMORY = 90  # looks
LEAST = 60.0  # seconds of growth, before something is said of days to come
DAY = 86_400.0
PINNED_EVERY = 10.0  # seconds; each time all queues are asked


class DiskFigures:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._growth: deque[tuple[float, int]] = deque(maxlen=MEMORY)
        self._pinned: tuple[float, str | None] | None = None
        self.space: tuple[int, int] | None = None  # free, in all

    def step(self, now: float) -> None:
        journal = self._broker.persistence.journal
        if journal is None:
            return
        self.space = journal.space()
        if not self._growth or now - self._growth[-1][0] >= LOOK_EVERY:
            self._growth.append((now, journal.segments.total))

    def days_left(self) -> float | None:
        """Until the disk is full, if the journal grows on as it has lately; None: not at all, or nobody knows yet."""
        journal = self._broker.persistence.journal
        if journal is None or self.space is None or len(self._growth) < 2:
            return None
        (began, least), (ended, most) = self._growth[0], self._growth[-1]
        if ended - began < LEAST or most <= least:
            return None
        free, total = self.space
        retained = bytes_to_retain(journal.options.retain_bytes, total)
        if retained - most <= free and (most < retained or not self._is_kept(journal)):  # old segments go in time
            return None
        return round(free / ((most - least) / (ended - began)) / DAY, 2)

    def _is_kept(self, journal: Journal) -> bool:
        """Does a queue or a hold need the oldest segment? The total is above its limit for a while each time until some
        go, which is no growth."""
        start = journal.segments.starts[0]
        end, wall = journal.segments.end_of(start), self._broker.wall()
        held = any(hold.position < end and hold.expires > wall for hold in journal.retention.holds.values())
        return held or self._broker.core.log.live_in(start, end) > 0

    def state(self, now: float) -> dict[str, Any]:
        """`now` by the broker's clock."""
        journal, core = self._broker.persistence.journal, self._broker.core
        wall = self._broker.wall()
        times = Histogram() if journal is None else journal.sync_times
        free, total = self.space or (None, None)
        return {
            "durability": "memory" if journal is None else journal.options.fsync,
            "earliest": 0 if journal is None else journal.segments.earliest,
            "written": core.log.end if journal is None else core.log.written,
            "synced": core.log.end if journal is None else core.persistence.synced,
            "segments": 0 if journal is None else len(journal.segments.starts),
            "bytes": 0 if journal is None else journal.segments.total,
            "syncs": 0 if journal is None else journal.syncs,
            "full": journal is not None and journal.full is not None,
            "last_sync": None if times.last is None else round(max(wall - times.last, 0.0), 3),
            "sync_p50": quantile(times, 0.5),
            "sync_p99": quantile(times, 0.99),
            "disk_free": free,
            "disk_total": total,
            "days_left": self.days_left(),
            "pinned_by": None if journal is None else self._pinned_by(journal, now),
            "holds": [] if journal is None else holds(journal, core.log.written, wall),
        }

    def _pinned_by(self, journal: Journal, now: float) -> str | None:
        """The queue with the oldest message, if that keeps the oldest segment."""
        if self._pinned is None or now - self._pinned[0] >= PINNED_EVERY:
            self._pinned = now, self._oldest(journal)
        return self._pinned[1]

    def _oldest(self, journal: Journal) -> str | None:
        starts = journal.segments.starts
        if len(starts) < 2:  # the one being written stays anyway
            return None
        held = (
            (position, queue)
            for queue in self._broker.queues.by_name.values()
            if (position := self.oldest(queue)) is not None
        )
        position, queue = min(held, key=lambda pair: pair[0], default=(starts[1], None))
        return named(queue.name) if queue is not None and position < starts[1] else None

    def oldest(self, queue: Queue) -> int | None:
        """The lowest position of what the queue holds, ready or unacked."""
        if not queue.ready_count and not queue.unsettled:
            return None
        return self._broker.core.snapshots.oldest(queue, True)


def holds(journal: Journal, written: int, wall: float) -> list[dict[str, Any]]:
    return [
        {
            "name": named(name),
            "position": hold.position,
            "behind": max(written - hold.position, 0),
            "seconds": round(hold.expires - wall, 3),
        }
        for name, hold in sorted(journal.retention.holds.items())
        if hold.expires > wall
    ]


def quantile(times: Histogram, share: float) -> float | None:
    """From the counts in the buckets, as if times were spread evenly in each; beyond the last, its bound."""
    if not times.count:
        return None
    wanted, below, lower = share * times.count, 0, 0.0
    for bound, count in zip(times.buckets, times.counts, strict=False):
        if count and below + count >= wanted:
            return round(lower + (bound - lower) * (wanted - below) / count, 6)
        below, lower = below + count, bound
    return times.buckets[-1]
