"""Connections and consumers as the oracle sees them: what was said to them, what they wait for or did not settle."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mqks.broker.connections.client import Client
from tests.sim.clients import Request
from tests.sim.truth import Copy, Queue

if TYPE_CHECKING:
    from tests.sim.histories import Reader


class Violation(AssertionError):
    """A promise was broken."""


@dataclass
class Delivery:
    copy: Copy
    end: int  # offset of its last byte's end, in all that is said on its connection


@dataclass(eq=False)
class Consumer:
    id: bytes
    link: "Link"
    queue: Queue
    announced: bool  # its own `ok` was said, or was not asked for
    sevx: bool = False
    manual_ack: bool = False
    deliveries: list[Delivery] = field(default_factory=list)  # not settled


@dataclass(eq=False)
class Link:
    """A connection as the oracle sees it."""

    client: Client
    room: int = 0  # bytes that it takes before it reads again
    sent: int = 0
    scanned: int = 0
    fed: int = 0  # bytes
    asked: list[tuple[int, Request]] = field(default_factory=list)  # not taken yet, and where each ends in these bytes
    waiting: list[Request] = field(default_factory=list)  # those that will be answered
    consumers: dict[bytes, Consumer] = field(default_factory=dict)
    leaving: list[Consumer] = field(default_factory=list)  # deleted, with auto-ack deliveries on their way

    readers: "dict[bytes, Reader]" = field(default_factory=dict)  # histories that have not ended, by request id
    told: list[int] = field(default_factory=list)  # positions that histories have told

    def feed(self, pieces: list[tuple[bytes, Request | None]]) -> None:
        """The client says this."""
        for piece, request in pieces:
            self.fed += len(piece)
            if request is not None:
                self.asked.append((self.fed, request))

    def taken(self) -> list[Request]:
        """Requests that the broker has taken since the last time: with full memory some wait."""
        heard = self.client.received - self.client.unheard
        taken = [request for end, request in self.asked if end <= heard]
        del self.asked[: len(taken)]
        return taken

    def news(self) -> list[tuple[bytes, int]]:
        """Lines said since the last time, each with the offset of its end."""
        if self.sent + self.client.pending_size == self.scanned:
            return []
        text = self.client.pending()[self.scanned - self.sent :]
        if not text.endswith(b"\n"):
            raise Violation(f"half a line was said: {text[-100:]!r}")
        lines = []
        for line in text[:-1].split(b"\n"):
            self.scanned += len(line) + 1
            lines.append((line, self.scanned))
        return lines
