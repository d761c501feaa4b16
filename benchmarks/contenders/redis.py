"""Redis: pub/sub for plain delivery, a list for a backlog, a stream with a group for acknowledged delivery.

Publishers turn replies off, and nothing is saved to disk: each is Redis at its fastest. Where messages are confirmed,
a stream is written to the append-only file, which is synced always or every second.
"""

# ruff: noqa: ARG002 (every contender has the base's parameters, whether its protocol needs them or not)

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from benchmarks.contenders.base import Contender, CountBytes, Exchange, Reader

LIMITS = ["--client-output-buffer-limit", "pubsub 0 0 0"]
BATCH = 1000


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join([b"$%d\r\n%s\r\n" % (len(word), word) for word in words])


class Redis(Contender):
    family = "Redis"
    name = "Redis pub/sub"
    install = "apt install redis-server (or your system's package of it)"
    saving: ClassVar[list[str]] = ["--appendonly", "no"]

    def command(self, port: int, folder: Path) -> list[str]:
        server = shutil.which("redis-server")
        if server is None:
            raise FileNotFoundError("redis-server")
        quiet = ["--save", "", "--loglevel", "warning"]
        place = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
        return [server, *place, *quiet, *self.saving, *LIMITS]

    def publish(self, number: int, event: bytes, data: bytes, last: bool) -> bytes:
        return command(b"PUBLISH", event, data)

    def deliver(self, number: int, event: bytes, queue: bytes, data: bytes) -> bytes:
        return command(b"message", event, data)

    def open_publisher(self) -> Exchange:
        return Exchange(command(b"PING") + command(b"CLIENT", b"REPLY", b"OFF"), b"+PONG\r\n")

    def open_consumer(self, subscriptions: Sequence[tuple[bytes, Sequence[bytes]]], shared: bool) -> Exchange:
        events = [event for _, events in subscriptions for event in events]
        return Exchange(command(b"SUBSCRIBE", *events), b":%d\r\n" % len(events))

    def barrier(self) -> Exchange:
        return Exchange(command(b"CLIENT", b"REPLY", b"ON"), b"+OK\r\n")

    def hello(self) -> Exchange:
        return Exchange(command(b"PING"), b"+PONG\r\n")

    def stored_bytes(self, number: int, event: bytes, data: bytes) -> int:
        return len(data)


class RedisList(Redis):
    name = "Redis list"

    def publish(self, number: int, event: bytes, data: bytes, last: bool) -> bytes:
        return command(b"RPUSH", event, data)

    def create(self, queues: Sequence[tuple[bytes, bytes]]) -> Exchange:
        """A list is there only while it holds something: many lists begin with one byte each."""
        if len(queues) == 1:
            return self.hello()
        pushes = b"".join([command(b"RPUSH", event, b"x") for _, event in queues])
        return Exchange(command(b"CLIENT", b"REPLY", b"OFF") + pushes + self.barrier().request, b"+OK\r\n")

    def drain(self, messages: int, size: int) -> tuple[bytes, Reader]:
        if messages % BATCH:
            raise ValueError(f"a list is drained in batches of {BATCH}")
        batches = messages // BATCH
        reply = len(b"*%d\r\n" % BATCH) + BATCH * len(b"$%d\r\n%s\r\n" % (size, bytes(size)))
        return command(b"LPOP", b"e1", b"%d" % BATCH) * batches, CountBytes(batches * reply)


class GroupMessages:
    """Reads a group's messages batch by batch and acknowledges each with an XACK of its own.

    Entries have ids of our making, so the commands are cut from a prebuilt buffer, as those of MQKS are. The
    next batch is asked for together with the acks, so that the server always has something to do.
    """

    header = re.compile(rb"\*1\r\n\*2\r\n\$2\r\ne1\r\n\*(\d+)\r\n")
    read = command(*(b"XREADGROUP GROUP q1 c1 COUNT %d BLOCK 0 STREAMS e1 >" % BATCH).split())

    def __init__(self, first: int, messages: int, size: int) -> None:
        acks = [command(b"XACK", b"e1", b"q1", entry(n)) for n in range(first, first + messages)]
        self.acks, self.ack = memoryview(b"".join(acks)), len(acks[0])
        self.messages, self.size = messages, size
        self.acked = self.batch = self.seen = 0
        self.rest = b""
        self.done = False

    def feed(self, chunk: memoryview) -> bytes | memoryview:
        received = self.rest + bytes(chunk)
        self.rest = b""
        if not self.batch:
            header = self.header.search(received)
            if header is None:
                self.rest = received
                return b""
            self.batch, received = int(header.group(1)), received[header.end() :]
        self.seen += received.count(b"#")
        last = received.rfind(b"#")
        if self.seen < self.batch:
            return b""
        if last >= 0 and len(received) - last < self.size:  # the last one is not whole yet: look at it again
            self.seen -= 1
            self.rest = received[last:]
            return b""
        acks = self.acks[self.acked * self.ack : (self.acked + self.batch) * self.ack]
        self.acked += self.batch
        self.batch = self.seen = 0
        self.done = self.acked >= self.messages
        return acks if self.done else self.read + acks


def entry(number: int) -> bytes:
    """A stream id of fixed width that grows with the number."""
    return b"1-%d" % (10_000_000 + number)


class RedisStreams(Redis):
    name = "Redis Streams"

    def publish(self, number: int, event: bytes, data: bytes, last: bool) -> bytes:
        return command(b"XADD", event, entry(number), b"d", data)

    def create(self, queues: Sequence[tuple[bytes, bytes]]) -> Exchange:
        return Exchange(command(b"XGROUP", b"CREATE", b"e1", b"q1", b"$", b"MKSTREAM"), b"+OK\r\n")

    def open_acker(self) -> Exchange:
        return self.hello()

    def acker(self, first: int, messages: int, size: int) -> tuple[bytes, Reader]:
        return GroupMessages.read, GroupMessages(first, messages, size)


class RedisAlways(RedisStreams):
    name = "Redis Streams always"
    saving: ClassVar[list[str]] = ["--appendonly", "yes", "--appendfsync", "always"]
    confirm_lines = 2
    refused = b"-ERR"

    def confirm(self, number: int, event: bytes, data: bytes) -> bytes:
        return self.publish(number, event, data, last=False)

    def drain(self, messages: int, size: int) -> tuple[bytes, Reader]:
        one = b"*2\r\n$%d\r\n%s\r\n" % (len(entry(0)), entry(0)) + command(b"d", bytes(size))
        return command(b"XRANGE", b"e1", b"-", b"+"), CountBytes(len(b"*%d\r\n" % messages) + messages * len(one))


class RedisEverysec(RedisAlways):
    """For information: it answers before the sync."""

    family = "Redis everysec"
    name = "Redis Streams everysec"
    saving: ClassVar[list[str]] = ["--appendonly", "yes", "--appendfsync", "everysec"]
