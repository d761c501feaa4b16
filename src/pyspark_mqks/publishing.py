"""Confirmed publishes over one socket: a window of bytes may wait for their `ok`s, and nothing counts before its own.

Replies are read while lines are sent, since a broker does not read from those who do not read what it answers. When
the connection is lost, a new one is made and all that has no `ok` is sent again, in its order; with `--once` the broker
drops what it had taken. It touches one socket and the clock, and knows lines, not rows: what is on them is for others.
"""

import contextlib
import json
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from mqks.client import protocol
from mqks.client.access import Access
from mqks.client.address import Address
from mqks.client.errors import ConnectionLost, Refused
from mqks.client.liveness import is_held_back
from mqks.client.reaching import connected
from mqks.client.sealed import NOT_NOW
from mqks.client.wire import Ids
from pyspark_mqks.lines import Block
from pyspark_mqks.reaching import Patience

WINDOW = 4 << 20  # bytes that may wait for their oks: some fsyncs of a broker that takes 100 MB/s
CHUNK = 256 << 10  # bytes read at a time
SILENCE = 30.0  # seconds without an ok after which a broker counts as gone, unless it tells that it has no room
NEVER = float("inf")


class Publisher:
    """Made, it is connected. Of one thread, and not for longer than a task."""

    def __init__(
        self,
        address: Address,
        *,
        access: Access | None = None,
        retry_for: float,
        rate: float | None = None,
        window: int = WINDOW,
        silence: float = SILENCE,
    ) -> None:
        self.max_line = 0  # bytes that the broker takes as one line
        self.confirmed = 0  # lines
        self._address = address
        self._access = access or Access()
        self._retry_for = retry_for
        self._rate = rate
        self._window = window
        self._silence = silence
        self._socket: socket.socket | None = None
        self._partial = b""  # the beginning of a reply
        self._waiting: deque[Block] = deque()  # for oks
        self._size = 0  # bytes of them
        self._said = 0  # lines of the first of them that have their ok
        self._unsent: deque[memoryview] = deque()
        self._due = 0.0  # when the next lines may be sent
        self._heard = 0.0  # when something was confirmed, or we began to wait for it
        self._patience = Patience(address, retry_for)  # renewed by what is confirmed
        try:
            self._connect()
        except OSError as error:
            self._connect_again(error)
        self._left = time.monotonic()  # when we were done, to wait for more rows

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._disconnect()

    def put(self, block: Block) -> None:
        """Returns when the lines are on their way, and no more than a window waits for its oks."""
        if self._rate is not None:
            self._serve(lambda: time.monotonic() >= self._due)
            self._due = max(self._due, time.monotonic()) + len(block.ends) / self._rate
        self._serve(lambda: not self._waiting or self._size + len(block.lines) <= self._window)
        self._waiting.append(block)
        self._size += len(block.lines)
        self._unsent.append(block.lines)
        self._serve(lambda: not self._unsent)

    def flush(self) -> None:
        """Returns when all has its ok."""
        self._serve(lambda: not self._waiting)

    @property
    def unconfirmed(self) -> int:
        """Lines that were put and have no ok yet."""
        return sum(len(block.ends) for block in self._waiting) - self._said

    # ── the connection ──

    def _connect(self) -> None:
        made = connected(self._address, self._access, within=self._patience.within)
        try:
            self.max_line = _greet(made)
            made.setblocking(False)
        except BaseException:
            made.close()
            raise
        self._socket = made
        self._partial = b""
        self._heard = time.monotonic()
        self._unsent = deque(block.lines for block in self._waiting)
        if self._said:
            self._unsent[0] = self._unsent[0][int(self._waiting[0].ends[self._said - 1]) :]

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect_again(self, error: OSError) -> None:
        """Until it works, or for too long without anything confirmed."""
        self._disconnect()
        while self._socket is None:
            try:
                self._patience.wait(error)
            except ConnectionLost as lost:
                counts = f"{self.confirmed} are confirmed, {self.unconfirmed} were sent and are not"
                raise ConnectionLost(f"{lost}. Of this task's rows {counts}") from error
            try:
                self._connect()
            except OSError as failed:
                error = failed

    # ── its turns ──

    def _serve(self, done: Callable[[], bool]) -> None:
        """Send and read until it is done, over as many connections as it takes."""
        self._heard = time.monotonic()
        self._patience.leave_out(self._heard - self._left)
        while not done():
            try:
                self._turn()
            except OSError as error:
                self._connect_again(error)
        self._left = time.monotonic()

    def _turn(self) -> None:
        assert self._socket is not None
        now = time.monotonic()
        ends = self._heard + self._silence if self._waiting else NEVER
        wake = min(ends, self._due if self._due > now else NEVER)
        poll = select.poll()
        poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        ready = poll.poll(None if wake == NEVER else max(0.0, wake - now) * 1000 + 1)
        for _, events in ready:
            if events & ~select.POLLOUT:
                self._read(self._socket)
            if events & select.POLLOUT:
                self._send(self._socket)
        if not ready and time.monotonic() >= ends:
            self._notice_silence(self._socket)

    def _notice_silence(self, connection: socket.socket) -> None:
        silent = time.monotonic() - self._heard
        if silent >= max(self._retry_for, self._silence) or not is_held_back(connection):
            raise TimeoutError(f"no ok in {silent:.0f} s")

    def _send(self, connection: socket.socket) -> None:
        while self._unsent:
            lines = self._unsent[0]
            try:
                sent = connection.send(lines)
            except NOT_NOW:
                return
            if sent < len(lines):
                self._unsent[0] = lines[sent:]
                return
            self._unsent.popleft()

    def _read(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(CHUNK)  # of TLS a whole record, so that poll sees what is left
        except NOT_NOW:
            return
        if not data:
            raise ConnectionResetError("the broker closed the connection")
        replies, newline, self._partial = (self._partial + data).rpartition(b"\n")
        if protocol.ERROR_MARK in replies:
            self._refuse(replies)
        self._confirm((replies + newline).count(b"\n"))

    def _confirm(self, lines: int) -> None:
        """The oks come in the order of the lines, so that it is enough to count them."""
        if lines:
            if lines > self.unconfirmed:
                raise ConnectionResetError("the broker answers more than it was asked")
            self.confirmed += lines
            self._said += lines
            self._heard = time.monotonic()
            self._patience.renew()
        while self._waiting and self._said >= len(self._waiting[0].ends):
            block = self._waiting.popleft()
            self._said -= len(block.ends)
            self._size -= len(block.lines)

    def _refuse(self, replies: bytes) -> None:
        """One of them is an error: which line is it that the broker does not take?"""
        for reply in replies.split(b"\n"):
            if protocol.ERROR_MARK in reply:
                id, _, error_id = protocol.parse_reply(protocol.decode(reply))
                line = next(filter(None, (_find(block, protocol.encode(id)) for block in self._waiting)), None)
                raise Refused(id if line is None else line.decode(errors="replace"), error_id)


def _find(block: Block, id: bytes) -> bytes:
    """The line with this id, without its end."""
    lines = b"\n" + bytes(block.lines)
    at = lines.find(b"\n%s " % id) + 1
    return lines[at : lines.index(b"\n", at)] if at else b""


def _greet(connection: socket.socket) -> int:
    """See that it is a broker, and one that takes us; answers how long a line may be, as far as we know."""
    id = Ids()()
    connection.sendall(protocol.encode(protocol.line(id, protocol.STATS)))
    answer = b""
    while not answer.endswith(b"\n"):
        data = connection.recv(CHUNK)
        if not data:
            raise ConnectionResetError("the broker closed the connection")
        answer += data
    shown = answer.decode(errors="replace").removesuffix("\n")
    with contextlib.suppress(ValueError):
        answers, ok, told = protocol.parse_reply(shown)
        if answers == id:
            return _max_line(told) if ok else sys.maxsize  # an error: a token may publish, but not see stats
    raise ConnectionRefusedError(f"it does not let us in, but answers {shown[:100].strip()!r}")


def _max_line(stats: str) -> int:
    try:
        return int(json.loads(stats)["max_line"])
    except (ValueError, KeyError, TypeError):
        raise ConnectionRefusedError("it does not answer as a broker does") from None
