"""What is to happen later. The clock is given, so that a test or a simulator can be the one who lets time pass."""

import heapq
from collections.abc import Callable, Hashable

AT_ONCE = 256  # timers that go off before others have their turn,
LONGEST = 0.01  # or so many seconds
TIMER_COST = 800  # bytes of memory: its action, its entries, and one entry that was replaced; measured, and rounded up


def uncounted(_: int) -> None:
    """Nobody counts the memory."""


class Timers:
    """At most one timer for each key: setting it again replaces it. The memory of each is charged while it is set."""

    def __init__(self, clock: Callable[[], float], charge: Callable[[int], object] = uncounted) -> None:
        self.clock = clock
        self._charge = charge
        self._live: dict[Hashable, tuple[int, Callable[[], None]]] = {}
        self._heap: list[tuple[float, int, Hashable]] = []  # also of timers that were replaced or cancelled since
        self._count = 0  # tells timers apart, and what was asked for first happens first

    def set(self, key: Hashable, seconds: float, action: Callable[[], None]) -> None:
        self._count += 1
        if key not in self._live:
            self._charge(TIMER_COST)
        self._live[key] = (self._count, action)
        heapq.heappush(self._heap, (self.clock() + seconds, self._count, key))
        if len(self._heap) > 2 * len(self._live) + 16:
            self._heap = [entry for entry in self._heap if self._is_live(entry)]
            heapq.heapify(self._heap)

    def is_set(self, key: Hashable) -> bool:
        return key in self._live

    def cancel(self, key: Hashable) -> None:
        if self._live.pop(key, None) is not None:
            self._charge(-TIMER_COST)

    @property
    def next(self) -> float | None:
        """When the next one is due."""
        while self._heap and not self._is_live(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def run_due(self) -> None:
        """Some of them, where very many are due: `next` then tells that it is time for the others."""
        now = self.clock()
        for _ in range(AT_ONCE):
            when = self.next
            if when is None or when > now or self.clock() - now > LONGEST:
                return
            _, _, key = heapq.heappop(self._heap)
            _, action = self._live.pop(key)
            self._charge(-TIMER_COST)
            action()

    def _is_live(self, entry: tuple[float, int, Hashable]) -> bool:
        _, number, key = entry
        return key in self._live and self._live[key][0] == number
