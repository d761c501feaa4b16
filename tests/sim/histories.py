"""`history` and `hold` as the oracle sees them: what a history must show next, when it may fail, and what is held.

The journal's files, with those that were removed, tell the place of every message. A history shows all of them from its
start on, in order, up to what was on disk when it was asked for; it fails only where retention has removed a message.
"""

from bisect import bisect_left
from dataclasses import dataclass, field

from mqks.journal.format import position_of
from tests.sim.disk import FakeDisk
from tests.sim.links import Violation
from tests.sim.truth import Message

Messages = dict[bytes, Message]  # by id

MESSAGES = (b"publish", b"send")


@dataclass
class Places:
    """Every message of the journal: where it stands, its id and event, and whether its segment is there."""

    positions: list[int] = field(default_factory=list)
    ids: list[bytes] = field(default_factory=list)
    present: list[bool] = field(default_factory=list)
    earliest: int = 0  # where the first segment begins that is there
    removed: list[range] = field(default_factory=list)  # positions of removed segments that had messages

    @classmethod
    def of(cls, disk: FakeDisk) -> "Places":
        there = disk.files("journal")
        found = cls(earliest=min((position_of(name) or 0 for name in there), default=0))
        for name, content in disk.written("journal").items():
            at = start = position_of(name) or 0
            count = len(found.ids)
            for line in content.split(b"\n"):
                words = line.split(b" ", 2)
                if words[1:2] and words[1] in MESSAGES:
                    found.positions.append(at)
                    found.ids.append(words[0])
                    found.present.append(name in there)
                at += len(line) + 1
            if name not in there and len(found.ids) > count:
                found.removed.append(range(start, start + len(content)))
        return found

    def from_(self, position: int) -> range:
        """Numbers of the messages at this position and beyond."""
        return range(bisect_left(self.positions, position), len(self.positions))


@dataclass(eq=False)
class Reader:
    """A history that has not ended."""

    id: bytes
    next: int | None  # messages below this are not shown any more; None: nobody knows yet
    least_end: int  # what stands below this was on disk when it was asked for
    stop: int | None  # it ends before this position
    limit: int | None  # messages that are left to show
    events: frozenset[bytes]  # empty: all
    follow: bool
    named: bool  # it began at a position that the client named
    last: int = -1

    def shows(self, places: Places, messages: Messages, position: int, id: bytes) -> None:
        """It shows a message: is that the next one?"""
        if position <= self.last or self.limit == 0 or (self.stop is not None and position >= self.stop):
            raise Violation(f"history {self.id!r} shows {id!r} at {position} after its end, or twice")
        if self.next is not None and (skipped := self._left(places, messages, position)):
            raise Violation(f"history {self.id!r} shows {id!r} and not {skipped} before it")
        at = bisect_left(places.positions, position)
        if places.positions[at : at + 1] != [position] or places.ids[at] != id:
            raise Violation(f"history {self.id!r} shows {id!r} at {position}, where it does not stand")
        if self.events and messages[id].mqks[0] not in self.events:
            raise Violation(f"history {self.id!r} shows {id!r}, whose event was not asked for")
        self.last, self.next = position, position + 1
        self.limit = None if self.limit is None else self.limit - 1

    def ends(self, places: Places, messages: Messages, end: int) -> None:
        """It has shown all up to here."""
        if self.limit == 0:
            return
        least = self.least_end if self.stop is None else min(self.stop, self.least_end)
        if self.next is not None and (skipped := self._left(places, messages, max(end, least))):
            raise Violation(f"history {self.id!r} ended at {end} and did not show {skipped}")

    def _left(self, places: Places, messages: Messages, end: int) -> list[bytes]:
        """What it should have shown below this position, and did not."""
        assert self.next is not None
        numbers = (number for number in places.from_(self.next) if places.positions[number] < end)
        ids = (places.ids[number] for number in numbers)
        return [id for id in ids if not self.events or messages[id].mqks[0] in self.events]

    def may_fail(self, places: Places) -> bool:
        """Is a message gone that it comes to?"""
        return self.next is None or not all(places.present[number] for number in places.from_(self.next))


def may_refuse(places: Places, position: int, visible: int) -> bool:
    """Is this position gone, or yet to come? One within a removed segment is gone, also after its last message."""
    if not places.earliest <= position <= visible or any(position in gone for gone in places.removed):
        return True
    return not all(places.present[number] for number in places.from_(position))


@dataclass
class Held:
    """A hold, as the broker was asked for it."""

    position: int
    expires: float
    confirmed: bool = False


@dataclass
class Holds:
    """All holds that are certain: what a crash makes doubtful is forgotten here."""

    by_name: dict[bytes, Held] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)  # segments
    _changed: int = 0  # how often names had changed on the disk then

    def crashed(self) -> None:
        self.by_name = {name: held for name, held in self.by_name.items() if held.confirmed}

    def started(self, disk: FakeDisk) -> None:
        self._seen = set(disk.files("journal"))

    def check(self, disk: FakeDisk, now: float) -> None:
        """No segment has gone that is held."""
        if disk.changed == self._changed:
            return
        self._changed = disk.changed
        there = set(disk.files("journal"))
        for name in sorted(self._seen - there):
            end = (position_of(name) or 0) + len(disk.removed[f"journal/{name}"].data)
            for hold, held in self.by_name.items():
                if held.expires > now and end > held.position:
                    raise Violation(f"segment {name} was removed, though {hold!r} holds all from {held.position} on")
        self._seen = there
