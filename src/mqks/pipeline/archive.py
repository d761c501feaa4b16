"""The archive: every event of the journal in the lake, exactly once, and held in the journal until it is there.

The stream's offsets say which events a batch has, `lake.Parts` makes writing it twice the same as once, and the marker
moves only when it is written. The hold at the broker follows the marker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mqks.pipeline import lake
from mqks.pipeline.batches import each
from mqks.pipeline.compaction import AFTER
from mqks.pipeline.holding import DAY, Hold
from mqks.pipeline.layout import EVENTS, Marker, Reached, unnoticed
from mqks.pipeline.place import OWN, Place
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
    options: Mapping[str, str | int] | None = None,
    reached: Reached = unnoticed,
) -> Job:
    """Journal → lake, each `every` seconds, or once up to what is there now.

    `compact_after`: so many small parts of a day are merged into one. `hold` is the name under which the broker keeps
    the journal for it, one for each archive of a broker, and `hold_seconds` how long it does for one that is down.
    `options` are the source's own.
    """
    held = Hold(place.broker, hold, seconds=hold_seconds)

    def follow(marker: Marker) -> int | str:
        begin = "earliest" if marker.position is None else marker.position
        held.move(begin)
        return begin

    def start() -> list[StreamingQuery]:
        parts = lake.Parts(spark, place, EVENTS, NAME, compact_after=compact_after, then=follow, reached=reached)
        begin = follow(parts.marker)
        chosen = {"startingOffsets": begin, "maxBytesPerTrigger": MAX_BYTES, **(options or {})}
        events = place.events(spark, stream=True, leave_out=OWN, **chosen)
        writer = lake.dated(events, "time").writeStream.foreachBatch(each(parts.write))
        writer = writer.option("checkpointLocation", place.checkpoint(NAME))
        timed = (
            writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime=f"{every} seconds")
        )
        return [timed.start()]

    return Job(NAME, start, close=held.close)
