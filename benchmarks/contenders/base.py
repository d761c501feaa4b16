"""What the load generator asks of a contender: how to start it, and the bytes of each step of its protocol.

A contender does no I/O. It is a table of byte strings, so one generator drives all of them at the same cost.
"""

import shlex
import socket
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol


class BenchError(RuntimeError):
    """A contender did not do what was measured: its number would be a lie, so there is none."""


@dataclass(frozen=True)
class Exchange:
    """Bytes to send, and the bytes that end the answer (none: nothing is awaited)."""

    request: bytes = b""
    answer: bytes = b""


class Reader(Protocol):
    """Takes what a consumer receives and says what to send back; `done` when all has been seen."""

    done: bool

    def feed(self, chunk: memoryview) -> bytes | memoryview: ...


class CountBytes:
    """The reader of a protocol that needs no answers: only the bytes are counted."""

    def __init__(self, total: int) -> None:
        self.left = total
        self.done = False

    def feed(self, chunk: memoryview) -> bytes:
        self.left -= len(chunk)
        self.done = self.left <= 0
        return b""


class Contender(ABC):
    """The wire bytes of one server. What it cannot do raises NotImplementedError; no scenario asks for it."""

    family: ClassVar[str]  # the column of the table
    name: ClassVar[str]
    install: ClassVar[str]  # what to do when it is missing
    window: ClassVar[int] = 0  # blocks that may be unanswered; 0: the server itself holds the publisher back
    window_answer: ClassVar[bytes] = b""
    keeps: ClassVar[bool] = True  # messages wait in their queues until somebody consumes
    noise: ClassVar[bytes] = b""  # bytes that the server may send unasked between deliveries
    confirm_lines: ClassVar[int] = 1  # lines of the answer to a confirmed message
    refused: ClassVar[bytes] = b""  # what an answer holds when a message was not taken

    @abstractmethod
    def command(self, port: int, folder: Path) -> list[str]:
        """The server's command line; raises FileNotFoundError when it is not installed."""

    def secure(self, sock: socket.socket, folder: Path) -> socket.socket:  # noqa: ARG002
        """A connection that was just made, as it is spoken on: by TLS, where that is measured."""
        return sock

    @abstractmethod
    def publish(self, number: int, event: bytes, data: bytes, last: bool) -> bytes: ...

    def deliver(self, number: int, event: bytes, queue: bytes, data: bytes) -> bytes:
        raise NotImplementedError

    def open_publisher(self) -> Exchange:
        return Exchange()

    def open_consumer(self, subscriptions: Sequence[tuple[bytes, Sequence[bytes]]], shared: bool) -> Exchange:
        raise NotImplementedError

    def barrier(self) -> Exchange:
        """Answered when all that the publisher sent before it has been taken."""
        return Exchange()

    def hello(self) -> Exchange:
        """What a client says once before it stays idle."""
        raise NotImplementedError

    def create(self, queues: Sequence[tuple[bytes, bytes]]) -> Exchange:
        """Queues, each with its event, that take messages while nobody consumes."""
        raise NotImplementedError

    def open_acker(self) -> Exchange:
        """A consumer that acknowledges each message of q1, which was created with the event e1."""
        raise NotImplementedError

    def acker(self, first: int, messages: int, size: int) -> tuple[bytes, Reader]:
        """What such a consumer sends at first, and how it goes on."""
        raise NotImplementedError

    def drain(self, messages: int, size: int) -> tuple[bytes, Reader]:
        """Reads the whole of q1's backlog."""
        raise NotImplementedError

    def open_confirmer(self) -> Exchange:
        """A publisher that is answered for each message."""
        return Exchange()

    def confirm(self, number: int, event: bytes, data: bytes) -> bytes:
        """A message whose answer means that it is kept, as safely as this server promises; all have one length."""
        raise NotImplementedError

    def stored_bytes(self, number: int, event: bytes, data: bytes) -> int:
        """A message's own bytes: what any store must keep of it."""
        return len(self.publish(number, event, data, False))


def split(command: str, port: int, folder: Path) -> list[str]:
    """A command line with {port} and {folder} filled in."""
    return [word.format(port=port, folder=folder) for word in shlex.split(command)]
