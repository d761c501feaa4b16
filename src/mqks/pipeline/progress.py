"""How far a job is: its figures, a line for people, an event for everyone else.

The figures come from Spark's progress of each query and from the end of the journal: how many positions the job is
behind, and how old the oldest event is that it has not done yet. What the pipeline itself publishes is not counted.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

from mqks.client import protocol
from mqks.client.access import Access
from mqks.client.address import find_address
from mqks.client.errors import MqksError
from mqks.client.reaching import connected
from mqks.journal.errors import JournalError
from mqks.journal.format import HEADER_SIZE, parse_header
from mqks.journal.messages import parse_message
from mqks.journal.reader import Batch, Reader
from mqks.pipeline.contact import Contact
from mqks.pipeline.place import OWN, PROGRESS_EVENT, Place

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

ANSWER = 2.0  # seconds for the broker to tell where its journal ends
PUBLISH_EVERY = 5.0  # seconds, unless the state changes; the dashboard calls a job silent after 9
PLAIN_EVERY = 10.0  # between two lines of a job where there is no terminal


@dataclass(frozen=True)
class Figures:
    job: str
    state: str  # running, stopped or failed
    batch: int | None  # the last that is done
    rows: int  # since the job was started
    rows_per_second: float  # of the last batch
    position: int | None  # all before it is done
    latest: int | None  # the end of the journal
    lag_positions: int | None  # from the oldest event on that is not done, and that others published
    lag_seconds: float | None  # its age
    time: str

    @property
    def json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def news(self) -> tuple[object, ...]:
        """What of it is worth telling: the rest moves by itself, with the clock and with what the pipeline says."""
        return self.state, self.batch, self.rows, self.position, self.lag_positions == 0

    @property
    def line(self) -> str:
        parts = [f"{self.job}: {self.rows:,} rows", f"{self.rows_per_second:,.0f} rows/s"]
        if self.lag_positions is not None:
            parts.append(f"lag {self.lag_positions:,} positions")
        if self.lag_seconds is not None:
            parts.append(f"{self.lag_seconds:,.1f} s")
        return ", ".join(parts if self.state == "running" else [*parts, self.state])


def simply(job: str, state: str, rows: int, rows_per_second: float) -> Figures:
    """Of a job that is no stream."""
    return Figures(job, state, None, rows, round(rows_per_second, 1), None, None, None, None, now())


def clock() -> str:
    """The time of a line for people, in UTC as all times here."""
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Tail:
    """How much of the journal is left to do, from its folder or from the broker. What cannot be told now is None.

    It begins with the first event that others published: what the pipeline itself says is no work, else telling of a
    job would keep it busy for ever.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._reader: Reader | None = None
        self._asked = self._passed = 0  # from the position that was asked for up to there, only the pipeline speaks

    def look(self, position: int | None) -> tuple[int | None, int | None, float | None]:
        """The latest position; how many positions are left for who has done all before this one; how old, in seconds,
        the first event there is. 0 if there is none."""
        try:
            latest, first = self._folder(position) if self._place.data else self._broker(position)
        except (OSError, MqksError, JournalError, ValueError):  # not there yet, away, or its end is just being written
            return None, None, None
        if position is None:
            return latest, None, None
        if first is None:
            return latest, 0, 0.0
        return (
            latest,
            latest - max(first.position, position),
            max((datetime.now(UTC) - first.time).total_seconds(), 0.0),
        )

    def _folder(self, position: int | None) -> tuple[int, Batch | None]:
        if self._reader is None:
            self._reader = Reader(str(self._place.data))
        latest = self._reader.latest
        return latest, self._first(position, latest, self._reader.batches)

    def _broker(self, position: int | None) -> tuple[int, Batch | None]:
        """A connection of its own: a broker that is away must not be waited for, and raw history asks for one."""
        with connected(find_address(self._place.broker), Access().found(), ANSWER, within=ANSWER) as connection:
            file = connection.makefile("rb")

            def ask(request: str) -> None:
                connection.sendall(protocol.encode(protocol.line("h", request)))

            def end(line: bytes, request: str) -> int:
                return protocol.history_end(protocol.answer(protocol.decode(line).rstrip("\n"), request))

            ask(request := protocol.history("latest", to="earliest"))
            latest = end(file.readline(), request)

            def batches(start: int, stop: int) -> Iterator[Batch]:
                ask(request := protocol.history(start, to=stop, raw=True))
                while header := parse_header(line := file.readline(HEADER_SIZE)):
                    raw = line + file.read(header.end - header.position - HEADER_SIZE)
                    yield Batch(header.position, header.end, header.dtid, header.count, raw)
                end(line, request)

            return latest, self._first(position, latest, batches)

    def _first(self, position: int | None, latest: int, batches: Callable[[int, int], Iterator[Batch]]) -> Batch | None:
        """The first that has more than what the pipeline says. None is looked at a second time in vain."""
        if position is None:
            return None
        start = max(position, self._passed if position >= self._asked else 0)
        found = next((batch for batch in batches(start, latest) if has_others(batch)), None) if start < latest else None
        self._asked, self._passed = position, latest if found is None else found.position
        return found


def has_others(batch: Batch) -> bool:
    """Is there an event that the pipeline did not publish itself?"""
    messages = (parse_message(line, batch.position, batch.time) for line in batch.lines.split(b"\n"))
    return any(message is not None and message.event.decode(errors="replace") not in OWN for message in messages)


class Meter:
    """Sums up the progress of a job's queries over its restarts."""

    def __init__(self, job: str, tail: Tail) -> None:
        self._job = job
        self._tail = tail
        self._seen: dict[str, int] = {}  # run of a query → the last batch that need not be counted any more
        self._rows: dict[int, int] = {}  # of each query; all of a job read the same
        self.batch: int | None = None
        self._position: int | None = None

    def read(self, queries: Sequence[StreamingQuery], state: str) -> Figures:
        last = [progress for progress in map(self._count, range(len(queries)), queries) if progress]
        if last:
            self.batch = max(progress["batchId"] for progress in last)
            self._position = min(positions(last), default=self._position)
        latest, lag, seconds = self._tail.look(self._position)
        speeds = [progress["processedRowsPerSecond"] for progress in last] if state == "running" else []
        return Figures(
            job=self._job,
            state=state,
            batch=self.batch,
            rows=max(self._rows.values(), default=0),
            rows_per_second=round(max(speeds, default=0.0), 1),
            position=self._position,
            latest=latest,
            lag_positions=lag,
            lag_seconds=None if seconds is None else round(seconds, 3),
            time=now(),
        )

    def _count(self, number: int, query: StreamingQuery) -> dict[str, Any] | None:
        """Adds the rows of the batches that are new; answers the progress of the last one."""
        told = query.lastProgress
        if told is None:
            return None
        run, new = str(query.runId), [json.loads(told.json)]
        seen = self._seen.get(run, -1)
        if new[-1]["batchId"] > seen + 1:  # several since the last look
            new = [json.loads(one.json) for one in query.recentProgress]
        last = dict(new[-1])
        rows = sum(one["numInputRows"] for one in new if one["batchId"] > seen)
        self._rows[number] = self._rows.get(number, 0) + rows
        # One of no rows may be told before it has begun, and again with its rows. All before it are done.
        self._seen[run] = max(last["batchId"] if last["numInputRows"] else last["batchId"] - 1, seen)
        return last


def positions(progresses: Iterable[dict[str, Any]]) -> Iterable[int]:
    """Of the sources that read a journal: up to where they have been done."""
    for progress in progresses:
        for source in progress["sources"]:
            offset = source.get("endOffset")
            offset = json.loads(offset) if isinstance(offset, str) else offset
            if isinstance(offset, dict) and isinstance(offset.get("position"), int):
                yield offset["position"]


class Publishing:
    """Figures as events: at most one in five seconds of each job, and each change of state."""

    def __init__(self, place: Place, every: float = PUBLISH_EVERY) -> None:
        self._contact = Contact(place.broker)
        self._every = every
        self._last: dict[str, tuple[str, float]] = {}  # job → state, when it was told

    def publish(self, figures: Figures) -> None:
        """Neither fails nor waits long: one that cannot be told now is not worth telling later."""
        state, when = self._last.get(figures.job, ("", 0.0))
        if figures.state == state and time.monotonic() < when + self._every:
            return
        self._last[figures.job] = (figures.state, time.monotonic())
        self._contact.attempt(
            "publishing progress", lambda client: client.publish(PROGRESS_EVENT, figures.json, confirm=True)
        )

    def close(self) -> None:
        self._contact.close()


class Lines:
    """What people see: on a terminal one line that changes, else a plain line of each job, with its time, when there is
    something new, and not too often."""

    def __init__(self, out: TextIO, every: float = PLAIN_EVERY) -> None:
        self._out = out
        self._live = out.isatty()
        self._every = every
        self._last: dict[str, tuple[Figures, float]] = {}
        self._shown = ""

    def tell(self, figures: Figures) -> None:
        before, at = self._last.get(figures.job), time.monotonic()
        if self._live:
            self._last[figures.job] = (figures, at)
            width = shutil.get_terminal_size().columns - 1
            line = " | ".join(last.line for last, _ in self._last.values())
            if line == self._shown:
                return
            self._shown = line
            self._out.write(f"\r{f'{clock()} {line}'[:width]}\x1b[K")
        elif before is None or before[0].state != figures.state or self._is_due(before, figures, at):
            self._last[figures.job] = (figures, at)
            self._out.write(f"{clock()} {figures.line}\n")
        self._out.flush()

    def say(self, line: str) -> None:
        """A line that stays."""
        line = f"{clock()} {line}"
        self._shown = ""
        self._out.write(f"\r{line}\x1b[K\n" if self._live else f"{line}\n")
        self._out.flush()

    def _is_due(self, before: tuple[Figures, float], figures: Figures, at: float) -> bool:
        return figures.news != before[0].news and at >= before[1] + self._every

    def end(self) -> None:
        if self._live and self._last:
            self._out.write("\n")
            self._out.flush()
