"""Clients that know nothing of the broker but its protocol: they make requests, at random, and cut them anywhere.

A request is its line, and what the line says, for the oracle. Message ids are never used twice, but for messages that
are to be taken once: these are published again, also after crashes. Data is numbered by its publisher; names are few,
so that all meets. What a client acks is what it has read.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.sim.truth import Message, published, sent

if TYPE_CHECKING:
    from tests.sim.histories import Held
    from tests.sim.links import Link
    from tests.sim.truth import Copy, Op

EVENTS = (b"e1", b"e1", b"e2", b"e3", b"a.x")
QUEUES = (b"q1", b"q1", b"q2", b"q3")  # these stay
TEMPORARY = (b"t1", b"t2")  # these go when nobody uses them
PATTERNS: tuple[dict[str, Any], ...] = ({}, {"event": "e1"}, {"k": 1}, {"event": "e2", "k": 2})
SECONDS = (0.0, 0.0, 1.0, 30.0, 1 / 3, 1e-20)  # those with many decimals are taken to the millisecond
FILLING = b"abcdefghijklmnopqrstuvwxyz0123456789" * 300


@dataclass(eq=False)
class Request:
    action: str  # the oracle's method
    id: bytes
    line: bytes
    answered: bool  # with --confirm, or in SEVX
    event: bytes = b""
    data: bytes = b""
    queue: bytes = b""
    consumer: bytes = b""
    message: bytes = b""  # empty: all
    once: bytes | None = None  # the scope
    events: tuple[bytes, ...] = ()
    add: tuple[bytes, ...] = ()
    remove: tuple[bytes, ...] = ()
    pattern: tuple[tuple[str, Any], ...] | None = None
    manual_ack: bool = False
    unused: float | None = None
    bounds: dict[str, Any] = field(default_factory=dict)  # what it says of them
    start: bytes = b""  # of a history or a hold
    stop: int | None = None
    limit: int | None = None
    follow: bool = False
    seconds: float = 0.0  # of a hold
    # what the oracle finds out
    op: "Op | None" = None
    settled: "list[Copy]" = field(default_factory=list)
    held: "Held | None" = None


def message_of(request: Request) -> Message:
    """What a publish or send would have the broker keep."""
    if request.action == "send":
        return sent(request.id, request.data, request.once)
    return published(request.id, request.event, request.data, request.once)


class SimClient:
    """One that connects, works, goes and comes back."""

    def __init__(
        self,
        name: bytes,
        rng: random.Random,
        confirming: float,
        largest: int,
        resends: bool = False,
        bounding: float = 0.0,
    ) -> None:
        self.name = name
        self.rng = rng
        self.confirming = confirming  # how often it asks for --confirm
        self.largest = largest  # bytes of data
        self.resends = resends
        self.bounding = bounding  # how often it limits a queue
        self.published_once: list[Request] = []
        self.link: Link | None = None
        self.outgoing: list[tuple[bytes, Request | None]] = []  # bytes to feed, and what they complete
        self.count = 0
        # The weights make a client: some publish more, some consume more.
        publishes, consumes = rng.choice(((9, 3), (5, 5), (2, 8)))
        self.habits: list[tuple[float, Callable[[], Request | None]]] = [
            (publishes, self.publish),
            (publishes / 4, self.send),
            (publishes / 3, self.publish_once),
            (publishes / 2 if resends else 0, self.publish_again),
            (consumes / 4, self.consume),
            (consumes / 10, self.recv),
            (consumes, self.settle),
            (0.7, self.rebind),
            (0.2, self.subscribe),
            (consumes / 15, self.delete_consumer),
            (0.15, self.delete_queue),
            (0.15, self.delete_when_unused),
            (0.1, self.ping),
            (0.5, self.history),
            (0.15, self.hold),
        ]

    # ── what happens to its connection ──

    def connected(self, link: "Link") -> None:
        """Most clients first say what they want."""
        self.link = link
        self.outgoing.clear()
        for _ in range(self.rng.choice((0, 0, 3)) if self.resends else 0):
            self._say(self.publish_again())
        if self.rng.random() < 0.7:
            self._say(self.rng.choice((self.consume, self.consume, self.recv, self.rebind))())

    def gone(self) -> None:
        self.link = None
        self.outgoing.clear()

    def act(self) -> None:
        """Make a few requests; they go out in pieces."""
        weights = [weight for weight, _ in self.habits]
        (habit,) = self.rng.choices([habit for _, habit in self.habits], weights)
        for _ in range(self.rng.choice((1, 1, 2, 5))):
            self._say(habit())

    def _say(self, request: Request | None) -> None:
        if request is not None:
            line = request.line
            if self.rng.random() < 0.1:
                at = self.rng.randrange(len(line))
                self.outgoing.append((line[:at], None))
                line = line[at:]
            self.outgoing.append((line, request))

    def next_pieces(self) -> list[tuple[bytes, Request | None]]:
        """What it feeds now, and the requests that are complete with that: no two of one id, so answers are clear."""
        ids = [request.id if request else None for _, request in self.outgoing]
        most = next((at for at, id in enumerate(ids) if id and id in ids[:at]), len(ids))
        count = self.rng.randint(1, most)
        now, self.outgoing = self.outgoing[:count], self.outgoing[count:]
        return now

    # ── requests ──

    def publish(self) -> Request:
        event = self.rng.choice(EVENTS)
        id, data, confirm = self._id(b"m"), self._data(), self._confirm()
        line = b"%s publish %s%s %s\n" % (id, b"--confirm " if confirm else b"", event, data)
        return Request("publish", id, line, confirm, event=event, data=data)

    def send(self) -> Request:
        content: dict[str, Any] = {"n": self.count, "data": self._data().decode()}
        if self.rng.random() < 0.8:
            content["event"] = self.rng.choice(EVENTS).decode()
        if self.rng.random() < 0.5:
            content["k"] = self.rng.choice((1, 2))
        id, text = self._id(b"m"), json.dumps(content).encode()
        return Request("send", id, b"%s send %s\n" % (id, text), answered=True, data=text)

    def publish_once(self) -> Request:
        made = self.publish() if self.rng.random() < 0.7 else self.send()
        made.once = self.rng.choice((b"", b"s"))
        self.published_once.append(made)
        return self._once(made)

    def publish_again(self) -> Request | None:
        """One of the last ones, most often: its publisher may not know whether it was taken."""
        if not self.published_once:
            return None
        some = self.published_once[-3:] if self.rng.random() < 0.7 else self.published_once
        return self._once(self.rng.choice(some))

    def _once(self, made: Request) -> Request:
        """The same message, confirmed or not this time."""
        confirm = made.action == "send" or self._confirm()
        flags = [b"--once=" + made.once if made.once else b"--once"]
        if confirm:
            flags.insert(self.rng.randrange(2), b"--confirm")
        words = [made.id, made.action.encode(), *flags, *([made.event] if made.action == "publish" else []), made.data]
        return replace(made, line=b" ".join(words) + b"\n", answered=confirm, settled=[])

    def consume(self) -> Request:
        queue, unused = self._queue_to_use()
        events = self._events(0, 2)
        add = self._events(0, 1) if self.rng.random() < 0.2 else ()
        manual_ack = self.rng.random() < 0.6
        words = [b"consume", queue, *events]
        if add:
            words += [b"--add", *add]
        if manual_ack:
            words.append(b"--manual-ack")
        if self.rng.random() < 0.4:
            words.append(b"--prefetch=%d" % self.rng.choice((1, 2, 5)))
        if unused is not None:
            words.append(b"--delete-queue-when-unused" + (b"=%.20f" % unused if unused else b""))
        bounds = self._bounds()
        words += _flags(bounds)
        said: dict[str, Any] = {"events": events, "add": add, "manual_ack": manual_ack, "unused": _taken(unused)}
        said["bounds"] = bounds
        return self._request("consume", words, id=b"c-" + queue, queue=queue, **said)

    def drain(self, queue: bytes) -> None:
        """Consume all that is in a queue, as it is."""
        self._say(self._request("consume", [b"consume", queue], id=b"c-" + queue, queue=queue))

    def recv(self) -> Request:
        queue, unused = self._queue_to_use()
        pattern = self.rng.choice(PATTERNS)
        manual_ack = self.rng.random() < 0.6
        content = {
            "queue": queue.decode(),
            "pattern": pattern,
            "manual_ack": manual_ack,
            "delete_queue_when_unused": False if unused is None else True if unused == 0 else unused,
        }
        id, bounds = b"c-" + queue, self._bounds()
        return Request(
            "recv", id, b" ".join([id, b"recv", *_flags(bounds), json.dumps(content).encode()]) + b"\n", answered=True,
            queue=queue, pattern=tuple(pattern.items()), manual_ack=manual_ack, unused=_taken(unused), bounds=bounds,
        )  # fmt: skip

    def settle(self) -> Request | None:
        """Ack or reject something that has come, or all of it."""
        assert self.link is not None
        meant = {(request.consumer, request.message) for _, request in self.outgoing if request}
        known = [
            (consumer, one.copy.message.id)
            for consumer in self.link.consumers.values()
            for one in consumer.deliveries
            if consumer.manual_ack and one.end <= self.link.sent and (consumer.id, one.copy.message.id) not in meant
        ]
        if not known:
            return None
        action = self.rng.choice(("ack", "ack", "ack", "reject"))
        consumer, message = known[0] if self.rng.random() < 0.6 else self.rng.choice(known)
        if self.rng.random() < 0.1:
            message = b""
        if consumer.sevx and self.rng.random() < 0.5:
            which = {"event_id": message.decode()} if message else {"all": True}
            text = json.dumps({"receiver_id": consumer.id.decode(), **which}).encode()
            id = self._id(b"r")
            line = b"%s %s %s\n" % (id, action.encode(), text)
            return Request(action, id, line, answered=True, consumer=consumer.id, message=message)
        words = [action.encode(), consumer.id, message or b"--all"]
        return self._request(action, words, consumer=consumer.id, message=message)

    def rebind(self) -> Request:
        queue = self.rng.choice(QUEUES)
        events = self._events(0, 2)
        add = self._events(1, 1) if self.rng.random() < 0.4 else ()
        remove = self._events(1, 1) if self.rng.random() < 0.4 else ()
        words = [b"rebind", queue, *events]
        for flag, values in ((b"--add", add), (b"--remove", remove)):
            words += [flag, *values] if values else []
        bounds = self._bounds()
        words += _flags(bounds)
        return self._request("rebind", words, queue=queue, events=events, add=add, remove=remove, bounds=bounds)

    def subscribe(self) -> Request:
        queue, events = self.rng.choice(QUEUES), self._events(1, 3)
        bounds = self._bounds()
        words = [b"subscribe", queue, *events, *_flags(bounds)]
        return self._request("rebind", words, queue=queue, events=events, bounds=bounds)

    def delete_consumer(self) -> Request:
        consumer = b"c-" + self.rng.choice(QUEUES + TEMPORARY)
        return self._request("delete_consumer", [b"delete_consumer", consumer], consumer=consumer)

    def delete_queue(self) -> Request:
        queue = self.rng.choice(QUEUES + TEMPORARY)
        return self._request("delete_queue", [b"delete_queue", queue], queue=queue)

    def delete_when_unused(self) -> Request:
        queue, unused = self.rng.choice(TEMPORARY), self.rng.choice(SECONDS)
        words = [b"delete_queue", queue, b"--when-unused" + (b"=%.20f" % unused if unused else b"")]
        return self._request("delete_when_unused", words, queue=queue, unused=_taken(unused))

    def ping(self) -> Request:
        id = self._id(b"r")
        return Request("ping", id, b"%s ping pong\n" % id, answered=True)

    def history(self) -> Request:
        events = tuple(event for event in self._events(0, 2) if self.rng.random() < 0.5)
        stop = self._position() if self.rng.random() < 0.2 else None
        limit = self.rng.choice((1, 5)) if self.rng.random() < 0.3 else None
        follow = self.rng.random() < 0.2
        words = [b"history", start := self._place()]
        words += [b"--events=" + b",".join(events)] if events else []
        words += [b"--to=%d" % stop] if stop is not None else []
        words += [b"--limit=%d" % limit] if limit is not None else []
        words += [b"--follow"] if follow else []
        said: dict[str, Any] = {"start": start, "events": events, "stop": stop, "limit": limit, "follow": follow}
        id = self._id(b"h")
        return Request("history", id, b"%s %s\n" % (id, b" ".join(words)), answered=False, **said)

    def hold(self) -> Request:
        name, start, seconds = self.rng.choice((b"a", b"b")), self._place(), self.rng.choice((0, 1, 50, 1e6))
        words = [b"hold", name, start, b"--for=%d" % seconds]
        return self._request("hold", words, queue=name, start=start, seconds=float(seconds))

    # ── their parts ──

    def _place(self) -> bytes:
        return self.rng.choice((b"earliest", b"earliest", b"latest", b"%d" % self._position()))

    def _position(self) -> int:
        """One that a history has told, most often."""
        told = self.link.told if self.link is not None else []
        return self.rng.choice(told) if told and self.rng.random() < 0.9 else self.rng.randrange(10_000)

    def _id(self, kind: bytes) -> bytes:
        self.count += 1
        return b"%s%s.%d" % (kind, self.name, self.count)

    def _confirm(self) -> bool:
        return self.rng.random() < self.confirming

    def _data(self) -> bytes:
        size = self.rng.choice((0, 8, 20, 20, 60, self.rng.randrange(self.largest)))
        return b"%s/%d/%s" % (self.name, self.count, FILLING[:size])

    def _events(self, least: int, most: int) -> tuple[bytes, ...]:
        return tuple(dict.fromkeys(self.rng.choice(EVENTS) for _ in range(self.rng.randint(least, most))))

    def _bounds(self) -> dict[str, Any]:
        """Limits of a queue, or none; they are lifted now and then."""
        if self.rng.random() >= self.bounding:
            return {}
        sizes = {"max_length": (0, 1, 3, 8), "max_bytes": (0, 60, 300, 3000), "overflow": ("reject", "drop-oldest")}
        named = self.rng.sample(sorted(sizes), self.rng.randint(1, 3))
        return {name: self.rng.choice(sizes[name]) for name in named}

    def _queue_to_use(self) -> tuple[bytes, float | None]:
        if self.rng.random() < 0.8:
            return self.rng.choice(QUEUES), None
        return self.rng.choice(TEMPORARY), self.rng.choice(SECONDS)

    def _request(self, action: str, words: list[bytes], *, id: bytes = b"", **said: Any) -> Request:
        id, confirm = id or self._id(b"r"), self._confirm()
        if confirm:
            words = [*words, b"--confirm"]
        return Request(action, id, b"%s %s\n" % (id, b" ".join(words)), confirm, **said)


def _taken(seconds: float | None) -> float | None:
    """What the broker makes of it."""
    return seconds and round(seconds, 3)


def _flags(bounds: dict[str, Any]) -> list[bytes]:
    return [f"--{name.replace('_', '-')}={value}".encode() for name, value in bounds.items()]
