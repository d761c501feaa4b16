"""What is to happen later. The clock is given, so that a test or a simulator can be the one who lets time pass."""

import heapq
from collections.abc import Callable


class Timers:
    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0  # breaks ties: what was asked for first happens first

    def after(self, seconds: float, action: Callable[[], None]) -> float:
        """Run the action when so many seconds have passed; answers when that is."""
        when = self.clock() + seconds
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, action))
        return when

    @property
    def next(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def run_due(self) -> None:
        now = self.clock()
        while self._heap and self._heap[0][0] <= now:
            heapq.heappop(self._heap)[2]()
