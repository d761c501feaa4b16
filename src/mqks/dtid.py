"""Ids that sort by time: 20 digits of UTC down to the microsecond, and 4 characters for what falls into one."""

import random
import time
from collections.abc import Callable, Iterator
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


class Ids:
    """Dtids as text for a client that makes many: those of one millisecond share a reading of the clock."""

    SHARED = 0.001  # seconds

    def __init__(self, wall: Callable[[], float] = time.time, rng: random.Random | None = None) -> None:
        self._wall = wall
        self._rng = rng or random.Random()
        self._microsecond = 0
        self._until = 0.0
        self._head = ""
        self._tails: Iterator[str] = iter(())

    def __call__(self) -> str:
        now = self._wall()
        tail = next(self._tails, "") if now < self._until else ""
        return self._head + tail if tail else self._begin(now)

    def _begin(self, now: float) -> str:
        self._until = now + self.SHARED
        self._microsecond = max(int(now * 1_000_000), self._microsecond + 1)
        at = EPOCH + timedelta(microseconds=self._microsecond)
        self._head = f"{at:%Y%m%d%H%M%S%f}{self._rng.choice(PAIRS)}"
        self._tails = iter(PAIRS)
        return self._head + next(self._tails)
