"""How far a job is: its figures, a line for people, an event for everyone else.

The figures come from Spark's progress of each query and from the end of the journal: how many positions the job is
behind, and how old the oldest event is that it has not done yet.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

from mqks.client.access import Access
from mqks.client.address import find_address
from mqks.client.errors import MqksError
from mqks.client.reaching import connected
from mqks.journal.errors import JournalError
from mqks.journal.format import HEADER_SIZE, parse_header, time_of
from mqks.journal.reader import Reader
from mqks.pipeline.contact import Contact
from mqks.pipeline.place import PROGRESS_EVENT, Place

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

ANSWER = 2.0  # seconds for the broker to tell where its journal ends
PUBLISH_EVERY = 5.0  # seconds, unless the state changes
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
    lag_positions: int | None
    lag_seconds: float | None  # age of the oldest event that is not done
    time: str

    @property
    def json(self) -> str:
        return json.dumps(asdict(self))

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


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Tail:
    """The end of the journal, from its folder or from the broker. What cannot be told now is None."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._reader: Reader | None = None

    def look(self, position: int | None) -> tuple[int | None, float | None]:
        """The latest position, and how old the first event from `position` on is, in seconds; 0 if there is none."""
        try:
            latest, told = self._folder(position) if self._place.data else self._broker(position)
        except (OSError, MqksError, JournalError, ValueError):  # not there yet, away, or its end is just being written
            return None, None
        if position is None or position >= latest:
            return latest, None if position is None else 0.0
        return latest, None if told is None else max((datetime.now(UTC) - told).total_seconds(), 0.0)

    def _folder(self, position: int | None) -> tuple[int, datetime | None]:
        if self._reader is None:
            self._reader = Reader(str(self._place.data))
        latest = self._reader.latest
        if position is None or position >= latest:
            return latest, None
        return latest, next((batch.time for batch in self._reader.batches(position)), None)

    def _broker(self, position: int | None) -> tuple[int, datetime | None]:
        """A connection of its own: a broker that is away must not be waited for, and raw history asks for one."""
        with connected(find_address(self._place.broker), Access().found(), ANSWER, within=ANSWER) as connection:
            file = connection.makefile("rb")
            connection.sendall(b"l history latest --to=earliest\n")
            latest = int(file.readline().removeprefix(b"l ok --end "))
            if position is None or position >= latest:
                return latest, None
            connection.sendall(b"r history %d --to=%d --raw\n" % (position, position + 1))
            header = parse_header(file.readline(HEADER_SIZE))
            return latest, header and time_of(header.dtid)


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
        latest, seconds = self._tail.look(self._position)
        lag = None if latest is None or self._position is None else max(latest - self._position, 0)
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
    """What people see: on a terminal one line that changes, else a plain line of each job now and then."""

    def __init__(self, out: TextIO, every: float = PLAIN_EVERY) -> None:
        self._out = out
        self._live = out.isatty()
        self._every = every
        self._last: dict[str, tuple[Figures, float]] = {}

    def tell(self, figures: Figures) -> None:
        before, at = self._last.get(figures.job), time.monotonic()
        if self._live:
            self._last[figures.job] = (figures, at)
            width = shutil.get_terminal_size().columns - 1
            line = " | ".join(last.line for last, _ in self._last.values())
            self._out.write(f"\r{line[:width]}\x1b[K")
        elif before is None or before[0].state != figures.state or at >= before[1] + self._every:
            self._last[figures.job] = (figures, at)
            self._out.write(f"{figures.line}\n")
        self._out.flush()

    def say(self, line: str) -> None:
        """A line that stays."""
        self._out.write(f"\r{line}\x1b[K\n" if self._live else f"{line}\n")
        self._out.flush()

    def end(self) -> None:
        if self._live and self._last:
            self._out.write("\n")
            self._out.flush()
