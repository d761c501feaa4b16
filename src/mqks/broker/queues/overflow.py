"""Limits of queues: which each of them has, what a full one says, and how it is told that messages are dropped.

A queue has the limits that its consumers or `rebind` gave it, else the broker's. The core keeps them
(core/bounding.pyx); here they are read, given to it, and enforced in steps where a queue is longer than they allow.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mqks.broker.auth.access import Rights, permit
from mqks.broker.errors import BadRequest, show
from mqks.broker.protocol.words import BYTES, DROP_OLDEST, LENGTH, OVERFLOW, Words
from mqks.journal.errors import JournalError
from mqks.logs import Entry

if TYPE_CHECKING:
    from mqks.broker.limits import Limits
    from mqks.broker.operations import Operations
    from mqks.broker.queues.queue import Queue

log = logging.getLogger(__name__)

AT_ONCE = 1 << 14  # messages that are dropped before others have their turn
PAUSE = 0.001  # seconds until it goes on
CALM = 10.0  # seconds without a drop, after which it is over
MOST_TOLD = 20  # queues that are named in the log, until all are calm; the others are counted
COSTLY = 100  # messages whose bytes are counted, after which others have their turn: each may have to be read from disk
MOST_MEASURED = 1 << 20  # messages whose bytes are counted while a request waits,
MOST_READ = 64 << 20  # and bytes that are read from disk for it


@dataclass(frozen=True)
class Bounds:
    """What a queue has of its own; 0 and none: what the broker has."""

    max_length: int = 0
    max_bytes: int = 0
    overflow: bytes = b""

    def changed(self, flags: Mapping[bytes, Any]) -> Bounds:
        """With what these flags say, of those that a request has."""
        if flags.keys().isdisjoint((LENGTH, BYTES, OVERFLOW)):
            return self  # most queues share one
        return Bounds(
            flags.get(LENGTH, self.max_length),
            flags.get(BYTES, self.max_bytes),
            flags.get(OVERFLOW, self.overflow),
        )

    def values(self) -> dict[bytes, bytes]:
        """Each flag and its value."""
        return {LENGTH: b"%d" % self.max_length, BYTES: b"%d" % self.max_bytes, OVERFLOW: self.overflow}

    def text(self) -> bytes:
        """As flags, each after a space."""
        return b"".join(b" %s=%s" % (flag, value) for flag, value in self.values().items() if value not in (b"0", b""))

    def differing(self, other: Bounds) -> set[bytes]:
        """The flags whose values are not the same."""
        if self == other:
            return set()
        return {flag for flag, _ in self.values().items() ^ other.values().items()}

    @classmethod
    def read(cls, flags: Mapping[bytes, bytes]) -> Bounds:
        """From such flags, among others."""
        return cls(int(flags.get(LENGTH, 0)), int(flags.get(BYTES, 0)), flags.get(OVERFLOW, b""))


NO_BOUNDS = Bounds()


def stated(words: Words) -> bool:
    """Does a request say something about limits?"""
    return not words.flags.keys().isdisjoint((LENGTH, BYTES, OVERFLOW))


def permit_bounds(rights: Rights, name: bytes, queue: Queue | None, words: Words) -> Bounds:
    """The limits that the queue has from now on. They hold for all who use it, and one that is full stops those who
    publish: to change them is to manage it, also when it is made by that. To state what holds already is free: who
    consumes says it again at each start."""
    had = NO_BOUNDS if queue is None else queue.bounds
    bounds = had.changed(words.flags)
    if bounds != had:
        permit(rights.may_manage(name), "manage", name)
    return bounds


def permit_unused(rights: Rights, queue: Queue | None, stated: bool, seconds: float | None) -> float | None:
    """When the queue goes, from now on: whoever makes it says so. To change that later is to manage it; a consumer that
    may not, and says nothing about it, leaves it as it is."""
    if queue is None or queue.unused_is_sticky or queue.unused == seconds or rights.may_manage(queue.name):
        return seconds
    permit(not stated, "manage", queue.name)
    return queue.unused


@dataclass
class Dropping:
    """A queue that drops messages: how many it had dropped before, and at the last look."""

    before: int
    seen: int
    told: bool


class Overflow:
    def __init__(self, broker: Operations, limits: Limits) -> None:
        self._broker = broker
        self._limits = limits
        self._dropping: dict[Queue, Dropping] = {}
        self._told = 0  # queues of those that the log has named
        self._untold = 0  # queues of which the log has no line, since all were calm

    def apply(self, queue: Queue, bounds: Bounds, *, at_any_cost: bool = False) -> None:
        """These limits hold from now on. BadRequest: nothing has changed. At a start that may take its time, and
        JournalError says that it cannot be."""
        core, limits = self._broker.core, self._limits
        max_length = bounds.max_length or limits.max_length
        max_bytes = bounds.max_bytes or limits.max_bytes
        drops_oldest = (bounds.overflow or limits.overflow.encode()) == DROP_OLDEST
        size = self._measure(queue, at_any_cost) if max_bytes and not queue.max_bytes else 0
        queue.bounds = bounds
        if (max_length, max_bytes, drops_oldest) != (queue.max_length, queue.max_bytes, queue.drops_oldest):
            core.limit(queue, max_length, max_bytes, drops_oldest, size)
            self._trim(queue)

    def _measure(self, queue: Queue, at_any_cost: bool) -> int:
        if queue.length > COSTLY and not at_any_cost:
            self._broker.core.rest()
        most = (sys.maxsize, sys.maxsize) if at_any_cost else (MOST_MEASURED, MOST_READ)
        measured = self._broker.core.measure(queue, *most)
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
        if not queue.gone and self._broker.core.trim(queue, AT_ONCE):
            self.trim_soon(queue)

    def trim_soon(self, queue: Queue) -> None:
        self._broker.timers.set(("trim", queue), PAUSE, lambda: self._go_on(queue))

    def _go_on(self, queue: Queue) -> None:
        self._trim(queue)
        self._broker.core.write_out()

    def forget(self, queue: Queue) -> None:
        """The queue goes."""
        self._broker.core.limit(queue, 0, 0, False, 0)
        self._broker.timers.cancel(("trim", queue))

    def refused(self, queue: Queue) -> BadRequest:
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
        if not self._broker.timers.is_set("dropping"):
            self._broker.timers.set("dropping", CALM, self._look)

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
            self._broker.timers.set("dropping", CALM, self._look)
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
