"""The journal of a running broker, read through `history --raw`, for executors that do not see its folder.

It offers what `pyspark_mqks.folder` does. The broker sends whole batches whose checksums are right; an answer begins
with the batch that has the position asked for. A broker that is away is waited for, and reading goes on after the last
whole batch.
"""

import socket
import time
from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime
from typing import TypeVar

from mqks.client.address import find_address
from mqks.journal import JournalError
from mqks.journal.columns import Columns
from mqks.journal.format import HEADER_SIZE, Header, parse_header
from pyspark_mqks.loss import Lost

ID = b"h"  # of our requests: no batch begins with a letter
RECEIVE = 1 << 20
CONNECT_SECONDS = 5.0
SILENCE_SECONDS = 60.0  # after which a connection counts as lost
PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0)  # seconds between attempts; then always the last
ENOUGH_EMPTY_ANSWERS = 2  # see Remote.scan
NO_LIMIT = 1 << 63

T = TypeVar("T")


class Refused(Exception):
    """The broker answered with an error; only its log says why."""

    def __init__(self, error_id: str) -> None:
        super().__init__(f"the broker refused to read on; its log says why, under error {error_id}")


class Unreachable(JournalError):
    """The broker was away for too long."""


class Answer:
    """What comes for one request: batches, then where they end."""

    def __init__(self, connection: socket.socket, start: str, options: str) -> None:
        self.data = b""  # what has come and was not used; a batch or the last line begins at its start
        self.end: int | None = None
        self._connection = connection
        connection.sendall(b"%s history %s %s\n" % (ID, start.encode(), options.encode()))

    def has(self, size: int) -> bool:
        """Waits for so many bytes; False if the answer ends before them."""
        while self.end is None:
            if self.data.startswith(ID):
                line, newline, _ = self.data.partition(b"\n")
                if newline:
                    self._end(line)
                    return False
            elif len(self.data) >= size:
                return True
            more = self._connection.recv(RECEIVE)
            if not more:
                raise ConnectionError("the broker has closed the connection")
            self.data += more
        return False

    def header(self) -> Header | None:
        """Of the batch that comes next; None at the end."""
        if not self.has(HEADER_SIZE):
            return None
        header = parse_header(self.data[:HEADER_SIZE])
        if header is None:
            raise ConnectionError("what came from the broker is no batch")
        return header

    def skip(self, size: int) -> None:
        self.has(size)
        self.data = self.data[size:]

    def _end(self, line: bytes) -> None:
        _, result, *rest = line.decode("ascii", "replace").split(" ")
        if result == "error":
            raise Refused(" ".join(rest))
        self.end = int(rest[-1])


class Remote:
    def __init__(self, url: str, retry_for: float, lost: Lost) -> None:
        self._address = find_address(url)
        self._retry_for = retry_for
        self._lost = lost

    # ── where things are ──

    def earliest(self) -> int:
        return self._place("earliest")

    def latest(self) -> int:
        """The visible end."""
        return self._place("latest")

    def at(self, time: datetime) -> int:
        """Where the first batch of that time or later begins."""
        return self._place(time.astimezone(UTC).isoformat())

    def begin(self, position: int) -> int:
        """Where to begin, to have all from this position on: at its batch, at the next there is, or at the end."""
        try:
            header = self._batch_with(position)
        except Refused as refused:
            return self._after_refusal(position, self.latest(), refused)
        return header.position if header else position

    def advance(self, start: int, latest: int, rows: int | None, size: int | None) -> int:
        """How far to go from `start` with so many rows and bytes at most, but at least one batch: where one ends.

        The rows are counted by reading them: a limit in bytes is cheaper.
        """
        stop = latest
        if size is not None and start + size < latest:
            try:
                header = self._batch_with(start + size)
            except Refused:
                header = None  # the tasks will find out what is missing
            stop = start + size if header is None else header.position if header.position > start else header.end
        if rows is not None:
            stop = self._tried(lambda connection: self._count(connection, start, stop, rows))
        return min(stop, latest)

    def _count(self, connection: socket.socket, start: int, stop: int, rows: int) -> int:
        at = start
        try:
            answer = Answer(connection, str(start), f"--raw --to={stop}")
            while (header := answer.header()) is not None:
                rows -= header.count if header.position >= start else 0
                if rows < 0 and at > start:
                    return at
                at = header.end
                answer.skip(header.size)
        except Refused:
            return at if at > start else stop  # the tasks will find out what is missing
        return stop

    def _place(self, word: str) -> int:
        """The position that a word of the protocol stands for."""

        def ask(connection: socket.socket) -> int:
            answer = Answer(connection, word, "--to=earliest")
            answer.has(1)
            assert answer.end is not None
            return answer.end

        try:
            return self._tried(ask)
        except Refused as refused:
            raise JournalError(f"{self._address} cannot say where {word} is: {refused}") from None

    def _batch_with(self, position: int) -> Header | None:
        """The batch that has this position; None where there is none."""

        def ask(connection: socket.socket) -> Header | None:
            answer = Answer(connection, str(position), f"--raw --to={position + 1}")
            header = answer.header()
            if header is not None:
                answer.has(header.size)  # a batch that is not valid is refused only when it is read
            return header

        header = self._tried(ask)
        return header if header and header.position <= position < header.end else None

    # ── reading ──

    def scan(self, columns: Columns, start: int, stop: int) -> Iterator[None]:
        """Feed the batches that begin in the range; every now and then the caller may take what is there.

        A broker that stops ends its answers early, as if there were no more. So an answer that ends before the range
        does is not believed until another one, on a new connection, begins where it ended and is empty too.

        The broker looks ahead, so what it refuses may lie further on. Then batches are asked for one, two, four at a
        time, until the one that it cannot read is the first of them.
        """
        self._at = start
        reach = NO_LIMIT
        empty = 0
        patience = Patience(self._retry_for)
        while self._at < stop and empty < ENOUGH_EMPTY_ANSWERS:
            before = self._at
            try:
                with self._connected() as connection:
                    yield from self._scan_answer(columns, connection, min(stop, self._at + reach))
                reach *= 2
                empty = empty + 1 if self._at == before else 0
            except Refused as refused:
                if reach == 1:
                    self._at = self._after_refusal(self._at, stop, refused)
                reach = 1
            except OSError as error:
                if self._at > before:
                    patience = Patience(self._retry_for)
                patience.wait(error, str(self._address))

    def _scan_answer(self, columns: Columns, connection: socket.socket, stop: int) -> Generator[None, None, None]:
        answer = Answer(connection, str(self._at), f"--raw --to={stop}")
        header = answer.header()
        if header is not None and header.position < self._at:  # it has the position, but is not ours
            answer.skip(header.size)
        while (header := answer.header()) is not None:
            self._at = max(self._at, header.position)  # the first lines of segments are not sent, and gaps are none
            answer.has(header.size)
            fed = columns.feed(answer.data, self._at, stop)
            if not fed:
                break
            self._at += fed
            answer.data = answer.data[fed:]
            yield
        if answer.end is None and header is not None and header.position < stop:
            raise ConnectionError("what came from the broker is no valid batch")
        if answer.end is not None:
            self._at = max(self._at, answer.end)

    def _after_refusal(self, position: int, stop: int, refused: Refused) -> int:
        """Find out what is missing, and where reading can go on."""
        earliest, latest = self.earliest(), self.latest()
        try:
            self._tried(lambda connection: Answer(connection, "latest", "--raw --to=earliest").has(1))
        except Refused:
            raise JournalError(f"{self._address} has no journal to read: it runs with --memory ({refused})") from None
        if position < earliest:
            self._lost(
                position, earliest, f"they have been removed, the journal of {self._address} begins at {earliest}"
            )
            return earliest
        if position > latest:
            self._lost(latest, position, f"the journal of {self._address} ends at {latest}; is it the right broker?")
            return latest
        following = self._readable_after(position, min(stop, latest))
        self._lost(position, following, f"{self._address}: {refused}")
        return following

    def _readable_after(self, position: int, stop: int) -> int:
        """Where the next batch begins that the broker can read, or stop: in steps that double, then by halving."""
        bad, step = position, HEADER_SIZE
        good = stop
        while bad + step < stop:
            found = self._readable_at(bad + step, position)
            if found is not None:
                good = found
                break
            bad += step
            step *= 2
        while good - bad > 1:
            middle = (bad + good) // 2
            found = self._readable_at(middle, position)
            if found is None:
                bad = middle
            else:
                good = min(found, middle)
        return good

    def _readable_at(self, position: int, after: int) -> int | None:
        """Where its batch begins, if that can be read and lies behind the damage."""
        try:
            header = self._batch_with(position)
        except Refused:
            return None
        if header is None:
            return position
        return header.position if header.position > after else None

    # ── connections ──

    def _connected(self) -> socket.socket:
        connection = socket.create_connection(self._address, CONNECT_SECONDS)
        connection.settimeout(SILENCE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _tried(self, ask: Callable[[socket.socket], T]) -> T:
        """Ask, again and again while the broker is away."""
        patience = Patience(self._retry_for)
        while True:
            try:
                with self._connected() as connection:
                    return ask(connection)
            except OSError as error:
                patience.wait(error, str(self._address))


class Patience:
    """How long to go on trying."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._seconds = seconds
        self._pauses = iter(PAUSES)

    def wait(self, error: OSError, whom: str) -> None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise Unreachable(
                f"{whom} could not be reached for {self._seconds:g} s (option retryFor): {error}"
            ) from error
        time.sleep(min(next(self._pauses, PAUSES[-1]), left))
