"""What can be asked about the broker: the views that `_eval` looks at, and `stats`. It only reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from mqks import __version__
from mqks.broker.connections.client import Client
from mqks.broker.errors import BadRequest, Fault
from mqks.broker.eval.views import Rows, Table, View, limit
from mqks.broker.protocol.jsons import dumps
from mqks.broker.queues.queue import Queue
from mqks.broker.slices import Job
from mqks.core.parts import Consumer
from mqks.names import name_of, text

if TYPE_CHECKING:
    from mqks.broker.broker import Broker

T = TypeVar("T")

MOST_NAMES = 100_000  # of queues that get the events of an expression: about a tenth of a second
SMALL_STATS = 64 << 10  # bytes, which are answered however full the memory is
STATS = 30  # units of work for each queue in `stats`: see Slices


class QueueView(View):
    fields: ClassVar[Mapping[str, str]] = {
        "name": "the queue's name",
        "events": "the events it is subscribed to, sorted",
        "pattern": "its SEVX pattern, or None",
        "ready": "messages that wait for a consumer",
        "unacked": "messages that were given to consumers and are not settled",
        "returned": "ready messages that came back from consumers that went",
        "consumers": "how many consumers it has",
        "delete_when_unused": "seconds without consumers after which it goes, or None",
        "max_length": "how many messages it may have; 0 for any number",
        "max_bytes": "how many bytes these may have; 0 for any number",
        "overflow": "what happens when it is full: reject or drop-oldest",
        "bytes": "bytes of its messages, if it has a limit for them; else 0",
        "published": "messages put into it so far",
        "delivered": "deliveries so far",
        "acked": "manual acks so far",
        "rejected": "rejects so far",
        "dropped": "messages that were dropped because it was full, so far",
        "retries": "times a message of it was given back, by a reject or by a consumer that went",
    }
    methods: ClassVar[Mapping[str, str]] = {"qsize": "ready"}

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.name = text(queue.name)
        self.pattern = None if queue.pattern is None else queue.pattern.content
        self.ready = queue.ready_count
        self.unacked = queue.unsettled
        self.returned = queue.returned_count
        self.consumers = len(queue.consumers)
        self.delete_when_unused = queue.unused
        self.max_length = queue.max_length
        self.max_bytes = queue.max_bytes
        self.overflow = "drop-oldest" if queue.drops_oldest else "reject"
        self.bytes = queue.bytes
        self.published = queue.published
        self.delivered = queue.delivered
        self.acked = queue.acked
        self.rejected = queue.rejected
        self.dropped = queue.dropped
        self.retries = queue.retried

    @property
    def events(self) -> list[str]:
        return [text(event) for event in sorted(self._queue.events)]


class ConsumerView(View):
    fields: ClassVar[Mapping[str, str]] = {
        "id": "the consumer's id",
        "client": "the address of its connection",
        "queue": "the name of its queue",
        "manual_ack": "does it ack by hand",
        "prefetch": "how many unacked messages it may have; 0 for any number",
        "paused": "did it ask to be given nothing",
        "unacked": "messages that it has and did not ack",
        "delivered": "deliveries so far",
    }

    def __init__(self, consumer: Consumer) -> None:
        client, queue = consumer.connection, consumer.queue
        assert isinstance(client, Client)
        assert isinstance(queue, Queue)
        self.id = text(consumer.id)
        self.client = client.peer
        self.queue = text(queue.name)
        self.manual_ack = consumer.manual_ack
        self.prefetch = consumer.prefetch
        self.paused = consumer.paused
        self.unacked = consumer.unacked
        self.delivered = consumer.delivered


class ClientView(View):
    fields: ClassVar[Mapping[str, str]] = {
        "address": "where the client comes from",
        "token": "the name of its token, or None",  # nosec B105  # it says what a field is
        "consumers": "how many consumers it has",
        "pending": "bytes that wait for it to read them",
        "received": "bytes taken from it",
        "sent": "bytes given to it",
    }
    methods: ClassVar[Mapping[str, str]] = {"qsize": "pending"}

    def __init__(self, client: Client) -> None:
        self.address = client.peer
        self.token = client.rights.name or None
        self.consumers = len(client.consumers or ())
        self.pending = client.pending_size
        self.received = client.received
        self.sent = client.sent


class StateView(View):
    fields: ClassVar[Mapping[str, str]] = {
        "version": "the broker's version",
        "uptime": "seconds since it started",
        "queues": "name → queue",
        "consumers": "a list of all consumers",
        "events": "event → names of the queues that get it by name",
        "clients": "address → client",
        "connections": "how many clients are connected",
        "published": "messages taken so far",
        "delivered": "deliveries so far",
        "acked": "manual acks so far",
        "rejected": "rejects so far",
        "dropped": "messages that full queues dropped so far",
        "duplicates": "publishes with --once that were dropped so far",
        "remembered": "ids of --once that are remembered now",
        "errors": "requests answered with an error so far",
        "position": "the position of the next message in the log",
        "memory": "bytes taken for messages, queues and buffers",
        "max_line": "the longest line that is taken, in bytes",
        "limits": "limit → how often it was reached",
    }

    def __init__(self, broker: Broker) -> None:
        core = broker.core
        self._broker = broker
        self._names: dict[bytes, list[str]] = {}
        self._made = 0  # names in them
        self.version = __version__
        self.uptime = round(broker.timers.clock() - broker.started, 3)
        self.connections = broker.connections.count
        self.published = core.router.published
        self.delivered = core.delivery.delivered
        self.acked = core.acks.acked
        self.rejected = core.acks.rejected
        self.dropped = core.limits.dropped
        self.duplicates = core.seen.duplicates
        self.remembered = len(core.seen)
        self.errors = broker.mistakes.errors
        self.position = core.log.end
        self.memory = core.account.used
        self.max_line = core.output.max_line
        self.limits = dict(broker.limits.times)

    # What takes time to make is made once per view: an expression may ask for it in a loop.

    @property
    def queues(self) -> Table:
        return Table(Named(self._broker.queues.by_name), QueueView)

    @property
    def consumers(self) -> Rows:
        queues = self._broker.queues.by_name.values()
        return Rows(
            self._broker.core.acks.consumers, lambda: (one for queue in queues for one in queue.consumers), ConsumerView
        )

    @property
    def events(self) -> Table:
        return Table(_Events(self._broker), self._queue_names)

    def _queue_names(self, event: bytes) -> list[str]:
        if event not in self._names:
            queues: list[Queue] = self._broker.core.events.queues(event)
            self._made += len(queues)
            limit(self._made, MOST_NAMES, "names of queues")
            self._names[event] = sorted(text(queue.name) for queue in queues)
        return self._names[event]

    @cached_property
    def clients(self) -> Table:
        return Table(
            {client.peer: client for client in self._broker.connections.clients if not client.inside}, ClientView
        )


class Named(Mapping[str, T]):
    """What the broker has by names, under these as text, without a copy: 10,000 of them should not make `len` slow."""

    def __init__(self, named: Mapping[bytes, T]) -> None:
        self._named = named

    def __getitem__(self, name: str) -> T:
        return self._named[name_of(name)]

    def __iter__(self) -> Iterator[str]:
        return (text(name) for name in self._named)

    def __len__(self) -> int:
        return len(self._named)


class _Events(Mapping[str, bytes]):
    """Likewise the events that queues are bound to: not those that only the broker itself listens to."""

    def __init__(self, broker: Broker) -> None:
        self._events = broker.core.events
        self._hidden = {event for event in broker.listeners if not self._events.queues(event)}

    def __getitem__(self, name: str) -> bytes:
        event = name_of(name)
        if event not in self._events or event in self._hidden:
            raise KeyError(name)
        return event

    def __iter__(self) -> Iterator[str]:
        return (text(event) for event in self._events if event not in self._hidden)

    def __len__(self) -> int:
        return len(self._events) - len(self._hidden)


def _as_dict(view: View, but: tuple[str, ...] = ()) -> dict[str, Any]:
    return {field: getattr(view, field) for field in view.fields if field not in but}


def _journal(broker: Broker) -> dict[str, Any]:
    """What is on disk, and how safely."""
    journal = broker.persistence.journal
    if journal is None:
        return {"durability": "memory"}
    now = broker.wall()
    return {
        "durability": journal.options.fsync,
        "data": journal.options.folder,
        "journal": {
            "earliest": journal.segments.earliest,
            "written": broker.core.log.written,
            "synced": broker.core.persistence.synced,
            "segments": len(journal.segments.starts),
            "bytes": journal.segments.total,
            "syncs": journal.syncs,
            "full": journal.full,
            "holds": {
                text(name): {"position": hold.position, "seconds": round(hold.expires - now, 3)}
                for name, hold in journal.retention.holds.items()
                if hold.expires > now
            },
        },
    }


def stats(broker: Broker, client: Client, request_id: bytes) -> Job:
    """Answer with all figures, as an object of JSON. With very many queues it is made in slices, and their figures are
    of different moments; the client is not heard meanwhile, so that its replies keep their order."""
    figures = {**_as_dict(StateView(broker), but=("queues", "consumers", "events", "clients")), **_journal(broker)}
    queues = list(broker.queues.by_name.values())
    text_of_queues: list[bytes] = []
    size = 0
    broker.core.parser.block(client)
    try:
        for queue in queues:
            if client.gone:
                return
            if not queue.gone:
                row = dumps({text(queue.name): _as_dict(QueueView(queue), but=("name",))})[1:-1]
                text_of_queues.append(row)
                size += len(row)
                broker.core.account.charge(len(row))
                if broker.core.account.full and size > SMALL_STATS:
                    raise broker.limits.reached("max_memory")
            yield STATS + len(queue.events) // 2
        whole = dumps(figures)[:-1] + b', "queues": {' + b", ".join(text_of_queues) + b"}}"
        broker.core.output.say(client, b"%s ok %s\n" % (request_id, whole))
    except Exception as error:
        error_id = broker.mistakes.made(client, error if isinstance(error, BadRequest) else Fault.unforeseen(error))
        broker.core.output.say(client, b"%s error %s\n" % (request_id, error_id))
    finally:
        broker.core.account.charge(-size)
        broker.core.parser.unblock(client)
