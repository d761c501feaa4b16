"""A file of the fake disk: what is seen of it, what is on disk for sure, and the writes between the two."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

SECTOR = 512


class Write(NamedTuple):
    number: int
    offset: int
    data: bytes | None  # None: the file ends at the offset

    def apply(self, content: bytearray) -> None:
        if self.data is None:
            del content[self.offset :]
            content.extend(bytes(self.offset - len(content)))
        elif self.data:
            content.extend(bytes(max(0, self.offset - len(content))))
            content[self.offset : self.offset + len(self.data)] = self.data

    def torn(self, rng: random.Random) -> "Iterator[Write]":
        """A part of a write: its first bytes, or any of its sectors."""
        assert self.data is not None
        if rng.random() < 0.5:
            yield self._replace(data=self.data[: rng.randrange(len(self.data) + 1)])
            return
        first = self.offset // SECTOR * SECTOR
        for start in range(first, self.offset + len(self.data), SECTOR):
            low, high = max(start, self.offset), start + SECTOR
            if rng.random() < 0.5:
                yield self._replace(offset=low, data=self.data[low - self.offset : high - self.offset])


@dataclass(eq=False)
class Inode:
    data: bytearray = field(default_factory=bytearray)  # what a reader sees
    durable: bytearray = field(default_factory=bytearray)  # what is on disk for sure
    unsynced: list[Write] = field(default_factory=list)
    written: int = 0  # how many writes so far
    reserved: int = 0  # bytes, from the beginning
    flips: dict[int, int] = field(default_factory=dict)  # offset → bits

    @property
    def occupied(self) -> int:
        return max(len(self.data), self.reserved)

    def write(self, offset: int, data: bytes | None) -> None:
        self.written += 1
        change = Write(self.written, offset, data)
        change.apply(self.data)
        self.unsynced.append(change)

    def unflipped(self, content: bytearray) -> bytes:
        """What was written there: `data` or `durable` without the flips."""
        data = bytearray(content)
        for at, bits in self.flips.items():
            if at < len(data):
                data[at] ^= bits
        return bytes(data)

    def split(self, last: int) -> tuple[list[Write], list[Write]]:
        """The writes up to a number, and those after it."""
        covered = [write for write in self.unsynced if write.number <= last]
        return covered, self.unsynced[len(covered) :]

    def lose(self, rng: random.Random) -> None:
        """The power goes: what was not synced is lost, in part, torn, in any order."""
        keep = chooser(rng)
        size = len(self.data)
        for write in self.unsynced:
            if keep():
                write.apply(self.durable)
            elif write.data and rng.random() < 0.3:
                for piece in write.torn(rng):
                    piece.apply(self.durable)
        if len(self.durable) < size and rng.random() < 0.2:
            self.durable.extend(bytes(size - len(self.durable)))  # the size got there, the data did not
        self.unsynced.clear()
        self.data = bytearray(self.durable)
        self.reserved = len(self.data)


def chooser(rng: random.Random) -> Callable[[], bool]:
    """Decides one by one what survives: all, nothing, the first ones, or any."""
    how = rng.choice(("all", "nothing", "first", "any", "any"))
    if how == "first":
        left = iter(range(rng.randrange(1, 8)))
        return lambda: next(left, None) is not None
    chance = {"all": 1.0, "nothing": 0.0, "any": rng.random()}[how]
    return lambda: rng.random() < chance
