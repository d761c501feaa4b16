"""A day of a web shop: journal → archive → three questions in SQL → a plot. In cells, for an editor or a notebook.

    pip install 'mqks[spark,plot]'
    python examples/spark_day.py

A broker stamps messages with the time at which they come, and nobody wants to wait a day. So the first cell writes the
journal of yesterday itself, in the format of docs/JOURNAL.md, as a broker would have left it. From there on all is
real: a broker is started on this journal, and reads and checks every byte of it.
"""

# %% Yesterday: some 100,000 events, more in the evening. Around one o'clock most payments fail.
import json
import math
import random
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import mqks
from mqks.journal.format import HEADER_SIZE, build_batch, dtid_floor, parse_header, segment_line, segment_name
from mqks.pipeline import Place, lake
from mqks.pipeline.archive import archive
from mqks.pipeline.plot import plot
from mqks.pipeline.session import session
from mqks.pipeline.sql import sql
from mqks.testing import broker

PRODUCTS = {"lamp": 39.9, "chair": 89.0, "table": 249.0, "book": 12.5, "vase": 24.0, "clock": 45.0, "rug": 129.0}
MINUTE = timedelta(minutes=1)
MIDNIGHT = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
chance = random.Random(7)


def visits(minute: int) -> int:
    """Few at eight in the morning, most at eight in the evening."""
    return max(0, round(chance.gauss(48 - 38 * math.cos((minute / 60 - 8) / 24 * math.tau), 5)))


def events_of(minute: int) -> Iterator[tuple[str, dict[str, object]]]:
    for _ in range(visits(minute)):
        user, product = chance.randrange(20_000), chance.choice(list(PRODUCTS))
        yield "page.viewed", {"user": user, "product": product}
        if chance.random() < 0.25:
            yield "cart.filled", {"user": user, "product": product}
            if chance.random() < 0.4:
                pieces = chance.choice([1, 1, 1, 2, 3])
                failed = chance.random() < (0.8 if 780 <= minute < 820 else 0.03)
                total = round(pieces * PRODUCTS[product], 2)
                yield "payment.failed" if failed else "order.paid", {"user": user, "product": product, "total": total}


def write_journal(folder: Path) -> int:
    """A batch for each minute, in one segment; answers how many messages there are."""
    (folder / "journal").mkdir(parents=True)
    count, crc = 0, 0
    with (folder / "journal" / segment_name(0)).open("wb") as file:
        file.write(segment_line(dtid_floor(MIDNIGHT), "always"))
        for minute in range(24 * 60):
            lines = []
            for event, data in events_of(minute):
                lines.append(b"m%d publish %s %s\n" % (count, event.encode(), json.dumps(data).encode()))
                count += 1
            position = file.tell()
            batch = build_batch(dtid_floor(MIDNIGHT + minute * MINUTE), position, b"".join(lines), position, crc)
            header = parse_header(batch[:HEADER_SIZE])
            assert header is not None
            crc = header.crc
            file.write(batch)
    return count


to_close = ExitStack()
folder = Path(to_close.enter_context(TemporaryDirectory(prefix="spark-day-")))
print(f"{write_journal(folder / 'mqks-data'):,} events")

# %% A broker on it, as `mqksd --data=…` would be; it says that it finds no checkpoint, since none has been here before.
# And a Spark session: that takes some seconds.
running = to_close.enter_context(broker(data=folder / "mqks-data"))
place = Place(broker=running.url, data=str(folder / "mqks-data"), lake=str(folder / "mqks-lake"))
spark = session()
to_close.callback(spark.stop)

# %% To the lake. Without available_now it goes on and on, as `mqks pipeline archive` does.
job = archive(spark, place, available_now=True)
job.wait()
job.stop()
print(f"{lake.events(spark, place).count():,} are archived")

# %% What comes from now on is in the answers, too: SQL is asked of lake and journal. The rest is about yesterday.
with mqks.connect(place.broker) as mq:
    mq.publish("order.paid", {"user": 1, "product": "lamp", "total": 39.9}, confirm=True)
print(f"{sql(spark, place, 'SELECT 1 FROM events').count():,} in all")

# %% Question 1: when do people buy?
sql(
    spark,
    place,
    f"""
    SELECT hour(time) DIV 4 * 4 AS from_hour,
           count_if(event = 'page.viewed') AS views,
           count_if(event = 'order.paid') AS orders,
           round(sum(data:total::double) FILTER (WHERE event = 'order.paid')) AS revenue
    FROM events WHERE date = DATE '{MIDNIGHT:%Y-%m-%d}' GROUP BY from_hour ORDER BY from_hour
    """,
).show()

# %% Question 2: what brings the money?
sql(
    spark,
    place,
    f"""
    SELECT data:product::string AS product, count(*) AS orders, round(sum(data:total::double)) AS revenue
    FROM events WHERE event = 'order.paid' AND date = DATE '{MIDNIGHT:%Y-%m-%d}'
    GROUP BY product ORDER BY revenue DESC LIMIT 3
    """,
).show()

# %% Question 3: when did most payments fail, and what did it cost?
sql(
    spark,
    place,
    """
    SELECT date_format(window.start, 'HH:mm') AS since,
           count_if(event = 'payment.failed') AS failed,
           count_if(event = 'order.paid') AS paid,
           round(sum(data:total::double) FILTER (WHERE event = 'payment.failed')) AS lost
    FROM events WHERE event IN ('payment.failed', 'order.paid')
    GROUP BY window(time, '10 minutes') HAVING failed > paid ORDER BY since
    """,
).show()

# %% The plot: a time, a name and a number are a line for each name.
per_event = sql(
    spark,
    place,
    f"""
    SELECT window.start AS time, event, count(*) AS events
    FROM events WHERE event != 'page.viewed' AND date = DATE '{MIDNIGHT:%Y-%m-%d}'
    GROUP BY window(time, '10 minutes'), event
    """,
)
plot(per_event, "spark_day.png", "Carts, orders and failed payments of a day, per 10 minutes")
print("the plot is spark_day.png")

# %% The end: Spark, the broker, and the folder with journal and lake.
to_close.close()
