"""Makes an input that fails shorter. Each attempt runs in a child: whatever it dies of, the next one goes on."""

import os
import time
from collections.abc import Callable

SECONDS = 60.0  # for all attempts


def fails(target: Callable[[bytes], None], data: bytes) -> bool:
    child = os.fork()
    if child == 0:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        try:
            target(data)
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0


def minimise(target: Callable[[bytes], None], data: bytes) -> bytes:
    """Leaves out parts, from halves to single bytes, as long as it still fails. What does not fail stays as it is."""
    if not fails(target, data):
        return data
    until = time.monotonic() + SECONDS
    size = len(data)
    while size > 1:
        size = (size + 1) // 2
        at = 0
        while at < len(data) and time.monotonic() < until:
            shorter = data[:at] + data[at + size :]
            if fails(target, shorter):
                data = shorter
            else:
                at += size
    return data
