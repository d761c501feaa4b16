"""Events → queues → consumers with their rates: the busiest of each, and how many more there are. It only reads."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from mqks.broker import Broker
from mqks.broker.connections.client import Client
from mqks.broker.queues.queue import Queue
from mqks.core.parts import Consumer
from mqks.web.counters import Events
from mqks.web.detectors import Found
from mqks.web.health import worst
from mqks.web.sampling import WINDOW, Queues
from mqks.web.words import key, named

MOST = 12  # of each kind
LOOKED_AT = 200  # consumers of a queue
OTHER = "*other"  # the key of all events that no queue wants by name; no event has it, since a * is escaped in keys


class Flow:
    def __init__(self, broker: Broker, queues: Queues, events: Events) -> None:
        self._broker = broker
        self._queues = queues
        self._events = events
        self._delivered: dict[Consumer, tuple[float, int]] = {}  # when it was looked at, and how many it had then

    def state(
        self,
        now: float,
        busiest: Sequence[Queue],
        wrong: Mapping[Queue, Sequence[Found]],
        published: float,
        all_consumers: int,
    ) -> dict[str, Any]:
        """Of these queues, which are the busiest; `published` is the rate of all that comes."""
        shown = busiest[:MOST]
        known = {queue: self._queues.track(queue).key for queue in shown}
        events = self._busiest_events(shown)
        consumers = self._consumers(shown, now)
        links = [
            {"from": f"event:{key(event)}", "to": f"queue:{known[queue]}", "rate": rate}
            for event, rate in events.items()
            for queue in self._bound(event)
            if queue in known
        ]
        links += [
            {"from": f"queue:{node['queue_key']}", "to": f"consumer:{node['key']}", "rate": node["rate"]}
            for node in consumers[:MOST]
        ]
        other = round(published - self._events.rate, 1)
        nodes = [{"name": named(event), "key": key(event), "rate": rate} for event, rate in events.items()]
        if other >= 0.5:  # less is the difference between two moments
            nodes.append({"name": "other", "key": OTHER, "rate": other})
        return {
            "events": nodes,
            "queues": [
                {
                    "name": named(queue.name),
                    "key": known[queue],
                    "rate": round(self._queues.rates(queue)[0], 1),
                    "ready": queue.ready_count,
                    "level": worst(wrong.get(queue, ())),
                }
                for queue in shown
            ],
            "consumers": [
                {name: value for name, value in node.items() if name != "queue_key"} for node in consumers[:MOST]
            ],
            "links": links,
            "more": {
                "events": max(len(self._events.counts) - len(events), 0),
                "queues": max(len(self._broker.queues.by_name) - len(shown), 0),
                "consumers": max(all_consumers - sum(node["count"] for node in consumers[:MOST]), 0),
            },
        }

    def _bound(self, event: bytes) -> list[Queue]:
        return self._broker.core.events.queues(event)

    def _busiest_events(self, shown: Iterable[Queue]) -> Mapping[bytes, float]:
        """Those of the most messages; while all are quiet, some of the queues that are drawn."""
        busy = {event: round(rate, 1) for event, rate in self._events.busiest(MOST) if rate > 0}
        for queue in shown:
            for event in self._queues.track(queue).first_events():
                if len(busy) >= MOST:
                    return busy
                busy.setdefault(event, round(self._events.rates.get(event, 0.0), 1))
        return busy

    def _consumers(self, shown: Iterable[Queue], now: float) -> list[dict[str, Any]]:
        """Consumers of one client and queue are one node; the busiest first."""
        nodes: dict[tuple[str, Queue], dict[str, Any]] = {}
        seen: dict[Consumer, tuple[float, int]] = {}
        for queue in shown:
            track = self._queues.track(queue)
            for consumer in islice(queue.consumers, LOOKED_AT):
                client = consumer.connection
                assert isinstance(client, Client)
                if client.inside:
                    continue
                node = nodes.setdefault(
                    (client.peer, queue),
                    {
                        "key": f"{key(client.peer.encode())}/{track.key}",
                        "label": client.peer,
                        "queue": track.name,
                        "queue_key": track.key,
                        "rate": 0.0,
                        "count": 0,
                    },
                )
                node["count"] += 1
                node["rate"] = round(node["rate"] + self._rate(consumer, queue, now, seen), 1)
        self._delivered = seen
        return sorted(nodes.values(), key=lambda node: (-node["rate"], node["key"]))

    def _rate(self, consumer: Consumer, queue: Queue, now: float, seen: dict[Consumer, tuple[float, int]]) -> float:
        """Since some seconds ago. One that is seen for the first time has its share of what its queue gives."""
        began, delivered = self._delivered.get(consumer, (now, consumer.delivered))
        seconds = now - began
        seen[consumer] = (began, delivered) if seconds < WINDOW else (now, consumer.delivered)
        if seconds < 0.5:
            return self._queues.rates(queue)[1] / len(queue.consumers)
        return (consumer.delivered - delivered) / seconds
