"""May more be taken? Whoever adds something that takes memory or disk asks here first, and is refused if it is full."""

from mqks.broker.connections.client import Client
from mqks.broker.limits import Limits
from mqks.broker.reserve import Reserve
from mqks.core.hub import Core


class Capacity:
    def __init__(self, core: Core, limits: Limits) -> None:
        self._core = core
        self._limits = limits
        self.readers = Reserve(core)  # consumers and histories

    def check_room(self) -> None:
        """May more be taken?"""
        if self._core.refusing:
            raise self._limits.reached("min_free_disk")
        self.check_memory()

    def check_memory(self) -> None:
        """Likewise, of what is never written down."""
        if self._core.full:
            raise self._limits.reached("max_memory")

    def check_reader(self, client: Client, cost: int) -> None:
        """May this client have one more consumer, or history, that takes so many bytes of memory?"""
        if not client.inside and not self.readers.has_room(cost):
            raise self._limits.reached("max_memory")

    def check_freeing(self) -> None:
        """May something be written down by which something goes? A full disk is freed so, and full memory too, for what
        is written leaves it: only where both are full there is no place for that."""
        if self._core.refusing:
            self.check_memory()
