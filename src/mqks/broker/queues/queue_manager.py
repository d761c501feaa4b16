"""The queues of the broker: they come into being when they are named, and go when they are deleted or unused."""

from mqks.broker.capacity import Capacity
from mqks.broker.errors import BadRequest, show
from mqks.broker.limits import Limits
from mqks.broker.persistence.definitions import DefinitionLog
from mqks.broker.protocol import jsons
from mqks.broker.queues.exchange import NAME_COPIES, Exchange, named
from mqks.broker.queues.patterns import Pattern
from mqks.broker.queues.queue import Bounds, Queue
from mqks.broker.queues.queue_limits import QueueLimits
from mqks.broker.queues.updates import Updates
from mqks.broker.timers import Timers
from mqks.core.hub import Core

QUEUE_COST = 1000  # bytes of memory, beside the names; measured, and rounded up
LONGEST_DEFINITION = 1 << 20  # bytes of a queue's name, events and pattern, or as many as a line may have
PURGED_AT_ONCE = 1 << 14  # messages, before others have their turn


def _queue_cost(name: bytes) -> int:
    return QUEUE_COST + NAME_COPIES * len(name)


class QueueManager:
    def __init__(
        self,
        core: Core,
        timers: Timers,
        limits: Limits,
        capacity: Capacity,
        exchange: Exchange,
        queue_limits: QueueLimits,
        definitions: DefinitionLog,
        updates: Updates,
    ) -> None:
        self._core = core
        self._timers = timers
        self._limits = limits
        self._capacity = capacity
        self._exchange = exchange
        self._queue_limits = queue_limits
        self._definitions = definitions
        self._updates = updates
        self.by_name: dict[bytes, Queue] = {}

    def find(self, name: bytes) -> Queue | None:
        """The queue of this name, for a request about it: after one about a large queue others have their turn."""
        queue = self.by_name.get(name)
        if queue is not None and queue.is_large:
            self._core.parser.rest()
        return queue

    def make(self, name: bytes) -> Queue:
        """A new queue; there is none of this name."""
        queue = self.by_name[name] = Queue(name, self._timers.clock())
        self._core.account.charge(_queue_cost(name))
        return queue

    def check_change(
        self,
        name: bytes,
        queue: Queue | None,
        events: set[bytes],
        bounds: Bounds,
        unused: float | None,
        pattern: Pattern | None = None,
    ) -> None:
        """May the queue be made, if there is none, or be subscribed to these events and to another pattern, and have
        these limits and this time until it goes? All of it is written at each change.

        A queue that has more than the limits allow keeps it. A client may still consume while memory or disk is full: a
        request that repeats what holds already changes nothing, and needs no room."""
        if queue is None and len(self.by_name) >= self._limits.max_queues:
            raise self._limits.reached("max_queues")
        had = {*queue.events, *named(queue.pattern)} if queue else set()
        asked = pattern or (queue.pattern if queue else None)
        wanted = {*events, *named(asked)}
        if (queue is None or not wanted <= had) and len(wanted) > self._limits.max_events:
            raise self._limits.reached("max_events", show(name))
        if queue is None or not wanted <= had or pattern is not None:
            self._check_size(name, events, asked)
            self._capacity.check_room()
        elif bounds != queue.bounds or (unused not in (None, queue.unused) and not queue.unused_is_sticky):
            self._definitions.check_room()
        elif events != queue.events:
            self._capacity.check_freeing()

    def _check_size(self, name: bytes, events: set[bytes], pattern: Pattern | None) -> None:
        size = len(name) + len(events) + sum(map(len, events)) + (len(jsons.dumps(pattern.content)) if pattern else 0)
        if size > max(self._core.output.max_line, LONGEST_DEFINITION):
            raise BadRequest("the events and the pattern of a queue are longer than --max-line", show(name))

    def delete(self, queue: Queue) -> None:
        self._queue_limits.forget(queue)
        self._updates.tell_gone(self._core.acks.delete_queue(queue))
        self._timers.cancel(queue)
        self._exchange.set_events(queue, set())
        self._exchange.set_pattern(queue, None)
        self._definitions.write_deletion(queue)
        del self.by_name[queue.name]
        self._core.account.charge(-_queue_cost(queue.name))

    def purge(self, queue: Queue, most: int) -> int:
        """Settle what is ready in the queue, at most so many messages, as if they had been acked; answers how many that
        were. What consumers have been given stays theirs.

        When this returns the journal has been told, as of acks: a killed broker does not give these messages again.
        Nobody is served meanwhile: of a long queue one takes PURGED_AT_ONCE.
        """
        purged = self._core.limits.purge(queue, most)
        self._core.persistence.write_out()
        return purged

    def set_unused(self, queue: Queue, seconds: float | None) -> bool:
        """A consumer states when its queue may go; answers whether that changed anything."""
        if queue.unused_is_sticky or queue.unused == seconds:
            return False
        queue.unused = seconds
        return True

    def delete_when_unused(self, queue: Queue, seconds: float) -> None:
        """The early form: it stays whatever later consumers say, and counts from now where there is none."""
        if seconds and (queue.unused, queue.unused_is_sticky) != (seconds, True):
            self._definitions.check_room()
        queue.unused_is_sticky = True
        if queue.unused != seconds:
            queue.unused = seconds
            self._updates.tell_update(queue)
        self._definitions.write(queue)
        self.watch_unused(queue)

    def watch_unused(self, queue: Queue, at_least: float = 0.0) -> None:
        """If the queue has no consumers, it goes at once or after its time."""
        if queue.consumers or queue.unused is None:
            return
        wait = max(queue.unused, at_least)
        if wait == 0:
            self.delete(queue)
        else:
            self._timers.set(queue, wait, lambda: self.delete(queue))

    def on_used(self, queue: Queue) -> None:
        """A consumer has joined."""
        queue.deserted = None
        self._timers.cancel(queue)

    def on_left(self, queue: Queue) -> None:
        """A consumer has left."""
        if not queue.consumers:
            queue.deserted = self._timers.clock()
        self.watch_unused(queue)
