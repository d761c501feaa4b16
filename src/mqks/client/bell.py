"""Where threads of the blocking client wait.

A Condition would do, but for Ctrl-C: an interrupt that comes while it takes its lock back leaves the lock to whoever
has it, and `with` then frees it for him. Here nobody waits within the lock.
"""

import threading
import time
from collections.abc import Callable


class Bell:
    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._waiting: list[threading.Lock] = []

    def ring(self) -> None:
        """Something has changed; the lock is held."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.release()

    def wait(self, holds: Callable[[], object], timeout: float | None) -> bool:
        """Until it holds, which is looked at with the lock held. False: it did not in this time."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            waiter = threading.Lock()
            with self._lock:
                if holds():
                    return True
                left = -1.0 if until is None else until - time.monotonic()
                if until is not None and left <= 0:
                    return False
                waiter.acquire()
                self._waiting.append(waiter)
            if not waiter.acquire(timeout=left):
                with self._lock:
                    if waiter in self._waiting:
                        self._waiting.remove(waiter)
