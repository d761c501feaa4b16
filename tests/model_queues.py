"""The model's state: connections, queues, consumers and deliveries, with lists and linear scans only.

It knows nothing of requests and their grammar; `tests/model.py` reads these and calls the methods here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.model_words import LIMITS, Bad, Flags, equal, matches


@dataclass(eq=False)
class Message:
    id: bytes
    event: bytes  # b"" for a SEVX event without a legal name
    data: bytes  # as it came: MQKS data, or the SEVX event's JSON
    content: dict[str, Any]  # what patterns are matched with
    json: bytes  # what SEVX receivers get
    size: int  # of its line, as it is kept


@dataclass(eq=False)
class Copy:
    """A message in one queue."""

    message: Message
    retry: int = 0
    number: int | None = None  # its place in the queue, given when it leaves the ready list


@dataclass(eq=False)
class Connection:
    received: bytes = b""  # an unfinished line
    skipping: bool = False  # it was too long
    lines: list[Line] = field(default_factory=list)  # not wholly sent
    offset: int = 0  # bytes of the first line that were sent
    consumers: dict[bytes, Consumer] = field(default_factory=dict)
    unread: bytes = b""
    early: bool = True  # all its requests are in the early spec, which has no --update
    due: dict[Consumer, None] = field(default_factory=dict)  # who is to be told, as soon as it reads

    def pending(self) -> bytes:
        return b"".join(line.text for line in self.lines)[self.offset :]

    def write(self, request_id: bytes, data: bytes, delivery: Delivery | None = None) -> None:
        self.lines.append(Line(request_id + b" " + data + b"\n", delivery))


@dataclass(eq=False)
class Consumer:
    id: bytes
    connection: Connection
    queue: Queue
    sevx: bool = False
    manual_ack: bool = False
    prefetch: int = 0
    stated: set[bytes] = field(default_factory=set)  # the flags of its request
    paused: bool = False
    dismissed: bool = False  # its queue was deleted


@dataclass(eq=False)
class Delivery:
    """A copy that was given to a consumer and is not settled."""

    copy: Copy
    consumer: Consumer
    left: bool = False  # its last byte has been sent


@dataclass(eq=False)
class Line:
    text: bytes
    delivery: Delivery | None


@dataclass(eq=False)
class Queue:
    name: bytes
    events: set[bytes] = field(default_factory=set)
    pattern: dict[str, Any] | None = None
    when_unused: float | None = None  # seconds
    pinned: bool = False  # when_unused is from `delete_queue --when-unused`
    unused_since: float = 0.0
    consumers: list[Consumer] = field(default_factory=list)  # in the order in which they joined
    next: int = 0  # index of the consumer whose turn it is
    ready: list[Copy] = field(default_factory=list)
    returned: list[Copy] = field(default_factory=list)  # by number; they go before the ready ones
    out: list[Delivery] = field(default_factory=list)  # in the order of delivery
    numbers: int = 0
    max_length: int = 0  # 0: no limit
    max_bytes: int = 0
    overflow: bytes = b""  # as it was last stated
    dropped: int = 0

    @property
    def drops_oldest(self) -> bool:
        return self.overflow == b"drop-oldest"

    def held(self) -> list[Message]:
        """All that is in it, also what consumers have and did not settle."""
        return [copy.message for copy in [*self.returned, *self.ready, *(delivery.copy for delivery in self.out)]]

    def exceeds(self, *more: Message) -> bool:
        """Would it have more than it may, with these messages?"""
        messages = [*self.held(), *more]
        is_long = self.max_length and len(messages) > self.max_length
        return bool(is_long or (self.max_bytes and sum(message.size for message in messages) > self.max_bytes))

    def refuses(self, message: Message) -> bool:
        return self.exceeds(message) and not self.drops_oldest

    def drop_excess(self) -> None:
        while self.drops_oldest and self.exceeds() and (self.returned or self.ready):
            (self.returned or self.ready).pop(0)
            self.dropped += 1

    def give_back(self, delivery: Delivery, retry: int) -> None:
        self.out.remove(delivery)
        delivery.copy.retry += retry
        self.returned.append(delivery.copy)
        self.returned.sort(key=lambda copy: copy.number or 0)

    def of(self, consumer: Consumer) -> list[Delivery]:
        return [delivery for delivery in self.out if delivery.consumer is consumer]

    def has_room(self, consumer: Consumer, high_water: int) -> bool:
        free = not consumer.prefetch or len(self.of(consumer)) < consumer.prefetch
        return free and not consumer.paused and len(consumer.connection.pending()) < high_water


def pattern_update(queue: bytes, pattern: dict[str, Any] | None) -> bytes:
    return json.dumps({"update": {"queue": queue.decode(), "pattern": pattern}}).encode()


class Queues:
    """All that the broker holds, and all that happens to it but the reading of requests."""

    def __init__(
        self,
        *,
        max_line: int,
        high_water: int,
        clock: Callable[[], float],
        dedup_window: float = 3600,
        dedup_count: int = 1_000_000,
    ) -> None:
        self.max_line, self.high_water, self.clock = max_line, high_water, clock
        self.choked = 2 * high_water + max_line
        self.held_back: list[Connection] = []  # those with lines that wait until they read
        self.connections: list[Connection] = []
        self.queues: dict[bytes, Queue] = {}
        self.dedup_window, self.dedup_count = dedup_window, dedup_count
        self.seen: list[tuple[bytes, bytes, float]] = []  # scope, id and time of what was published --once

    # The door

    def connect(self) -> Connection:
        self.connections.append(Connection())
        return self.connections[-1]

    def deliver(self, order: Sequence[bytes] = ()) -> None:
        """Deliver. Which queue is served first is nobody's promise: `order` names those that come first."""
        for queue in [*map(self.queues.__getitem__, order), *self.queues.values()]:
            while queue.ready or queue.returned:
                if not self.deliver_one(queue):
                    break

    def sent(self, connection: Connection, count: int) -> None:
        connection.offset += count
        while connection.lines and connection.offset >= len(connection.lines[0].text):
            line = connection.lines.pop(0)
            connection.offset -= len(line.text)
            if delivery := line.delivery:
                delivery.left = True
                if delivery in delivery.consumer.queue.out and not delivery.consumer.manual_ack:
                    delivery.consumer.queue.out.remove(delivery)
        if len(connection.pending()) <= self.choked:
            due, connection.due = connection.due, {}
            for consumer in due:
                is_there = connection.consumers.get(consumer.id) is consumer
                if is_there or consumer.dismissed:
                    self.tell(consumer)

    def disconnect(self, connection: Connection) -> None:
        self.connections.remove(connection)
        for queue in list(self.queues.values()):
            for delivery in [d for d in queue.out if d.consumer.connection is connection]:
                queue.give_back(delivery, retry=int(delivery.left))
        for consumer in list(connection.consumers.values()):
            self.leave(consumer)

    def tick(self) -> None:
        for queue in list(self.queues.values()):
            waits = not queue.consumers and queue.when_unused is not None
            if waits and queue.unused_since + (queue.when_unused or 0) <= self.clock():
                self.remove_queue(queue)

    # Messages

    def publish(self, message: Message, scope: bytes | None) -> None:
        """Route it, unless it is to be taken once (in a scope) and was, or a queue has no place for it."""
        now = self.clock()
        if scope is not None:
            self.seen = [one for one in self.seen if now - one[2] <= self.dedup_window]
            if any(one[:2] == (scope, message.id) for one in self.seen):
                return
        wanting = [queue for queue in self.queues.values() if self.wants(queue, message)]
        if any(queue.refuses(message) for queue in wanting):
            raise Bad
        if scope is not None:
            self.seen = [*self.seen, (scope, message.id, now)][-self.dedup_count :]
        for queue in wanting:
            queue.ready.append(Copy(message))
            queue.drop_excess()

    @staticmethod
    def wants(queue: Queue, message: Message) -> bool:
        by_pattern = queue.pattern is not None and matches(queue.pattern, message.content)
        return message.event in queue.events or by_pattern

    def deliver_one(self, queue: Queue) -> bool:
        """Give the first message to the consumer whose turn it is; False if none has room."""
        for step in range(len(queue.consumers)):
            index = (queue.next + step) % len(queue.consumers)
            consumer = queue.consumers[index]
            if queue.has_room(consumer, self.high_water):
                break
        else:
            return False
        queue.next = index + 1
        copy = (queue.returned or queue.ready).pop(0)
        if copy.number is None:
            copy.number = queue.numbers
            queue.numbers += 1
        delivery = Delivery(copy, consumer)
        queue.out.append(delivery)
        message, retry = copy.message, b"%d" % copy.retry
        if consumer.sevx:
            data = message.json
            if copy.retry:
                data = b'{"retry": ' + retry + (b", " + data[1:] if message.content else b"}")
        else:
            data = b"event=" + message.event + (b",retry=" + retry if copy.retry else b"") + b" " + message.data
        consumer.connection.write(consumer.id, b"ok " + message.id + b" " + data, delivery)
        return True

    def settle(self, connection: Connection, consumer_id: bytes, msg_id: bytes | None, reject: bool) -> None:
        """ack or reject of one message, or (msg_id None) of all that have left."""
        consumer = connection.consumers.get(consumer_id)
        if consumer is None or not consumer.manual_ack:
            return
        queue = consumer.queue
        if msg_id is None:
            chosen = [delivery for delivery in queue.of(consumer) if delivery.left]
        else:
            chosen = [delivery for delivery in queue.of(consumer) if delivery.copy.message.id == msg_id][:1]
        for delivery in chosen:
            queue.out.remove(delivery)
            if reject:
                queue.ready.append(Copy(delivery.copy.message, delivery.copy.retry + 1))

    # Queues and consumers

    def queue(self, name: bytes) -> Queue:
        return self.queues.setdefault(name, Queue(name))

    def join(
        self,
        connection: Connection,
        consumer_id: bytes,
        queue: bytes,
        sevx: bool,
        manual: bool,
        flags: Flags,
    ) -> Consumer:
        """Make the consumer or restate its options."""
        consumer = connection.consumers.get(consumer_id)
        if consumer is None:
            consumer = connection.consumers[consumer_id] = Consumer(consumer_id, connection, self.queue(queue))
            consumer.queue.consumers.append(consumer)
        elif consumer.queue.name != queue:
            raise Bad
        if consumer.manual_ack and not manual:
            for delivery in consumer.queue.of(consumer):
                if delivery.left:
                    consumer.queue.give_back(delivery, retry=1)
        consumer.sevx, consumer.manual_ack = sevx, manual
        consumer.prefetch = int(flags.get(b"--prefetch") or 0)
        consumer.stated = set(flags)
        return consumer

    def limit(self, queue: Queue, flags: Flags) -> None:
        """What a request says about how long the queue may be."""
        queue.max_length = flags.get(b"--max-length", queue.max_length)
        queue.max_bytes = flags.get(b"--max-bytes", queue.max_bytes)
        queue.overflow = flags.get(b"--overflow", queue.overflow)
        if flags.keys() & LIMITS:
            queue.drop_excess()

    def leave(self, consumer: Consumer) -> None:
        queue = consumer.queue
        index = queue.consumers.index(consumer)
        queue.consumers.pop(index)
        queue.next -= index < queue.next
        del consumer.connection.consumers[consumer.id]
        if not queue.consumers:
            self.start_clock(queue)

    def delete_consumer(self, connection: Connection, consumer_id: bytes) -> None:
        consumer = connection.consumers.get(consumer_id)
        if consumer is None:
            return
        if consumer.manual_ack:
            for delivery in consumer.queue.of(consumer):
                consumer.queue.give_back(delivery, retry=1)
        self.leave(consumer)

    def check_not_elsewhere(self, connection: Connection, consumer_id: bytes) -> None:
        """A consumer that exists only on another connection cannot be spoken of."""
        having = [one for one in self.connections if consumer_id in one.consumers]
        if having and connection not in having:
            raise Bad

    def start_clock(self, queue: Queue) -> None:
        queue.unused_since = self.clock()
        if queue.when_unused == 0:
            self.remove_queue(queue)

    def delete_queue(self, name: bytes) -> None:
        queue = self.queues.get(name)
        if queue is None:
            return
        for consumer in queue.consumers:
            del consumer.connection.consumers[consumer.id]
            consumer.dismissed = True
        self.remove_queue(queue)
        for consumer in queue.consumers:
            self.tell(consumer)

    def tell(self, consumer: Consumer) -> None:
        """How things stand with its queue; to one who has let too much pile up only when there is room again."""
        connection = consumer.connection
        if len(connection.pending()) > self.choked:
            connection.due[consumer] = None
        elif not connection.early:
            connection.write(consumer.id, b"ok " + self.update(consumer))

    def update(self, consumer: Consumer) -> bytes:
        queue = consumer.queue
        if consumer.sevx:
            return pattern_update(queue.name, queue.pattern if self.queues.get(queue.name) is queue else None)
        return b"--update " + self.text(consumer)

    def text(self, consumer: Consumer) -> bytes:
        """The data of a `consume` that asks for what this consumer has now. A deleted queue has no events."""
        queue = consumer.queue
        words = [queue.name]
        if self.queues.get(queue.name) is queue:
            words += sorted(queue.events)
        if queue.when_unused is not None:
            value = b"=%s" % str(float(queue.when_unused)).encode() if queue.when_unused else b""
            words.append(b"--delete-queue-when-unused" + value)
        if consumer.manual_ack:
            words.append(b"--manual-ack")
        values = {
            b"--prefetch": b"%d" % consumer.prefetch,
            b"--max-bytes": b"%d" % queue.max_bytes,
            b"--max-length": b"%d" % queue.max_length,
            b"--overflow": queue.overflow,
        }
        words += [b"%s=%s" % item for item in values.items() if item[0] in consumer.stated]
        return b" ".join(words)

    def texts(self, name: bytes) -> dict[Consumer, bytes]:
        """Of all consumers of a queue, to be compared after a change."""
        queue = self.queues.get(name)
        return {consumer: self.text(consumer) for consumer in queue.consumers} if queue else {}

    def tell_changes(self, before: dict[Consumer, bytes], but: Consumer | None = None) -> None:
        """Tell all MQKS consumers `but` one for whom something has changed."""
        for consumer, text in before.items():
            if text != self.text(consumer) and not consumer.sevx and consumer is not but:
                self.tell(consumer)

    def remove_queue(self, queue: Queue) -> None:
        queue.out.clear()
        del self.queues[queue.name]

    def change(
        self,
        queue: Queue,
        events: set[bytes],
        when_unused: float | None,
        pin: bool = False,
    ) -> None:
        """Set the events of a queue, and when it goes unless that is pinned."""
        if queue.pinned and not pin:
            when_unused = queue.when_unused
        queue.events, queue.when_unused, queue.pinned = events, when_unused, queue.pinned or pin

    def change_pattern(self, queue: Queue, pattern: dict[str, Any], but: Consumer) -> None:
        """Set the queue's pattern; if it is another one, tell all SEVX receivers `but` one."""
        changed = queue.pattern is None or not equal(queue.pattern, pattern)
        queue.pattern = pattern
        for receiver in queue.consumers:
            if changed and receiver.sevx and receiver is not but:
                self.tell(receiver)
