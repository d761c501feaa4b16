"""Which segments may go: those beyond the bytes or the age to retain, that nobody needs.

A segment is needed while a queue holds a message in it, while a named hold covers it, or while the next start would
read it. That no queue holds a message in it counts from when a checkpoint on disk says so: acks that the disk may
still lose come back with their messages. Only whole segments go, and never the one being written; one forgotten
message keeps one segment, and one more for each gap that a crash has left behind it (`Segments.before_gaps`).
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mqks.core.hub import Core
from mqks.journal.format import FIRST_LINE_ROOM, parse_segment_line, time_of
from mqks.journal.segments import Segments

HOLD_COST = 500  # bytes of memory, beside its name; measured, and rounded up


@dataclass
class Hold:
    position: int
    expires: float  # seconds since 1970


def bytes_to_retain(told: int, disk: int) -> int:
    """Of all segments, on a disk of so many bytes; 0: nobody has told."""
    return told or disk // 5


class Retention:
    def __init__(
        self, segments: Segments, most_bytes: int, most_age: float, wall: Callable[[], float] = time.time
    ) -> None:
        self._segments = segments
        self._most_bytes = most_bytes
        self._most_age = most_age
        self.wall = wall
        self.charge: Callable[[int], object] = lambda _: None
        self.holds: dict[bytes, Hold] = {}
        self.needed_from = 0  # the position from which on a start would read
        self.unheld: set[int] = set()  # starts of segments below it in which no queue holds a message
        self._begun: dict[int, float] = {}  # when the segment was begun, so that the one before ended

    def forget_expired(self) -> None:
        now = self.wall()
        for name in [name for name, hold in self.holds.items() if hold.expires <= now]:
            del self.holds[name]
            self.charge(-HOLD_COST - len(name))

    def held_from(self) -> int | None:
        """The lowest position that a hold covers."""
        self.forget_expired()
        return min((hold.position for hold in self.holds.values()), default=None)

    def keep(self, holds: Mapping[bytes, Hold]) -> None:
        """These are new, or replace those of the same name."""
        self.charge(sum(HOLD_COST + len(name) for name in holds if name not in self.holds))
        self.holds.update(holds)

    def unheld_below(self, core: Core, position: int) -> set[int]:
        """Starts of the segments that end here or before, in which no queue holds a message now."""
        ends = ((start, self._segments.end_of(start)) for start in self._segments.starts)
        return {start for start, end in ends if end <= position and core.log.live_in(start, end) == 0}

    def removable(self) -> list[int]:
        """Starts of the segments that may go now."""
        total = self._segments.total
        held = self.held_from()
        found = []
        for start, following in zip(self._segments.starts, self._segments.starts[1:], strict=False):
            end = self._segments.end_of(start)
            old = self.wall() - self._begun_at(following) > self._most_age
            if end >= self.needed_from or (held is not None and end > held) or not (old or total > self._most_bytes):
                break
            if start in self.unheld:
                found.append(start)
                total -= self._segments.sizes[start]
        return found

    def _begun_at(self, start: int) -> float:
        if start not in self._begun:
            line = parse_segment_line(self._segments.read(start, FIRST_LINE_ROOM, 0))
            self._begun[start] = time_of(line.dtid).timestamp() if line else self.wall()
        return self._begun[start]
