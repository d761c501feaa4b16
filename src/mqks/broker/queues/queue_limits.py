"""Limits of queues: which each of them has, what a full one says, and how it is told that messages are dropped.

A queue has the limits that its consumers or `rebind` gave it, else the broker's. The core keeps them
(core/bounding.pyx); here they are given to it, and enforced in steps where a queue is longer than they allow.
"""

import logging
import sys
from dataclasses import dataclass

from mqks.broker.errors import BadRequest, show
from mqks.broker.limits import Limits
from mqks.broker.protocol.words import DROP_OLDEST
from mqks.broker.queues.queue import Bounds, Queue
from mqks.broker.timers import Timers
from mqks.core.hub import Core
from mqks.core.parts import Queue as CoreQueue
from mqks.journal.errors import JournalError
from mqks.logs import Entry

log = logging.getLogger(__name__)

AT_ONCE = 1 << 14  # messages that are dropped before others have their turn
PAUSE = 0.001  # seconds until it goes on
CALM = 10.0  # seconds without a drop, after which it is over
MOST_TOLD = 20  # queues that are named in the log, until all are calm; the others are counted
COSTLY = 100  # messages whose bytes are counted, after which others have their turn: each may have to be read from disk
MOST_MEASURED = 1 << 20  # messages whose bytes are counted while a request waits,
MOST_READ = 64 << 20  # and bytes that are read from disk for it


@dataclass
class Dropping:
    """A queue that drops messages: how many it had dropped before, and at the last look."""

    before: int
    seen: int
    told: bool


class QueueLimits:
    def __init__(self, core: Core, timers: Timers, limits: Limits) -> None:
        self._core = core
        self._timers = timers
        self._limits = limits
        self._dropping: dict[Queue, Dropping] = {}
        self._told = 0  # queues of those that the log has named
        self._untold = 0  # queues of which the log has no line, since all were calm

    def change(self, queue: Queue, bounds: Bounds) -> set[bytes]:
        """Set its limits; answers the flags whose values changed. BadRequest: nothing has changed."""
        changed = queue.bounds.differing(bounds)
        self.apply(queue, bounds)
        return changed

    def apply(self, queue: Queue, bounds: Bounds, *, at_any_cost: bool = False) -> None:
        """These limits hold from now on. BadRequest: nothing has changed. At a start that may take its time, and
        JournalError says that it cannot be."""
        limits = self._limits
        max_length = bounds.max_length or limits.max_length
        max_bytes = bounds.max_bytes or limits.max_bytes
        drops_oldest = (bounds.overflow or limits.overflow.encode()) == DROP_OLDEST
        size = self._measure(queue, at_any_cost) if max_bytes and not queue.max_bytes else 0
        queue.bounds = bounds
        if (max_length, max_bytes, drops_oldest) != (queue.max_length, queue.max_bytes, queue.drops_oldest):
            self._core.limits.limit(queue, max_length, max_bytes, drops_oldest, size)
            self._trim(queue)

    def _measure(self, queue: Queue, at_any_cost: bool) -> int:
        if queue.length > COSTLY and not at_any_cost:
            self._core.parser.rest()
        most = (sys.maxsize, sys.maxsize) if at_any_cost else (MOST_MEASURED, MOST_READ)
        measured = self._core.limits.measure(queue, *most)
        if measured is None and at_any_cost:
            raise JournalError(f"the bytes of queue {show(queue.name)} cannot be counted: a part of it cannot be read")
        if measured is None:
            raise BadRequest(
                "the queue is too long to count its bytes now: limit its --max-length, or consume or purge some of it "
                "first",
                show(queue.name),
            )
        return measured

    def _trim(self, queue: Queue) -> None:
        """Drop what is too much, some of it at a time."""
        if not queue.gone and self._core.limits.trim(queue, AT_ONCE):
            self.trim_soon(queue)

    def trim_soon(self, queue: Queue) -> None:
        self._timers.set(("trim", queue), PAUSE, lambda: self._go_on(queue))

    def _go_on(self, queue: Queue) -> None:
        self._trim(queue)
        self._core.persistence.write_out()

    def forget(self, queue: Queue) -> None:
        """The queue goes."""
        self._core.limits.limit(queue, 0, 0, False, 0)
        self._timers.cancel(("trim", queue))

    def check_taken(self, full: CoreQueue | None) -> None:
        """The core has taken a message, or has found a queue that has no place for it."""
        if full is not None:
            assert isinstance(full, Queue)
            raise self._refused(full)

    def _refused(self, queue: Queue) -> BadRequest:
        """What to say to whoever would put something into this queue, which is full."""
        alone = "" if queue.length else ", which is empty: the line alone is larger"
        return self._limits.reached("max_length" if _is_long(queue) else "max_bytes", show(queue.name) + alone)

    # ── what is dropped ──

    def began(self, queue: Queue) -> None:
        """Messages of this queue are dropped, for the first time since it was calm."""
        self._limits.reached("max_length" if _is_long(queue) else "max_bytes", show(queue.name))
        told = self._told < MOST_TOLD
        self._dropping[queue] = Dropping(queue.dropped, queue.dropped, told)
        self._told += told
        self._untold += not told
        if told:
            said = "queue {queue!a} is full: its oldest messages are dropped"
            log.warning(Entry(said, queue=queue.name))
        if not self._timers.is_set("dropping"):
            self._timers.set("dropping", CALM, self._look)

    def _look(self) -> None:
        """Which of them dropped nothing lately? What they dropped before is told."""
        for queue, one in list(self._dropping.items()):
            if queue.dropped == one.seen or queue.gone:
                del self._dropping[queue]
                queue.overflows = False
                self._told -= one.told
                if one.told:
                    _say_over(queue, one)
            one.seen = queue.dropped
        if self._dropping:
            self._timers.set("dropping", CALM, self._look)
        elif self._untold:
            said = "queues beside these that were full, and dropped messages: {queues}"
            log.warning(Entry(said, queues=self._untold))
            self._untold = 0

    def tell_rest(self) -> None:
        """The broker stops: what was not told yet."""
        for queue, one in self._dropping.items():
            _say_over(queue, one)


def _is_long(queue: Queue) -> bool:
    return 0 < queue.max_length <= queue.length


def _say_over(queue: Queue, one: Dropping) -> None:
    said = "messages of queue {queue!a} that were dropped while it was full: {messages}"
    log.warning(Entry(said, queue=queue.name, messages=queue.dropped - one.before))
