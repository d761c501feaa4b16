"""What the core asks of Python, by the part that asks. `Handler` is all of it; `Journal` is for where there is one."""

from collections.abc import Callable, Sequence
from typing import Protocol

from mqks.core.parts import Connection, Consumer, Queue


class Requests(Protocol):
    """Of the parser."""

    def request(self, connection: Connection, line: bytes, flaw: int) -> None:
        """Any line but a plain publish or ack; with a flaw (see parsing.pyx) one that cannot be served."""

    def spent(self, connection: Connection) -> None:
        """A line came that was beyond its budget: give it more, or block it."""


class Patterns(Protocol):
    """Of the router: patterns that look into the data of MQKS messages."""

    def inspect(self, event: bytes, data: bytes) -> Sequence[Queue]:
        """The queues that a message goes to, that was taken."""

    def wanting(self, event: bytes, data: bytes) -> Sequence[Queue]:
        """The same, of a message that may be refused yet."""


class Texts(Protocol):
    """Of deliveries and output."""

    def render(self, line: bytes, dialect: int, retry: int) -> bytes:
        """What follows "{id} ok " where it is not the line's own text."""

    def update(self, consumer: Consumer) -> bytes:
        """The line that tells a consumer how things stand with its queue."""


class LimitsPolicy(Protocol):
    """Of the limits of queues."""

    def exceeds(self, queue: Queue) -> None:
        """It is longer than its limits allow, since much had to be read: `trim` it soon."""

    def overflowed(self, queue: Queue) -> None:
        """A message of it was dropped; not told again until `overflows` is taken back."""


class Files(Protocol):
    """Where there is a journal: what is in its files."""

    @property
    def new_dtid(self) -> Callable[[], bytes]:
        """The time, as batches have it."""

    def spill(self, items: bytes) -> int:
        """A part of a long queue, to disk: its place; 0: there is no room."""

    def bring_back(self, place: int, count: int) -> bytes | None:
        """That part; None: it cannot be read, and the broker has to stop."""

    def look_at(self, place: int, count: int) -> bytes | None:
        """The same part, which stays where it is."""

    def load(self, start: int, size: int) -> None:
        """This part of the log is wanted: answer by `Delivery.loaded`."""

    def read_now(self, start: int, size: int) -> bytes | None:
        """The same, at once; None: it cannot be read, and the broker has to stop."""

    def lost(self, queue: Queue) -> None:
        """The disk no longer has one of its messages."""

    def replay(self, position: int, line: bytes) -> Sequence[Queue]:
        """A line of the journal that is no publish: the queues that it goes to."""


class Handler(Requests, Patterns, Texts, LimitsPolicy, Files, Protocol):
    """All that the core asks for, but for the journal."""


class Journal(Protocol):
    """Of persistence, in every turn."""

    def write(self, pieces: Sequence[tuple[int, memoryview, bool]]) -> bool:
        """Position, bytes, do they begin a file; False: not now, they will come again."""

    def write_progress(self, words: bytes) -> bool:
        """What became of messages (see progress.pyx); False: not now, the journal keeps them."""

    def wrote(self) -> None:
        """The end of a write; if no reply waits, then once, until `heeded` is taken back."""
