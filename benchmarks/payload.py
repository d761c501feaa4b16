"""What is published: numbered data, so that count, order and content of what comes back can be checked.

Data is `#` + eight digits + filler. The `#` occurs nowhere else in any protocol, so the numbers can be read
back from any contender's stream without knowing its grammar. Pure functions: no sockets, no processes.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from benchmarks.contenders.base import BenchError, Contender

BLOCK_BYTES = 256 * 1024
DATA = re.compile(rb"#(\d{8})[a-z]*")
FILLER = b"abcdefghijklmnopqrstuvwxyz" * 1024

Subscription = tuple[bytes, tuple[bytes, ...]]  # a queue and its events
Layout = tuple[tuple[Subscription, ...], ...]  # per consumer connection, its subscriptions


def data(number: int, size: int) -> bytes:
    """The data of message `number`; the smallest size is 9."""
    return b"#%08d" % number + FILLER[number % 26 : number % 26 + size - 9]


@dataclass(frozen=True)
class Load:
    """One load, the same for every contender: data size, who consumes what, which events in which order."""

    size: int
    layout: Layout
    events: tuple[bytes, ...] = (b"e1",)
    distinct: bool = False  # every message its own id (ack, backlog), instead of eight blocks over and over
    block_messages: int = 0  # 0: as many as fill BLOCK_BYTES
    shared: bool = False  # all connections consume one queue: each message goes to one of them

    @cached_property
    def fan(self) -> int:
        """Deliveries per message."""
        return 1 if self.shared else max(1, len(self.layout))

    def event(self, number: int) -> bytes:
        return self.events[number % len(self.events)]

    def publish(self, contender: Contender, number: int, last: bool = False) -> bytes:
        return contender.publish(number, self.event(number), data(number, self.size), last)

    def per_block(self, contender: Contender) -> int:
        return self.block_messages or max(1, BLOCK_BYTES // len(self.publish(contender, 0)))

    def block(self, contender: Contender, index: int) -> bytes:
        """One buffer for one sendall; its last message is the one that a windowed publisher waits for."""
        count = self.per_block(contender)
        first = index * count
        lines = [self.publish(contender, n) for n in range(first, first + count - 1)]
        return b"".join(lines) + self.publish(contender, first + count - 1, last=True)


def shuffled(events: Sequence[bytes], length: int = 4093) -> tuple[bytes, ...]:
    """A fixed random order; its prime length keeps it from beating with the blocks."""
    return tuple(random.Random(25000).choices(events, k=length))


def delivered_bytes(contender: Contender, load: Load, messages: int) -> int:
    """Every name and number has a fixed width, so one delivery tells the length of all."""
    queue, events = load.layout[0][0]
    return len(contender.deliver(0, events[0], queue, data(0, load.size))) * messages * load.fan


def check(contender: Contender, load: Load, streams: Sequence[bytes], messages: int) -> None:
    """Every byte of every stream is as expected; per queue nothing is lost, doubled or out of order."""
    taken: dict[bytes, list[int]] = {}
    for subscriptions, stream in zip(load.layout, streams, strict=True):
        queue_of = {event: queue for queue, events in subscriptions for event in events}
        numbers = [int(n) for n in DATA.findall(stream)]
        expected = (contender.deliver(n, load.event(n), queue_of[load.event(n)], data(n, load.size)) for n in numbers)
        if b"".join(expected) != stream:
            raise BenchError(f"{contender.name} delivered other bytes than were published")
        own: dict[bytes, list[int]] = {queue: [] for queue in queue_of.values()}
        for n in numbers:
            own[queue_of[load.event(n)]].append(n)
        for queue, got in own.items():
            if got != sorted(got):
                raise BenchError(f"{contender.name} delivered queue {queue!r} out of order")
            taken.setdefault(queue, []).extend(got)
    wanted = {queue: set(events) for subscriptions in load.layout for queue, events in subscriptions}
    for queue, events_of_queue in wanted.items():
        published = [n for n in range(messages) if load.event(n) in events_of_queue]
        if sorted(taken[queue]) != published:
            raise BenchError(f"{contender.name}: queue {queue!r} lost or doubled messages")


def check_data(contender: Contender, load: Load, stream: bytes, messages: int) -> None:
    """For protocols whose deliveries carry ids of their own: the data, whole and in order."""
    if [m.group() for m in DATA.finditer(stream)] != [data(n, load.size) for n in range(messages)]:
        raise BenchError(f"{contender.name} lost, doubled, changed or reordered messages")


def check_tail(contender: Contender, load: Load, chunk: bytes, messages: int, cycle: int = 1 << 62) -> None:
    """The last chunk of a long stream: its whole messages are the last ones published, in order.

    A load that repeats its blocks has a `cycle`: so many messages until their data is the same again.
    """
    found = [m.group() for m in DATA.finditer(chunk)]
    if not found or found != [data(n % cycle, load.size) for n in range(messages - len(found), messages)]:
        raise BenchError(f"{contender.name} lost, doubled, changed or reordered messages of its backlog")
