"""Counts per minute: of each event, and of events with their ids masked; and what queues delivered, by `deliveries`.

Two streams read the journal. Updates tell the broker what changed, within a second or two; they may come twice after
a crash, which says nothing new. Finals are the last word on a minute, when the watermark has passed it: they go to the
lake and to the broker exactly once, since the table's log has the last batch that is in it, and the broker has seen
their ids. Late data is what comes after the last word: it is not counted.

Events named `mqks.…` are not counted, or telling the counts would change them, and progress is not read at all. Where
nobody speaks any more, a tick closes the last minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from mqks.pipeline import lake
from mqks.pipeline.batches import each
from mqks.pipeline.contact import Contact
from mqks.pipeline.deliveries import LONGEST_NAME, MOST_NAMES, Asking, Tick, begin_of, refused
from mqks.pipeline.files import Files
from mqks.pipeline.lake.compaction import AFTER
from mqks.pipeline.masking import masked
from mqks.pipeline.place import OWN, PROGRESS_EVENT, STATS_EVENT, Place
from mqks.pipeline.watching import Job, started

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from mqks.client.blocking import Client

NAME = "stats"
TABLE = "stats_minute"
UPDATES, FINALS = "stats-updates", "stats-finals"  # the checkpoints
UPDATE_EVERY, FINAL_EVERY = 0.5, 10.0  # seconds
LATE = "10 seconds"
MOST_ROWS = 2 * MOST_NAMES  # in one update, those that count most; not so many of each kind, which would take a shuffle
STATE_PARTITIONS = "1"  # events are added up in parallel before; each more costs a third of a small batch's time
OWN_PREFIX = "mqks."
DELIVERY = ("delivered", "acked", "rejected", "ready", "unacked", "consumers")
MINUTE = timedelta(minutes=1)
_DELIVERY = ", ".join(f"{word} long" for word in DELIVERY)
TOLD = f"minute timestamp, count long, rate double, {_DELIVERY}"
SCHEMA = f"minute timestamp, kind string, name string, count long, bytes long, rate double, {_DELIVERY}, date date"


def stats(
    spark: SparkSession,
    place: Place,
    *,
    every: float = UPDATE_EVERY,
    finals_every: float = FINAL_EVERY,
    late: str = LATE,
    available_now: bool = False,
    compact_after: int = AFTER,
    options: Mapping[str, str | int] | None = None,
) -> Job:
    """Updates each `every` seconds if there is news; finals when a minute is over and `late` has passed.

    With available_now: the finals of all minutes that the newest event is `late` beyond, and no updates. `options` are
    the source's own.
    """
    spark = spark.newSession()
    spark.conf.set("spark.sql.shuffle.partitions", STATE_PARTITIONS)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    more = options or {}
    if available_now:
        return Job(NAME, lambda: [finals(spark, place, late, compact_after, more).trigger(availableNow=True).start()])
    tick = Tick(spark.sql(f"SELECT INTERVAL '{late}'").collect()[0][0])
    tick.happened(datetime.now(UTC))  # before we were started
    contact, asking = Contact(place.broker), Asking(place.broker, tick)

    def start() -> list[StreamingQuery]:
        told = updates(spark, place, late, contact, tick, more).trigger(processingTime=f"{every} seconds")
        kept = finals(spark, place, late, compact_after, more).trigger(processingTime=f"{finals_every} seconds")
        return started([told.start, kept.start])

    def close() -> None:
        asking.close()
        contact.close()

    return Job(NAME, start, close=close)


def minutes(events: DataFrame, late: str = LATE) -> DataFrame:
    """Events, streamed or not, as figures: minute, kind, name, count, bytes, last (the time of the last one), told.

    Kinds are event, mask and queue; `told` has the figures of a queue as the broker told them, and else nothing.
    """
    from pyspark.sql import functions as F

    size = F.coalesce(F.octet_length("raw"), F.octet_length("text"))
    named = events.withWatermark("time", late).select("time", size.alias("size"), F.explode(_names()).alias("named"))
    grouped = named.groupBy(F.window("time", "1 minute"), "named.kind", "named.name", "named.told")
    counted = grouped.agg(F.count("*").alias("count"), F.sum("size").alias("bytes"), F.max("time").alias("last"))
    return counted.select(F.col("window.start").alias("minute"), "kind", "name", "count", "bytes", "last", "told")


def _names() -> Column:
    """What an event is counted as. Nothing, for the pipeline's own, but for the last word on a queue's minute."""
    from pyspark.sql import functions as F

    event, text = F.col("event"), F.col("text")

    def named(kind: str, name: Column, told: Column) -> Column:
        return F.struct(F.lit(kind).alias("kind"), name.alias("name"), told.cast("string").alias("told"))

    nothing = F.lit(None)
    queue = (event == STATS_EVENT) & text.contains('"kind": "queue"') & text.contains('"final": true')
    return (
        F.when(queue, F.array(named("queue", F.get_json_object("text", "$.name"), text)))
        .when(event.startswith(OWN_PREFIX), F.array().cast("array<struct<kind:string,name:string,told:string>>"))
        .otherwise(F.array(named("event", event, nothing), named("mask", masked("event"), nothing)))
    )


# ── updates ──


def updates(
    spark: SparkSession, place: Place, late: str, contact: Contact, tick: Tick, options: Mapping[str, str | int]
) -> DataStreamWriter:
    """From the begin of this minute when there is no checkpoint yet: the minutes before it have their finals."""
    from pyspark.sql import functions as F

    untold: dict[str, str] = {}  # id → data of what changed; it stays here while the broker is away

    def tell(batch: DataFrame, number: int) -> None:
        tick.happened(datetime.now(UTC))
        newest = batch.orderBy(F.desc("count"), "name").limit(MOST_ROWS)
        for row in messages(newest, final=False).collect():
            untold[row["id"]] = row["data"]

        def publish(client: Client) -> None:
            rows = ((STATS_EVENT, data, f"{id}-{number}") for id, data in untold.items())
            client.publish_many(rows, on_refused=refused)
            untold.clear()

        if untold:
            contact.attempt("publishing stats", publish)

    begin = {"startingTimestamp": begin_of(datetime.now(UTC)).isoformat()} if _is_new(spark, place, UPDATES) else {}
    frame = minutes(place.events(spark, stream=True, leave_out=OWN, **{**begin, **options}), late)
    return _writer(frame, place, UPDATES).outputMode("update").foreachBatch(each(tell))


# ── finals ──


def finals(
    spark: SparkSession, place: Place, late: str, compact_after: int, options: Mapping[str, str | int]
) -> DataStreamWriter:
    """From the earliest event when there is no checkpoint yet, or from where the lake's minutes end."""
    begin: dict[str, str] = {}
    if _is_new(spark, place, FINALS):
        last = _last_minute(spark, place)
        begin = {"startingTimestamp": (last + MINUTE).isoformat()} if last else {"startingOffsets": "earliest"}
    table = lake.Writer(spark, place, TABLE, FINALS, compact_after=compact_after)

    def write(batch: DataFrame, number: int) -> None:
        batch = batch.persist()
        try:
            count = batch.count()  # of all of it: a batch has to be looked at as a whole for its state to be kept
            table.write(lake.dated(table_rows(batch), "minute").coalesce(1) if count else None, number)
            if count:
                told = messages(largest(batch.where("kind != 'queue'")), final=True)
                scope = str(batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
                told.write.format("mqks").mode("append").option("url", place.broker).option("scope", scope).save()
        finally:
            batch.unpersist()

    frame = minutes(place.events(spark, stream=True, leave_out=[PROGRESS_EVENT], **{**begin, **options}), late)
    return _writer(frame, place, FINALS).outputMode("append").foreachBatch(each(write))


def table_rows(figures: DataFrame) -> DataFrame:
    """As the table has them: SCHEMA, but for the date."""
    from pyspark.sql import functions as F

    told = figures.withColumn("told", F.from_json("told", TOLD))
    of_queue = F.col("told").isNotNull()
    return told.select(
        F.coalesce("told.minute", "minute").alias("minute"),  # the last word on a queue's minute comes in the next one
        "kind",
        "name",
        F.coalesce("told.count", "count").alias("count"),
        F.when(~of_queue, F.col("bytes")).alias("bytes"),
        F.coalesce("told.rate", F.round(F.col("count") / 60, 3)).alias("rate"),
        *(f"told.{word}" for word in DELIVERY),
    )


def _last_minute(spark: SparkSession, place: Place) -> datetime | None:
    """The last that the lake has all of, when its checkpoint was lost. What a queue did comes with the next minute."""
    rows = lake.table(spark, place, TABLE, schema=SCHEMA)
    seconds = rows.selectExpr("max(unix_seconds(minute) + IF(kind = 'queue', 60, 0))").collect()[0][0]
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


# ── both ──


def messages(figures: DataFrame, *, final: bool) -> DataFrame:
    """event, data and id, as the broker gets them. An update's rate is that of the minute so far. Not of long names."""
    from pyspark.sql import functions as F

    so_far = F.greatest(F.unix_seconds("last") - F.unix_seconds("minute"), F.lit(1))
    minute = F.date_format("minute", "yyyy-MM-dd'T'HH:mm:ss'Z'")
    row = F.struct(
        minute.alias("minute"),
        "kind",
        "name",
        "count",
        "bytes",
        F.round(F.col("count") / (F.lit(60) if final else so_far), 3).alias("rate"),
        F.lit(final).alias("final"),
    )
    id = F.concat_ws("-", minute, "kind", F.substring(F.sha2("name", 256), 1, 16))
    told = figures.where(F.octet_length("name") <= LONGEST_NAME)
    return told.select(F.lit(STATS_EVENT).alias("event"), F.to_json(row).alias("data"), id.alias("id"))


def largest(figures: DataFrame) -> DataFrame:
    """Of each minute and kind, those that count most: a broker is no place for millions of names a minute."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    by_count = Window.partitionBy("minute", "kind").orderBy(F.desc("count"), "name")
    return figures.withColumn("place", F.row_number().over(by_count)).where(F.col("place") <= MOST_NAMES)


def _is_new(spark: SparkSession, place: Place, job: str) -> bool:
    return not Files(spark).names(f"{place.checkpoint(job)}/offsets")


def _writer(figures: DataFrame, place: Place, job: str) -> DataStreamWriter:
    return figures.writeStream.queryName(job).option("checkpointLocation", place.checkpoint(job))
