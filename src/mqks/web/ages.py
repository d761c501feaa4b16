"""When was a message taken? A position is all that a queue has of it, so the time is found by the position.

Once a second it is noted how far the log has come: what stands between two notes came between their times. Older
notes are thinned, so that an age is right to a second or to some hundredths of itself. What came before the first note,
before the broker was started, is looked up in the journal, and that is a note too; in one second only a few are.
"""

from bisect import bisect_right, insort
from collections.abc import Callable

SECOND = 1.5  # seconds between two notes that are as close as they come
BLUR = 0.02  # of an age: so much it may be wrong
MOST = 8192  # notes, before they are thinned
LOOK_UPS = 8  # a second: each reads a little from the disk

Note = tuple[int, float]  # a position, and a time when it was the log's end or when the message there came


class Ages:
    def __init__(self, look_up: Callable[[int], float | None]) -> None:
        """`look_up` tells the wall's time of a position, by reading; None: it cannot."""
        self._look_up = look_up
        self._notes: list[Note] = []
        self._left = LOOK_UPS

    def note(self, position: int, time: float) -> None:
        """The log ends here now. Once a second."""
        self._left = LOOK_UPS
        notes = self._notes
        while notes and notes[-1][0] >= position:
            notes.pop()  # nothing came since
        notes.append((position, time))
        if len(notes) > MOST:
            self._thin(time)

    def age(self, position: int, now: float) -> float | None:
        """Seconds since the message at this position came; None where nobody knows."""
        time = self._time(position, now)
        return None if time is None else max(now - time, 0.0)

    def _time(self, position: int, now: float) -> float | None:
        notes = self._notes
        at = bisect_right(notes, position, key=lambda note: note[0])
        before = notes[at - 1] if at else None
        after = notes[at] if at < len(notes) else (position + 1, now)
        if self._left and (before is None or _blurred(before, after, position, now)):
            self._left -= 1
            found = self._look_up(position)
            if found is not None:
                insort(notes, (position, found))
                return found
        return None if before is None else _between(before, after, position)

    def _thin(self, now: float) -> None:
        kept = self._notes[:1]
        for note, following in zip(self._notes[1:], self._notes[2:], strict=False):
            if following[1] - kept[-1][1] > max(SECOND, BLUR / 2 * (now - following[1])):
                kept.append(note)
        self._notes = [*kept, self._notes[-1]]


def _blurred(before: Note, after: Note, position: int, now: float) -> bool:
    return before[0] != position and after[1] - before[1] > max(SECOND, BLUR * (now - after[1]))


def _between(before: Note, after: Note, position: int) -> float:
    share = (position - before[0]) / (after[0] - before[0])
    return before[1] + share * (after[1] - before[1])
