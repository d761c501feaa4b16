"""Long work in slices: how much of it is done in a turn, counted in units."""

from collections.abc import Iterator

import pytest

from mqks.broker.slices import NEXT_TURN, PAUSE, QUOTA, Slices
from mqks.broker.timers import Timers

UNITS = QUOTA // 10


def job(done: list[str], name: str, steps: int) -> Iterator[int]:
    for _ in range(steps):
        done.append(name)
        yield UNITS


@pytest.fixture
def slices() -> Slices:
    return Slices(Timers(lambda: 0.0))


def test_what_is_short_is_done_at_once(slices: Slices) -> None:
    done: list[str] = []
    slices.start(job(done, "a", 3))
    assert (done, len(slices)) == (["a"] * 3, 0)


def test_what_is_long_takes_several_turns(slices: Slices) -> None:
    done: list[str] = []
    slices.start(job(done, "a", 25))
    for taken in (10, 20, 25):
        assert len(done) == taken
        slices.turn()
    assert len(slices) == 0


def test_all_jobs_of_a_turn_share_its_quota_and_take_turns(slices: Slices) -> None:
    done: list[str] = []
    for name in "abc":
        slices.start(job(done, name, 8))
    assert done == ["a"] * 8 + ["b"] * 2
    slices.turn()
    assert done[10:] == ["b", "c"] * 5
    slices.turn()
    assert sorted(done[10:]) == ["b"] * 6 + ["c"] * 8


def test_a_job_may_wait_for_the_next_turn(slices: Slices) -> None:
    slices.start(iter([1, NEXT_TURN, 1]))
    assert (slices.done, len(slices)) == (1, 1)
    slices.turn()
    assert (slices.done, len(slices)) == (2, 0)


def test_one_that_fails_ends_and_the_others_go_on(slices: Slices, caplog: pytest.LogCaptureFixture) -> None:
    def failing() -> Iterator[int]:
        yield QUOTA
        raise ValueError("on purpose")

    done: list[str] = []
    slices.start(failing())
    slices.start(job(done, "a", 2))
    slices.turn()
    assert (done, len(slices)) == (["a"] * 2, 0)
    assert "on purpose" in caplog.text


def test_a_job_may_start_another_one(slices: Slices) -> None:
    done: list[str] = []

    def outer() -> Iterator[int]:
        slices.start(job(done, "inner", 1))
        done.append("outer")
        yield 1

    slices.start(outer())
    assert (done, len(slices)) == (["outer", "inner"], 0)


def test_there_is_a_turn_soon_while_something_is_left() -> None:
    timers = Timers(lambda: 0.0)
    slices = Slices(timers)
    slices.start(job([], "a", 15))
    assert timers.next == PAUSE
    slices.turn()
    assert timers.next is None


def test_all_is_done_when_the_broker_stops(slices: Slices) -> None:
    done: list[str] = []
    slices.start(job(done, "a", 95))
    slices.finish()
    assert (len(done), len(slices)) == (95, 0)
