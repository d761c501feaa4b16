"""The file that `mqks pipeline init` writes: short, runs as it is, and says by example what a pipeline can be."""

TEMPLATE = '''\
"""A pipeline of your own. Run it beside a broker, and stop it with Ctrl-C:

    mqks pipeline run pipeline.py

Each function takes the events, a DataFrame of Spark that goes on and on, and returns rows. The decorator says where
they go. Start it again, and it goes on where it was: nothing is lost, nothing is told twice.

Columns of the events: position, time (when the broker got it), id, action, event, data (JSON, if it is some), text (the
data as it came) and raw (bytes, only where the data is not UTF-8).
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mqks.pipeline import to_console, to_event, to_lake


@to_console()
def seen(events: DataFrame) -> DataFrame:
    """Prints what comes. Try: mqks pub order.paid '{"user": 7, "total": 19.9}'"""
    return events.select("time", "event", "text")


@to_lake("orders")
def orders(events: DataFrame) -> DataFrame:
    """Keeps orders as a table. Then: mqks pipeline sql "SELECT user, sum(total) FROM orders GROUP BY user" """
    paid = events.where("event = 'order.paid'")
    return paid.selectExpr("time", "id", "data:user::bigint AS user", "data:total::double AS total")


@to_event("order.minute")
def per_minute(events: DataFrame) -> DataFrame:
    """Publishes totals as they grow, each row as JSON. Then: mqks sub totals order.minute"""
    paid = events.where("event = 'order.paid'").selectExpr("time", "data:total::double AS total")
    minutes = paid.withWatermark("time", "10 seconds").groupBy(F.window("time", "1 minute"))
    totals = minutes.agg(F.count("*").alias("orders"), F.round(F.sum("total"), 2).alias("total"))
    return totals.select(F.col("window.start").alias("minute"), "orders", "total")
'''
