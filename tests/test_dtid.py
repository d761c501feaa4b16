"""Ids that sort by time: their form, and that no clock can make them decrease or come twice."""

import random
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mqks.dtid import ALPHABET, SUFFIXES, Dtids

NOW = 1_483_228_799.123456  # 2016-12-31 23:59:59.123456 UTC
FORM = re.compile(rb"[0-9]{20}[0-9a-zA-Z]{4}")
WALLS = st.floats(0, 4e9) | st.sampled_from([NOW, NOW + 1e-6, NOW - 1, NOW + 3600])


class LastSuffixes(random.Random):
    """Chance at its worst: each microsecond begins with its last suffix but one, so the suffixes run out."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        assert (start <= SUFFIXES, stop, step) == (True, None, 1)
        return SUFFIXES - 2


def made(walls: Iterable[float], rng: random.Random | None = None) -> list[bytes]:
    """One id at each of these times."""
    times = list(walls)
    clock = iter(times)
    dtids = Dtids(lambda: next(clock), rng or random.Random(1))
    return [dtids() for _ in times]


def assert_rises(ids: list[bytes]) -> None:
    assert all(FORM.fullmatch(one) for one in ids)
    assert all(before < after for before, after in pairwise(ids))


def test_form() -> None:
    (one,) = made([NOW])
    assert one.startswith(b"20161231235959123456")
    assert FORM.fullmatch(one)


def test_alphabet_sorts_as_bytes_do() -> None:
    assert list(ALPHABET) == sorted(set(ALPHABET))
    assert len(ALPHABET) == 62
    assert SUFFIXES == 62**4


@given(st.lists(WALLS, min_size=1, max_size=50))
def test_rises_whatever_the_clock_says(walls: list[float]) -> None:
    assert_rises(made(walls))
    assert_rises(made(walls, LastSuffixes()))


@given(st.floats(NOW - 1e9, NOW + 1e9))
def test_time_is_that_of_the_clock(wall: float) -> None:
    """To a microsecond, which is about as fine as a float can say it."""
    (one,) = made([wall])
    at = datetime.strptime(one[:20].decode(), "%Y%m%d%H%M%S%f").replace(tzinfo=UTC)
    assert abs(at.timestamp() - wall) < 2e-6


def test_unique_while_the_clock_stands_still() -> None:
    assert_rises(made([NOW] * 100_000))


def test_more_in_one_microsecond_than_there_are_suffixes() -> None:
    """The next microsecond is borrowed, until the clock catches up with it and passes it."""
    ids = made([NOW, NOW, NOW, NOW, NOW + 1e-6, NOW + 2e-6], LastSuffixes())
    assert_rises(ids)
    assert [one[14:] for one in ids] == [
        b"123456zzzy",
        b"123456zzzz",
        b"1234570000",
        b"1234570001",
        b"1234570002",
        b"123458zzzy",
    ]


def test_after_a_jump_back_time_stands_until_the_clock_is_there_again() -> None:
    ids = made([NOW, NOW - 3600, NOW - 3599, NOW, NOW + 1])
    assert_rises(ids)
    assert [one[:20] for one in ids] == [b"20161231235959123456"] * 4 + [b"20170101000000123456"]


def test_two_makers_at_the_same_moment_differ_by_chance() -> None:
    assert made([NOW], random.Random(1)) != made([NOW], random.Random(2))
