"""Who uses the sessions of the simulation: publishers, and handlers of consumers, receivers and histories.

They do what users do, at random, and write down in the ledger what they were told. What a handler is given is compared
with the lines that the session was given, which are read here by other means.
"""

import itertools
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from mqks.client.errors import ConnectionLost, MqksError
from mqks.client.message import Record
from mqks.client.wanted import Wanted, WantedConsumer, WantedHistory, WantedReceiver
from mqks.client.wire import Message
from tests.client.driver import SimDriver
from tests.sim.links import Violation

FILLING = "abcdefghijklmnopqrstuvwxyz" * 20
HANDLING = (0.0, 0.0, 0.005, 0.05, 0.5)  # seconds that a handler takes


@dataclass(frozen=True)
class QueuePlan:
    """A queue, and what may be expected of it."""

    name: str
    events: tuple[str, ...]
    manual_ack: bool = False
    unused: float | bool = False
    sevx: bool = False
    safe: bool = True  # nobody deletes it
    prefetch: int | None = None


@dataclass(eq=False)
class Sent:
    """A message, by its publisher."""

    id: str
    publisher: str
    number: int
    event: str
    content: str
    data: str  # as a consumer gets it: the content, or for SEVX all of the JSON
    once: bool = False
    connection: int = 0  # number of the one that it was sent over
    waits: bool = False  # for the ok
    done: bool = False


@dataclass
class Came:
    """A message, by whoever got it."""

    when: int
    id: str
    retry: int
    life: int  # of the broker that sent it
    late: bool  # the broker was no longer there, or took the connection for gone


@dataclass
class Ledger:
    sent: dict[str, Sent] = field(default_factory=dict)
    came: dict[str, list[tuple["Handler", Came]]] = field(default_factory=dict)  # by queue
    acked: dict[tuple[str, str], int] = field(default_factory=dict)  # queue, id: acks that were sent
    confirmed: dict[tuple[str, str], list[int]] = field(default_factory=dict)  # queue, id: when an ack's ok came
    now: int = 0

    def moment(self) -> int:
        self.now += 1
        return self.now


class User:
    """What a session was wanted for, and what came of it."""

    def __init__(self, driver: SimDriver, rng: random.Random, ledger: Ledger) -> None:
        self.driver = driver
        self.session = driver.session
        self.rng = rng
        self.ledger = ledger
        self.ids: set[str] = set()  # that it had

    wanted: Any  # a Wanted of one kind
    name: str

    def ended(self, error: MqksError | None) -> None:
        raise Violation(f"{self.name} of {self.driver.name} ended: {error!r}")

    def expect(self, answer: str) -> None:
        """The session is about to read this."""

    def check(self) -> None:
        """It has read it."""

    def stated(self, words: list[str]) -> None:
        """It asks for this on a new connection."""

    def _take_later(self, size: int) -> None:
        self.driver.clock.after(self.rng.choice(HANDLING), lambda: self._take(size))

    def _take(self, size: int) -> None:
        self.session.taken(self.wanted, size)
        self.driver.flush_soon()


class Handler(User):
    """Of a consumer or receiver."""

    def __init__(self, driver: SimDriver, rng: random.Random, ledger: Ledger, plan: QueuePlan) -> None:
        super().__init__(driver, rng, ledger)
        self.plan = plan
        self.name = plan.name
        self.draining = False
        self.held: list[Message] = []  # not settled
        self.told = list(plan.events)  # the events of the queue, by the last --update
        self._expected: list[tuple[str, str]] = []
        self.wanted = self._wanted()
        self.session.want(self.wanted)

    def _wanted(self) -> Wanted:
        plan = self.plan
        options: dict[str, Any] = {
            "manual_ack": plan.manual_ack,
            "prefetch": plan.prefetch,
            "delete_queue_when_unused": plan.unused,
            "deliver": self.deliver,
            "ended": self.ended,
        }
        if plan.sevx:
            return WantedReceiver(plan.name, {"event": plan.events[0]}, **options)
        return WantedConsumer(plan.name, plan.events, **options)

    def stated(self, words: list[str]) -> None:
        events = list(itertools.takewhile(lambda word: not word.startswith("--"), words[3:]))
        if not self.plan.sevx and events != self.told:
            raise Violation(f"{self.name} was told that its events are {self.told}, and asks for {words}")

    def expect(self, answer: str) -> None:
        if answer.startswith("--update "):
            self.told = [word for word in answer.split()[2:] if not word.startswith("--")]
        if answer and answer[0] not in "-{":
            id, rest = answer.split(" ", 1)
            self._expected.append((id, rest if self.plan.sevx else rest.split(" ", 1)[1]))

    def check(self) -> None:
        if self._expected:
            raise Violation(f"the handler of {self.name} was not given {self._expected}")

    def deliver(self, messages: list[Message], size: int) -> None:
        expected, self._expected = self._expected, []
        if [(message.id, message.data) for message in messages] != expected:
            raise Violation(f"the handler of {self.name} was given {messages}, and there came {expected}")
        for message in messages:
            self._got(message)
        self._take_later(size)

    def _got(self, message: Message) -> None:
        sent = self.ledger.sent.get(message.id)
        event, data, retry = message.event, message.data, message.retry
        if self.plan.sevx:
            event, data, retry = message.json["event"], message.json["data"], message.json.get("retry", 0)
        if sent is None or (event, data) != (sent.event, sent.content if self.plan.sevx else sent.data):
            raise Violation(f"{self.name} was given a message that nobody sent: {message}")
        assert self.driver.wire is not None
        life, late = self.driver.wire.life, not self.driver.wire.broker_open
        came = Came(self.ledger.moment(), message.id, retry, life, late)
        self.ledger.came.setdefault(self.name, []).append((self, came))
        if self.plan.manual_ack:
            self.held.append(message)
            if self.draining or self.rng.random() < 0.8:
                self.driver.clock.after(self.rng.choice(HANDLING), lambda: self._settle(message))

    def drain(self) -> None:
        """From now on all is acked, and what was put aside is too."""
        self.draining = True
        for message in list(self.held):
            self._settle(message)

    def _settle(self, message: Message) -> None:
        if message not in self.held:
            return
        self.held.remove(message)
        key = self.name, message.id

        def done(result: str | MqksError) -> None:
            if isinstance(result, str):
                self.ledger.confirmed.setdefault(key, []).append(self.ledger.moment())
            elif not isinstance(result, ConnectionLost):
                raise Violation(f"an ack was refused: {result}")

        rejects = not self.draining and self.rng.random() < 0.15
        confirms = not rejects and (self.draining or self.rng.random() < 0.5)
        sent = self.session.settle(self.wanted, message, "reject" if rejects else "ack", done if confirms else None)
        if sent and not rejects:
            self.ledger.acked[key] = self.ledger.acked.get(key, 0) + 1
        if not sent and not self.wanted.is_stale(message):
            raise Violation(f"an ack of {message} was not sent, though its connection stands")
        self.driver.flush_soon()


class Reader(User):
    """Of a history that goes on and on."""

    def __init__(self, driver: SimDriver, rng: random.Random, ledger: Ledger, start: str) -> None:
        super().__init__(driver, rng, ledger)
        self.name = f"history {start}"
        self.pinned = -1 if start == "latest" else 0  # where it begins, when it is known
        self.records: list[Record] = []
        self.wanted = WantedHistory(
            start, to=None, events=(), limit=None, follow=True, deliver=self.deliver, ended=self.ended
        )
        self.session.want(self.wanted)

    def expect(self, answer: str) -> None:
        if self.pinned < 0 and answer.startswith("--end "):
            self.pinned = int(answer[6:])

    def deliver(self, records: list[Record], size: int) -> None:
        self.records += records
        self._take_later(size)


class Publisher(User):
    def __init__(
        self, driver: SimDriver, rng: random.Random, ledger: Ledger, events: Iterable[str], once: bool
    ) -> None:
        super().__init__(driver, rng, ledger)
        self.name = driver.name
        self.events = tuple(events)
        self.knows_once = once
        self.number = 0

    def act(self) -> None:
        for _ in range(self.rng.choice((1, 1, 2, 5))):
            self._publish()
        self.driver.flush_soon()

    def _publish(self) -> None:
        self.number += 1
        data = f"{self.name}/{self.number}/{FILLING[: self.rng.choice((0, 0, 10, 100, 500))]}"
        confirm, once = self.rng.random() < 0.6, self.knows_once and self.rng.random() < 0.3
        sent = Sent("", self.name, self.number, self.rng.choice(self.events), data, data, once)

        def done(result: str | MqksError) -> None:
            if not isinstance(result, str):
                raise Violation(f"a publish was refused: {result}")
            if sent.done:
                raise Violation(f"{sent} was reported twice")
            sent.done = True

        sent.waits = confirm or once
        asked = done if sent.waits else None
        flag = f"--once={self.session.scope}" if once else ""
        if self.rng.random() < 0.2:
            sent.data = json.dumps({"event": sent.event, "data": data})
            sent.id = self.session.send(sent.data, None, asked, flag)
        else:
            sent.id = self.session.publish(sent.event, data, None, asked, flag)
        self.ledger.sent[sent.id] = sent
