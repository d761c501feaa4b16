"""Who publishes: with and without `--confirm`, in the dialect of SEVX, and while a queue's events change.

What was not answered when the broker died is not sent again: each number goes out once, so one that comes twice was
doubled by the broker.
"""

import random
from collections import deque
from collections.abc import Mapping

from tests.crash.clients import WINDOWS, Client, data_of, event_of
from tests.crash.ledger import Ledger

LAG = 10_000  # messages that a publisher may be ahead of the consumers


class Publisher(Client):
    """Publishes with `--confirm`, a window at a time."""

    def __init__(
        self, name: str, ledger: Ledger, rng: random.Random, queues_of: Mapping[bytes, tuple[str, ...]]
    ) -> None:
        super().__init__(name, ledger, rng)
        self.queues_of = queues_of
        self.events = sorted(queues_of)
        self.awaited: deque[tuple[bytes, int]] = deque()  # answers to come, in this order: request_id and number
        self.window = 1
        self.publishing = True

    def begin(self) -> None:
        self.ledger.connected(self.name)
        self.window = self.rng.choice(WINDOWS)

    def act(self) -> None:
        if self.publishing and len(self.awaited) <= self.window // 2 and self.lag() < LAG:
            self.burst(self.window - len(self.awaited))

    def lag(self) -> int:
        """How far the slowest of the queues that somebody consumes now is behind."""
        queues = [self.ledger.queues[queue] for queues in self.queues_of.values() for queue in queues]
        newest = [queue.newest.get(self.name, 0) for queue in queues if queue.consumers]
        return len(self.ledger.safe[self.name]) - min(newest, default=0)

    def burst(self, count: int) -> None:
        for _ in range(count):
            number = self.publish()
            self.awaited.append((b"%s-%d" % (self.name, number), number))

    def publish(self) -> int:
        event = event_of(self.events, len(self.ledger.safe[self.name]))
        number = self.ledger.sent(self.name, self.queues(event))
        self.out += self.request(event, number)
        return number

    def request(self, event: bytes, number: int) -> bytes:
        return b"%s-%d publish --confirm %s %s\n" % (self.name, number, event, self.content(event, number))

    def queues(self, event: bytes) -> tuple[str, ...]:
        return self.queues_of[event]

    def content(self, event: bytes, number: int) -> bytes:  # noqa: ARG002 (SEVX has the event in it)
        return data_of(self.name, number)

    def line(self, line: bytes) -> None:
        request_id, ok, _ = line.partition(b" ok ")
        if not ok or not self.awaited or request_id != self.awaited[0][0]:
            self.unexpected(line)
            return
        self.answered(self.awaited.popleft()[1])

    def answered(self, number: int) -> None:
        self.ledger.is_safe(self.name, number)

    def ended(self, killed: bool) -> None:  # noqa: ARG002
        self.awaited.clear()


class Unconfirmed(Publisher):
    """Publishes without `--confirm` and pings after each window; `kill -9` must not lose the turns that are over."""

    def begin(self) -> None:
        super().begin()
        self.taken: range = range(0)  # the window before the ping that was answered last

    def act(self) -> None:
        if self.publishing and not self.awaited and self.lag() < LAG:
            self.burst(self.window)

    def burst(self, count: int) -> None:
        for _ in range(count):
            number = self.publish()
        self.awaited.append((b"ping-%d" % number, number))
        self.out += b"ping-%d ping\n" % number

    def request(self, event: bytes, number: int) -> bytes:
        return b"%s-%d publish %s %s\n" % (self.name, number, event, self.content(event, number))

    def answered(self, number: int) -> None:
        """This ping was sent when the one before was answered: the turn that took what came before that is over."""
        for safe in self.taken:
            self.ledger.is_safe(self.name, safe)
        self.taken = range(max(self.taken.stop, self.ledger.connections[self.name][-1]), number + 1)


class Sevx(Publisher):
    """The same with SEVX's `send`, which always answers."""

    def request(self, event: bytes, number: int) -> bytes:
        return b"%s-%d send %s\n" % (self.name, number, self.content(event, number))

    def content(self, event: bytes, number: int) -> bytes:
        return b'{"event": "%s", "data": "%s"}' % (event, data_of(self.name, number))


class Rebinder(Publisher):
    """Binds its one event to its one queue and unbinds it, between messages: bound means copies, unbound none."""

    def __init__(
        self, name: str, ledger: Ledger, rng: random.Random, queues_of: Mapping[bytes, tuple[str, ...]]
    ) -> None:
        super().__init__(name, ledger, rng, queues_of)
        ((event, (queue,)),) = queues_of.items()
        self._request = b"bind rebind --confirm %s --%%s %s\n" % (queue.encode(), event)
        self.bound, self._certain = True, True
        self._since = 0  # the first number after the last change

    def begin(self) -> None:
        super().begin()
        if not self._certain:  # the answer did not come: say it again; else it must still be as it was
            self._rebind()

    def lag(self) -> int:
        """Unbound, nobody is behind; bound again, nobody lacks what was sent meanwhile."""
        return min(super().lag(), len(self.ledger.safe[self.name]) - self._since) if self.bound else 0

    def burst(self, count: int) -> None:
        super().burst(count)
        if self.rng.random() < 0.3:
            self._since = len(self.ledger.safe[self.name])
            self.bound = not self.bound
            self._rebind()

    def _rebind(self) -> None:
        self.out += self._request % (b"add" if self.bound else b"remove")
        self.awaited.append((b"bind", -1))
        self._certain = False

    def answered(self, number: int) -> None:
        if number >= 0:
            super().answered(number)
        else:
            self._certain = all(number >= 0 for _, number in self.awaited)

    def queues(self, event: bytes) -> tuple[str, ...]:
        return self.queues_of[event] if self.bound else ()
