"""`--once`: an id that was published in its scope before, within the window, is dropped.

The core remembers ids (core/seen.pyx). Here they are forgotten when their time is over, by the clock on the wall, or by
how long the broker has had them, if that clock was ahead and was set back. And they are kept over a restart: those of
the messages after the newest checkpoint come from the journal, where their lines have the flag; the others come from
the checkpoint. Full parts of the memory never change: each is written once, to the index, and checkpoints name it.
"""

import logging
import struct
from collections.abc import Callable
from dataclasses import dataclass

from mqks.broker.errors import BadRequest
from mqks.broker.timers import Timers
from mqks.core.seen import Seen
from mqks.journal.errors import JournalError
from mqks.journal.index import Index
from mqks.logs import Entry

log = logging.getLogger(__name__)

AT_ONCE = 10_000  # ids that are forgotten in one go: some milliseconds
PAUSE = 0.1  # seconds between two of them
ENTRY = 32  # bytes of an id in the core's memory, and on disk
PART = struct.Struct("<QQ")  # its place in the index, or 0; words of 8 bytes, which then follow


@dataclass(frozen=True)
class Dedup:
    """How many ids are remembered, and how long."""

    key: bytes  # what ids are hashed with, unless a checkpoint has another
    window: float = 3600.0  # seconds
    count: int = 1_000_000
    part_bits: int = 11  # a part has 2 ** part_bits ids


class Once:
    def __init__(self, seen: Seen, timers: Timers, wall: Callable[[], float], dedup: Dedup) -> None:
        self._seen = seen
        self._timers = timers
        self._full = ENTRY // 8 << dedup.part_bits  # words of a full part
        self._turn = dedup.window + PAUSE  # seconds; what was there a turn ago is older than the window
        self._turned = 0  # the number that an id of the last turn would have had
        self._old = 0  # those with smaller numbers were there a turn ago
        seen.open(
            dedup.key,
            most=dedup.count,
            window=dedup.window,
            shift=dedup.part_bits,
            clock=wall,
            begun=self._begin,
        )

    def is_known(self, scope: bytes | None, id: bytes) -> bool:
        """Was it taken before? Without a scope nobody asks."""
        if scope is None:
            return False
        if not self._seen.most:
            raise BadRequest("--once is off: the broker runs with --dedup-count=0")
        known = self._seen.knows(scope, id)
        if known:
            self._seen.count_duplicate()
        return known

    def _begin(self) -> None:
        self._timers.set("once", self._turn, self._forget_old)
        self._timers.set("once turns", self._turn, self._turn_over)

    def _forget_old(self) -> None:
        left = self._seen.forget_old(AT_ONCE, self._old)
        if left is not None:
            self._timers.set("once", max(left, PAUSE), self._forget_old)

    def _turn_over(self) -> None:
        self._old, self._turned = self._turned, self._seen.next
        self._forget_old()
        if len(self._seen):
            self._timers.set("once turns", self._turn, self._turn_over)

    # ── over a restart ──

    def snapshot(self, spill: Callable[[bytes], int]) -> bytes:
        """All ids, for a checkpoint. What is full goes to the index first, if the disk has room."""
        parts = []
        for part, kept in enumerate(self._seen.kept()):
            place, entries = kept, b"" if kept else self._seen.entries(part)
            if not place and self._seen.is_full(part):
                place = spill(entries)
                self._seen.put(part, place)
            parts += [PART.pack(place, self._full if place else len(entries) // 8), b"" if place else entries]
        return b"".join(parts)

    def take_left(self) -> list[int]:
        """Places in the index that are needed no more."""
        return self._seen.take_left()

    def restore(self, key: bytes, snapshot: bytes, index: Index, salvage: bool) -> None:
        """What a checkpoint had; a salvage goes on without what cannot be read."""
        if key:
            self._seen.use_key(key)
        at = 0
        while at < len(snapshot):
            place, words = PART.unpack_from(snapshot, at)
            at += PART.size
            if place:
                self._adopt(place, words, index, salvage)
            else:
                self._seen.adopt(snapshot[at : at + 8 * words], 0)
                at += 8 * words
        self._forget_old()

    def _adopt(self, place: int, words: int, index: Index, salvage: bool) -> None:
        try:
            entries = index.read(place, words)
            index.adopt(place, words)
            self._seen.adopt(entries, place)
        except JournalError as error:
            if not salvage:
                raise
            log.warning(Entry("ids of --once are forgotten: {reason}", reason=error))
