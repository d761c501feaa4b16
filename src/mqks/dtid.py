"""Ids that sort by time: 20 digits of UTC down to the microsecond, and 4 characters for what falls into one."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
SUFFIXES = len(ALPHABET) ** 4
PAIRS = [a + b for a in ALPHABET for b in ALPHABET]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Dtids:
    """Makes dtids that never decrease, whatever the clock does."""

    def __init__(self, wall: Callable[[], float], rng: random.Random) -> None:
        self._wall = wall
        self._rng = rng
        self._microsecond = 0
        self._suffix = 0
        self._second = -1
        self._text = ""

    def begin_after(self, dtid: bytes) -> None:
        """An earlier process made this one."""
        if dtid:
            since = datetime.strptime(dtid[:20].decode(), "%Y%m%d%H%M%S%f").replace(tzinfo=UTC) - EPOCH
            self._microsecond = since // timedelta(microseconds=1)
            self._suffix = SUFFIXES - 1  # so that the next one is of the next microsecond at least

    def __call__(self) -> bytes:
        now = int(self._wall() * 1_000_000)
        if now > self._microsecond:
            self._microsecond = now
            self._suffix = self._rng.randrange(SUFFIXES // 2)
        else:
            self._suffix += 1
            if self._suffix == SUFFIXES:
                self._microsecond += 1
                self._suffix = 0
        second, microseconds = divmod(self._microsecond, 1_000_000)
        if second != self._second:  # every batch of the journal has one, so what can be kept is kept
            self._second = second
            self._text = (EPOCH + timedelta(seconds=second)).strftime("%Y%m%d%H%M%S")
        first, last = divmod(self._suffix, len(PAIRS))
        return f"{self._text}{microseconds:06d}{PAIRS[first]}{PAIRS[last]}".encode()
