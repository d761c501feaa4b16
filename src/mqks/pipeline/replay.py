"""Replay: events of lake and journal are published again, in the order in which they came.

What is replayed is settled at the start: the end of the journal is looked up once, so a replay never meets its own
output. Then it goes by slices of some 200,000 rows, each a Spark job that publishes in one task, in the order of
positions, and is done when all of it is confirmed. Data goes out byte by byte as it came; SEVX events as SEVX events.

Exactly once, by the ids. Each message is published with `--once={scope}` under its old id, so a task that is tried
again, or a replay that was stopped and is started again, adds only what is missing. This holds for as long as the
broker remembers ids: for its `--dedup-window` (an hour unless told), and for the newest `--dedup-count` of them
(1,000,000 unless told). A replay of more than that, started again, publishes anew what is forgotten by then. Two
messages that came under one id are one when they are replayed: `Selection.repeated` tells how many are not published
for that reason. With `new_ids` each run has ids of its own, made of the positions: nothing is dropped, and a second run
publishes all again.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from mqks.client.blocking import Client
from mqks.client.errors import MqksError
from mqks.journal import JournalError
from mqks.names import is_event, is_name
from mqks.pipeline import lake
from mqks.pipeline.asked import EPOCH, is_steady, moment
from mqks.pipeline.errors import PipelineError
from mqks.pipeline.place import EVENTS
from mqks.pipeline.sql import Tell, answer, complain, extent, named, plainly
from mqks.pipeline.tables import aligned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mqks.pipeline.place import Place

Where = int | str | datetime | None  # a position, earliest, latest, or a time; None: no bound
Progress = Callable[[int, int], object]

SCOPE = "replay"
COPIES = "mqks.replay."  # the events of a replay to one queue: {COPIES}{queue}.{event}
SLICE_ROWS = 200_000  # a job costs a second or more, whatever its size
SLICE_BYTES = 64 << 20
SLICE_SECONDS = 10  # of one that is slowed down
BUCKET = 1 << 20  # positions that are counted together; a slice is some of them
LEAST_BUCKET = 1 << 10
MOST_BUCKETS = 100_000
LINE = 100  # bytes of a message, about
NAMES_AT_ONCE = 1000  # that a queue is bound to by one request
BYTES = "coalesce(octet_length(raw), octet_length(text))"


class ReplayError(PipelineError):
    """What cannot be replayed like that, and how it can."""


@dataclass(frozen=True)
class Slice:
    """The rows from `start` to before `stop`; all came between these two times, in µs since 1970."""

    start: int
    stop: int
    rows: int
    size: int
    since: int
    until: int


@dataclass(frozen=True)
class Selection:
    """What is replayed, as it was when the replay began."""

    rows: int
    size: int  # bytes of data
    since: datetime | None  # when the first one came, and the last; None: there are none
    until: datetime | None
    events: dict[str, tuple[int, int]]  # event → rows and bytes, most rows first
    repeated: int  # rows with an id that another row has too: not published, unless with new ids
    slices: tuple[Slice, ...]

    def lines(self, most: int = 20, width: int | None = None) -> Iterator[str]:
        """For people: how many of which events, when they came."""
        if self.since is None or self.until is None:
            yield "no rows"
            return
        rows = [(name or "-", f"{rows:,}", f"{size:,}") for name, (rows, size) in list(self.events.items())[:most]]
        yield from aligned(("event", "rows", "bytes"), rows, (False, True, True), width)
        if len(self.events) > most:
            yield f"… and {len(self.events) - most:,} more events"
        span = " to ".join(f"{time:%Y-%m-%d %H:%M:%S}" for time in (self.since, self.until))
        yield f"{self.rows:,} rows, {self.size:,} bytes of data, from {span} UTC"
        if self.repeated:
            yield f"{self.repeated:,} of them have an id that another one has: by old ids one of these is published"


def replay(
    spark: SparkSession,
    place: Place,
    *,
    where: str | None = None,
    start: Where = None,
    stop: Where = None,
    to_event: str | None = None,
    queue: str | None = None,
    rate: float | None = None,
    scope: str | None = None,
    new_ids: bool = False,
    dry_run: bool = False,
    slice_rows: int = SLICE_ROWS,
    progress: Progress | None = None,
    tell: Tell = complain,
) -> Selection:
    """Publish again what came from `start` to before `stop`, and for which the SQL condition `where` holds.

    It goes to the same events; or all to `to_event`; or only to one `queue`, as events `mqks.replay.{queue}.{event}`,
    to which the queue is bound while the replay lasts. Another replay leaves such copies out.
    `scope` is where old ids count once: by default `replay`, `replay.event.{event}` or `replay.queue.{queue}`, so that
    a replay to one place does not keep those to another from being published. `rate`: so many rows a second at most.
    `progress(done, total)` is called after each slice, and may raise to end the replay there; Ctrl-C ends it at once,
    and the same replay again goes on with what is missing. With `dry_run` nothing is published. Answers what was
    selected.
    """
    target = Target(to_event, queue, scope, new_ids)
    if rate is not None and not 0 < rate < math.inf:
        raise ReplayError(f"a rate is a number of rows per second and more than 0, not {rate}")
    end = end_of(spark, place, tell)
    conditions = [*range_conditions(start, stop, end), f"event NOT LIKE '{COPIES}%'"]
    if where is not None:
        check_steady(spark, place, where)
        conditions.append(f"({where}\n)")
    if rate is not None:
        slice_rows = min(slice_rows, math.ceil(rate * SLICE_SECONDS))
    found = select(spark, place, conditions, end, slice_rows, new_ids, tell)
    if dry_run:
        return found
    done = 0
    with target.bound(place, found.events, tell):
        for one in found.slices:
            publish(spark, place, one, conditions, target, rate, end)
            done += one.rows
            if progress is not None:
                progress(done, found.rows)
    return found


# ── where it goes ──


class Target:
    """What becomes of an event, an action and an id; checked when it is made."""

    def __init__(self, event: str | None, queue: str | None, scope: str | None, new_ids: bool) -> None:
        if event is not None and queue is not None:
            raise ReplayError("give to_event or queue, not both")
        if event is not None and not is_event(event.encode()):
            raise ReplayError(f"{event!r} is no name for an event")
        if queue is not None and not is_name(queue.encode()):
            raise ReplayError(f"{queue!r} is no name for a queue")
        if scope is not None and not is_name(scope.encode()):
            raise ReplayError(f"{scope!r} is no name for a scope")
        self._event = event
        self._queue = queue
        self.scope = scope or SCOPE + (f".event.{event}" if event else f".queue.{queue}" if queue else "")
        self._prefix = f"replay-{secrets.token_hex(6)}" if new_ids else None

    def rows(self, frame: DataFrame) -> DataFrame:
        """As the sink takes them, in order, in one partition."""
        from pyspark.sql import functions as F

        event, action = F.col("event"), F.col("action")
        if self._event is not None:
            event, action = F.lit(self._event), F.lit("publish")
        elif self._queue is not None:
            event, action = F.concat(F.lit(f"{COPIES}{self._queue}."), event), F.lit("publish")
        fresh = None if self._prefix is None else F.concat(F.lit(f"{self._prefix}-"), F.col("position"))
        data = F.coalesce(F.col("raw"), F.encode("text", "utf-8"))
        in_order = frame.repartition(1).sortWithinPartitions("position")
        return in_order.select(
            event.alias("event"),
            action.alias("action"),
            data.alias("data"),
            F.col("id") if fresh is None else fresh.alias("id"),
        )

    @contextmanager
    def bound(self, place: Place, events: Iterable[str], tell: Tell) -> Iterator[None]:
        """The queue has these events for as long as the replay lasts, if it is to one."""
        if self._queue is None:
            yield
            return
        names = [f"{COPIES}{self._queue}.{event}" for event in events]
        pieces = [names[at : at + NAMES_AT_ONCE] for at in range(0, len(names), NAMES_AT_ONCE)]
        try:
            with Client(place.broker, connect_timeout=0) as broker:
                for piece in pieces:
                    broker.rebind(self._queue, add=piece)
        except (MqksError, OSError) as error:
            raise ReplayError(f"the queue {self._queue} cannot be bound: {error}") from None
        try:
            yield
        finally:
            try:
                with Client(place.broker, connect_timeout=0) as broker:
                    for piece in pieces:
                        broker.rebind(self._queue, remove=piece)
            except (MqksError, OSError) as error:
                tell(f"the queue {self._queue} is still bound to {COPIES}{self._queue}.…, which does no harm: {error}")


# ── what is replayed ──


def end_of(spark: SparkSession, place: Place, tell: Tell) -> int:
    """The position before which everything is that can be replayed."""
    try:
        # The lake goes further where the journal was begun anew.
        return max(extent(place).end, lake.archived(spark, place) or 0)
    except (MqksError, JournalError, OSError) as error:
        archived = lake.archived(spark, place)
        if archived is None:
            raise ReplayError(f"there is neither a lake nor a journal to replay: {error}") from None
        tell(f"the journal cannot be read, so only what the lake has is replayed: {error}")
        return archived


def range_conditions(start: Where, stop: Where, end: int) -> Iterator[str]:
    for place, sign, nothing_to_say in ((start, ">=", "earliest"), (stop, "<", "latest")):
        if place is None or place == nothing_to_say:
            continue
        if isinstance(place, datetime):
            aware = place if place.tzinfo else place.replace(tzinfo=UTC)
            yield f"time {sign} timestamp_micros({(aware - EPOCH) // timedelta(microseconds=1)})"
        elif isinstance(place, int):
            yield f"position {sign} {place}"
        elif place in ("earliest", "latest"):
            yield f"position {sign} {0 if place == 'earliest' else end}"
        else:
            raise ReplayError(
                f"{place!r} is no place to replay from or to: give a position, a time, earliest or latest"
            )


def check_steady(spark: SparkSession, place: Place, where: str) -> None:
    """Each slice is a query of its own, and all must mean the same rows."""
    text = f"SELECT * FROM {EVENTS} WHERE ({where}\n)"  # nosec B608  # whoever replays may ask for anything
    with plainly(), named(spark, place, text):
        if not is_steady(spark, text):
            raise ReplayError(
                "the condition means other rows each time it is asked (now, rand): give times by start, stop"
            )


def select(
    spark: SparkSession, place: Place, conditions: list[str], end: int, slice_rows: int, new_ids: bool, tell: Tell
) -> Selection:
    """Counts the rows, by event and by position."""
    width = max(min(BUCKET, slice_rows * LINE // 2), LEAST_BUCKET, end // MOST_BUCKETS)
    chosen = f"FROM {EVENTS} WHERE {' AND '.join(conditions)}"
    counted = answer(
        spark,
        place,
        f"""SELECT grouping(event) AS by_bucket, event, bucket, count(*) AS rows, sum(bytes) AS size,
                   unix_micros(min(time)) AS since, unix_micros(max(time)) AS until
            FROM (SELECT event, position DIV {width} AS bucket, {BYTES} AS bytes, time {chosen})
            GROUP BY GROUPING SETS ((event), (bucket))""",  # nosec B608  # as above, with our own numbers
        lambda frame: frame.collect(),
        end=end,
        tell=tell,
    )
    buckets = [
        Slice(row.bucket * width, (row.bucket + 1) * width, row.rows, row.size, row.since, row.until)
        for row in sorted((row for row in counted if row.by_bucket), key=lambda row: int(row.bucket))
    ]
    events = sorted((row for row in counted if not row.by_bucket), key=lambda row: (-row.rows, row.event))
    repeated = 0
    if buckets and not new_ids:
        distinct = f"SELECT count(id) - count(DISTINCT id) {chosen}"
        repeated = answer(spark, place, distinct, lambda frame: frame.collect()[0][0], end=end, tell=lambda _: None)
    return Selection(
        rows=sum(one.rows for one in buckets),
        size=sum(one.size for one in buckets),
        since=moment(min(one.since for one in buckets)) if buckets else None,
        until=moment(max(one.until for one in buckets)) if buckets else None,
        events={row.event: (row.rows, row.size) for row in events},
        repeated=repeated,
        slices=tuple(joined(buckets, slice_rows)),
    )


def joined(buckets: Iterable[Slice], rows: int) -> Iterator[Slice]:
    """Neighbours together, for as long as they are not more than so many rows, nor too many bytes."""
    held: Slice | None = None
    for one in buckets:
        if held is None:
            held = one
        elif held.rows + one.rows > rows or held.size + one.size > SLICE_BYTES:
            yield held
            held = one
        else:
            held = Slice(
                held.start,
                one.stop,
                held.rows + one.rows,
                held.size + one.size,
                min(held.since, one.since),
                max(held.until, one.until),
            )
    if held is not None:
        yield held


# ── publishing ──


def publish(
    spark: SparkSession,
    place: Place,
    piece: Slice,
    conditions: list[str],
    target: Target,
    rate: float | None,
    end: int,
) -> None:
    """One slice. If files vanish meanwhile it is done again, and the ids keep it from being published twice."""
    times = f"time BETWEEN timestamp_micros({piece.since}) AND timestamp_micros({piece.until})"
    positions = f"position >= {piece.start} AND position < {piece.stop}"
    text = f"""SELECT position, event, action, text, raw, id FROM {EVENTS}
               WHERE {" AND ".join([positions, times, *conditions])}"""  # nosec B608  # likewise
    options = {"url": place.broker, "scope": target.scope, **({} if rate is None else {"rate": str(rate)})}

    def write(frame: DataFrame) -> None:
        target.rows(frame).write.format("mqks").mode("append").options(**options).save()

    answer(spark, place, text, write, end=end, tell=lambda _: None)  # what is to be said was said when it was selected
