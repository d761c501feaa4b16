"""The names by which the original's `stats.py` asks for figures with `_eval`: read-only aliases of what we have.

Nothing here is copied for an expression that does not look at it, but for lists of clients and of queues.
"""

from __future__ import annotations

from collections.abc import Iterator, KeysView, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from mqks.broker.eval.inspection import ConsumerView, Named, QueueView, StateView
from mqks.broker.eval.views import Table, View
from mqks.broker.queues.queue import Queue
from mqks.core.parts import Consumer
from mqks.names import name_of, text

if TYPE_CHECKING:
    from mqks.broker.broker import Broker

WORKERS = 1
ID_LENGTH = 24  # of a dtid

NAMES: Mapping[str, str] = {
    "queued": "copies of messages put into the queues that there are",
    "consumed": "`delivered`",
    "queues_by_events": "`events`",
    "events_by_queues": "name → the events of the queue",
    "queues_used": "name → whether it has consumers, as `is_set()`",
    "queues_to_delete_when_unused": "name → seconds until it goes, or True for at once; only queues that go",
    "consumers_by_queues": "name → the ids of its consumers",
    "consumer_ids_by_clients": "address → the ids of its consumers; clients without any are not in it",
    "queues_by_consumer_ids": "consumer id → the name of its queue",
    "clients_by_consumer_ids": "consumer id → the address of its client",
    "messages_by_consumer_ids": "consumer id → the messages that it has and did not ack, of which `len` is known",
    "responses_by_clients": "`clients`; `qsize()` is in bytes",
    "socks_by_clients": "`clients`",
    "commands_put": "0: there are no other workers",
    "commands_got": "0",
    "commands_to_workers": "empty",
}


class UsedView(View):
    fields: ClassVar[Mapping[str, str]] = {"used": "does the queue have consumers"}
    methods: ClassVar[Mapping[str, str]] = {"is_set": "used"}

    def __init__(self, queue: Queue) -> None:
        self.used = bool(queue.consumers)


class MessagesView(View):
    fields: ClassVar[Mapping[str, str]] = {"unacked": "how many there are"}

    def __init__(self, consumer: Consumer) -> None:
        self.unacked = consumer.unacked

    def __len__(self) -> int:
        return self.unacked


class ConfigView(Table):
    """The original's settings that have a meaning here, as `config.workers` and as `config['workers']`."""

    fields: ClassVar[Mapping[str, str]] = {
        "workers": "one worker, as `host:port:port`",
        "host": "where the broker listens",
        "port_for_clients": "its port",
        "port_for_workers": "the same port",
        "id_length": "the length of an id that the broker makes",
    }

    def __init__(self, broker: Broker) -> None:
        host, _, port = (broker.connections.addresses or ["127.0.0.1:0"])[0].rpartition(":")
        self.workers = [f"{host}:{port}:{port}"]
        self.host = host
        self.port_for_clients = self.port_for_workers = int(port)
        self.id_length = ID_LENGTH
        super().__init__({name: getattr(self, name) for name in self.fields}, lambda value: value)


class OriginalStateView(StateView):
    fields: ClassVar[Mapping[str, str]] = {**StateView.fields, **NAMES}
    commands_put = commands_got = 0
    commands_to_workers: ClassVar[dict[str, object]] = {}

    @cached_property
    def queued(self) -> int:
        return sum(queue.published for queue in self._broker.queues.by_name.values())

    @property
    def consumed(self) -> int:
        return self.delivered

    @property
    def queues_by_events(self) -> Table:
        return self.events

    @property
    def events_by_queues(self) -> Table:
        return Table(Named(self._broker.queues.by_name), lambda queue: QueueView(queue).events)

    @property
    def queues_used(self) -> Table:
        return Table(Named(self._broker.queues.by_name), UsedView)

    @cached_property
    def queues_to_delete_when_unused(self) -> dict[str, bool | float]:
        unused = ((text(queue.name), queue.unused) for queue in self._broker.queues.by_name.values())
        return {name: seconds or True for name, seconds in unused if seconds is not None}

    @property
    def consumers_by_queues(self) -> Table:
        return Table(Named(self._broker.queues.by_name), lambda queue: KeysView(_Ids(queue, self._broker)))

    @cached_property
    def consumer_ids_by_clients(self) -> Table:
        clients = {
            client.peer: client for client in self._broker.connections.clients if client.consumers and not client.inside
        }
        return Table(clients, lambda client: KeysView(Named(client.consumers)))

    @property
    def queues_by_consumer_ids(self) -> Table:
        return Table(Named(self._broker.consumers.by_id), lambda consumer: ConsumerView(consumer).queue)

    @property
    def clients_by_consumer_ids(self) -> Table:
        return Table(Named(self._broker.consumers.by_id), lambda consumer: ConsumerView(consumer).client)

    @property
    def messages_by_consumer_ids(self) -> Table:
        return Table(Named(self._broker.consumers.by_id), MessagesView)

    @property
    def responses_by_clients(self) -> Table:
        return self.clients

    @property
    def socks_by_clients(self) -> Table:
        return self.clients


class _Ids(Mapping[str, Consumer]):
    """The consumers of a queue by their ids, without a copy."""

    def __init__(self, queue: Queue, broker: Broker) -> None:
        self._queue = queue
        self._consumers = queue.consumers
        self._ids = broker.consumers.by_id

    def __getitem__(self, name: str) -> Consumer:
        for consumer in self._ids.having(name_of(name)):
            if consumer.queue is self._queue:
                return consumer
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (text(consumer.id) for consumer in self._consumers)

    def __len__(self) -> int:
        return len(self._consumers)
