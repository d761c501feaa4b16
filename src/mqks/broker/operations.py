"""What actions may do with queues and consumers, beyond what the core does by itself: the broker's policy.

Queues come into being when they are named and go when they are deleted or unused; their consumers are told of changes.
"""

from collections.abc import Callable, Iterable

from mqks.broker import jsons
from mqks.broker.bridge import MQKS, SEVX
from mqks.broker.client import Client
from mqks.broker.errors import BadRequest
from mqks.broker.exchange import Exchange
from mqks.broker.queue import Queue
from mqks.broker.timers import Timers
from mqks.broker.words import Words
from mqks.core.hub import Core
from mqks.core.parts import Consumer

# Bytes of memory, beside the names; measured, and rounded up.
QUEUE_COST = 800
CONSUMER_COST = 600


class Operations:
    def __init__(self, core: Core, clock: Callable[[], float]) -> None:
        self.core = core
        self.exchange = Exchange(core)
        self.timers = Timers(clock)
        self.queues: dict[bytes, Queue] = {}
        self.clients: dict[Client, None] = {}  # in the order in which they came
        self.errors = 0
        self.started = clock()

    def check_room(self) -> None:
        """May more be taken?"""
        if self.core.refusing:
            raise BadRequest("the disk takes no more: see the log of the broker")
        if self.core.full:
            raise BadRequest("out of memory: --max-memory is reached, consume or delete some queue first")

    def check_growth(self, name: bytes, events: Iterable[bytes] = ()) -> None:
        """When memory is full one may still consume, but not make queues or subscriptions."""
        queue = self.queues.get(name)
        if queue is None or not queue.events.issuperset(events):
            self.check_room()

    # ── queues ──

    def queue(self, name: bytes) -> Queue:
        """The queue of this name, made if there is none."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = Queue(name)
            self.core.charge(QUEUE_COST + len(name))
        return queue

    def delete_queue(self, queue: Queue) -> None:
        for consumer in self.core.delete_queue(queue):
            self.core.charge(-CONSUMER_COST - len(consumer.id))
            self.core.tell(consumer)
        self.timers.cancel(queue)
        self.exchange.set_events(queue, set())
        self.exchange.set_pattern(queue, None)
        self.forget(queue)
        del self.queues[queue.name]
        self.core.charge(-QUEUE_COST - len(queue.name))

    def set_unused(self, queue: Queue, seconds: float | None) -> bool:
        """A consumer states when its queue may go; answers whether that changed anything."""
        if queue.unused_is_sticky or queue.unused == seconds:
            return False
        queue.unused = seconds
        return True

    def delete_when_unused(self, queue: Queue, seconds: float) -> None:
        """The early form: it stays whatever later consumers say, and counts from now where there is none."""
        queue.unused_is_sticky = True
        if queue.unused != seconds:
            queue.unused = seconds
            self.tell_update(queue)
        self.keep(queue)
        self.watch_unused(queue)

    def watch_unused(self, queue: Queue, at_least: float = 0.0) -> None:
        """If the queue has no consumers, it goes at once or after its time."""
        if queue.consumers or queue.unused is None:
            return
        wait = max(queue.unused, at_least)
        if wait == 0:
            self.delete_queue(queue)
        else:
            self.timers.set(queue, wait, lambda: self.delete_queue(queue))

    def keep(self, queue: Queue) -> None:
        """The queue is new or may have changed: whoever has a journal writes it down."""

    def forget(self, queue: Queue) -> None:
        """The queue is gone: likewise."""

    # ── consumers ──

    def consumer(self, client: Client, consumer_id: bytes) -> Consumer | None:
        return client.consumers.get(consumer_id) if client.consumers else None

    def queue_to_consume(self, client: Client, consumer_id: bytes, name: bytes) -> Queue:
        """The queue for a new or re-stated consumer; its id must not already stand for another queue."""
        consumer = self.consumer(client, consumer_id)
        if consumer is not None and consumer.queue is not self.queues.get(name):
            raise BadRequest("this consumer id has another queue")
        return self.queue(name)

    def join(
        self, client: Client, consumer_id: bytes, queue: Queue, dialect: int, manual_ack: bool, words: Words
    ) -> Consumer:
        prefetch = int(words.flags.get(b"--prefetch", 0))
        consumer = self.consumer(client, consumer_id)
        if consumer is None:
            consumer = self.core.join(client, consumer_id, queue, dialect, manual_ack, prefetch)
            self.core.charge(CONSUMER_COST + len(consumer_id))
        else:
            self.core.change(consumer, dialect, manual_ack, prefetch)
        self.timers.cancel(queue)
        return consumer

    def leave(self, consumer: Consumer, disconnected: bool = False) -> None:
        self.core.leave(consumer, disconnected)
        self.core.charge(-CONSUMER_COST - len(consumer.id))
        queue = consumer.queue
        assert isinstance(queue, Queue)
        self.watch_unused(queue)

    # ── telling consumers ──

    def tell_update(self, queue: Queue, but: Consumer | None = None) -> None:
        """The events of the queue, or when it goes, have changed: SEVX receivers have no use for either."""
        self._tell(queue, MQKS, but)

    def tell_pattern(self, queue: Queue, but: Consumer) -> None:
        """The pattern of the queue has changed, which MQKS consumers do not know of."""
        self._tell(queue, SEVX, but)

    def _tell(self, queue: Queue, dialect: int, but: Consumer | None) -> None:
        for consumer in queue.consumers:
            if consumer is not but and consumer.dialect == dialect:
                self.core.tell(consumer)

    @staticmethod
    def update(consumer: Consumer) -> bytes:
        """How things stand with a consumer's queue now: nothing is left of one that is gone."""
        queue = consumer.queue
        assert isinstance(queue, Queue)
        if consumer.dialect == MQKS:
            text = b"--update " + (queue.name if queue.gone else queue.update_text(consumer.manual_ack))
        else:
            pattern = None if queue.gone or queue.pattern is None else queue.pattern.content
            text = jsons.dumps({"update": {"queue": queue.name.decode("utf-8", "replace"), "pattern": pattern}})
        return b"%s ok %s\n" % (consumer.id, text)
