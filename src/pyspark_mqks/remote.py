"""The journal of a running broker, read through `history --raw`, for executors that do not see its folder.

The broker sends whole batches whose checksums are right; an answer begins with the batch that has the position asked
for. A broker that is away is waited for, and reading goes on after the last whole batch.
"""

import socket
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TypeVar

from mqks.client import protocol
from mqks.client.access import Access
from mqks.client.address import Address, find_address
from mqks.client.errors import Refused
from mqks.client.protocol import EARLIEST, LATEST, history
from mqks.client.reaching import connected
from mqks.journal import JournalError
from mqks.journal.columns import Columns
from mqks.journal.format import HEADER_SIZE, Header, parse_header
from pyspark_mqks.journal import END, Journal, fitting
from pyspark_mqks.loss import Lost
from pyspark_mqks.reaching import Patience

ID = "h"  # of our requests: no batch begins with a letter
RECEIVE = 1 << 20
SILENCE_SECONDS = 60.0  # after which a connection counts as lost
KEEP_SECONDS = 10.0  # that a connection may be idle and is used again
ENOUGH_EMPTY_ANSWERS = 2  # see Remote.scan

T = TypeVar("T")


class HistoryRefused(Refused):
    """The broker cannot read this part of the journal. A refused token is an AuthRefused, which nobody here catches."""


class Answer:
    """What comes for one request: batches, then where they end."""

    def __init__(self, connection: socket.socket, request: str) -> None:
        self.end: int | None = None
        self._connection = connection
        self._data = b""
        self._at = 0  # what is before it was used; a batch or the last line begins there
        self._request = request
        connection.sendall(protocol.encode(protocol.line(ID, request)))

    def has(self, size: int) -> bool:
        """Waits for so many bytes; False if the answer ends before them."""
        while self.end is None:
            left = len(self._data) - self._at
            if self._data.startswith(ID.encode(), self._at):
                line, newline, _ = self.rest().partition(b"\n")
                if newline:
                    self._end(line)
                else:
                    self._receive(1)
            elif left >= size:
                return True
            else:
                self._receive(size - left if left else 1)  # the first byte tells what it is
        return False

    def header(self) -> Header | None:
        """Of the batch that comes next; None at the end."""
        if not self.has(HEADER_SIZE):
            return None
        header = parse_header(self._data[self._at : self._at + HEADER_SIZE])
        if header is None:
            raise ConnectionError(f"it does not answer as a broker does, but {self.rest()[:100]!r}")
        return header

    def headers(self) -> Iterator[Header]:
        """Of all batches; those that are not valid are refused when they are read."""
        while (header := self.header()) is not None:
            self.skip(header.size)
            yield header

    def position(self) -> int:
        """Where an answer without batches ends."""
        if self.has(1) or self.end is None:
            raise ConnectionError(f"it does not answer as a broker does, but {self.rest()[:100]!r}")
        return self.end

    def rest(self) -> bytes:
        """What has come and was not used."""
        if self._at:
            self._data, self._at = self._data[self._at :], 0
        return self._data

    def skip(self, size: int) -> None:
        self.has(size)
        self._at += size

    def _receive(self, least: int) -> None:
        pieces = [self.rest()]
        while least > 0:
            more = self._connection.recv(RECEIVE)
            if not more:
                raise ConnectionError("the broker has closed the connection")
            pieces.append(more)
            least -= len(more)
        self._data = b"".join(pieces)

    def _end(self, line: bytes) -> None:
        try:
            self.end = protocol.history_end(protocol.answer(line.decode("ascii", "replace"), self._request))
        except Refused as refused:
            raise HistoryRefused(refused.request, refused.error_id) from None
        except ValueError:
            raise ConnectionError(f"it does not answer as a broker does, but {line[:100]!r}") from None


class Remote(Journal):
    def __init__(self, url: str, retry_for: float, lost: Lost, access: Access | None = None) -> None:
        self._connection: socket.socket | None = None  # kept from one question to the next
        self._used = 0.0  # when, the last time
        self._address: Address = find_address(url)
        self._access = access or Access()
        self._retry_for = retry_for
        self._lost = lost

    def __del__(self) -> None:
        self._close()

    # ── where things are ──

    def earliest(self) -> int:
        return self._place(EARLIEST)

    def latest(self) -> int:
        return self._place(LATEST)

    def at(self, time: datetime) -> int:
        return self._place(time.astimezone(UTC).isoformat())

    def check(self, position: int) -> int:
        latest = self.latest()
        if position > latest:
            self._lost(latest, position, f"the journal of {self._address} ends at {latest}; is it the right broker?")
            return latest
        try:
            return self._ask(history(position, to=EARLIEST), Answer.position)
        except HistoryRefused as refused:
            return self._after_refusal(position, latest, refused)

    def batch_with(self, position: int) -> Header | None:
        try:
            return self._batch_with(position)
        except HistoryRefused:
            return None  # the tasks will find out what is missing

    def count(self, start: int, stop: int, rows: int) -> int:
        """The rows are counted by reading them: a limit in bytes is cheaper."""

        def fits(answer: Answer) -> int:
            return fitting((header for header in answer.headers() if header.position >= start), stop, rows)

        try:
            return self._ask(history(start, to=stop, raw=True), fits)
        except HistoryRefused:
            return stop  # the tasks will find out what is missing

    def _place(self, word: str) -> int:
        """The position that a word of the protocol stands for."""
        try:
            return self._ask(history(word, to=EARLIEST), Answer.position)
        except HistoryRefused as refused:
            raise JournalError(f"{self._address} cannot say where {word} is: {refused}") from None

    def _batch_with(self, position: int) -> Header | None:
        """What comes first may be the one before it: the last whose header can be read."""

        def found(answer: Answer) -> Header | None:
            all = list(answer.headers())
            return next((header for header in all if header.position <= position < header.end), None)

        return self._ask(history(position, to=position + 1, raw=True), found)

    # ── reading ──

    def scan(self, columns: Columns, start: int, stop: int) -> Iterator[None]:
        """A broker that stops ends its answers early, as if there were no more. So an answer that ends before the range
        does is not believed until another one, on a new connection, begins where it ended and is empty too.

        The broker looks ahead, so what it refuses may lie further on. Then batches are asked for one, two, four at a
        time, until the one that it cannot read is the first of them.
        """
        at, reach, empty = start, END, 0
        patience = Patience(self._address, self._retry_for)
        while at < stop and empty < ENOUGH_EMPTY_ANSWERS:
            before, until = at, min(stop, at + reach)
            try:
                with connected(self._address, self._access, within=patience.within) as connection:
                    connection.settimeout(SILENCE_SECONDS)
                    fed = _fed(columns, Answer(connection, history(at, to=until, raw=True)), at, until)
                    for come in fed:
                        at = come
                        patience.renew()
                        yield
                reach = min(2 * reach, END)
                empty = empty + 1 if at == before else 0
            except HistoryRefused as refused:
                if reach == 1:
                    at = self._after_refusal(at, stop, refused)
                reach = 1
            except OSError as error:
                patience.wait(error)
        if at < stop and (latest := self.latest()) < stop:
            self._lost(at, stop, f"the journal of {self._address} ends at {latest}, and was longer when it was planned")

    def _after_refusal(self, position: int, stop: int, refused: HistoryRefused) -> int:
        """Find out what is missing, and where reading can go on."""
        earliest, latest = self.earliest(), self.latest()
        try:
            self._ask(history(LATEST, to=EARLIEST, raw=True), Answer.position)
        except HistoryRefused:
            raise JournalError(f"{self._address} has no journal to read: it runs with --memory ({refused})") from None
        if position < earliest:
            following, why = earliest, f"they have been removed, the journal of {self._address} begins at {earliest}"
        elif position > latest:
            following, why = stop, f"the journal of {self._address} ends at {latest}"
        else:
            following, why = self._readable_after(position, min(stop, latest)), f"{self._address}: {refused}"
        self._lost(position, following, why)
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
        except HistoryRefused:
            return None
        if header is None:
            return position
        return header.position if header.position > after else None

    # ── questions ──

    def _ask(self, request: str, read: Callable[[Answer], T]) -> T:
        """Ask, again and again while the broker is away."""
        patience = Patience(self._address, self._retry_for)
        while True:
            if time.monotonic() > self._used + KEEP_SECONDS:
                self._close()
            kept = self._connection is not None
            try:
                if self._connection is None:
                    self._connection = connected(self._address, self._access, within=patience.within)
                    self._connection.settimeout(SILENCE_SECONDS)
                answer = Answer(self._connection, request)
                found = read(answer)
            except OSError as error:
                self._close()
                if not kept:  # else it may have ended long ago
                    patience.wait(error)
            except BaseException:
                self._close()
                raise
            else:
                if answer.end is None:  # more comes, which nobody wants
                    self._close()
                self._used = time.monotonic()
                return found

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _fed(columns: Columns, answer: Answer, at: int, stop: int) -> Iterator[int]:
    """Feed the batches that begin in the range; tells again and again how far it has come."""
    header = answer.header()
    if header is not None and header.position < at:  # it has the position, but is not ours
        answer.skip(header.size)
    while (header := answer.header()) is not None:
        at = max(at, header.position)  # the first lines of segments are not sent, and gaps are none
        answer.has(header.size)
        fed = columns.feed(answer.rest(), at, stop)
        if not fed and header.position < stop:
            raise ConnectionError("what came from the broker is no valid batch")
        if not fed:
            return
        answer.skip(fed)
        at += fed
        yield at
    yield max(at, answer.end or 0)
