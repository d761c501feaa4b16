"""The load generator: raw sockets, prebuilt buffers, a publisher in its own process, delivered bytes counted.

It is the same for every contender and does nothing per message in the timed part, acknowledging aside: what
is measured is the server. Times are CLOCK_MONOTONIC, which all processes share.
"""

import contextlib
import gc
import select
import socket
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection

from benchmarks.behind import Behind
from benchmarks.contenders.base import BenchError, Contender, Reader
from benchmarks.payload import Load
from benchmarks.server import STALL_SECONDS, Server, talk

CHUNK = 1 << 20
CYCLE = 8  # distinct blocks of a load that repeats


class Publisher(Behind[tuple[float, float]]):
    """A process that holds a load's blocks ready and sends as many as it is told to."""

    name = "publisher"

    def __init__(self, server: Server, load: Load, blocks: int) -> None:
        self.distinct = blocks if load.distinct else CYCLE
        super().__init__(publish, server, load, self.distinct)

    def start(self, first: int, blocks: int) -> None:
        self.pipe.send((first, blocks))

    def times(self) -> tuple[float, float]:
        """When it sent its first byte, and when the server had taken the last one."""
        return self.answer()


def publish(pipe: Connection, server: Server, load: Load, distinct: int) -> None:
    """The publisher's process: build, connect, say ready; then send and report, order by order."""
    gc.disable()
    contender = server.contender
    try:
        blocks = [load.block(contender, index) for index in range(distinct)]
        sock = server.connect(contender.open_publisher())
        pipe.send((0.0, 0.0))
        while True:
            first, count = pipe.recv()
            started = time.monotonic()
            if contender.window:
                send_windowed(sock, contender, blocks, first, count)
            else:
                for index in range(first, first + count):
                    sock.sendall(blocks[index % distinct])
            talk(sock, contender.barrier())
            pipe.send((started, time.monotonic()))
    except (OSError, BenchError) as error:
        pipe.send(str(error))


def send_windowed(sock: socket.socket, contender: Contender, blocks: Sequence[bytes], first: int, count: int) -> None:
    """For servers that drop what they cannot take: the last message of each block asks for an answer."""
    received = bytearray()
    sent = answered = 0
    while answered < count:
        if sent < count and sent - answered < contender.window:
            sock.sendall(blocks[(first + sent) % len(blocks)])
            sent += 1
            continue
        chunk = sock.recv(CHUNK)
        received += chunk
        if not chunk or b'"error"' in received:
            raise BenchError(f"{contender.name} refused a message: {bytes(received[-300:])!r}")
        answered = received.count(contender.window_answer)


def send_confirmed(
    sock: socket.socket, contender: Contender, requests: memoryview, count: int, window: int
) -> tuple[float, float]:
    """Keeps up to `window` messages unanswered; when the first went out and when the last answer had come."""
    length = len(requests) // count
    buffer = bytearray(CHUNK)
    sent = answered = lines = 0
    started = time.monotonic()
    while answered < count:
        upto = min(count, answered + window)
        if upto > sent:
            sock.sendall(requests[sent * length : upto * length])
            sent = upto
        chunk = bytes(memoryview(buffer)[: received(sock.recv_into(buffer), 0)])
        if contender.refused in chunk:
            raise BenchError(f"{contender.name} refused a message: {chunk[-300:]!r}")
        lines += chunk.count(b"\n") - (chunk.count(contender.noise) if contender.noise else 0)
        answered = lines // contender.confirm_lines
    return started, time.monotonic()


def count_bytes(sockets: Sequence[socket.socket], total: int, noise: bytes) -> float:
    """Reads until `total` bytes have come in on all sockets together; returns when that was."""
    buffer = bytearray(CHUNK)
    left = total
    if len(sockets) == 1:
        receive = sockets[0].recv_into
        while left > 0:
            left -= received(receive(buffer), left)
        ended = time.monotonic()
        surplus(-left, noise * len(sockets))
        return ended
    epoll = select.epoll()
    by_fd = {sock.fileno(): sock.recv_into for sock in sockets}
    for fd in by_fd:
        epoll.register(fd, select.EPOLLIN)
    while left > 0:
        ready = epoll.poll(STALL_SECONDS) or stalled(left)
        for fd, _ in ready:
            left -= received(by_fd[fd](buffer), left)
    ended = time.monotonic()
    epoll.close()
    surplus(-left, noise * len(sockets))
    return ended


def nothing_more(sockets: Sequence[socket.socket], noise: bytes) -> None:
    """After a run that has ended nothing may be left on the sockets."""
    for sock in sockets:
        with contextlib.suppress(BlockingIOError):
            surplus(len(sock.recv(CHUNK, socket.MSG_DONTWAIT)), noise)


def surplus(extra: int, noise: bytes) -> None:
    if extra > len(noise):
        raise BenchError(f"{extra} bytes more came than were due")


def collect(sockets: Sequence[socket.socket], total: int, noise: bytes) -> list[bytes]:
    """Reads like count_bytes, but keeps what came in, per socket: for what is checked and not timed."""
    streams = {sock.fileno(): bytearray() for sock in sockets}
    by_fd = {sock.fileno(): sock for sock in sockets}
    epoll = select.epoll()
    for fd in by_fd:
        epoll.register(fd, select.EPOLLIN)
    while (left := total - sum(map(len, streams.values()))) > 0:
        for fd, _ in epoll.poll(STALL_SECONDS) or stalled(left):
            chunk = by_fd[fd].recv(CHUNK)
            received(len(chunk), left)
            streams[fd] += chunk
            if noise and noise in streams[fd]:
                streams[fd] = streams[fd].replace(noise, b"")
    epoll.close()
    return [bytes(stream) for stream in streams.values()]


def converse(sock: socket.socket, request: bytes, reader: Reader, kept: bytearray | None = None) -> bytes:
    """Reads until the reader is done, sending what it wants sent; returns the last chunk that came.

    It never stops reading because it cannot send: else a server that waits for its reader would wait forever.
    """
    buffer = bytearray(CHUNK)
    view = memoryview(buffer)
    to_send = memoryview(request)
    got = 0
    while to_send or not reader.done:
        if to_send:
            with contextlib.suppress(BlockingIOError):
                to_send = to_send[sock.send(to_send, socket.MSG_DONTWAIT) :]
            if not to_send:
                continue
            readable, writable, _ = select.select([sock], [sock], [], STALL_SECONDS)
            if not readable:
                if not writable:
                    stalled(len(to_send))
                continue
        got = received(sock.recv_into(buffer), 0)
        if kept is not None:
            kept += view[:got]
        answer = reader.feed(view[:got])
        to_send = memoryview(bytes(to_send) + answer) if to_send else memoryview(answer)
    return bytes(view[:got])


def received(got: int, left: int) -> int:
    if not got:
        raise BenchError(f"the server closed the connection with {left} bytes to come")
    return got


def stalled(left: int) -> list[tuple[int, int]]:
    raise BenchError(f"nothing came for {STALL_SECONDS} seconds with {left} bytes to come")
