"""Consumers are told what changes of their queue: `--update` lines, and that it is gone.

The consumers of the client whose request is handled are told before it is answered. The others are told in slices, and
get no message of the queue before that.
"""

from collections.abc import Callable

from mqks.broker.connections.client import Client
from mqks.broker.protocol import jsons
from mqks.broker.protocol.bridge import MQKS, SEVX
from mqks.broker.queues.consumer_ids import ConsumerIds
from mqks.broker.queues.queue import Queue
from mqks.broker.slices import NEXT_TURN, Job, Slices
from mqks.core.hub import Core
from mqks.core.parts import Consumer

TELLING = 2  # units of work, see Slices: a consumer about its queue
MANY_TOLD = 100  # consumers, after which others have their turn


def everyone(_: Consumer) -> bool:
    return True


class Updates:
    def __init__(self, core: Core, slices: Slices, consumer_ids: ConsumerIds) -> None:
        self._core = core
        self._slices = slices
        self._consumer_ids = consumer_ids
        self.asking: Client | None = None  # whose request is being handled; see Requests
        self._to_tell: dict[tuple[Queue, int], dict[Consumer, None]] = {}  # by queue and dialect: of what has changed

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
            self._core.output.tell(also)

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
                    self._core.output.tell(consumer)
                else:
                    others.append(consumer)
        if len(queue.consumers) > MANY_TOLD:
            self._core.parser.rest()
        if (queue, dialect) in self._to_tell:
            self._to_tell[queue, dialect].update(dict.fromkeys(others))
        elif others:
            self._to_tell[queue, dialect] = dict.fromkeys(others)
            self._core.ready.suspend(queue)
            self._slices.start(self._tell_others(queue, dialect))

    def _tell_others(self, queue: Queue, dialect: int) -> Job:
        """The queue is suspended meanwhile: no message comes before the update. Consumers of which there is another
        change until all are told are told again; between these rounds the queue is served for a turn."""
        suspended = True
        try:
            while others := self._to_tell[queue, dialect]:
                self._to_tell[queue, dialect] = {}
                if not suspended:
                    self._core.ready.suspend(queue)
                    suspended = True
                for consumer in others:
                    if not consumer.gone:
                        self._core.output.tell(consumer)
                    yield TELLING
                self._core.ready.go_on(queue)
                suspended = False
                if self._to_tell[queue, dialect]:
                    yield NEXT_TURN
        finally:
            del self._to_tell[queue, dialect]
            if suspended:
                self._core.ready.go_on(queue)

    def tell_gone(self, consumers: list[Consumer]) -> None:
        """The queue of these consumers was deleted."""
        for consumer in consumers:
            if consumer.connection is self.asking:
                self._consumer_ids.remove(consumer)
                self._core.output.tell(consumer)
        others = [consumer for consumer in consumers if consumer.connection is not self.asking]
        self._slices.start(self._tell_others_gone(others))

    def _tell_others_gone(self, consumers: list[Consumer]) -> Job:
        """In slices. An id that stands for another consumer by now is left out: it is in use."""
        for consumer in consumers:
            self._consumer_ids.remove(consumer)
            if consumer.id not in consumer.connection.consumers:
                self._core.output.tell(consumer)
            yield TELLING

    @staticmethod
    def text(consumer: Consumer) -> bytes:
        """How things stand with a consumer's queue now: one that is gone has neither events nor a pattern."""
        queue = consumer.queue
        assert isinstance(queue, Queue)
        if consumer.dialect == MQKS:
            text = b"--update " + queue.update_text(consumer)
        else:
            pattern = None if queue.gone or queue.pattern is None else queue.pattern.content
            text = jsons.dumps({"update": {"queue": queue.name.decode("utf-8", "replace"), "pattern": pattern}})
        return b"%s ok %s\n" % (consumer.id, text)
