"""What actions may do with queues and consumers, beyond what the core does by itself: the broker's policy.

Queues come into being when they are named and go when they are deleted or unused; their consumers are told of changes.
What clients did is counted here.
"""

import logging
from collections import Counter
from collections.abc import Callable

from mqks.broker.connections.client import CONNECTION_COST, Client, origin
from mqks.broker.connections.mistakes import Mistakes
from mqks.broker.connections.pace import Pace
from mqks.broker.errors import BadRequest, show
from mqks.broker.limits import Limits
from mqks.broker.protocol import jsons
from mqks.broker.protocol.bridge import MQKS, SEVX
from mqks.broker.protocol.words import PREFETCH, UPDATED, Words
from mqks.broker.queues.consumer_ids import ConsumerIds
from mqks.broker.queues.exchange import NAME_COPIES, Exchange, named
from mqks.broker.queues.overflow import Bounds, Overflow
from mqks.broker.queues.patterns import Pattern
from mqks.broker.queues.queue import Queue
from mqks.broker.reserve import Reserve
from mqks.broker.slices import NEXT_TURN, Job, Slices
from mqks.broker.timers import Timers
from mqks.core.hub import Core
from mqks.core.parts import Consumer
from mqks.core.parts import Queue as CoreQueue
from mqks.logs import Entry

log = logging.getLogger(__name__)

# Bytes of memory, beside the names; measured, and rounded up.
QUEUE_COST = 1000
CONSUMER_COST = 600

LONGEST_DEFINITION = 1 << 20  # bytes of a queue's name, events and pattern, or as many as a line may have
PURGED_AT_ONCE = 1 << 14  # messages, before others have their turn

# Units of work: see Slices.
LEAVING = 4  # of a consumer,
RETURNED = 8  # and so many of its messages are one more
RETURNED_AT_ONCE = 1 << 12  # messages
DELETING = 40  # of a queue
TELLING = 2  # a consumer about its queue
MANY_TOLD = 100  # consumers, after which others have their turn


def nobody_goes(_: BadRequest) -> bool:
    return False


def do_nothing(*_: object) -> None:
    """Where no sockets are."""


def everyone(_: Consumer) -> bool:
    return True


def _queue_cost(name: bytes) -> int:
    return QUEUE_COST + NAME_COPIES * len(name)


def _consumer_cost(consumer_id: bytes) -> int:
    """The core has the id twice, once as the beginning of replies."""
    return CONSUMER_COST + 2 * len(consumer_id)


class Operations:
    mistakes: Mistakes  # which need ids: see Durable

    def __init__(self, core: Core, clock: Callable[[], float], limits: Limits) -> None:
        self.core = core
        self.limits = limits
        self.exchange = Exchange(core)
        self.timers = Timers(clock, core.charge)
        self.slices = Slices(self.timers)
        self.asking: Client | None = None  # whose request is being handled
        self._to_tell: dict[tuple[Queue, int], dict[Consumer, None]] = {}  # by queue and dialect: of what has changed
        self.pace = Pace(limits, core, self.timers)
        self.overflow = Overflow(self, limits)
        self.queues: dict[bytes, Queue] = {}
        self.consumer_ids = ConsumerIds()
        self.addresses: list[str] = []  # where clients connect, as "host:port"; the server's
        self.clients: dict[Client, None] = {}  # in the order in which they came
        self.listeners: dict[bytes, Callable[[bytes], None]] = {}  # by event
        self.make_room: Callable[[BadRequest], bool] = nobody_goes  # for one more client: see Entrance
        self.notice_closes: Callable[[Client], object] = do_nothing  # by peers, before a consumer joins: see Poller
        self.refused = 0  # clients that were turned away, because there were too many
        self.connections = 0  # clients, without those from inside
        self._origins: Counter[str] = Counter()  # how many of them come from where
        self._stated: dict[tuple[bytes, ...], tuple[bytes, ...]] = {}  # one of each, which consumers share
        self._for_connections = Reserve(core)
        self.for_readers = Reserve(core)  # consumers and histories
        self.started = clock()

    # ── clients, and others who listen ──

    def welcome(self, client: Client) -> None:
        self.clients[client] = None
        self._for_connections.charge(client.cost)
        self.pace.welcome(client)
        if not client.inside:
            self.connections += 1
            self._origins[origin(client.peer)] += 1

    def farewell(self, client: Client) -> None:
        del self.clients[client]
        self._for_connections.charge(-client.cost)
        self.pace.forget(client)
        if not client.inside:
            self.connections -= 1
            where = origin(client.peer)
            self._origins[where] -= 1
            if not self._origins[where]:
                del self._origins[where]

    def crowded(self, peer: str, cost: int = CONNECTION_COST) -> BadRequest | None:
        """Why one more client, which takes so many bytes of memory, cannot be served, if it cannot."""
        if self._origins[origin(peer)] >= self.limits.max_connections_per_address:
            return self.limits.reached("max_connections_per_address")
        if self.connections >= self.limits.max_connections:
            bad = self.limits.reached("max_connections")
            return None if self.make_room(bad) else bad
        if not self._for_connections.has_room(cost):
            bad = self.limits.reached("max_memory")
            return None if self.make_room(bad) else bad
        return None

    @property
    def errors(self) -> int:
        """Requests that were answered with an error."""
        return self.mistakes.errors

    def listen(self, event: bytes, take: Callable[[bytes], None]) -> None:
        """From now on `take` gets the data of each MQKS message of this event, in the turn that it comes in, and other
        messages cost nothing. There is one listener to an event, and it asks nothing of the broker meanwhile."""
        if event not in self.listeners:
            self.core.events.inspect(event, 1)
        self.listeners[event] = take

    # ── room ──

    def check_room(self) -> None:
        """May more be taken?"""
        if self.core.refusing:
            raise self.limits.reached("min_free_disk")
        self.check_memory()

    def check_memory(self) -> None:
        """Likewise, of what is never written down."""
        if self.core.full:
            raise self.limits.reached("max_memory")

    def check_reader(self, client: Client, cost: int) -> None:
        """May this client have one more consumer, or history, that takes so many bytes of memory?"""
        if not client.inside and not self.for_readers.has_room(cost):
            raise self.limits.reached("max_memory")

    def check_writing(self) -> None:
        """May a queue that is there be written down anew? Whoever has a journal asks for room."""

    def check_freeing(self) -> None:
        """Likewise, where something goes by it. A full disk is freed so, and full memory too, for what is written
        leaves it: only where both are full there is no place for that."""
        if self.core.refusing:
            self.check_memory()

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

        One that has more than the limits allow keeps it. With full memory or disk one may still consume: who says what
        holds already changes nothing, and who says nothing of when the queue goes changes that once."""
        if queue is None and len(self.queues) >= self.limits.max_queues:
            raise self.limits.reached("max_queues")
        had = {*queue.events, *named(queue.pattern)} if queue else set()
        asked = pattern or (queue.pattern if queue else None)
        wanted = {*events, *named(asked)}
        if (queue is None or not wanted <= had) and len(wanted) > self.limits.max_events:
            raise self.limits.reached("max_events", show(name))
        if queue is None or not wanted <= had or pattern is not None:
            self._check_size(name, events, asked)
            self.check_room()
        elif bounds != queue.bounds or (unused not in (None, queue.unused) and not queue.unused_is_sticky):
            self.check_writing()
        elif events != queue.events:
            self.check_freeing()

    def _check_size(self, name: bytes, events: set[bytes], pattern: Pattern | None) -> None:
        size = len(name) + len(events) + sum(map(len, events)) + (len(jsons.dumps(pattern.content)) if pattern else 0)
        if size > max(self.core.max_line, LONGEST_DEFINITION):
            raise BadRequest("the events and the pattern of a queue are longer than --max-line", show(name))

    def check_taken(self, full: CoreQueue | None) -> None:
        """The core has taken a message, or has found a queue that has no place for it."""
        if full is not None:
            assert isinstance(full, Queue)
            raise self.overflow.refused(full)

    # ── queues ──

    def find(self, name: bytes) -> Queue | None:
        """The queue of this name, for a request about it: after one about a large queue others have their turn."""
        queue = self.queues.get(name)
        if queue is not None and queue.is_large:
            self.core.rest()
        return queue

    def make_queue(self, name: bytes) -> Queue:
        """A new queue; there is none of this name."""
        queue = self.queues[name] = Queue(name, self.timers.clock())
        self.core.charge(_queue_cost(name))
        return queue

    def delete_queue(self, queue: Queue) -> None:
        self.overflow.forget(queue)
        consumers = self.core.delete_queue(queue)
        self._dismiss([consumer for consumer in consumers if consumer.connection is self.asking])
        others = [consumer for consumer in consumers if consumer.connection is not self.asking]
        self.slices.start(self._dismiss_others(others))
        self.timers.cancel(queue)
        self.exchange.set_events(queue, set())
        self.exchange.set_pattern(queue, None)
        self.forget(queue)
        del self.queues[queue.name]
        self.core.charge(-_queue_cost(queue.name))

    def purge(self, queue: Queue, most: int) -> int:
        """Settle what is ready in the queue, at most so many messages, as if they had been acked; answers how many that
        were. What consumers have been given stays theirs.

        When this returns the journal has been told, as of acks: a killed broker does not give these messages again.
        Nobody is served meanwhile: of a long queue one takes PURGED_AT_ONCE.
        """
        purged = self.core.purge(queue, most)
        self.core.write_out()
        return purged

    def set_bounds(self, queue: Queue, bounds: Bounds) -> set[bytes]:
        """Set its limits; answers the flags whose values changed."""
        changed = queue.bounds.differing(bounds)
        self.overflow.apply(queue, bounds)
        return changed

    def set_unused(self, queue: Queue, seconds: float | None) -> bool:
        """A consumer states when its queue may go; answers whether that changed anything."""
        if queue.unused_is_sticky or queue.unused == seconds:
            return False
        queue.unused = seconds
        return True

    def delete_when_unused(self, queue: Queue, seconds: float) -> None:
        """The early form: it stays whatever later consumers say, and counts from now where there is none."""
        if seconds and (queue.unused, queue.unused_is_sticky) != (seconds, True):
            self.check_writing()
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

    def check_not_elsewhere(self, consumer_id: bytes) -> None:
        """A request speaks of a consumer that its connection does not have. One that exists nowhere is fine."""
        having = self.consumer_ids.having(consumer_id)
        if any(not consumer.gone and not consumer.connection.gone for consumer in having):
            raise BadRequest("this consumer belongs to another connection", show(consumer_id))

    def queue_to_consume(self, client: Client, consumer_id: bytes, name: bytes, queue: Queue | None) -> Queue:
        """The queue for a new or re-stated consumer, made if there is none; the consumer's id must not already stand
        for another queue."""
        consumer = self.consumer(client, consumer_id)
        if consumer is None:
            if len(client.consumers or ()) >= self.limits.max_consumers and not client.inside:
                raise self.limits.reached("max_consumers")
            self.check_reader(client, _consumer_cost(consumer_id))
        elif consumer.queue is not queue:
            raise BadRequest("this consumer id has another queue")
        return self.make_queue(name) if queue is None else queue

    def join(
        self, client: Client, consumer_id: bytes, queue: Queue, dialect: int, manual_ack: bool, words: Words
    ) -> Consumer:
        prefetch = self._prefetch(client, consumer_id, manual_ack, int(words.flags.get(PREFETCH, 0)))
        consumer = self.consumer(client, consumer_id)
        if consumer is None:
            if queue.consumers:
                self.notice_closes(client)
            consumer = self.core.join(client, consumer_id, queue, dialect, manual_ack, prefetch)
            self.consumer_ids.add(consumer)
            self.for_readers.charge(_consumer_cost(consumer_id))
        else:
            self.core.change(consumer, dialect, manual_ack, prefetch)
        stated = tuple(flag for flag in UPDATED if flag in words.flags)
        consumer.stated = self._stated.setdefault(stated, stated)
        queue.deserted = None
        self.timers.cancel(queue)
        return consumer

    def _prefetch(self, client: Client, consumer_id: bytes, manual_ack: bool, asked: int) -> int:
        """How many unacked messages it may have; 0 for any number, which only those who ack by hand could pile up."""
        most = self.limits.max_unacked
        if not most or not manual_ack or 0 < asked <= most or client.inside:
            return asked
        reason = str(self.limits.reached("max_unacked"))
        said = "client {client} gets no more than {most} messages unacked for consumer {consumer!a}: {reason}"
        log.info(Entry(said, client=client.peer, most=most, consumer=consumer_id, reason=reason))
        return most

    def leave(self, consumer: Consumer, disconnected: bool = False) -> None:
        self.core.leave(consumer, disconnected)
        self._forget_consumer(consumer)
        queue = consumer.queue
        assert isinstance(queue, Queue)
        if not queue.consumers:
            queue.deserted = self.timers.clock()
        self.watch_unused(queue)

    def _forget_consumer(self, consumer: Consumer) -> None:
        self.consumer_ids.remove(consumer)
        self.for_readers.charge(-_consumer_cost(consumer.id))

    def leave_all(self, client: Client, *, disconnected: bool) -> Job:
        """All consumers of a client leave."""
        for consumer in list((client.consumers or {}).values()):
            while not self.core.return_some(consumer, RETURNED_AT_ONCE, disconnected):
                yield RETURNED_AT_ONCE // RETURNED
            if not consumer.gone:
                unacked = consumer.unacked
                self.leave(consumer, disconnected)
                yield LEAVING + unacked // RETURNED + (DELETING if consumer.queue.gone else 0)

    # ── telling consumers ──

    def tell_update(self, queue: Queue, but: Consumer | None = None) -> None:
        """The events of the queue, or when it goes, have changed: SEVX receivers have no use for either."""
        self._tell(queue, MQKS, but)

    def tell_limits(
        self, queue: Queue, changed: set[bytes], but: Consumer | None = None, also: Consumer | None = None
    ) -> None:
        """These limits of the queue have changed: consumers that stated one of them are told, and `also` one that has
        changed its own options."""
        if changed:
            self._tell(queue, MQKS, but, lambda consumer: consumer is also or not changed.isdisjoint(consumer.stated))
        elif also is not None:
            self.core.tell(also)

    def tell_pattern(self, queue: Queue, but: Consumer) -> None:
        """The pattern of the queue has changed, which MQKS consumers do not know of."""
        self._tell(queue, SEVX, but)

    def _tell(
        self, queue: Queue, dialect: int, but: Consumer | None, wants: Callable[[Consumer], bool] = everyone
    ) -> None:
        """The consumers of the client that asks are told now, before it is answered. The others are told in slices."""
        others = []
        for consumer in queue.consumers:
            if consumer is not but and consumer.dialect == dialect and wants(consumer):
                if consumer.connection is self.asking:
                    self.core.tell(consumer)
                else:
                    others.append(consumer)
        if len(queue.consumers) > MANY_TOLD:
            self.core.rest()
        if (queue, dialect) in self._to_tell:
            self._to_tell[queue, dialect].update(dict.fromkeys(others))
        elif others:
            self._to_tell[queue, dialect] = dict.fromkeys(others)
            self.core.suspend(queue)
            self.slices.start(self._tell_others(queue, dialect))

    def _tell_others(self, queue: Queue, dialect: int) -> Job:
        """The queue is suspended meanwhile: no message comes before the update. Consumers of which there is another
        change until all are told are told again; between these rounds the queue is served for a turn."""
        suspended = True
        try:
            while others := self._to_tell[queue, dialect]:
                self._to_tell[queue, dialect] = {}
                if not suspended:
                    self.core.suspend(queue)
                    suspended = True
                for consumer in others:
                    if not consumer.gone:
                        self.core.tell(consumer)
                    yield TELLING
                self.core.go_on(queue)
                suspended = False
                if self._to_tell[queue, dialect]:
                    yield NEXT_TURN
        finally:
            del self._to_tell[queue, dialect]
            if suspended:
                self.core.go_on(queue)

    def _dismiss(self, consumers: list[Consumer]) -> None:
        """Tell consumers that their queue is gone."""
        for consumer in consumers:
            self._forget_consumer(consumer)
            self.core.tell(consumer)

    def _dismiss_others(self, consumers: list[Consumer]) -> Job:
        """Likewise, in slices. An id that stands for another consumer by now is left out: it is in use."""
        for consumer in consumers:
            self._forget_consumer(consumer)
            if consumer.id not in consumer.connection.consumers:
                self.core.tell(consumer)
            yield TELLING

    @staticmethod
    def update(consumer: Consumer) -> bytes:
        """How things stand with a consumer's queue now: one that is gone has neither events nor a pattern."""
        queue = consumer.queue
        assert isinstance(queue, Queue)
        if consumer.dialect == MQKS:
            text = b"--update " + queue.update_text(consumer)
        else:
            pattern = None if queue.gone or queue.pattern is None else queue.pattern.content
            text = jsons.dumps({"update": {"queue": queue.name.decode("utf-8", "replace"), "pattern": pattern}})
        return b"%s ok %s\n" % (consumer.id, text)
