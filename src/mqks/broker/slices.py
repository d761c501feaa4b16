"""Work that is too long for one turn: it is done in slices, some in each turn, and all else goes on between them.

A job is a generator that yields often, each time the units of work it has done since; a unit is about a microsecond.
All jobs together have a quota in each turn. So what is short is done when `start` returns, as if it were not a job. It
touches timers only; what is to be done is known to the jobs.
"""

import logging
from collections import deque
from collections.abc import Iterator

from mqks.broker.timers import Timers

log = logging.getLogger(__name__)

QUOTA = 8_000  # units of one turn
NEXT_TURN = -1  # instead of units: go on in the next turn
PAUSE = 0.001  # seconds until the next turn at the latest

Job = Iterator[int]


class Slices:
    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._jobs: deque[Job] = deque()
        self._left = QUOTA
        self.done = 0  # units so far

    def __len__(self) -> int:
        """Jobs that have not ended."""
        return len(self._jobs)

    def start(self, job: Job) -> None:
        """Do the job, or, where it is long, what this turn has room for."""
        self._jobs.append(job)
        if len(self._jobs) == 1:
            self._work()

    def turn(self) -> None:
        """A turn of the broker."""
        self._left = QUOTA
        if self._jobs:
            self._work()

    def finish(self) -> None:
        """The broker stops: do all that is left."""
        while self._jobs:
            self.turn()

    def _work(self) -> None:
        """The jobs take turns, a step each. One that fails ends; the others go on."""
        while self._jobs and self._left > 0:
            job = self._jobs[0]
            try:
                units = next(job, None)
            except Exception:
                log.exception("work that was done in slices has failed, and ends")
                units = None
            if units is None:
                self._jobs.popleft()
            else:
                self._left = 0 if units == NEXT_TURN else self._left - units
                self.done += max(units, 0)
                self._jobs.rotate(-1)
        self._come_back()

    def _come_back(self) -> None:
        """Have a turn soon, though nobody may send anything."""
        if self._jobs:
            self._timers.set("slices", PAUSE, self._come_back)
        else:
            self._timers.cancel("slices")
