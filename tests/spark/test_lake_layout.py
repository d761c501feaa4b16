"""Names in the lake, which parts are read, and which are merged: no Spark, no files."""

import pytest

from mqks.pipeline import compaction
from mqks.pipeline.compaction import Sized, chosen, runs
from mqks.pipeline.lake import columns, position_of
from mqks.pipeline.layout import Part, part_of, uncovered

MB = 1 << 20


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("part=000000000007", Part(7, 7)),
        ("part=000000000000-000000000031", Part(0, 31)),
        ("part=7", None),
        ("part=000000000007.tmp", None),
        ("_SUCCESS", None),
        ("date=2026-11-16", None),
    ],
)
def test_names_of_parts(name: str, part: Part | None) -> None:
    assert part_of(name) == part
    assert part is None or part.name == name


@pytest.mark.parametrize(
    ("found", "read"),
    [
        ([], []),
        ([(1, 1), (0, 0)], [(0, 0), (1, 1)]),
        ([(0, 0), (0, 1), (1, 1), (2, 2)], [(0, 1), (2, 2)]),
        ([(0, 3), (0, 1), (2, 3), (2, 2)], [(0, 3)]),
        ([(5, 5), (0, 31), (32, 32)], [(0, 31), (32, 32)]),
    ],
)
def test_what_lies_within_a_wider_part_is_not_read(found: list[tuple[int, int]], read: list[tuple[int, int]]) -> None:
    assert uncovered(Part(*one) for one in found) == [Part(*one) for one in read]


def sized(*sizes: int) -> list[Sized]:
    return [Sized(Part(number, number), size) for number, size in enumerate(sizes)]


def numbers(found: list[list[Sized]]) -> list[list[int]]:
    return [[one.part.first for one in run] for run in found]


def test_runs_are_neighbours_that_are_small() -> None:
    parts = sized(1, 1, 5, 1, 1, 1, 5, 1)
    assert numbers(list(runs(parts, 2, 5))) == [[0, 1], [3, 4, 5]]
    assert numbers(list(runs(parts, 3, 5))) == [[3, 4, 5]]
    assert numbers(list(runs(parts, 9, 9))) == []
    assert numbers(list(runs(parts, 1, 5))) == [[0, 1], [3, 4, 5]]  # one alone has nobody to be merged with


def test_runs_do_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "LARGEST", 10)
    assert numbers(list(runs(sized(4, 4, 4, 4, 4), 2, 5))) == [[0, 1], [2, 3]]


def test_the_small_are_merged_before_the_middling() -> None:
    parts = sized(10 * MB, 10 * MB, 1, 1, 1, 70 * MB)
    assert numbers(list(chosen(parts, 3))) == [[2, 3, 4]]
    assert numbers(list(chosen(parts, 4))) == [[0, 1, 2, 3, 4]]
    assert numbers(list(chosen(parts, 6))) == []


def test_the_position_of_a_batch_is_in_sparks_log_of_offsets() -> None:
    assert position_of('v1\n{"batchWatermarkMs":0,"conf":{}}\n{"position": 4711}') == 4711
    assert position_of('v1\n{"batchWatermarkMs":0}\n{"logOffset":0}') is None
    assert position_of("") is None


def test_columns_of_a_schema() -> None:
    assert columns("position long, data variant") == [("position", "long"), ("data", "variant")]
