"""Which words of an event's name are ids, in this process and in Spark."""

import pytest
from pyspark.sql import SparkSession

from mqks.pipeline.masking import mask, masked

MASKS = {
    "user.17.connected": "user.{id}.connected",
    "17": "{id}",
    "17.user.0": "{id}.user.{id}",
    "a.1.2.3": "a.{id}.{id}.{id}",
    "file.123e4567-e89b-12d3-a456-426614174000": "file.{id}",
    "file.123E4567-E89B-12D3-A456-426614174000.gone": "file.{id}.gone",
    "commit.9fceb02d0ae598e9": "commit.{id}",
    "commit.9FCEB02D.made": "commit.{id}.made",
    "job.20261116050100123456aZ09": "job.{id}",
    "order.01ARZ3NDEKTSV4RRFFQ69G5FAV.paid": "order.{id}.paid",
    "order.01arz3ndektsv4rrffq69g5fav": "order.{id}",
    # words, not ids
    "": "",
    "hello": "hello",
    "api.v2.call": "api.v2.call",
    "e.deadbeef": "e.deadbeef",
    "e.9fceb02": "e.9fceb02",
    "a..b": "a..b",
    ".1.": ".{id}.",
    "user-17.on": "user-17.on",
    "user.17a.on": "user.17a.on",
    "order.81ARZ3NDEKTSV4RRFFQ69G5FAV": "order.81ARZ3NDEKTSV4RRFFQ69G5FAV",
    "event.2026111605010012345aZ09": "event.2026111605010012345aZ09",
    "число.٣": "число.٣",
    "пользователь.17": "пользователь.{id}",
    "🙂.17.🙂": "🙂.{id}.🙂",
    "user.{id}.on": "user.{id}.on",
}


@pytest.mark.parametrize(("event", "expected"), MASKS.items())
def test_mask(event: str, expected: str) -> None:
    assert mask(event) == expected


def test_a_mask_of_a_mask_is_the_same() -> None:
    assert [mask(masked) for masked in MASKS.values()] == list(MASKS.values())


def test_spark_masks_alike(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(event,) for event in MASKS], "event string").select("event", masked("event"))
    assert dict(map(tuple, rows.collect())) == MASKS
