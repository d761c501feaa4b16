"""A queue as the broker's policy sees it: what it is subscribed to and when it goes. Its messages are the core's."""

from mqks.broker.patterns import Pattern
from mqks.core.parts import Queue as CoreQueue


class Queue(CoreQueue):
    __slots__ = ("events", "name", "pattern", "unused", "unused_is_sticky")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.events: set[bytes] = set()
        self.pattern: Pattern | None = None
        self.unused: float | None = None  # seconds without consumers after which the queue goes; None: never
        self.unused_is_sticky = False  # set by `delete_queue --when-unused`: a consume does not change it

    def update_text(self, manual_ack: bool) -> bytes:
        """What --update tells a consumer about the queue."""
        words = [self.name, *sorted(self.events)]
        if self.unused is not None:
            words.append(b"--delete-queue-when-unused" + (b"=%r" % self.unused if self.unused else b""))
        if manual_ack:
            words.append(b"--manual-ack")
        return b" ".join(words)
