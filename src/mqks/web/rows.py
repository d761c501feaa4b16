"""Queues, consumers, connections and events as rows of JSON. Figures are of this moment, rates of the last seconds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nsmallest
from itertools import islice
from json import JSONEncoder
from typing import Any, Protocol

from mqks.broker import Broker
from mqks.broker.connections.client import Client
from mqks.broker.queues.queue import Queue
from mqks.core.parts import Consumer
from mqks.web.counters import Events
from mqks.web.detectors import LEVELS, OK, Found
from mqks.web.health import worst
from mqks.web.sampling import Track
from mqks.web.words import key, named, safe, short

SHOWN_QUEUES = 20  # of an event
MOST_EVENTS = MOST_CONSUMERS = 1000  # of a queue, on its page
MOST_OF_PATTERN = 2000  # characters

Row = dict[str, Any]


def queue_row(track: Track, age: float | None, wrong: Sequence[Found]) -> Row:
    queue = track.queue
    in_rate, out_rate = track.rates.per_second()
    level = worst(wrong)
    return {
        "name": track.name,
        "key": track.key,
        "events": [named(event) for event in track.first_events()],
        "event_count": len(queue.events),
        "ready": queue.ready_count,
        "unacked": queue.unsettled,
        "returned": queue.returned_count,
        "retries": queue.retried,
        "retrying": max(track.retrying, queue.retrying),
        "consumers": len(queue.consumers),
        "age": None if age is None else round(age, 1),
        "in_rate": round(in_rate, 1),
        "out_rate": round(out_rate, 1),
        "published": queue.published,
        "delivered": queue.delivered,
        "acked": queue.acked,
        "rejected": queue.rejected,
        "dropped": queue.dropped,
        "max_length": queue.max_length,
        "max_bytes": queue.max_bytes,
        "delete_when_unused": queue.unused,
        "level": level,
        "why": next((one.why for one in wrong if one.level == level), None),
    }


def queue_page(track: Track) -> Row:
    """What else is shown of one queue."""
    queue = track.queue
    return {
        "all_events": [named(event) for event in nsmallest(MOST_EVENTS, queue.events)],
        "pattern": None if queue.pattern is None else _json(queue.pattern.content),
        "consumers_list": consumer_rows(track, MOST_CONSUMERS),
        "spark": track.spark.lists(),
    }


def _json(content: Any) -> str:
    """As text, made no further than it is shown."""
    told = ""
    for piece in JSONEncoder(ensure_ascii=False, indent=2).iterencode(content):
        told += piece[: MOST_OF_PATTERN + 1]
        if len(told) > MOST_OF_PATTERN:
            break
    return safe(short(told, MOST_OF_PATTERN))


# How queues can be sorted: what is largest or worst comes first, and names decide between those alike.
class Known(Protocol):
    """What is known of queues beside what they have themselves."""

    wrong: dict[Queue, list[Found]]

    def rates(self, queue: Queue) -> tuple[float, float]: ...

    def age(self, queue: Queue) -> float | None: ...


SORTS: dict[str, Callable[[Queue, Known], float]] = {
    "trouble": lambda queue, known: _badness(known.wrong.get(queue)) + queue.ready_count + queue.unsettled,
    "name": lambda *_: 0,
    "ready": lambda queue, _: queue.ready_count,
    "unacked": lambda queue, _: queue.unsettled,
    "age": lambda queue, known: known.age(queue) or 0.0,
    "in_rate": lambda queue, known: known.rates(queue)[0],
    "out_rate": lambda queue, known: known.rates(queue)[1],
    "consumers": lambda queue, _: len(queue.consumers),
    "retries": lambda queue, _: queue.retried,
}


def _badness(wrong: Iterable[Found] | None) -> int:
    """More than messages can be."""
    return max(LEVELS.index(one.level) for one in wrong) << 64 if wrong else 0


def consumer_row(track: Track, consumer: Consumer, client: Client) -> Row:
    return {
        "id": named(consumer.id),
        "client": client.peer,
        "queue": track.name,
        "key": track.key,
        "manual_ack": bool(consumer.manual_ack),
        "prefetch": consumer.prefetch,
        "paused": bool(consumer.paused),
        "unacked": consumer.unacked,
        "delivered": consumer.delivered,
    }


def consumer_rows(track: Track, limit: int) -> list[Row]:
    clients = ((consumer, consumer.connection) for consumer in track.queue.consumers)
    ours = ((consumer, client) for consumer, client in clients if isinstance(client, Client) and not client.inside)
    return [consumer_row(track, consumer, client) for consumer, client in islice(ours, limit)]


def connection_row(client: Client, now: float, wrong: Mapping[str, Found]) -> Row:
    """`wrong` has those who do not read, by address."""
    found = wrong.get(client.peer)
    return {
        "client": client.peer,
        "since": round(now - client.since, 3),
        "consumers": len(client.consumers or ()),
        "pending": client.pending_size,
        "received": client.received,
        "sent": client.sent,
        "publishes": bool(client.publishes),
        "level": found.level if found else OK,
        "why": found.why if found else None,
    }


def event_rows(broker: Broker, events: Events, limit: int) -> list[Row]:
    """The busiest."""
    counts = events.counts
    found: Callable[[bytes], list[Queue]] = broker.core.events.queues
    bound = [(event, rate, [queue.name for queue in found(event)]) for event, rate in events.busiest(limit)]
    return [
        {
            "name": named(event),
            "key": key(event),
            "count": counts[event],
            "rate": round(rate, 1),
            "queues": [named(name) for name in nsmallest(SHOWN_QUEUES, queues)],
            "queue_count": len(queues),
        }
        for event, rate, queues in bound
    ]
