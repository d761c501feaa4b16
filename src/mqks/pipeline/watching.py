"""Jobs while they run: what they are, how they are told of, started again when they fail, and stopped in the end.

A job is one or more streaming queries and a way to start them again: their checkpoints make that right at any point.
Two threads share the work: the one that called `watch` looks whether the queries live, and is at hand for Ctrl-C; the
teller asks for the figures, prints and publishes them, and may wait for a broker that does not answer.
"""

from __future__ import annotations

import json
import logging
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TextIO

from mqks.pipeline import process
from mqks.pipeline.errors import PipelineError
from mqks.pipeline.progress import Lines, Meter, Publishing, Tail
from mqks.signals import stop_signals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from mqks.pipeline.place import Place

log = logging.getLogger(__name__)

LOOK = 0.5  # seconds between two looks whether the queries live: each asks Spark about each query
WAIT = 0.1  # the same for who waits for the end of one-off queries
TELL = 1.0  # between two lines on a terminal
GIVE_UP_AFTER = 6  # failures without progress between them
# The last line of a traceback: names of errors, perhaps one in the other, and what the innermost says.
ERROR = re.compile(r"(?:Caused by: )?(?:[\w.]+(?:Error|Exception|Failed|Loss|Gone|End|Damaged): )+(?P<told>.+)")
SQLSTATE = re.compile(r"(?: SQLSTATE: \w+)+$")
BACKOFF = (1.0, 5.0, 15.0, 30.0, 60.0)  # seconds before a job that failed is started again


class JobFailed(PipelineError):
    """A job that was given up; the text has its name and the reason."""


class Job:
    """Runs when it is made; `start` is called again for each restart. `close` is called once, after the last stop."""

    def __init__(
        self, name: str, start: Callable[[], Sequence[StreamingQuery]], *, close: Callable[[], object] | None = None
    ) -> None:
        self.name = name
        self._start = start
        self._close = close
        self.queries: list[StreamingQuery] = []
        try:
            self.queries = list(start())
        except BaseException as error:
            self.stop()
            if is_of_spark(error):
                raise JobFailed(f"{name}: {reason(str(error))}") from error
            raise

    @property
    def active(self) -> bool:
        """Does any of its queries run?"""
        return any(query.isActive for query in self.queries)

    @property
    def failed(self) -> tuple[StreamingQuery, str] | None:
        """The first of its queries that failed, and why."""
        for query in self.queries:
            error = None if query.isActive else query.exception()
            if error is not None:
                return query, reason(str(error))
        return None

    @property
    def failure(self) -> str | None:
        """Why the first of its queries that failed did."""
        return failed[1] if (failed := self.failed) else None

    def restart(self) -> None:
        """All of its queries, also those that still run: their checkpoints know how far each one is."""
        with ExitStack() as stopping:
            self._stop_queries(stopping)
        self.queries = list(self._start())

    def wait(self, timeout: float | None = None) -> bool:
        """Until its queries have ended, as those of one-off runs do; False if not in time. Raises JobFailed."""
        until = None if timeout is None else time.monotonic() + timeout
        for query in self.queries:
            while query.isActive:
                if until is not None and time.monotonic() >= until:
                    return False
                time.sleep(WAIT)
        if failure := self.failure:
            raise JobFailed(f"{self.name}: {failure}")
        return True

    def stop(self) -> None:
        """A batch that is under way may be abandoned: it is done again by the next start."""
        with ExitStack() as stopping:
            if self._close:
                stopping.callback(self._close)
                self._close = None
            self._stop_queries(stopping)

    def _stop_queries(self, stopping: ExitStack) -> None:
        """Each one, also if another does not stop."""
        for query in reversed(self.queries):
            stopping.callback(query.stop)


def started(starts: Iterable[Callable[[], StreamingQuery]]) -> list[StreamingQuery]:
    """All queries, or none: if one does not start, those before it are stopped."""
    with ExitStack() as stopping:
        queries: list[StreamingQuery] = []
        for start in starts:
            queries.append(start())
            stopping.callback(queries[-1].stop)
        stopping.pop_all()
    return queries


def watch(
    spark: SparkSession,
    place: Place,
    jobs: Sequence[Job],
    *,
    out: TextIO | None = None,
    publish: bool = True,
    stopping: threading.Event | None = None,
    backoff: Sequence[float] = BACKOFF,
) -> None:
    """Returns when all jobs have ended by themselves (one-off runs), or after SIGINT, SIGTERM or `stopping`, with all
    of them stopped. A job that fails again and again is given up: the others go on, and JobFailed is raised at the end.

    Lines go to `out` (stderr): a live one on a terminal, else a plain one now and then. Signals are taken only in the
    main thread.
    """
    stopping = stopping or threading.Event()
    watched = [Watched(job, Tail(place), backoff) for job in jobs]
    lines = Lines(out or sys.stderr)
    teller = Teller(watched, lines, Publishing(place) if publish else None)
    with taking_signals(stopping):
        teller.start()
        try:
            while True in [one.look(lines) for one in watched] and not stopping.wait(LOOK):
                pass
        except Exception:
            if alive(spark):
                raise
            raise JobFailed("Spark has ended; its log says why") from None
        finally:
            if alive(spark):
                for one in watched:
                    one.stop()
            teller.end()
    if given_up := [f"{one.job.name}: {one.reason}" for one in watched if one.state == "failed"]:
        raise JobFailed("; ".join(given_up))


class Watched:
    """A job, how often it failed, and when it is started again."""

    def __init__(self, job: Job, tail: Tail, backoff: Sequence[float]) -> None:
        self.job = job
        self.state = "running"
        self.reason = ""
        self.meter = Meter(job.name, tail)
        self._backoff = backoff
        self._failures = 0
        self._done: int | None = None  # the last batch of the query that failed, when it did
        self._due: float | None = None  # when it is started again

    def look(self, lines: Lines) -> bool:
        """Is there more to watch?"""
        if self.state != "running":
            return False
        if self._due is not None:
            if time.monotonic() >= self._due:
                self._due = None
                self._start(lines)
            return self.state == "running"
        if failed := self.job.failed:
            query, why = failed
            told = query.lastProgress
            self._failed(why, lines, None if told is None else json.loads(told.json)["batchId"])
        elif not self.job.active:
            self.state = "stopped"
        return self.state == "running"

    def stop(self) -> None:
        try:
            self.job.stop()
        except Exception as error:  # the others are to be stopped too
            log.warning("%s did not stop as it should: %s", self.job.name, reason(str(error)))
        if self.state == "running":
            self.state = "stopped"

    def _start(self, lines: Lines) -> None:
        try:
            self.job.restart()
        except Exception as error:  # of Spark or of the lake, which may be there again at the next try
            self._failed(reason(str(error)), lines)

    def _failed(self, why: str, lines: Lines, done: int | None = None) -> None:
        """`done` is the last batch that the query that failed has done since it was started, if any."""
        if done is None or done == self._done:
            self._failures += 1
        else:
            self._failures, self._done = 1, done
        self.reason = why
        if self._failures >= GIVE_UP_AFTER:
            self.state = "failed"
            self.stop()  # what of it still runs: its other queries, the hold that it renews
            lines.say(f"{self.job.name}: given up after {self._failures} failures: {why}")
            return
        wait = self._backoff[min(self._failures, len(self._backoff)) - 1]
        self._due = time.monotonic() + wait
        lines.say(f"{self.job.name}: failed, is started again in {wait:g} s: {why}")


class Teller(threading.Thread):
    """Prints and publishes the figures, once a second and once more in the end."""

    def __init__(self, watched: Sequence[Watched], lines: Lines, publishing: Publishing | None) -> None:
        super().__init__(name="progress", daemon=True)
        self._watched = watched
        self._lines = lines
        self._publishing = publishing
        self._ending = threading.Event()

    def run(self) -> None:
        while not self._ending.wait(TELL):
            self._tell()
        self._tell()
        self._lines.end()
        if self._publishing:
            self._publishing.close()

    def end(self) -> None:
        self._ending.set()
        self.join()

    def _tell(self) -> None:
        for one in self._watched:
            try:
                figures = one.meter.read(one.job.queries, one.state)
            except Exception:  # Spark is going down, which the watcher finds out
                log.debug("no figures of %s", one.job.name, exc_info=True)
                continue
            self._lines.tell(figures)
            if self._publishing:
                self._publishing.publish(figures)


@contextmanager
def taking_signals(stopping: threading.Event) -> Iterator[None]:
    """The signals to stop set the event; whoever took them before gets them back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        process.hush()  # it tells of each thing that is interrupted
        stopping.set()

    taken = {one: signal.signal(one, stop) for one in stop_signals()}
    try:
        yield
    finally:
        for one, before in taken.items():
            signal.signal(one, before)


def is_of_spark(error: BaseException) -> bool:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
    from pyspark.errors import PySparkException

    return isinstance(error, (PySparkException, Py4JError))


def alive(spark: SparkSession) -> bool:
    try:
        return not spark._jsc.sc().isStopped()
    except Exception:  # no answer: its process is gone
        return False


def reason(text: str) -> str:
    """The line of Spark's error that says why, without stacks and plans."""
    lines = [line.strip().removeprefix(": ") for line in text.partition("=== Streaming Query ===")[0].splitlines()]
    errors = [match for match in map(ERROR.match, lines) if match]
    told = errors[-1]["told"] if errors else next(filter(None, lines), "no reason is told")
    return SQLSTATE.sub("", told)
