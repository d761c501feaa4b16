"""All figures of the broker, for whoever shows them: `state` is the whole as JSON-ready values.

A sample is taken each second, whether anyone looks or not: from it come rates, sparklines and incidents. All else is
made when somebody asks: the state at most once for each sample, however many ask, and rows of this moment. It runs in
the broker's own loop, reads its objects, and changes nothing that counts.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from heapq import nsmallest
from itertools import chain, islice
from typing import Any, TypeVar

from mqks import __version__
from mqks.broker import Broker
from mqks.broker.connections.client import Client
from mqks.broker.queues.queue import Queue
from mqks.names import text
from mqks.web import rows
from mqks.web.ages import Ages
from mqks.web.counters import Events, Totals
from mqks.web.detectors import DeafClient, Found, QueueSample, Situation, SlowConsumer, about_all, about_queue
from mqks.web.disk import DiskFigures
from mqks.web.flow import MOST as MOST_OF_FLOW
from mqks.web.flow import Flow
from mqks.web.health import Incidents, health
from mqks.web.inside import Inside
from mqks.web.lastwords import LastWords
from mqks.web.messages import at
from mqks.web.pipeline import PROGRESS, STATS, Pipeline
from mqks.web.readback import read_back
from mqks.web.sampling import LATELY, STEP, Clients, Queues, Track
from mqks.web.words import LONGEST_KEY, address, named

log = logging.getLogger(__name__)

EVERY = 1.0  # seconds between samples
MOST_QUEUES = 200  # in the state
CHOSEN_FROM = 2000  # queues, each second: with more of them, lists and sums of all are made less often
LONGEST_MADE = 60  # samples for which something is kept that nobody asks for: it may hold queues that are gone

T = TypeVar("T")


class Figures:
    def __init__(self, broker: Broker, host: str) -> None:
        """`host` is where clients connect."""
        self.broker = broker
        self._host = host
        self._clock = broker.timers.clock
        self._queues = Queues(broker, self._clock)
        self._clients = Clients(broker, self._clock)
        self._totals = Totals(broker)
        self._events = Events(broker)
        self._flow = Flow(broker, self._queues, self._events)
        self._disk = DiskFigures(broker)
        self._ages = Ages(broker.persistence.time_of)
        self._incidents = Incidents()
        self._pipeline = Pipeline(began=broker.wall())
        self._last_words = LastWords(broker, self._pipeline.jobs)
        self._began = self._clock()
        self.refused_requests = 0  # over HTTP; who refuses them counts here
        self.wrong: dict[Queue, list[Found]] = {}
        self._wrong: list[Found] = []  # all else
        self._reached: deque[tuple[float, dict[str, int]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._samples = 0
        self._sought = ("", "")  # how queues were sorted, and what their names had, when a part of a name was asked for
        self._made: dict[str, tuple[int, Any]] = {}  # what was made of which sample

    # ── samples ──

    def start(self) -> None:
        """Take samples from now on; in the broker's loop."""
        self._last_words.read()
        self.listen()
        self._sample_and_go_on()

    def listen(self) -> None:
        """Hear what the pipeline says."""
        for event in (PROGRESS, STATS):
            self.broker.listeners.listen(event, partial(self._pipeline.hear, event))

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            _go_on_after(partial(self._pipeline.step, self.broker.wall()))
            _go_on_after(self._last_words.write)

    def _sample_and_go_on(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(EVERY, self._sample_and_go_on)
        _go_on_after(self.sample)

    def sample(self) -> None:
        now, wall = self._clock(), self.broker.wall()
        self._samples += 1
        self._made = {what: made for what, made in self._made.items() if self._samples - made[0] < LONGEST_MADE}
        for step in (
            partial(self._ages.note, self.broker.core.log.end, wall),
            partial(self._totals.step, now),
            partial(self._events.step, now),
            self._clients.step,
            partial(self._disk.step, now),
            partial(self._note_limits, now),
            partial(self._pipeline.step, wall),
            partial(self._last_words.step, now),
            partial(self._look_into_queues, now, wall),
            partial(self._look_into_all_else, now, wall),
            partial(self._incidents.tell, now),
        ):
            _go_on_after(step)

    def _look_into_queues(self, now: float, wall: float) -> None:
        for queue in [queue for queue in self.wrong if queue.gone]:  # first: there may be a new one of that name
            self._look_into(queue, [], now)
        for track, doubtful in self._queues.step():
            self._look_into(track.queue, about_queue(self._queue_sample(track, now, wall)) if doubtful else [], now)

    def _look_into_all_else(self, now: float, wall: float) -> None:
        before, self._wrong = self._wrong, about_all(self._situation(now, wall))
        self._incidents.take(before, self._wrong, now)

    def _look_into(self, queue: Queue, found: list[Found], now: float) -> None:
        before = self.wrong.pop(queue, [])
        if found:
            self.wrong[queue] = found
        if found or before:
            self._incidents.take(before, found, now)

    def _found(self) -> list[Found]:
        return [*(one for found in self.wrong.values() for one in found), *self._wrong]

    def _note_limits(self, now: float) -> None:
        self._reached.append((now, dict(self.broker.limits.times)))
        while len(self._reached) > 2 and self._reached[1][0] <= now - LATELY:
            self._reached.popleft()

    def _queue_sample(self, track: Track, now: float, wall: float) -> QueueSample:
        queue = track.queue
        in_rate, out_rate = track.rates.per_second()
        grown = track.rates.grown()
        oldest = self.broker.core.snapshots.oldest
        return QueueSample(
            track.name,
            track.key,
            queue.ready_count,
            len(queue.consumers),
            alone=0.0 if queue.deserted is None else now - queue.deserted,
            since_start=queue.deserted is not None and queue.deserted < self._began,
            retrying=track.retrying,
            in_rate=in_rate,
            out_rate=out_rate,
            grown=grown,
            age=self._age_of(oldest(queue, False), wall) if grown > 0 and queue.consumers else None,
            slow=[
                SlowConsumer(named(consumer.id), consumer.connection.peer, now - idle.since, consumer.unacked)
                for consumer, idle in track.idle.items()
                if isinstance(consumer.connection, Client)
            ],
        )

    def _situation(self, now: float, wall: float) -> Situation:
        journal, core = self.broker.persistence.journal, self.broker.core
        free, total = self._disk.space or (None, None)
        return Situation(
            broken=self.broker.broken,
            full=journal.full if journal else None,
            disk_free=free,
            disk_total=total,
            days_left=self._disk.days_left(),
            memory=core.account.used,
            max_memory=core.account.max_memory,
            latest=self.broker.limits.latest,
            reached={name: times - self._reached[0][1][name] for name, times in self._reached[-1][1].items()},
            deaf=[
                DeafClient(client.peer, now - deaf.since, client.pending_size)
                for client, deaf in self._clients.deaf.items()
            ],
            jobs=self._pipeline.jobs.samples(wall),
        )

    def _age_of(self, position: int | None, wall: float) -> float | None:
        return None if position is None else self._ages.age(position, wall)

    def age(self, queue: Queue) -> float | None:
        """Of the oldest message that the queue has, ready or unacked."""
        return self._age_of(self._disk.oldest(queue), self.broker.wall())

    async def follow(self, inside: Inside) -> None:
        """Read back what the pipeline said before."""
        await read_back(self.broker, self._pipeline, inside)

    # ── what is asked for ──

    def once(self, what: str, make: Callable[[], T]) -> T:
        """Made at most once for each sample."""
        return self._kept(what, 1, make)

    def _kept(self, what: str, samples: int, make: Callable[[], T]) -> T:
        """What was made before, if that was less than so many samples ago."""
        known = self._made.get(what)
        if known is None or self._samples - known[0] >= samples:
            known = self._made[what] = self._samples, make()
        made: T = known[1]
        return made

    def state(self) -> dict[str, Any]:
        return self.once("state", self._state)

    def _state(self) -> dict[str, Any]:
        now, wall = self._clock(), self.broker.wall()
        found = self._found()
        journal = self.journal()
        totals = self.totals()
        return {
            "time": at(wall),
            "version": __version__,
            "uptime": round(self.uptime, 3),
            "host": self._host,
            "health": health(
                found, len(self.broker.queues.by_name), self._pipeline.jobs.samples(wall), str(journal["durability"])
            ),
            "totals": totals,
            "queues": [self._row(queue) for queue in self._first()],
            "flow": self._flow.state(
                now, self._busiest(), self.wrong, totals["rates"]["published"], totals["consumers"]
            ),
            "journal": journal,
            "pipeline": self.pipeline(),
        }

    @property
    def uptime(self) -> float:
        return self._clock() - self.broker.started

    def totals(self) -> dict[str, Any]:
        return self.once("totals", self._all_totals)

    def _all_totals(self) -> dict[str, Any]:
        broker, core = self.broker, self.broker.core
        return {
            **self._totals.read(),
            "connections": broker.connections.count,
            "queues": len(broker.queues.by_name),
            **self._for_a_while("sums", len(broker.queues.by_name) + len(broker.connections.clients), self._sums),
            "memory": core.account.used,
            "max_memory": core.account.max_memory,
            "rates": self._totals.rates(),
        }

    def _sums(self) -> dict[str, int]:
        queues, clients = self.broker.queues.by_name.values(), self.broker.connections.clients
        return {
            "consumers": sum(len(client.consumers or ()) for client in clients if not client.inside),
            "ready": sum(queue.ready_count for queue in queues),
            "unacked": sum(queue.unsettled for queue in queues),
        }

    def _for_a_while(self, what: str, many: int, make: Callable[[], T]) -> T:
        """What takes a walk over so many is made anew each time while they are few, and with very many now and then."""
        return self._kept(what, many // CHOSEN_FROM, make)

    def _queues_for_a_while(self, what: str, choose: Callable[[], list[Queue]]) -> list[Queue]:
        return self._for_a_while(what, len(self.broker.queues.by_name), choose)

    def _busiest(self) -> list[Queue]:
        def place(queue: Queue) -> tuple[float, bool, bytes]:
            return -sum(self.rates(queue)), queue not in self.wrong, queue.name

        queues = self.broker.queues.by_name.values()
        return _there(self._queues_for_a_while("busiest", lambda: nsmallest(MOST_OF_FLOW, queues, key=place)))

    def _sorted(self, sort: str, name: str = "") -> list[Queue]:
        """Queues that have this in their names, in whatever case. Some may be gone by now."""
        figure, part = rows.SORTS[sort], name.casefold()

        def place(queue: Queue) -> tuple[float, bytes]:
            return -figure(queue, self), queue.name

        def having() -> list[Queue]:
            return [queue for queue in queues if part in text(queue.name).casefold()]

        queues = self._queues_for_a_while(sort, lambda: sorted(self.broker.queues.by_name.values(), key=place))
        if not part:
            return queues
        if self._sought != (sort, part):  # one is kept: who types a name asks for it again and again
            self._sought = sort, part
            self._made.pop("sought", None)
        return self._queues_for_a_while("sought", having)

    def _first(self) -> list[Queue]:
        """The queues of the state."""
        return _there(self._sorted("trouble")[:MOST_QUEUES])

    def spark(self) -> dict[str, Any]:
        return self.once("spark", self._spark)

    def _spark(self) -> dict[str, Any]:
        return {
            "step": int(STEP),
            "queues": {track.key: track.spark.lists() for track in map(self._queues.track, self._first())},
            "totals": self._totals.spark(),
        }

    def rates(self, queue: Queue) -> tuple[float, float]:
        return self._queues.rates(queue)

    def _row(self, queue: Queue) -> dict[str, Any]:
        return rows.queue_row(self._queues.track(queue), self.age(queue), self.wrong.get(queue, ()))

    def queue(self, queue: Queue) -> dict[str, Any]:
        """A row, and what else its page shows."""
        return {**self._row(queue), **rows.queue_page(self._queues.track(queue))}

    def find(self, name: bytes) -> Queue | None:
        """The queue of this name, or of the name that has this address."""
        queues = self.broker.queues.by_name
        if (queue := queues.get(name)) is not None or b" " not in name:
            return queue
        long = (queue for queue in queues.values() if len(queue.name) > LONGEST_KEY)
        return next((queue for queue in long if address(queue.name) == name), None)

    def queue_rows(self, sort: str, offset: int, limit: int, name: str = "") -> tuple[int, list[dict[str, Any]]]:
        """How many there are, and some of them."""
        found = self._sorted(sort, name)
        chosen = _there(found[offset : offset + limit])
        total = len(found) if name else len(self.broker.queues.by_name)
        return total, [self._row(queue) | {"spark": self._queues.track(queue).spark.lists()} for queue in chosen]

    def consumers(self, limit: int) -> list[dict[str, Any]]:
        tracks = (self._queues.track(queue) for queue in self.broker.queues.by_name.values() if queue.consumers)
        return list(islice((row for track in tracks for row in rows.consumer_rows(track, limit)), limit))

    def connections(self, limit: int) -> list[dict[str, Any]]:
        now = self._clock()
        wrong = {one.client: one for one in self._wrong if one.kind == "deaf"}
        deaf = self._clients.deaf  # first, of however many
        clients = chain(
            deaf, (client for client in self.broker.connections.clients if not client.inside and client not in deaf)
        )
        return [rows.connection_row(client, now, wrong) for client in islice(clients, limit)]

    def events(self, limit: int) -> list[dict[str, Any]]:
        return rows.event_rows(self.broker, self._events, limit)

    def event_count(self) -> int:
        return len(self._events.counts)

    def journal(self) -> dict[str, Any]:
        return self.once("journal", lambda: self._disk.state(self._clock()))

    def pipeline(self) -> dict[str, Any]:
        return self.once("pipeline", self._pipeline_state)

    def _pipeline_state(self) -> dict[str, Any]:
        stalled = {one.subject: [one] for one in self._wrong if one.kind == "stalled"}
        return self._pipeline.state(self.broker.wall(), stalled)

    # ── what is scraped ──

    def scraped(self, most: int, longest: int) -> tuple[list[Queue], list[Queue]]:
        """At most so many queues with names no longer than this, those in trouble first; and all others."""

        def choose() -> tuple[list[Queue], list[Queue]]:
            queues = self.broker.queues.by_name.values()
            chosen = [queue for queue in queues if len(queue.name) <= longest]
            if len(chosen) > most:
                chosen = [queue for queue in self._sorted("trouble") if len(queue.name) <= longest][:most]
            if len(chosen) == len(queues):
                return chosen, []
            known = set(chosen)
            return chosen, [queue for queue in queues if queue not in known]

        chosen, others = self._for_a_while("scraped", len(self.broker.queues.by_name), choose)
        return _there(chosen), _there(others)

    def event_counts(self) -> list[tuple[bytes, int]]:
        """Messages of the events that had the most."""
        return self._events.most_counted()

    def jobs(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.pipeline()["jobs"]
        return rows


def _go_on_after(step: Callable[[], None]) -> None:
    """One that fails hides nothing of the others, and hinders nobody: the broker goes on without its figures."""
    try:
        step()
    except Exception:
        log.exception("some figures could not be read")


def _there(queues: Iterable[Queue]) -> list[Queue]:
    return [queue for queue in queues if not queue.gone]
