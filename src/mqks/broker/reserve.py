"""Memory that is kept for one sort of thing, such as connections: they may have it however full the memory is.

So a full broker can be drained: clients can connect, and consume. Beyond the reserve they are refused like all else
when memory is full. What they take is charged as memory in either case.
"""

from mqks.core.hub import Core

RESERVE = 8 << 20  # bytes


class Reserve:
    def __init__(self, core: Core) -> None:
        self._core = core
        self.used = 0  # bytes, also of what came while memory was not full

    def has_room(self, cost: int) -> bool:
        """May one more come that takes so many bytes?"""
        return not self._core.full or self.used + cost <= RESERVE

    def charge(self, cost: int) -> None:
        """One has come, or, below zero, gone."""
        self.used += cost
        self._core.charge(cost)
