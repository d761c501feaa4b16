"""Types of option values: what is read, what is shown again, and that an error says what would be right."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from mqks import values
from mqks.cli import command
from mqks.server import config
from mqks.values import ValueType
from pyspark_mqks import kinds

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
ANY_DURATION = values.duration("S", decimals=6, any_float=True)


@pytest.mark.parametrize(
    ("value", "text", "read"),
    [
        (values.number("N", 0), "9" * 30, int("9" * 30)),
        (values.number("N", 1, 5), "05", 5),
        (values.size(0), "64kIb", 64 << 10),
        (values.size(0, with_b=True), "64mb", 64 << 20),
        (values.duration("T"), "1.125h", 4050.0),
        (ANY_DURATION, "1e3", 1000.0),
        (ANY_DURATION, "15M", 900.0),
        (values.rate("N/s", "/s"), "2.5/s", 2.5),
        (values.word("W", "one", "two"), "TWO", "two"),
        (values.SWITCH, "Yes", True),
        (kinds.SWITCH, "off", False),
        (values.masks(3), "a.*,,b", [b"a.*", b"b"]),
        (values.masks(3), "a,*", []),
        (values.masks(3), "", []),
        (kinds.MASKS, "a, b.*", ("a", "b.*")),
        (values.PLACE, "latest", "latest"),
        (values.PLACE, "20260131", 20260131),
        (values.PLACE, "2026-01-31T12:00", NOON),
        (values.OFFSET, '{"position": 7}', 7),
        (values.TIME, "2026-01-31T13:00+01:00", NOON),
        (values.TIME, "1769860800000", NOON),
    ],
)
def test_takes(value: ValueType, text: str, read: object) -> None:
    assert value.parse(text) == read


@pytest.mark.parametrize(
    ("value", "text", "advice"),
    [
        (values.number("N", 0, 9), "10", "give a number from 0 to 9"),
        (values.number("N", 2), "1", "give a number from 2 on"),
        (values.number("N", 0), "\uff11", "give a number from 0 on"),
        (values.size(0), "64mb", "give a size from 0 to 1048576T, such as 65536 or 64K"),
        (values.duration("T"), "1.2345", "15m"),
        (values.duration("T"), "1e3", "15m"),
        (ANY_DURATION, "inf", "15m"),
        (ANY_DURATION, "nan", "15m"),
        (ANY_DURATION, "-1", "15m"),
        (values.rate("N"), "1/s", "more than 0"),
        (values.rate("N"), "nan", "more than 0"),
        (values.word("W", "one", any_case=False), "ONE", "give one of one"),
        (values.masks(2), "a,b,c", "at most 2"),
        (values.masks(2), "a b", "give names or masks"),
        (kinds.MASKS, "a,,b", "with a comma"),
        (values.PLACE, "yesterday", "earliest or latest"),
        (values.place(times=False), "2026-01-31T12:00", "earliest or latest"),
        (values.POSITION, str(1 << 63), "give a position"),
        (values.EVENT, "a,retry=1", "one word"),
        (values.NAME, "--a", "one word"),
        (values.REGEX, "(", "no regular expression"),
    ],
)
def test_refuses(value: ValueType, text: str, advice: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        value.parse(text)
    assert advice in str(refused.value)


@pytest.mark.parametrize("text", ["0", "1", "1K", "1025", "3M", "7T"])
def test_sizes_are_shown_as_they_are_read(text: str) -> None:
    assert values.show_size(values.size(0).parse(text)) == text


@pytest.mark.parametrize("text", ["0s", "1s", "90s", "2m", "3h", "7d", "1.5s"])
def test_durations_are_shown_as_they_are_read(text: str) -> None:
    assert values.show_duration(values.duration("T").parse(text)) == text


@pytest.mark.parametrize("parse", [config.DURATION.parse, kinds.SECONDS.parse, command.seconds])
def test_each_place_reads_the_same_durations(parse: Callable[[str], float]) -> None:
    assert [parse(text) for text in ("0", "90", "1.5", "90s", "15m", "12h", "7d")] == [
        0.0, 90.0, 1.5, 90.0, 900.0, 43_200.0, 604_800.0,
    ]  # fmt: skip
