"""Memory that was freed goes back to the system: malloc keeps it, and a process would only ever grow.

A look is taken every few seconds. To give memory back costs some milliseconds, so there must be a reason: much of what
the broker counts was freed; or the process has grown by much since, and some of that may be free again.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from resource import getpagesize

from mqks.core.sockets import give_memory_back

MUCH = 16 << 20
STATM = Path("/proc/self/statm")


def resident() -> int:
    """Bytes of the process's own memory; 0 where the system does not tell."""
    with contextlib.suppress(OSError):
        _, all_of_it, shared, *_ = map(int, STATM.read_bytes().split())
        return (all_of_it - shared) * getpagesize()
    return 0


class Memory:
    def __init__(
        self, resident: Callable[[], int] = resident, give_back: Callable[[], None] = give_memory_back
    ) -> None:
        self._resident, self._give_back = resident, give_back
        self._peak = 0  # of what the broker counts, since memory was given back last
        self._floor = resident()  # the least that the process had since

    def look(self, used: int) -> None:
        """The broker counts so many bytes now."""
        now = self._resident()
        self._peak, self._floor = max(self._peak, used), min(self._floor, now)
        if self._peak - used > MUCH or now - self._floor > MUCH:
            self._give_back()
            self._peak, self._floor = used, self._resident()
