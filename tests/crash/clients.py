"""What all clients of the harness have in common: one connection, opened again in every life of the broker.

They speak over raw sockets and enter what they see into the ledger. All of them run in one thread, driven by the
harness: `receive` when there is something to read, `act` after that, `flush` while there is something to send.

What a message says follows from its publisher and its number, so a consumer knows what its bytes must be.
"""

import contextlib
import random
import socket
from collections.abc import Sequence

from tests.crash.ledger import Ledger

PATIENCE = 60.0  # seconds until something that must happen counts as not happening
CHUNK = 1 << 15  # small, so that all clients take turns
WINDOWS = (1, 10, 100, 200, 500, 1000, 1000, 2000)  # of publishes, of acks: each life takes one of them


class Client:
    def __init__(self, name: str, ledger: Ledger, rng: random.Random) -> None:
        self.name, self.ledger, self.rng = name.encode(), ledger, random.Random(rng.getrandbits(64))
        self.socket: socket.socket | None = None
        self.out = bytearray()
        self._rest = b""

    def open(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.out.clear()
        self._rest = b""
        self.begin()
        self.flush()

    def receive(self) -> bool:
        """Take what is there; False when the connection is over."""
        assert self.socket
        try:
            data = self.socket.recv(CHUNK, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        self._take(data)
        return bool(data)

    def finish(self, *, killed: bool) -> None:
        """The broker is gone: read what it had given to the kernel, then close."""
        if self.socket is None:
            return
        with contextlib.suppress(ConnectionError):
            while data := self.socket.recv(CHUNK):
                self._take(data)
        self.close(killed=killed)

    def close(self, *, killed: bool) -> None:
        assert self.socket
        self.socket.close()
        self.socket = None
        self.ended(killed)

    def flush(self) -> None:
        assert self.socket
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while self.out:
                del self.out[: self.socket.send(self.out, socket.MSG_DONTWAIT)]

    def _take(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self.line(line)

    def unexpected(self, line: bytes) -> None:
        self.ledger.faults.add("unexpected", f"{self.name.decode()} got {line[:200]!r}")

    # What a kind of client does.

    def begin(self) -> None:
        """A new connection is there."""

    def line(self, line: bytes) -> None:
        """A whole line has come."""

    def act(self) -> None:
        """All that has come for now was taken."""

    def ended(self, killed: bool) -> None:
        """The connection is over."""


def event_of(events: Sequence[bytes], number: int) -> bytes:
    return events[number * 40503 // 16 % len(events)]


def data_of(publisher: bytes, number: int) -> bytes:
    """Mostly small, some of many KiB."""
    size = 150_000 if number % 4999 == 17 else 9_000 if number % 499 == 3 else 10 + number * 2654435761 // 64 % 190
    stem = b"%s/%d/" % (publisher, number)
    return (stem * (size // len(stem) + 1))[:size]
