"""Rates, sparklines and ages: with a clock that the test moves, against what it did itself."""

import random

import pytest

from mqks.broker import Broker
from mqks.broker.queues.queue import Queue
from mqks.formatting import counted, duration, size
from mqks.web import sampling
from mqks.web.ages import BLUR, MOST, SECOND, Ages
from mqks.web.sampling import EFFORT, POINTS, Look, Queues, Rates, Rounds, Spark, Track
from mqks.web.words import key, quoted
from tests.web.stage import Stage

# ── rates ──


def test_a_rate_is_of_the_last_five_seconds() -> None:
    rates = Rates()
    for second, came, went in [(0, 0, 0), (1, 1000, 0), (2, 1000, 0), (3, 1010, 5), (4, 1020, 10), (5, 1030, 15)]:
        rates.add(Look(second, came, went))
    assert rates.per_second() == (206, 3)
    for second in range(6, 9):
        rates.add(Look(second, 1030 + 10 * (second - 5), 15))
    assert rates.per_second() == (10, 2)  # since second 3


def test_one_look_is_no_rate() -> None:
    rates = Rates()
    rates.add(Look(7.0, 100, 100, 3))
    assert rates.per_second() == (0, 0)
    assert rates.grown() == 0


def test_growth_is_what_waits_more_than_before() -> None:
    rates = Rates()
    rates.add(Look(0, 0, 0, 10))
    rates.add(Look(1, 9, 5, 14))
    assert rates.grown() == 4


# ── sparklines ──


def test_a_sparkline_has_a_point_for_each_ten_seconds_and_fifteen_minutes_of_them() -> None:
    spark = Spark(Look(0, 0, 0))
    for second in range(1, 2001):
        spark.add(Look(second, 3 * second, 2 * second, second))
    lists = spark.lists()
    assert lists["ready"] == list(range(2000 - 10 * (POINTS - 1), 2001, 10))
    assert lists["in"] == [3] * POINTS
    assert lists["out"] == [2] * POINTS


def test_a_sparkline_of_nothing_is_empty_and_is_so_again_when_all_is_long_over() -> None:
    spark = Spark(Look(0, 0, 0))
    for second in range(100):
        spark.add(Look(second, 0, 0))
    assert not spark
    for second in range(100, 120):
        spark.add(Look(second, 5, 5))
    assert spark.lists()["in"] == [0.5, 0]
    for second in range(120, 120 + 10 * POINTS):
        spark.add(Look(second, 5, 5))
    assert not spark


def test_rare_looks_make_as_many_points() -> None:
    spark = Spark(Look(0, 0, 0))
    spark.add(Look(40, 80, 0, 80))
    assert spark.lists() == {"ready": [80] * 4, "in": [2] * 4, "out": [0] * 4}


# ── a queue from look to look ──


def test_a_quiet_queue_that_wakes_has_the_rate_of_now() -> None:
    stage = Stage()
    client = stage.connect()
    stage.say(client, b"c1 consume q e")
    stage.wait(3600)
    stage.say(client, *[b"m publish e x"] * 50)
    stage.wait()
    assert stage.queue("q")["in_rate"] == 50
    assert stage.queue("q")["out_rate"] == 50


def test_a_deleted_queue_leaves_nothing_to_one_of_the_same_name() -> None:
    stage = Stage()
    client = stage.connect()
    stage.say(client, b"r rebind q e", *[b"m publish e x"] * 50)
    stage.wait(30)
    assert stage.queue("q")["spark"]["ready"]
    stage.say(client, b"d delete_queue q", b"r rebind q e")
    stage.wait(2)
    row = stage.queue("q")
    assert (row["in_rate"], row["spark"]["ready"], row["why"]) == (0, [], None)


def test_looks_at_very_many_queues_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "EFFORT", 100)
    now = [0.0]
    broker = Broker(clock=lambda: now[0])
    client = broker.connect("127.0.0.1:5000")
    broker.feed(client, b"".join(b"r rebind q%03d e%03d\n" % (n, n) for n in range(100)))
    queues = Queues(broker, lambda: now[0])
    seen: list[str] = []
    for second in range(1, 11):  # ten at a time while they are new
        now[0] = second
        seen += [track.name for track, _ in queues.step()]
    assert sorted(seen) == [f"q{n:03}" for n in range(100)]
    assert seen == sorted(seen)
    for second in range(11, 40):  # all are quiet soon: then one step is enough for them all
        now[0] = second
        queues.step()
    broker.feed(client, b"m publish e007 x\n")
    names = []
    for second in range(40, 43):
        now[0] = second
        names += [track.name for track, doubtful in queues.step() if doubtful]
    assert "q007" in names


def test_rounds_give_each_one_once_whoever_stops_where() -> None:
    rng = random.Random(1)
    rounds = Rounds(lambda: range(50))
    for _ in range(20):
        got: list[int] = []
        while not got or rounds._begun:
            left = rng.randrange(1, 30)
            for item in rounds.step():
                got.append(item)
                left -= 1
                if not left:
                    break
        assert got == list(range(50))


def test_one_step_costs_no_more_than_it_may() -> None:
    """By the number of looks, not by a clock: a queue that is not quiet is at least BUSY."""
    broker = Broker()
    queues = Queues(broker, lambda: 0.0)
    for number in range(2 * EFFORT // sampling.BUSY):
        queue = Queue(b"q%d" % number)
        broker.queues.by_name[queue.name] = queue
    assert len(queues.step()) == EFFORT // sampling.BUSY


def test_a_consumer_that_settles_nothing_is_idle_since_then() -> None:
    stage = Stage()
    client = stage.connect()
    stage.say(client, b"c1 consume q e --manual-ack --prefetch=2", *(b"m%d publish e x" % n for n in range(4)))
    track = Track(stage.broker.queues.by_name[b"q"], 0.0)
    [consumer] = stage.broker.queues.by_name[b"q"].consumers
    track.look(1.0)
    track.look(2.0)
    assert track.idle[consumer].since == 1.0
    stage.say(client, b"a ack c1 m0")
    track.look(3.0)
    assert track.idle[consumer].since == 3.0
    stage.say(client, b"j reject c1 m1")  # it settles by rejecting too
    track.look(4.0)
    assert track.idle[consumer].since == 4.0
    stage.say(client, b"a ack c1 --all", b"a ack c1 --all", b"a ack c1 --all")
    track.look(5.0)
    assert track.idle == {}


# ── ages ──


def test_an_age_is_right_to_a_second_or_two_hundredths() -> None:
    rng = random.Random(7)
    ages = Ages(lambda _: None)
    times: list[tuple[int, float]] = []
    position, now = 0, 1000.0
    ages.note(position, now)
    for _ in range(3 * MOST):
        for _ in range(rng.randrange(3)):
            times.append((position, now + rng.random()))
            position += rng.randrange(1, 500)
        now += 1.0
        ages.note(position, now)
    for position, came in rng.sample(times, 500):
        age = ages.age(position, now)
        assert age is not None
        assert abs(age - (now - came)) <= max(SECOND, BLUR * (now - came))


def test_what_came_before_the_start_is_looked_up_and_known_then() -> None:
    asked: list[int] = []

    def look_up(position: int) -> float:
        asked.append(position)
        return float(position)

    ages = Ages(look_up)
    ages.note(1000, 5000.0)
    assert ages.age(10, 5000.0) == 4990
    assert ages.age(10, 5001.0) == 4991
    assert asked == [10]


def test_few_are_looked_up_in_a_second() -> None:
    asked: list[int] = []
    ages = Ages(lambda position: asked.append(position))
    ages.note(10_000, 5000.0)
    for position in range(0, 10_000, 100):
        assert ages.age(position, 5000.0) is None
    assert 0 < len(asked) < 20
    before = len(asked)
    ages.note(10_001, 5001.0)
    ages.age(5, 5001.0)
    assert len(asked) == before + 1


def test_a_message_that_waits_alone_grows_old() -> None:
    stage = Stage()
    client = stage.connect()
    stage.say(client, b"r rebind q e")
    stage.wait(100)
    stage.say(client, b"m publish e x")
    stage.wait(30)
    assert stage.queue("q")["age"] == pytest.approx(30, abs=1)
    stage.say(client, b"c1 consume q")
    assert stage.queue("q")["age"] is None


# ── words ──


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (1.9, "1 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7199, "119 min"),
        (7200, "2 h"),
        (36 * 3600, "36 h"),
        (172_800, "2 days"),
        (1e9, "11,574 days"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_names_and_numbers_in_words() -> None:
    assert [counted(n, "message") for n in (0, 1, 1204)] == ["0 messages", "1 message", "1,204 messages"]
    assert [size(n) for n in (0, 1023, 1024, 1536, 5 << 30)] == ["0 bytes", "1,023 bytes", "1 KiB", "1.5 KiB", "5 GiB"]
    assert quoted("a\x1b[31mb\u202e`c") == "`a\\x1b[31mb\\u202e\\x60c`"
    assert key(b"a/b c\xff~") == "a%2Fb%20c%FF%7E"
    assert [key(name) for name in (b".", b"..", b".a")] == ["~.", "~..", ".a"]
