"""What is counted: each message by its publisher and number, in the ledger that `tests/crash` has.

A publish that was not answered when the connection broke is in doubt; with `--once` it is sent again until it is
confirmed, and so must be there exactly once. Consumers ack by hand, confirmed; some are rejected, some come back since
their consumer went. Queues with one consumer keep the order of each publisher.
"""

import asyncio
import random
from collections import deque
from dataclasses import dataclass

from tests.crash.clients import data_of
from tests.crash.ledger import Message, Session
from tests.soak.link import Speaker, Stage, within
from tests.soak.watching import Watcher

LAG = 2000  # messages that a publisher may be ahead of the slowest consumer
WINDOWS = (1, 5, 20, 50)
ALL = b"count.all"


@dataclass(frozen=True)
class CountedQueue:
    name: str
    event: bytes
    consumers: int
    sevx: bool = False  # consumed by `recv`, with a pattern that one event matches


QUEUES = (
    *(CountedQueue(f"count-{at}", b"count.%d" % at, consumers) for at, consumers in enumerate((1, 1, 1, 2, 2, 3))),
    CountedQueue("count-6", b"count.6", 1, sevx=True),
    CountedQueue("count-7", b"count.7", 2, sevx=True),
)
QUEUES_OF = {
    **{queue.event: (queue.name,) for queue in QUEUES},
    ALL: tuple(queue.name for queue in QUEUES if not queue.sevx),
}


def declaration(queue: CountedQueue) -> bytes:
    """The request that makes the queue, before anybody publishes."""
    if queue.sevx:
        return b'%s recv {"queue": "%s", "pattern": {"event": "%s"}, "delete_queue_when_unused": false}' % (
            (queue.name.encode(),) * 2 + (queue.event,)
        )
    return b"%s subscribe --confirm %s %s %s" % ((queue.name.encode(),) * 2 + (queue.event, ALL))


class Publisher(Speaker):
    """`form` is the request; with `again`, what was not answered is sent again."""

    form = b"%s publish --confirm %s %s\n"
    again = False

    def __init__(self, stage: Stage, name: str, rng: random.Random, event: bytes, rate: float) -> None:
        super().__init__(stage, name, rng)
        self.event, self.rate = event, rate
        self.awaited: deque[int] = deque()
        self.repeated: set[int] = set()  # of those awaited, whichever were sent before on another connection
        self._id = name.encode()
        stage.ledger.connected(self._id)

    def begin(self) -> None:
        if self.again:
            self.repeated = set(self.awaited)
            for number in self.awaited:
                self._send(number)
        else:
            self.awaited.clear()
            self.stage.ledger.connected(self._id)

    async def act(self) -> None:
        while not self.lost.is_set():
            window = self.rng.choice(WINDOWS)
            if self.stage.publishing and len(self.awaited) <= window // 2 and self.lag() < LAG:
                for _ in range(window):
                    self.awaited.append(self.stage.ledger.sent(self._id, QUEUES_OF[self._event()]))
                    self._send(self.awaited[-1])
            await asyncio.sleep(self.rng.expovariate(self.rate / window))

    def lag(self) -> int:
        newest = [self.stage.ledger.queues[queue].newest.get(self._id, 0) for queue in QUEUES_OF[self.event]]
        return len(self.stage.ledger.safe[self._id]) - min(newest)

    def _event(self, number: int | None = None) -> bytes:
        number = len(self.stage.ledger.safe[self._id]) if number is None else number
        return ALL if number % 8 == 7 else self.event

    def _send(self, number: int) -> None:
        event = self._event(number)
        self.stage.done[type(self).__name__] += 1
        for queue in QUEUES_OF[event]:
            self.stage.deeds[self.life, queue].sent += 1
        self.send(self.form % (b"%s-%d" % (self._id, number), event, data_of(self._id, number)))

    def line(self, line: bytes) -> None:
        request_id, _, answer = line.partition(b" ")
        if not self.awaited or request_id != b"%s-%d" % (self._id, self.awaited[0]):
            # Errors overtake what waits for the disk.
            number = int(request_id.rpartition(b"-")[2]) if request_id.startswith(self._id + b"-") else -1
            if number not in self.awaited or not answer.startswith(b"error "):
                self.stage.findings.add("unexpected", f"{self.name} got {line[:200]!r}")
                return
            self.awaited.remove(number)
        else:
            number = self.awaited.popleft()
        if answer == b"ok ":
            self.stage.ledger.is_safe(self._id, number)
            if number not in self.repeated:
                for queue in QUEUES_OF[self._event(number)]:
                    self.stage.deeds[self.life, queue].confirmed += 1
        else:
            self.stage.error(self.name, f"publish of number {number}", line)
            self.stage.ledger.refused(self._id, number, surely=number not in self.repeated)

    @property
    def settled(self) -> bool:
        return not self.awaited or not (self.again or self.transport)


class Once(Publisher):
    form = b"%s publish --once=soak --confirm %s %s\n"
    again = True


class Sevx(Publisher):
    form = b'%s send {"event": "%s", "data": "%s"}\n'


class SevxOnce(Publisher):
    form = b'%s send --once=sevx {"event": "%s", "data": "%s"}\n'
    again = True


PUBLISHERS: tuple[type[Publisher], ...] = (Publisher, Once, Sevx, SevxOnce)


class Consumer(Speaker):
    """Manual acks, all confirmed, in any order; now and then it rests, rejects, or goes."""

    rejects, rests, leaves = 0.005, 0.05, 0.02

    def __init__(self, stage: Stage, name: str, rng: random.Random, queue: CountedQueue, watcher: Watcher) -> None:
        super().__init__(stage, name, rng)
        self.queue, self.watcher = queue, watcher
        self.session = Session(stage.ledger.queues[queue.name])
        self.waiting: list[Message] = []
        self.awaited: deque[Message] = deque()
        self._id = name.encode()
        self._left = asyncio.Event()
        self._leaving = self._closed = False  # it enters no more deliveries; nor anything else
        self._address = ""  # of a connection that it left without a word
        self._forms = SEVX_FORMS if queue.sevx else MQKS_FORMS

    def begin(self) -> None:
        self.session = Session(self.session.queue)
        self.waiting.clear()
        self.awaited.clear()
        self._left.clear()
        self._leaving = self._closed = False
        self.stage.door.inside.add(self.name)
        prefetch = self.rng.choice((10, 50, 200, 500))
        names = {b"id": self._id, b"queue": self.queue.name.encode(), b"event": self.queue.event}
        self.send(self._forms[b"begin"] % {**names, b"prefetch": prefetch})

    async def act(self) -> None:
        while True:
            await asyncio.sleep(self.rng.expovariate(0.5))
            self._sometimes_pause()
            if self.rng.random() < self.rests:
                await self.rest(self.rng.uniform(0.5, 3.0))
            elif self.rng.random() < self.leaves:
                await self._leave()
                return

    def _sometimes_pause(self) -> None:
        if self.rng.random() < 0.2:
            self.send(b"pause pause %s\npause resume --confirm %s\n" % (self._id, self._id))

    async def _leave(self) -> None:
        """In order, when its acks are answered: what it acked after that would not be its own; or without a word."""
        if self.rng.random() < 0.5 and not self.queue.sevx:
            self._leaving = True
            while self.awaited:
                await asyncio.sleep(0.02)
            self._close_books()
            self.send(b"leave delete_consumer --confirm %s\n" % self._id)
            await self._left.wait()
        elif self.transport is not None:
            self._address = "{}:{}".format(*self.transport.get_extra_info("sockname"))
            self.hang_up(at_once=True)

    async def before_return(self) -> None:
        """The broker has noticed that it went: else what was on its way to the old connection would come behind what
        the new one gets. What the others of the queue got meanwhile, they may have got late."""
        if self._address:
            await self.watcher.until(f"{self._address!r} not in state.clients")
            self._address = ""
        self.session.queue.departures += 1

    def line(self, line: bytes) -> None:
        request_id, _, rest = line.partition(b" ")
        if request_id == self._id and rest.startswith(b"ok"):
            if rest != b"ok " and not rest.startswith((b"ok --update ", b'ok {"update"')):
                self._delivered(line)
        elif line == b"ack ok " and self._closed:
            pass  # it was on its way when this one hung up
        elif line == b"ack ok " and self.awaited:
            self.stage.ledger.acked(self.session, self.awaited.popleft())
            self.stage.deeds[self.life, self.queue.name].acked += 1
        elif line == b"leave ok ":
            self._left.set()
        elif line not in (b"reject ok ", b"pause ok "):
            self.stage.error(self.name, f"consuming {self.queue.name}", line)
            self.hang_up()

    def _delivered(self, line: bytes) -> None:
        if self._leaving:
            return
        msg_id = line.split(b" ", 3)[2]
        name, _, digits = msg_id.rpartition(b"-")
        if not digits.isdigit() or data_of(name, int(digits)) not in line:
            self.stage.findings.add("unexpected", f"{self.name} got {line[:200]!r}")
            return
        message = (name, int(digits))
        self.stage.ledger.delivered(self.session, message)
        if self.stage.publishing and self.rng.random() < self.rejects:
            self.stage.ledger.rejecting(self.session, message)
            self.send(self._forms[b"reject"] % (self._id, msg_id))
        else:
            self.waiting.append(message)

    def took(self) -> None:
        """The acks of what came together go together."""
        self.rng.shuffle(self.waiting)
        for message in self.waiting:
            self.stage.ledger.acking(self.session, message)
        self.awaited.extend(self.waiting)
        self.stage.deeds[self.life, self.queue.name].acks += len(self.waiting)
        if self.waiting:
            form = self._forms[b"ack"]
            self.send(b"".join(form % (self._id, b"%s-%d" % message) for message in self.waiting))
        self.waiting.clear()

    def hang_up(self, *, at_once: bool = False) -> None:
        """The books are closed first: as soon as the broker knows, others may get what this one held."""
        self._close_books()
        super().hang_up(at_once=at_once)

    def _close_books(self) -> None:
        if not self._closed:
            self._leaving = self._closed = True
            self.stage.ledger.gone(self.session, killed=True)
            self.waiting.clear()
            self.awaited.clear()

    def ended(self) -> None:
        self._close_books()
        self.stage.door.inside.discard(self.name)


MQKS_FORMS = {
    b"begin": b"%(id)s consume --confirm %(queue)s --manual-ack --prefetch=%(prefetch)d\n",
    b"ack": b"ack ack --confirm %s %s\n",
    b"reject": b"reject reject --confirm %s %s\n",
}
SEVX_FORMS = {
    b"begin": (
        b'%(id)s recv --prefetch=%(prefetch)d {"queue": "%(queue)s", "pattern": {"event": "%(event)s"}, '
        b'"delete_queue_when_unused": false, "manual_ack": true}\n'
    ),
    b"ack": b'ack ack {"receiver_id": "%s", "event_id": "%s"}\n',
    b"reject": b'reject reject {"receiver_id": "%s", "event_id": "%s"}\n',
}


async def all_settled(publishers: list[Publisher], seconds: float) -> bool:
    async def wait() -> None:
        while not all(publisher.settled for publisher in publishers):
            await asyncio.sleep(0.05)

    return await within(wait(), seconds)
