"""Answers what the compiled core asks of Python: it implements `Handler` (core/callbacks.py). Each answer comes from
one part.

The core is made first, since nearly all parts need it. So the parts are attached here once they are made, before any
client connects.
"""

from collections.abc import Callable, Sequence

from mqks.broker.connections.client import Client
from mqks.broker.connections.pace import Pace
from mqks.broker.listeners import Listeners
from mqks.broker.persistence.persistence import Persistence
from mqks.broker.persistence.recovery import Recovery
from mqks.broker.protocol import bridge
from mqks.broker.queues.exchange import Exchange
from mqks.broker.queues.queue import Queue
from mqks.broker.queues.queue_limits import QueueLimits
from mqks.broker.queues.updates import Updates
from mqks.broker.requests import Requests
from mqks.core.parts import Connection, Consumer
from mqks.core.parts import Queue as CoreQueue


class CoreCallbacks:
    def __init__(self, new_dtid: Callable[[], bytes]) -> None:
        self.new_dtid = new_dtid

    def attach(
        self,
        requests: Requests,
        pace: Pace,
        listeners: Listeners,
        exchange: Exchange,
        queue_limits: QueueLimits,
        updates: Updates,
        persistence: Persistence,
        recovery: Recovery,
    ) -> None:
        self.request = requests.handle  # bound here: a call less for each line
        self._pace = pace
        self._listeners = listeners
        self._exchange = exchange
        self._queue_limits = queue_limits
        self._updates = updates
        self._persistence = persistence
        self._recovery = recovery

    # ── connections ──

    def spent(self, connection: Connection) -> None:
        """It has sent so many lines: see `--max-rate`."""
        assert isinstance(connection, Client)
        self._pace.spent(connection)

    # ── messages ──

    def render(self, line: bytes, dialect: int, retry: int) -> bytes:
        return bridge.render(line, dialect, retry)

    def inspect(self, event: bytes, data: bytes) -> Sequence[Queue]:
        """Queues whose patterns match this message, which is taken."""
        self._listeners.hear(event, data)
        return self._exchange.inspect(event, data)

    def wanting(self, event: bytes, data: bytes) -> Sequence[Queue]:
        """Likewise; but the message may be refused yet."""
        return self._exchange.inspect(event, data)

    # ── queues and consumers ──

    def exceeds(self, queue: CoreQueue) -> None:
        assert isinstance(queue, Queue)
        self._queue_limits.trim_soon(queue)

    def overflowed(self, queue: CoreQueue) -> None:
        assert isinstance(queue, Queue)
        self._queue_limits.began(queue)

    def update(self, consumer: Consumer) -> bytes:
        return self._updates.text(consumer)

    # ── the disk ──

    def spill(self, items: bytes) -> int:
        return self._persistence.spill(items)

    def bring_back(self, place: int, count: int) -> bytes | None:
        return self._persistence.bring_back(place, count)

    def look_at(self, place: int, count: int) -> bytes | None:
        return self._persistence.look_at(place, count)

    def load(self, start: int, size: int) -> None:
        self._persistence.load(start, size)

    def read_now(self, start: int, size: int) -> bytes | None:
        return self._persistence.read_now(start, size)

    def lost(self, queue: CoreQueue) -> None:
        self._persistence.lost(queue)

    def replay(self, position: int, line: bytes) -> Sequence[Queue]:
        return self._recovery.replay(position, line)
