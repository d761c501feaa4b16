"""MQKS itself, in memory and with its journal; or any other command line that speaks its protocol (`--mqksd`)."""

# ruff: noqa: ARG002 (every contender has the base's parameters, whether its protocol needs them or not)

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from benchmarks.contenders.base import Contender, CountBytes, Exchange, Reader, split

DEFAULT = f"{Path(sys.executable).with_name('mqksd')} {{mode}} --port={{port}} --max-connections-per-address=10000"


class AckLines:
    """Acknowledges each message with a line of its own, a batch per received chunk.

    One queue, one consumer: messages come in order and have one length, so the bytes tell which have come and
    the lines are cut from a prebuilt buffer. The generator then costs less than the broker that it measures.
    """

    def __init__(self, first: int, messages: int, delivery: int) -> None:
        self.lines = memoryview(b"".join(b"a1 ack c1 m%08d\n" % n for n in range(first, first + messages)))
        self.line = len(self.lines) // messages
        self.delivery, self.total = delivery, messages * delivery
        self.got = self.acked = 0
        self.done = False

    def feed(self, chunk: memoryview) -> memoryview:
        self.got += len(chunk)
        whole = self.got // self.delivery
        acked, self.acked = self.acked, whole
        self.done = self.got >= self.total
        return self.lines[acked * self.line : whole * self.line]


class Mqks(Contender):
    family = name = "MQKS"
    install = "make install"
    mode: ClassVar[str] = "--memory --no-http"
    refused = b" error "

    def __init__(self, command_line: str = DEFAULT) -> None:
        self.command_line = command_line

    def command(self, port: int, folder: Path) -> list[str]:
        command = split(self.command_line.replace("{mode}", self.mode), port, folder)
        if shutil.which(command[0]) is None:
            raise FileNotFoundError(command[0])
        return command

    def publish(self, number: int, event: bytes, data: bytes, last: bool) -> bytes:
        return b"m%08d publish %s %s\n" % (number, event, data)

    def deliver(self, number: int, event: bytes, queue: bytes, data: bytes) -> bytes:
        return b"%s ok m%08d event=%s %s\n" % (consumer(queue), number, event, data)

    def open_consumer(self, subscriptions: Sequence[tuple[bytes, Sequence[bytes]]], shared: bool) -> Exchange:
        lines = [
            b"%s consume --confirm %s %s\n" % (consumer(queue), queue, b" ".join(events))
            for queue, events in subscriptions
        ]
        return Exchange(b"".join(lines), consumer(subscriptions[-1][0]) + b" ok \n")

    def barrier(self) -> Exchange:
        return Exchange(b"p1 ping here\n", b"p1 ok here\n")

    def hello(self) -> Exchange:
        return self.barrier()

    def create(self, queues: Sequence[tuple[bytes, bytes]]) -> Exchange:
        lines = [b"r%s rebind --confirm %s %s\n" % (queue, queue, event) for queue, event in queues]
        return Exchange(b"".join(lines), b"r%s ok \n" % queues[-1][0])

    def open_acker(self) -> Exchange:
        return Exchange(b"c1 consume --confirm q1 e1 --manual-ack\n", b"c1 ok \n")

    def acker(self, first: int, messages: int, size: int) -> tuple[bytes, Reader]:
        return b"", AckLines(first, messages, self._delivery(size))

    def drain(self, messages: int, size: int) -> tuple[bytes, Reader]:
        return b"c1 consume q1\n", CountBytes(messages * self._delivery(size))

    def confirm(self, number: int, event: bytes, data: bytes) -> bytes:
        return b"m%08d publish --confirm %s %s\n" % (number, event, data)

    def history(self, raw: bool) -> bytes:
        """Asks for all messages since the beginning; the answer ends with a line `h1 ok --end {position}`."""
        return b"h1 history earliest --raw\n" if raw else b"h1 history earliest\n"

    def _delivery(self, size: int) -> int:
        return len(self.deliver(0, b"e1", b"q1", bytes(size)))


class MqksMemory(Mqks):
    """The same, measured beside the journal."""

    family = "MQKS memory"
    name = "MQKS --memory"


class MqksDurable(Mqks):
    name = "MQKS durable"
    mode = "--data={folder}/data --fsync=always --no-http"


class MqksSmall(MqksDurable):
    name = "MQKS durable, 256 MiB"
    mode = MqksDurable.mode + " --max-memory=256M"


class MqksWatched(MqksDurable):
    """With HTTP on a free port, which its log names."""

    name = "MQKS durable, watched"
    mode = "--data={folder}/data --fsync=always --http --http-port=0"


def consumer(queue: bytes) -> bytes:
    """Queue q7 is consumed as c7."""
    return b"c" + queue[1:]
