"""A queue as the broker's policy sees it: what it is subscribed to, how long it may be, since when nobody consumes it
and when it goes. Its messages are the core's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from mqks.broker.protocol import jsons
from mqks.broker.protocol.words import BYTES, LENGTH, OVERFLOW, PREFETCH, UNUSED, rounded
from mqks.broker.queues.patterns import Pattern
from mqks.core.parts import Consumer
from mqks.core.parts import Queue as CoreQueue

STICKY = b"--sticky"
PATTERN = b" --pattern "  # what follows is JSON, to the end
MANY_EVENTS = 300
LONG = 1 << 14  # bytes of a definition


@dataclass(frozen=True)
class Bounds:
    """What a queue has of its own; 0 and none: what the broker has."""

    max_length: int = 0
    max_bytes: int = 0
    overflow: bytes = b""

    def changed(self, flags: Mapping[bytes, Any]) -> Bounds:
        """With what these flags say, of those that a request has."""
        if flags.keys().isdisjoint((LENGTH, BYTES, OVERFLOW)):
            return self  # most queues share one
        return Bounds(
            flags.get(LENGTH, self.max_length),
            flags.get(BYTES, self.max_bytes),
            flags.get(OVERFLOW, self.overflow),
        )

    def values(self) -> dict[bytes, bytes]:
        """Each flag and its value."""
        return {LENGTH: b"%d" % self.max_length, BYTES: b"%d" % self.max_bytes, OVERFLOW: self.overflow}

    def text(self) -> bytes:
        """As flags, each after a space."""
        return b"".join(b" %s=%s" % (flag, value) for flag, value in self.values().items() if value not in (b"0", b""))

    def differing(self, other: Bounds) -> set[bytes]:
        """The flags whose values are not the same."""
        if self == other:
            return set()
        return {flag for flag, _ in self.values().items() ^ other.values().items()}

    @classmethod
    def read(cls, flags: Mapping[bytes, bytes]) -> Bounds:
        """From such flags, among others."""
        return cls(int(flags.get(LENGTH, 0)), int(flags.get(BYTES, 0)), flags.get(OVERFLOW, b""))


NO_BOUNDS = Bounds()


class Queue(CoreQueue):
    __slots__ = ("_events", "_unused", "_update", "bounds", "deserted", "kept", "name", "pattern", "unused_is_sticky")

    def __init__(self, name: bytes, now: float = 0.0) -> None:
        self.name = name
        self.deserted: float | None = now  # since when it has no consumers, by the broker's clock; None: it has some
        self.kept = b""  # its definition, as the journal has it
        self._update: bytes | None = None
        self.events = set()
        self.pattern: Pattern | None = None
        self.unused = None
        self.bounds = NO_BOUNDS
        self.unused_is_sticky = False  # set by `delete_queue --when-unused`: a consume does not change it

    @property
    def events(self) -> set[bytes]:
        return self._events

    @events.setter
    def events(self, events: set[bytes]) -> None:
        self._events = events
        self._update = None

    @property
    def unused(self) -> float | None:
        """Seconds without consumers after which the queue goes; None: never."""
        return self._unused

    @unused.setter
    def unused(self, seconds: float | None) -> None:
        self._unused = seconds
        self._update = None

    @property
    def is_large(self) -> bool:
        """Does each request about it cost much? To compare, sort and write all its events takes milliseconds."""
        return len(self.events) > MANY_EVENTS or len(self.kept) > LONG

    def update_text(self, consumer: Consumer) -> bytes:
        """What --update tells a consumer: the data of a `consume` that asks for the same. A queue that is gone has no
        events, but the consumer's flags are the same."""
        words = [self._shared(()) if self.gone else self._shared_by_all()]
        if consumer.manual_ack:
            words.append(b"--manual-ack")
        if consumer.stated:
            values = {**self.bounds.values(), PREFETCH: b"%d" % consumer.prefetch}
            words += [b"%s=%s" % (flag, values[flag]) for flag in consumer.stated]
        return b" ".join(words)

    def _shared_by_all(self) -> bytes:
        """The part that is the same for all consumers. It is made once: there may be many."""
        if self._update is None:
            self._update = self._shared(sorted(self.events))
        return self._update

    def _shared(self, events: Iterable[bytes]) -> bytes:
        words = [self.name, *events]
        if self.unused is not None:
            words.append(UNUSED + (b"=%r" % self.unused if self.unused else b""))
        return b" ".join(words)

    def definition(self) -> bytes:
        """All that it is, but for its messages, as the journal has it."""
        text = self._shared_by_all()
        if self.unused_is_sticky:
            text += b" " + STICKY
        text += self.bounds.text()
        if self.pattern is not None:
            text += PATTERN + jsons.dumps(self.pattern.content)
        return text


class Definition(NamedTuple):
    """What `Queue.definition` says."""

    name: bytes
    events: set[bytes]
    pattern: Pattern | None
    unused: float | None
    unused_is_sticky: bool
    bounds: Bounds

    @classmethod
    def read(cls, text: bytes) -> Definition:
        """The reverse of `Queue.definition`. All that was ever written is taken: neither a limit nor a check of
        requests, which may be stricter than it was then, keeps a broker from starting."""
        start, _, pattern = text.partition(PATTERN)
        name, *words = start.split(b" ")
        flags = dict(word.partition(b"=")[::2] for word in words if word.startswith(b"--"))
        return cls(
            name,
            events={word for word in words if not word.startswith(b"--")},
            pattern=Pattern(jsons.loads(pattern)) if pattern else None,
            unused=rounded(float(flags[UNUSED] or 0)) if UNUSED in flags else None,
            unused_is_sticky=STICKY in flags,
            bounds=Bounds.read(flags),
        )
