"""The archive: every event of the journal in the lake, exactly once, and held in the journal until it is there.

The stream's offsets say which events a batch has, and the table's log says up to which position it has them: both move
by one commit (`lake.commit`). The hold at the broker follows when that is on disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mqks.pipeline import lake
from mqks.pipeline.batches import each
from mqks.pipeline.holding import DAY, Hold
from mqks.pipeline.lake.compaction import AFTER
from mqks.pipeline.lake.reading import fields_of_events
from mqks.pipeline.place import EVENTS, OWN, Place
from mqks.pipeline.watching import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NAME = "archive"
EVERY = 10.0  # seconds
# Large, since each batch costs a second or so whatever its size, and so that one that is behind catches up.
MAX_BYTES = "1g"


def archive(
    spark: SparkSession,
    place: Place,
    *,
    every: float = EVERY,
    available_now: bool = False,
    compact_after: int = AFTER,
    hold: str = NAME,
    hold_seconds: float = DAY,
    retain_days: int | None = None,
    variant: bool = True,
    options: Mapping[str, str | int] | None = None,
) -> Job:
    """Journal → lake, each `every` seconds, or once up to what is there now.

    `compact_after`: so many small files of a day are merged into one. `retain_days`: so many days stay, today's one of
    them; all do by default. `variant`: a new table has the column data; one that is there stays as it is. `hold` is
    the name under which the broker keeps the journal for it, one for each archive of a broker, and `hold_seconds` how
    long it does for one that is down. `options` are the source's own.
    """
    held = Hold(place.broker, hold, seconds=hold_seconds)

    def follow(position: int | None) -> int | str:
        begin = "earliest" if position is None else position
        held.move(begin)
        return begin

    def start() -> list[StreamingQuery]:
        writer = lake.Writer(
            spark,
            place,
            EVENTS,
            NAME,
            fields=fields_of_events(variant=variant),
            by_position=True,
            compact_after=compact_after,
            retain_days=retain_days,
            then=follow,
        )
        begin = follow(writer.position)
        chosen = {"startingOffsets": begin, "maxBytesPerTrigger": MAX_BYTES, **(options or {})}
        events = lake.dated(place.events(spark, stream=True, leave_out=OWN, **chosen), "time")
        if not writer.has("data"):
            events = events.drop("data")
        stream = events.writeStream.foreachBatch(each(writer.write))
        stream = stream.option("checkpointLocation", place.checkpoint(NAME))
        timed = (
            stream.trigger(availableNow=True) if available_now else stream.trigger(processingTime=f"{every} seconds")
        )
        return [timed.start()]

    return Job(NAME, start, close=held.close)
