"""What only a broker with a journal is asked: confirming, starting again, draining from disk, reading history.

As in `measure.py`, each starts a fresh server, checks what came back and raises BenchError rather than give a wrong
number.
"""

import math
import re
import socket
import time
import zlib
from collections.abc import Iterator

from benchmarks.contenders.base import BenchError, Contender
from benchmarks.contenders.mqks import Mqks
from benchmarks.load import CHUNK, CYCLE, Publisher, converse, received, send_confirmed
from benchmarks.measure import MICRO, Metrics, manual_ack, throughput
from benchmarks.payload import Load, check_tail, data
from benchmarks.server import Server

WINDOW = 1000
ORDERS = 20  # a long load is sent in so many parts, so that a publisher that is stuck is noticed
END = re.compile(rb"h1 ok --end \d+\n\Z")
BATCH = re.compile(rb"\d{20}\w{4} batch (\d{20}) (\d{10}) (\d{8}) \d{20} ([0-9a-f]{8}) [0-9a-f]{8}\n")


def acked_if_it_can(contender: Contender, load: Load, messages: int) -> Metrics:
    """Manual ack; NATS core, which has no ack, is measured without."""
    return (manual_ack if isinstance(contender, Mqks) else throughput)(contender, load, messages)


def confirmed(contender: Contender, load: Load, messages: int) -> Metrics:
    """Messages a second that one connection had confirmed, with so many of them unanswered at any time."""
    checked = WINDOW
    lines = [contender.confirm(n, load.event(n), data(n, load.size)) for n in range(checked + messages)]
    warm_up, requests = (memoryview(b"".join(part)) for part in (lines[:checked], lines[checked:]))
    with Server(contender) as server:
        server.connect(contender.create([(b"q1", b"e1")])).close()
        sock = server.connect(contender.open_confirmer())
        send_confirmed(sock, contender, warm_up, checked, WINDOW)
        cpu = server.cpu()
        started, ended = send_confirmed(sock, contender, requests, messages, WINDOW)
        cpu = server.cpu() - cpu
        request, reader = contender.drain(checked + messages, load.size)
        tail = converse(server.connect(), request, reader)
        check_tail(contender, load, tail, checked + messages)
        return {"confirmed_rate": messages / (ended - started), "cpu_us": cpu / messages * MICRO}


def queue_up(server: Server, load: Load, messages: int) -> tuple[int, float]:
    """Fills q1 with nobody to take it; how many there are and how many were taken a second."""
    contender = server.contender
    per_block = load.per_block(contender)
    per_order = max(1, math.ceil(messages / per_block / ORDERS))
    server.connect(contender.create([(b"q1", b"e1")])).close()
    seconds = 0.0
    with Publisher(server, load, CYCLE) as publisher:
        for order in range(ORDERS):
            publisher.start(order * per_order, per_order)
            started, taken = publisher.times()
            seconds += taken - started
    messages = ORDERS * per_order * per_block
    return messages, messages / seconds


def recovery(contender: Contender, load: Load, messages: int) -> Metrics:
    """Seconds from the start after `kill -9` until it listens again, with all messages there."""
    with Server(contender) as server:
        messages, taken_rate = queue_up(server, load, messages)
        server.kill()
        seconds = server.start()
        drain_all(server, load, messages)
        return {"start_s": seconds, "taken_rate": taken_rate}


def drain(contender: Contender, load: Load, messages: int) -> Metrics:
    """How fast a backlog larger than the broker's memory is read back from disk, and the most memory it took."""
    with Server(contender) as server:
        messages, taken_rate = queue_up(server, load, messages)
        server.forget_files()
        cpu = server.cpu()
        seconds = drain_all(server, load, messages)
        return {
            "taken_rate": taken_rate,
            "drain_rate": messages / seconds,
            "drain_cpu_us": (server.cpu() - cpu) / messages * MICRO,
            "peak_mib": server.peak_rss() / 2**20,
        }


def drain_all(server: Server, load: Load, messages: int) -> float:
    contender = server.contender
    request, reader = contender.drain(messages, load.size)
    started = time.monotonic()
    tail = converse(server.connect(), request, reader)
    ended = time.monotonic()
    check_tail(contender, load, tail, messages, CYCLE * load.per_block(contender))
    return ended - started


def history(contender: Contender, load: Load, messages: int) -> Metrics:
    """Messages a second when all of the journal is read as messages, and megabytes a second as whole batches."""
    assert isinstance(contender, Mqks)
    with Server(contender) as server:
        messages, _ = queue_up(server, load, messages)
        with server.connect() as sock:  # history shows what is synced: this is answered when all is
            sock.sendall(b"~ hold bench 0 --for=0 --confirm\n")
            sock.recv(100)
        seconds, lines, tail = read_messages(server.connect(), contender.history(raw=False))
        if lines != messages + 1:
            raise BenchError(f"history had {lines - 1} messages, {messages} were published")
        check_tail(contender, load, tail, messages, CYCLE * load.per_block(contender))
        raw_seconds, chunks = read_raw(server.connect(), contender.history(raw=True))
        stream = b"".join(chunks)
        counted = sum(batches(stream))
        if counted < messages:
            raise BenchError(f"the raw batches held {counted} lines, {messages} messages were published")
        return {"history_rate": messages / seconds, "raw_mb": len(stream) / 1e6 / raw_seconds}


def read_messages(sock: socket.socket, request: bytes) -> tuple[float, int, bytes]:
    """Seconds, lines, and the last chunk of the answer."""
    lines, last = 0, b""
    started = time.monotonic()
    for chunk in answers(sock, request):
        lines += chunk.count(b"\n")
        last = chunk
    return time.monotonic() - started, lines, last


def read_raw(sock: socket.socket, request: bytes) -> tuple[float, list[bytes]]:
    started = time.monotonic()
    chunks = list(answers(sock, request))
    return time.monotonic() - started, chunks


def answers(sock: socket.socket, request: bytes) -> Iterator[bytes]:
    """What comes, up to the line that ends it."""
    sock.sendall(request)
    tail = b""
    while not END.search(tail):
        try:
            chunk = sock.recv(CHUNK)
        except BlockingIOError:
            raise BenchError(f"the history has no end, only {tail!r}") from None
        received(len(chunk), 0)
        tail = (tail + chunk)[-64:]
        yield chunk


def batches(stream: bytes) -> Iterator[int]:
    """The number of lines in each batch, whose checksum is right; the last line of the stream ends it."""
    at = 0
    while not END.match(stream, at):
        header = BATCH.match(stream, at)
        if header is None:
            raise BenchError(f"no batch in the raw history at byte {at}: {stream[at : at + 120]!r}")
        end = header.end() + int(header[2])
        zeroed = stream[at : header.start(4)] + b"00000000" + stream[header.end(4) : header.end()]
        if zlib.crc32(memoryview(stream)[header.end() : end], zlib.crc32(zeroed)) != int(header[4], 16):
            raise BenchError(f"a batch of the raw history has another checksum than it says, at byte {at}")
        yield int(header[3])
        at = end
