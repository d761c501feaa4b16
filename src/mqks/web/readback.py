"""What the pipeline said before this start, read back from the journal by a history, so that a start forgets nothing.

What it says from now on is heard anyway.
"""

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

from mqks.broker import Broker
from mqks.web.inside import Inside
from mqks.web.pipeline import LONGEST_SAID, PROGRESS, STATS, Pipeline

READ_BACK = timedelta(minutes=15)
MOST_READ_BACK = 16 << 20  # bytes of the journal that are looked through
PAUSE = 0.05  # seconds after each piece, which takes some milliseconds: clients connect at the same time


async def read_back(broker: Broker, pipeline: Pipeline, inside: Inside) -> None:
    """Raises what a history does, and OSError if there is no connection for it."""
    journal = broker.persistence.journal
    if journal is None:
        return
    began = datetime.fromtimestamp(broker.wall(), UTC) - READ_BACK
    where = began.strftime("%Y-%m-%dT%H:%M:%SZ")
    least = broker.histories.visible - MOST_READ_BACK
    if least > journal.segments.earliest:
        time = broker.persistence.time_of(least)
        if time is None or time > began.timestamp():
            where = str(least)
    async with aclosing(inside.history(where, (PROGRESS, STATS), most=2 * LONGEST_SAID)) as pieces:
        async for lines in pieces:
            for line in lines:
                if line.size <= LONGEST_SAID:
                    pipeline.take(line.event, line.data, broker.wall(), old=True)
            await asyncio.sleep(PAUSE)
