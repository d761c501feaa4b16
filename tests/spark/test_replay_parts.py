"""What a replay decides before it asks Spark: slices, ranges, where it goes."""

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqks.pipeline.replay import SLICE_BYTES, ReplayError, Selection, Slice, Target, joined, range_conditions


def buckets(*rows: int, size: int = 1) -> list[Slice]:
    return [Slice(at * 10, at * 10 + 10, count, size, at, at + 1) for at, count in enumerate(rows)]


def test_neighbours_are_joined_up_to_so_many_rows() -> None:
    assert list(joined(buckets(3, 4, 5, 20, 1), 10)) == [
        Slice(0, 20, 7, 2, 0, 2),
        Slice(20, 30, 5, 1, 2, 3),
        Slice(30, 40, 20, 1, 3, 4),
        Slice(40, 50, 1, 1, 4, 5),
    ]


def test_a_slice_is_not_too_many_bytes() -> None:
    assert [one.rows for one in joined(buckets(1, 1, 1, size=SLICE_BYTES // 2), 1000)] == [2, 1]


@given(st.lists(st.integers(1, 50)), st.integers(1, 100))
def test_slices_cover_all_rows_in_order(rows: list[int], most: int) -> None:
    slices = list(joined(buckets(*rows), most))
    assert sum(one.rows for one in slices) == sum(rows)
    assert all(one.stop <= next_one.start for one, next_one in pairwise(slices))
    assert all(one.rows <= max(most, *rows) for one in slices)


@pytest.mark.parametrize(
    ("start", "stop", "conditions"),
    [
        ("earliest", "latest", []),
        (None, None, []),
        (5, 70, ["position >= 5", "position < 70"]),
        ("latest", "latest", ["position >= 99"]),
        ("earliest", "earliest", ["position < 0"]),
        (datetime(1970, 1, 1, 0, 0, 1), "latest", ["time >= timestamp_micros(1000000)"]),
        ("earliest", datetime(1970, 1, 1, 0, 0, 2, 5, UTC), ["time < timestamp_micros(2000005)"]),
    ],
)
def test_ranges(start: Any, stop: Any, conditions: list[str]) -> None:
    assert list(range_conditions(start, stop, 99)) == conditions


def test_a_place_that_is_none() -> None:
    with pytest.raises(ReplayError, match="'yesterday' is no place"):
        list(range_conditions("yesterday", "latest", 99))


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"event": "e1", "queue": "q1"}, "not both"),
        ({"event": "e 1"}, "no name for an event"),
        ({"event": "e1,retry=1"}, "no name for an event"),
        ({"queue": "--q"}, "no name for a queue"),
        ({"scope": "a b"}, "no name for a scope"),
    ],
)
def test_targets_that_are_none(given: dict[str, str], error: str) -> None:
    with pytest.raises(ReplayError, match=error):
        Target(given.get("event"), given.get("queue"), given.get("scope"), new_ids=False)


def test_old_ids_count_once_for_each_place_they_go_to() -> None:
    def scope(event: str | None = None, queue: str | None = None, name: str | None = None) -> str:
        return Target(event, queue, name, new_ids=False).scope

    assert [scope(), scope(event="x"), scope(queue="x"), scope(queue="x", name="mine")] == [
        "replay",
        "replay.event.x",
        "replay.queue.x",
        "mine",
    ]


def test_a_selection_tells_what_it_is() -> None:
    at = datetime(2026, 11, 16, 5, tzinfo=UTC)
    found = Selection(1003, 5000, at, at, {"e1": (1000, 4000), "": (2, 900), "e2": (1, 100)}, 3, ())
    assert list(found.lines(most=2)) == [
        "event   rows  bytes",
        "─────  ─────  ─────",
        "e1     1,000  4,000",
        "-          2    900",
        "… and 1 more events",
        "1,003 rows, 5,000 bytes of data, from 2026-11-16 05:00:00 to 2026-11-16 05:00:00 UTC",
        "3 of them have an id that another one has: by old ids one of these is published",
    ]
    assert list(Selection(0, 0, None, None, {}, 0, ()).lines()) == ["no rows"]
