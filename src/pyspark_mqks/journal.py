"""A journal, wherever it is: what the source asks of it, and what follows from that alone."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from datetime import datetime

from mqks.journal.columns import Columns
from mqks.journal.format import Header

END = (1 << 63) - 1  # beyond every position


class Journal(ABC):
    @abstractmethod
    def earliest(self) -> int: ...

    @abstractmethod
    def latest(self) -> int:
        """The visible end."""

    @abstractmethod
    def at(self, time: datetime) -> int:
        """Where the first batch of that time or later begins; the visible end if there is none yet."""

    @abstractmethod
    def check(self, position: int) -> int:
        """The position, or where to go on if what stood there is lost: at the next that there is, or at the end."""

    @abstractmethod
    def batch_with(self, position: int) -> Header | None:
        """The batch that has this position; None where there is none, or none that can be read."""

    @abstractmethod
    def count(self, start: int, stop: int, rows: int) -> int:
        """How far to go from `start` with so many rows at most, by `fitting`."""

    @abstractmethod
    def scan(self, columns: Columns, start: int, stop: int) -> Iterator[None]:
        """Feed the batches that begin in the range; every now and then the caller may take what is there."""

    def begin(self, position: int) -> int:
        """Where to begin, to have all from this position on."""
        position = self.check(position)
        header = self.batch_with(position)
        return header.position if header else position

    def advance(self, start: int, latest: int, rows: int | None, size: int | None) -> int:
        """How far to go from `start` with so many rows and bytes at most, but at least one batch: where one ends."""
        stop = latest
        if size is not None and start + size < latest:
            header = self.batch_with(start + size)
            stop = start + size if header is None else header.position if header.position > start else header.end
        if rows is not None:
            stop = self.count(start, stop, rows)
        return min(stop, latest)


def fitting(headers: Iterable[Header], stop: int, rows: int) -> int:
    """Where the batches end that have so many rows at most: one that has rows is always taken."""
    at, taken = 0, 0
    for header in headers:
        if taken and taken + header.count > rows:
            return at
        taken += header.count
        at = header.end
    return stop
