"""Consumers come and go: which queue one joins, under which id and limits, and how it leaves."""

import logging

from mqks.broker.capacity import Capacity
from mqks.broker.connections.client import Client
from mqks.broker.connections.connections import Connections
from mqks.broker.errors import BadRequest, show
from mqks.broker.limits import Limits
from mqks.broker.protocol.words import PREFETCH, UPDATED, Words
from mqks.broker.queues.consumer_ids import ConsumerIds, consumer_cost
from mqks.broker.queues.queue import Queue
from mqks.broker.queues.queue_manager import QueueManager
from mqks.broker.slices import Job
from mqks.core.hub import Core
from mqks.core.parts import Consumer
from mqks.logs import Entry

log = logging.getLogger(__name__)

# Units of work: see Slices.
LEAVING = 4  # of a consumer,
RETURNED = 8  # and so many of its messages are one more
RETURNED_AT_ONCE = 1 << 12  # messages
DELETING = 40  # of a queue


class ConsumerManager:
    def __init__(
        self,
        core: Core,
        limits: Limits,
        capacity: Capacity,
        connections: Connections,
        consumer_ids: ConsumerIds,
        queues: QueueManager,
    ) -> None:
        self._core = core
        self._limits = limits
        self._capacity = capacity
        self._connections = connections
        self._queues = queues
        self._stated: dict[tuple[bytes, ...], tuple[bytes, ...]] = {}  # one of each, which consumers share
        self.by_id = consumer_ids

    @staticmethod
    def find(client: Client, consumer_id: bytes) -> Consumer | None:
        """The consumer that the connection has under this id."""
        return client.consumers.get(consumer_id) if client.consumers else None

    def check_not_elsewhere(self, consumer_id: bytes) -> None:
        """A request speaks of a consumer that its connection does not have. One that exists nowhere is fine."""
        having = self.by_id.having(consumer_id)
        if any(not consumer.gone and not consumer.connection.gone for consumer in having):
            raise BadRequest("this consumer belongs to another connection", show(consumer_id))

    def queue_to_consume(self, client: Client, consumer_id: bytes, name: bytes, queue: Queue | None) -> Queue:
        """The queue for a new or re-stated consumer, made if there is none; the consumer's id must not already stand
        for another queue."""
        consumer = self.find(client, consumer_id)
        if consumer is None:
            if len(client.consumers or ()) >= self._limits.max_consumers and not client.inside:
                raise self._limits.reached("max_consumers")
            self._capacity.check_reader(client, consumer_cost(consumer_id))
        elif consumer.queue is not queue:
            raise BadRequest("this consumer id has another queue")
        return self._queues.make(name) if queue is None else queue

    def join(
        self, client: Client, consumer_id: bytes, queue: Queue, dialect: int, manual_ack: bool, words: Words
    ) -> Consumer:
        prefetch = self._prefetch(client, consumer_id, manual_ack, int(words.flags.get(PREFETCH, 0)))
        consumer = self.find(client, consumer_id)
        if consumer is None:
            if queue.consumers:
                self._connections.sockets.notice_closes(client)
            consumer = self._core.acks.join(client, consumer_id, queue, dialect, manual_ack, prefetch)
            self.by_id.add(consumer)
        else:
            self._core.acks.change(consumer, dialect, manual_ack, prefetch)
        stated = tuple(flag for flag in UPDATED if flag in words.flags)
        consumer.stated = self._stated.setdefault(stated, stated)
        self._queues.on_used(queue)
        return consumer

    def _prefetch(self, client: Client, consumer_id: bytes, manual_ack: bool, asked: int) -> int:
        """How many unacked messages it may have; 0 for any number, which only those who ack by hand could pile up."""
        most = self._limits.max_unacked
        if not most or not manual_ack or 0 < asked <= most or client.inside:
            return asked
        reason = str(self._limits.reached("max_unacked"))
        said = "client {client} gets no more than {most} messages unacked for consumer {consumer!a}: {reason}"
        log.info(Entry(said, client=client.peer, most=most, consumer=consumer_id, reason=reason))
        return most

    def leave(self, consumer: Consumer, disconnected: bool = False) -> None:
        self._core.acks.leave(consumer, disconnected)
        self.by_id.remove(consumer)
        queue = consumer.queue
        assert isinstance(queue, Queue)
        self._queues.on_left(queue)

    def leave_all(self, client: Client, *, disconnected: bool) -> Job:
        """All consumers of a client leave."""
        for consumer in list((client.consumers or {}).values()):
            while not self._core.acks.return_some(consumer, RETURNED_AT_ONCE, disconnected):
                yield RETURNED_AT_ONCE // RETURNED
            if not consumer.gone:
                unacked = consumer.unacked
                self.leave(consumer, disconnected)
                yield LEAVING + unacked // RETURNED + (DELETING if consumer.queue.gone else 0)
