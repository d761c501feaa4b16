"""The broker's figures as they change: once a second a look at its counters, from which rates and sparklines come.

Nothing is done per message, and nothing is changed but that the highest retry count of a queue begins anew with each
look. With many queues or clients a look takes a part of them, so that it never costs more than some milliseconds: they
come up less often then, and their rates are of a longer time.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from heapq import nsmallest
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from mqks.broker import Broker
from mqks.broker.connections.client import Client
from mqks.broker.queues.queue import Queue
from mqks.core.parts import Consumer
from mqks.web.words import key, named

WINDOW = 5.0  # seconds that a rate is of
STEP = 10.0  # seconds between two points of a sparkline
POINTS = 90  # of a sparkline: 15 minutes
LATELY = 30.0  # seconds for which it counts that a message was retried, or a limit reached
QUIET, BUSY, DOUBTFUL = 1, 10, 30  # what a look at a queue costs, about; 1 is a quarter of a microsecond
EFFORT = 15_000  # that one step may cost: some milliseconds
CLIENTS_AT_ONCE = 10_000
LOOKED_AT = 1000  # consumers of a queue, to find those that are slow: the first ones
FIRST_EVENTS = 20  # of a queue, wherever queues are listed

# Bytes of memory for what is remembered of a queue; measured, and rounded up.
TRACK_COST = 1400  # beside its name
NAME_COST = 5  # for each byte of its name: as text, and as a key, which may be percent-encoded
BUSY_COST = 2000  # while something happens in it

T = TypeVar("T")


class Look(NamedTuple):
    """What came and went so far, and what waits."""

    time: float
    came: int
    went: int
    ready: int = 0


class Spark:
    """The last 15 minutes: what waited, what came and went a second. While nothing ever happens it is empty."""

    __slots__ = ("_mark", "_points", "_step")

    def __init__(self, first: Look) -> None:
        self._mark = first
        self._step = int(first.time // STEP)
        self._points = array("f")  # ready, in, out, and so on: some hundred bytes for each of many queues

    def __bool__(self) -> bool:
        return bool(self._points)

    def add(self, look: Look) -> None:
        step = int(look.time // STEP)
        if step == self._step:
            return
        seconds = look.time - self._mark.time
        point = (look.ready, (look.came - self._mark.came) / seconds, (look.went - self._mark.went) / seconds)
        if self._points or any(point):
            points = self._points
            for _ in range(min(step - self._step, POINTS)):  # more than one, where looks are rare
                points.extend(point)
            del points[: -3 * POINTS]
            if not any(point) and not any(points):
                del points[:]
        self._step, self._mark = step, look

    def lists(self) -> dict[str, list[float]]:
        """Oldest first; the last one of each is of the last whole step."""
        ready, came, went = (self._points[at::3] for at in range(3))
        return {
            "ready": [int(value) for value in ready],
            "in": [round(value, 1) for value in came],
            "out": [round(value, 1) for value in went],
        }


class Rates:
    """Looks of the last seconds."""

    __slots__ = ("_looks",)

    def __init__(self) -> None:
        self._looks: list[Look] = []  # few: a deque would take half a kilobyte

    def add(self, look: Look) -> None:
        looks = self._looks
        looks.append(look)
        while len(looks) > 2 and looks[1].time <= look.time - WINDOW:
            del looks[0]

    @property
    def last(self) -> Look:
        return self._looks[-1]

    def per_second(self) -> tuple[float, float]:
        """What came and what went."""
        first, last = self._looks[0], self._looks[-1]
        seconds = last.time - first.time
        if seconds <= 0:
            return 0.0, 0.0
        return (last.came - first.came) / seconds, (last.went - first.went) / seconds

    @property
    def is_zero(self) -> bool:
        first, last = self._looks[0], self._looks[-1]
        return first.came == last.came and first.went == last.went

    def grown(self) -> int:
        """How many more wait than when the looks began."""
        return self._looks[-1].ready - self._looks[0].ready


class Idle(NamedTuple):
    """A consumer that has settled so many, and no more since then, though it has some and others wait."""

    settled: int
    since: float


class Track:
    """What is remembered of a queue from look to look."""

    __slots__ = (
        "_events",
        "_first_events",
        "cost",
        "idle",
        "key",
        "looked",
        "name",
        "queue",
        "quiet_at",
        "rates",
        "retried",
        "retrying",
        "retrying_at",
        "spark",
    )

    def __init__(self, queue: Queue, now: float) -> None:
        self.queue = queue
        self.name = named(queue.name)
        self.key = key(queue.name)
        self.rates = Rates()
        look = Look(now, queue.published, queue.delivered, queue.ready_count)
        self.rates.add(look)
        self.spark = Spark(look)
        self.retried = 0  # so that what happened before the first look counts too
        self.retrying, self.retrying_at = 0, now  # the most that a message was retried lately, and when that was seen
        self._events: set[bytes] | None = None  # of which these are the first
        self._first_events: list[bytes] = []
        self.idle: dict[Consumer, Idle] = {}
        self.looked = now
        self.cost = 0  # bytes of memory that are charged for it
        self.quiet_at = -1  # how many had come when it was empty and all rates were 0: until more come, it stays so

    def price(self) -> int:
        """The bytes of memory that it takes."""
        return TRACK_COST + NAME_COST * len(self.queue.name) + (BUSY_COST if self.quiet_at < 0 else 0)

    def first_events(self) -> list[bytes]:
        """By name. Another subscription is another set: until then they stay."""
        if self._events is not self.queue.events:
            self._events = self.queue.events
            self._first_events = nsmallest(FIRST_EVENTS, self._events)
        return self._first_events

    def look(self, now: float) -> int:
        """Answers how much there is to see: BUSY, or DOUBTFUL, where something may be wrong.

        Nothing is wrong while nothing waits or is retried.
        """
        queue = self.queue
        ready, last = queue.ready_count, self.rates.last
        if self.looked != last.time:  # it was quiet since
            self.rates = Rates()
            self._note(Look(self.looked, last.came, last.went))
        self._note(Look(now, queue.published, queue.delivered, ready))
        self.looked = now
        if queue.retried != self.retried:
            self.retried = queue.retried
            if queue.retrying >= self.retrying or now - self.retrying_at > LATELY:
                self.retrying, self.retrying_at = queue.retrying, now
            queue.calm()
        elif self.retrying and now - self.retrying_at > LATELY:
            self.retrying = 0
        if self.idle or (ready and queue.unsettled):
            self.idle = dict(self._idle(now)) if ready else {}
        if ready or self.retrying:
            self.quiet_at = -1
            return DOUBTFUL
        still = not queue.unsettled and not self.spark and self.rates.is_zero
        self.quiet_at = queue.published if still else -1
        return BUSY

    def _note(self, look: Look) -> None:
        self.rates.add(look)
        self.spark.add(look)

    def _idle(self, now: float) -> Iterable[tuple[Consumer, Idle]]:
        for consumer in islice(self.queue.consumers, LOOKED_AT):
            if unacked := consumer.unacked:
                settled = consumer.delivered - unacked
                known = self.idle.get(consumer)
                yield consumer, known if known is not None and known.settled == settled else Idle(settled, now)


class Rounds(Generic[T]):
    """All of something, in steps: who takes them stops where it has done enough, and goes on there the next time."""

    def __init__(self, everything: Callable[[], Iterable[T]]) -> None:
        self._everything = everything
        self._left: Iterator[T] = iter(())
        self._begun = False

    def step(self) -> Iterator[T]:
        """To the end of the round at most."""
        if not self._begun:
            self._left = iter(list(self._everything()))
            self._begun = True
        yield from self._left
        self._begun = False


class Queues:
    """The tracks of all queues."""

    def __init__(self, broker: Broker, clock: Callable[[], float]) -> None:
        self._broker = broker
        self._clock = clock
        self._tracks: dict[Queue, Track] = {}
        self._rounds = Rounds(self._all)

    def track(self, queue: Queue) -> Track:
        return self._tracks.get(queue) or self._begin(queue)

    def _begin(self, queue: Queue) -> Track:
        track = self._tracks[queue] = Track(queue, self._clock())
        self._charge(track, track.price())
        return track

    def _charge(self, track: Track, price: int) -> None:
        self._broker.core.account.charge(price - track.cost)
        track.cost = price

    def rates(self, queue: Queue) -> tuple[float, float]:
        """What came and what went a second; of one that was not looked at yet, nothing."""
        track = self._tracks.get(queue)
        return (0.0, 0.0) if track is None or track.quiet_at >= 0 else track.rates.per_second()

    def step(self) -> list[tuple[Track, bool]]:
        """Look at the next ones; answers those in which something happens, and whether something may be wrong.

        Most of very many queues are quiet: for these there is next to nothing to do.
        """
        now, left = self._clock(), EFFORT
        seen = []
        for queue in self._rounds.step():
            track = self._tracks.get(queue)
            if (track is None or track.quiet_at >= 0) and self._broker.core.account.full:
                left -= QUIET  # nothing more is remembered of it until there is memory
            elif track is not None and queue.published == track.quiet_at:
                track.looked = now
                left -= QUIET
            else:
                track = track or self._begin(queue)
                look = track.look(now)
                self._charge(track, track.price())
                seen.append((track, look == DOUBTFUL))
                left -= look
            if left <= 0:
                break
        return seen

    def _all(self) -> Iterable[Queue]:
        """Of those that are gone nothing stays. One made anew under an old name is another."""
        queues = self._broker.queues.by_name.values()
        for queue in [queue for queue in self._tracks if queue.gone]:
            self._charge(self._tracks.pop(queue), 0)
        return queues


class Deaf(NamedTuple):
    """A client for which bytes wait, and which has taken none since then."""

    sent: int
    since: float


class Clients:
    """Who does not read what waits for it."""

    def __init__(self, broker: Broker, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rounds = Rounds(lambda: broker.connections.clients)
        self.deaf: dict[Client, Deaf] = {}

    def step(self) -> None:
        now = self._clock()
        self.deaf = {
            client: deaf
            for client, deaf in self.deaf.items()
            if not client.gone and client.pending_size and client.sent == deaf.sent
        }
        for client in islice(self._rounds.step(), CLIENTS_AT_ONCE):
            if client.pending_size and not client.gone and not client.inside:
                self.deaf.setdefault(client, Deaf(client.sent, now))
