"""What Spark makes of a journal: scanned, filtered, streamed, archived, written back to a broker, counted.

One session on two cores serves all of them; its start is not measured. Before the clock starts, each measurement has
done the same with fewer rows. All rows are checked by sums over their columns, apart from the timed query.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.contenders.base import BenchError, Contender
from benchmarks.contenders.spark import OnSpark
from benchmarks.journals import CHECKS, FIRST_NUMBER, Made, Sums, json_data, make
from benchmarks.measure import MICRO, Metrics
from benchmarks.payload import Load
from benchmarks.server import Server, cpu_seconds
from mqks import Client
from mqks.pipeline import Place
from mqks.pipeline.archive import archive
from mqks.pipeline.place import STATS_EVENT
from mqks.pipeline.session import session
from mqks.pipeline.stats import stats

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mqks.client.blocking import Consumer
    from mqks.pipeline.watching import Job

TASKS = 2  # at a time
MASTER = f"local[{TASKS}]"
WARM_UP = 500_000  # rows
WARM_UP_SAMPLES = 5
PATIENCE = 120.0  # seconds for an update of the stats
LOOK = 1.0  # between two looks whether the stats still run
PAUSE = 0.5  # at most, between two samples: so that they meet the stats' rhythm anywhere

Measure = Callable[[OnSpark, Load, int], Metrics]


# ── what all share ──


def on_spark(measure: Measure) -> Callable[[Contender, Load, int], Metrics]:
    """Whatever Spark raises is this contender's failure, in one line."""

    @functools.wraps(measure)
    def safe(contender: Contender, load: Load, messages: int) -> Metrics:
        assert isinstance(contender, OnSpark)
        try:
            return measure(contender, load, messages)
        except (BenchError, OSError):
            raise
        except Exception as error:
            raise BenchError(f"{type(error).__name__}: {str(error).strip().splitlines()[0]}") from error

    return safe


@functools.cache
def spark() -> SparkSession:
    started = session(MASTER)
    atexit.register(started.stop)
    return started


@functools.cache
def scratch() -> Path:
    """For all that is made here; gone when the benchmark ends."""
    folder = tempfile.mkdtemp(prefix="mqks-bench-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@functools.cache
def journal(load: Load, rows: int) -> Made:
    return make(scratch() / f"journal-{rows}", load, rows)


@contextmanager
def lake() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=scratch(), ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def broker_with(contender: OnSpark, made: Made) -> Server:
    """A broker, not yet started, that has the journal as its own. It never changes segments that it finds."""
    server = Server(contender)
    linked = server.folder / "data" / "journal"
    linked.mkdir(parents=True)
    for segment in (made.folder / "journal").iterdir():
        os.link(segment, linked / segment.name)
    return server


def url(server: Server) -> str:
    return f"mqks://127.0.0.1:{server.port}"


@contextmanager
def place_of(contender: OnSpark, made: Made) -> Iterator[dict[str, str]]:
    if contender.by_url:
        with broker_with(contender, made) as server:
            yield {"url": url(server)}
    else:
        yield {"path": str(made.folder)}


def spark_cpu() -> float:
    """Seconds of CPU of the JVM and of all Python workers so far."""
    pid: int = spark().sparkContext._gateway.proc.pid  # type: ignore[union-attr] # there is one, it started the JVM
    return cpu_seconds(pid)


def timed(rows: int, action: Callable[[], object]) -> Metrics:
    cpu, started = spark_cpu(), time.monotonic()
    action()
    seconds = time.monotonic() - started
    return {"row_rate": rows / seconds, "spark_cpu_us": (spark_cpu() - cpu) / rows * MICRO}


def consume(frame: DataFrame) -> None:
    """All columns of all rows, as rows of Spark, to nowhere."""
    frame.write.format("noop").mode("overwrite").save()


def sums(frame: DataFrame) -> Sums:
    checked = [name for name in CHECKS if name in frame.columns]
    found = frame.selectExpr("count(*) AS rows", *(f"{CHECKS[name]} AS {name}" for name in checked)).collect()[0]
    return found.asDict()


def check(found: Sums, expected: Sums) -> None:
    wrong = [f"{name} {value}, not {expected[name]}" for name, value in found.items() if value != expected[name]]
    if wrong:
        raise BenchError(f"other rows came than were written, by their sums: {'; '.join(wrong)}")


def warmed_up(load: Load, rows: int, measure: Callable[[Made], Metrics]) -> Metrics:
    measure(journal(load, WARM_UP))
    return measure(journal(load, rows))


# ── reading ──


@on_spark
def scan(contender: OnSpark, load: Load, rows: int) -> Metrics:
    """Rows a second, all columns."""

    def measure(made: Made) -> Metrics:
        with place_of(contender, made) as place:
            frame = contender.read(spark().read, place)
            check(sums(frame), made.every)
            return timed(made.rows, lambda: consume(frame))

    return warmed_up(load, rows, measure)


@on_spark
def scan_time(contender: OnSpark, load: Load, rows: int) -> Metrics:
    """The same, as time per row."""
    return {"row_us": MICRO / scan(contender, load, rows)["row_rate"]}


@on_spark
def filtered(contender: OnSpark, load: Load, rows: int) -> Metrics:
    """Rows a second that were looked at to find those of one event."""
    if not contender.filters:
        return scan(contender, load, rows)

    def measure(made: Made) -> Metrics:
        with place_of(contender, made) as place:
            frame = contender.only(spark().read, place, load.events[0].decode())
            check(sums(frame), made.first)
            return timed(made.rows, lambda: consume(frame))

    return warmed_up(load, rows, measure)


@on_spark
def streamed(contender: OnSpark, load: Load, rows: int) -> Metrics:
    """Rows a second from the journal to Parquet, from the start of a new stream to its end."""

    def measure(made: Made) -> Metrics:
        with place_of(contender, made) as place, lake() as folder:
            frame = contender.read(spark().readStream, place)
            metrics = timed(made.rows, lambda: to_parquet(frame, folder))
            check(sums(spark().read.parquet(str(folder / "rows"))), made.every)
            return metrics

    return warmed_up(load, rows, measure)


def to_parquet(frame: DataFrame, folder: Path) -> None:
    writer = frame.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start(str(folder / "rows"), format="parquet").awaitTermination()


@on_spark
def archived(contender: OnSpark, load: Load, rows: int) -> Metrics:
    """The same by the pipeline's archive: by date, data also as VARIANT, held at the broker."""
    from mqks.pipeline.lake import events

    def measure(made: Made) -> Metrics:
        with broker_with(contender, made) as server, lake() as folder:
            place = Place(url(server), str(made.folder), str(folder))
            metrics = timed(made.rows, lambda: archive_now(place))
            check(sums(events(spark(), place).drop("data").withColumnRenamed("text", "data")), made.every)
            return metrics

    return warmed_up(load, rows, measure)


def archive_now(place: Place) -> None:
    job = archive(spark(), place, available_now=True)
    try:
        job.wait()
    finally:
        job.stop()


# ── writing ──


@on_spark
def written(contender: OnSpark, load: Load, rows: int) -> Metrics:
    """Rows a second that a broker confirmed, from two tasks."""
    with Server(contender) as server:
        publish(rows_to_write(load, 0, WARM_UP), server)
        cpu = server.cpu()
        metrics = timed(rows, lambda: publish(rows_to_write(load, WARM_UP, rows), server))
        metrics["cpu_us"] = (server.cpu() - cpu) / rows * MICRO
        came = spark().read.format("mqks").option("url", url(server)).load().select("event", "data")
        check(sums(came), sums(rows_to_write(load, 0, WARM_UP + rows)))
        return metrics


def rows_to_write(load: Load, first: int, rows: int) -> DataFrame:
    """Like those that are read, made by Spark as cheaply as can be; no two are alike."""
    event = load.events[0].decode()
    begin, _, end = json_data(0, load.size).decode().partition(str(FIRST_NUMBER))
    return (
        spark()
        .range(first, first + rows, 1, TASKS)
        .selectExpr(f"'{event}' AS event", f"concat('{begin}', {FIRST_NUMBER} + id, '{end}') AS data")
    )


def publish(frame: DataFrame, server: Server) -> None:
    frame.write.format("mqks").mode("append").option("url", url(server)).save()


# ── counting ──


@on_spark
def counted(contender: OnSpark, load: Load, samples: int) -> Metrics:  # noqa: ARG001
    """Seconds from the publish of an event to the first update of the stats that has it, one at a time."""
    pauses = random.Random(25000)
    with Server(contender) as server, lake() as folder, Client(url(server)) as client:
        # None is acked: the client would warn of updates that come after the last one that matters.
        updates = client.consume("bench", [STATS_EVENT], manual_ack=True).ready()
        job = stats(spark(), Place(url(server), str(server.folder / "data"), str(folder)))
        seconds = []
        try:
            for number in range(WARM_UP_SAMPLES + samples):
                started = time.monotonic()
                client.publish(f"bench.{number}", "{}")
                await_update(job, updates, f"bench.{number}")
                seconds.append(time.monotonic() - started)
                time.sleep(pauses.uniform(0, PAUSE))
        finally:
            job.stop()
    seconds = seconds[WARM_UP_SAMPLES:]
    return {"first_p50_s": statistics.median(seconds), "first_max_s": max(seconds)}


def await_update(job: Job, updates: Consumer, event: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if job.failure:
            raise BenchError(f"the stats failed: {job.failure}")
        message = updates.get(LOOK)
        row = json.loads(message.data) if message else {}
        if (row.get("kind"), row.get("name")) == ("event", event):
            if row["count"] != 1:
                raise BenchError(f"the stats count {row['count']} of an event that was published once")
            return
    raise BenchError(f"the stats did not count {event} within {PATIENCE:g} s")
