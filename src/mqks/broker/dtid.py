"""Ids that sort by time: 20 digits of UTC down to the microsecond, and 4 characters for what falls into one."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
SUFFIXES = len(ALPHABET) ** 4
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Dtids:
    """Makes dtids that never decrease, whatever the clock does."""

    def __init__(self, wall: Callable[[], float], rng: random.Random) -> None:
        self._wall = wall
        self._rng = rng
        self._microsecond = 0
        self._suffix = 0

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
        at = EPOCH + timedelta(microseconds=self._microsecond)
        text = at.strftime("%Y%m%d%H%M%S%f")
        rest = self._suffix
        for power in (62**3, 62**2, 62, 1):
            digit, rest = divmod(rest, power)
            text += ALPHABET[digit]
        return text.encode()
