"""Timers by a clock that the test moves."""

from hypothesis import given
from hypothesis import strategies as st

from mqks.broker.timers import AT_ONCE, LONGEST, Timers


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_they_run_in_time_and_in_the_order_asked_for() -> None:
    clock, ran = Clock(), list[str]()
    timers = Timers(clock)
    timers.set("b", 2, lambda: ran.append("b"))
    timers.set("a", 1, lambda: ran.append("a"))
    timers.set("c", 2, lambda: ran.append("c"))
    timers.run_due()
    assert (ran, timers.next) == ([], 1)
    clock.now = 2
    timers.run_due()
    assert (ran, timers.next) == (["a", "b", "c"], None)


def test_one_that_is_set_again_or_cancelled_does_not_run() -> None:
    clock, ran = Clock(), list[str]()
    timers = Timers(clock)
    timers.set("a", 1, lambda: ran.append("first"))
    timers.set("a", 3, lambda: ran.append("second"))
    timers.set("b", 1, lambda: ran.append("b"))
    timers.cancel("b")
    clock.now = 2
    timers.run_due()
    assert ran == []
    clock.now = 3
    timers.run_due()
    assert ran == ["second"]


def test_setting_one_again_and_again_keeps_nothing() -> None:
    timers = Timers(Clock())
    for n in range(10_000):
        timers.set("a", 10_000 - n, lambda: None)
    assert len(timers._heap) < 100


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5) | st.none(), st.integers(0, 3))))
def test_against_a_plain_list(steps: list[tuple[str, int | None, int]]) -> None:
    clock, ran = Clock(), list[str]()
    timers = Timers(clock)
    plain: dict[str, float] = {}
    for key, seconds, passed in steps:
        if seconds is None:
            timers.cancel(key)
            plain.pop(key, None)
        else:
            timers.set(key, seconds, lambda key=key: ran.append(key))  # type: ignore[misc]
            plain.pop(key, None)
            plain[key] = clock.now + seconds
        clock.now += passed
        timers.run_due()
        due = sorted((key for key in plain if plain[key] <= clock.now), key=lambda key: plain[key])
        assert ran == due
        ran.clear()
        for key in due:
            del plain[key]


def test_very_many_that_are_due_run_some_at_a_time() -> None:
    clock, ran = Clock(), list[int]()
    timers = Timers(clock)
    for number in range(2 * AT_ONCE + 1):
        timers.set(number, 1, lambda number=number: ran.append(number))  # type: ignore[misc]
    clock.now = 1
    for count in (AT_ONCE, 2 * AT_ONCE, 2 * AT_ONCE + 1):
        assert timers.next == 1
        timers.run_due()
        assert ran == list(range(count))
    assert timers.next is None


def test_after_long_ones_the_others_wait_for_the_next_time() -> None:
    clock, ran = Clock(), list[str]()
    timers = Timers(clock)

    def long() -> None:
        ran.append("long")
        clock.now += 2 * LONGEST

    timers.set("a", 1, long)
    timers.set("b", 1, lambda: ran.append("b"))
    clock.now = 1
    timers.run_due()
    assert ran == ["long"]
    timers.run_due()
    assert ran == ["long", "b"]
