"""A queue as the broker's policy sees it: what it is subscribed to, how long it may be, since when nobody consumes it
and when it goes. Its messages are the core's."""

from mqks.broker import jsons
from mqks.broker.overflow import Bounds
from mqks.broker.patterns import Pattern
from mqks.core.parts import Queue as CoreQueue


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
        self.bounds = Bounds()
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

    def update_text(self, manual_ack: bool) -> bytes:
        """What --update tells a consumer about the queue. It is made once: a queue may have many consumers."""
        if self._update is None:
            words = [self.name, *sorted(self.events)]
            if self.unused is not None:
                words.append(b"--delete-queue-when-unused" + (b"=" + _decimal(self.unused) if self.unused else b""))
            self._update = b" ".join(words)
        return self._update + (b" --manual-ack" if manual_ack else b"")

    def definition(self) -> bytes:
        """All that it is, but for its messages, as the journal has it."""
        text = self.update_text(manual_ack=False)
        if self.unused_is_sticky:
            text += b" --sticky"
        text += self.bounds.text()
        if self.pattern is not None:
            text += b" --pattern " + jsons.dumps(self.pattern.content)
        return text


def _decimal(seconds: float) -> bytes:
    """As `consume` takes it: without an exponent."""
    text = repr(seconds)
    return (f"{seconds:.15f}".rstrip("0") if "e" in text else text).encode()
