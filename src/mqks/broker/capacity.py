"""May more be taken? Whoever adds something that takes memory or disk asks here first, and is refused if it is full.

Memory is reserved for connections, and for those who read: they may have it however full the memory is. So a full
broker can be drained: clients can connect, and consume. Beyond the reserve they are refused like all else when memory
is full. What they take is charged as memory in either case.
"""

from mqks.broker.connections.client import Client
from mqks.broker.limits import Limits
from mqks.core.hub import Core

RESERVE = 8 << 20  # bytes


class Reserve:
    def __init__(self, core: Core) -> None:
        self._core = core
        self.used = 0  # bytes, also of what came while memory was not full

    def has_room(self, cost: int) -> bool:
        """May one more come that takes so many bytes?"""
        return not self._core.account.full or self.used + cost <= RESERVE

    def charge(self, cost: int) -> None:
        """One has come, or, below zero, gone."""
        self.used += cost
        self._core.account.charge(cost)


class Capacity:
    def __init__(self, core: Core, limits: Limits) -> None:
        self._core = core
        self._limits = limits
        self.readers = Reserve(core)  # consumers and histories

    def check_room(self) -> None:
        """May more be taken?"""
        if self._core.log.refusing:
            raise self._limits.reached("min_free_disk")
        self.check_memory()

    def check_memory(self) -> None:
        """Likewise, of what is never written down."""
        if self._core.account.full:
            raise self._limits.reached("max_memory")

    def check_reader(self, client: Client, cost: int) -> None:
        """May this client have one more consumer, or history, that takes so many bytes of memory?"""
        if not client.inside and not self.readers.has_room(cost):
            raise self._limits.reached("max_memory")

    def check_freeing(self) -> None:
        """May a line be written that frees space? It may while the disk is full or the memory is full, but not while
        both are: such a line needs a place until it is written."""
        if self._core.log.refusing:
            self.check_memory()
