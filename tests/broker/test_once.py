"""`--once` by itself: how long an id is remembered and by which clock, how many are, and what that costs.

What it means on the wire is in tests/dialogues and tests/model.py; that it survives is in tests/journal and tests/sim.
"""

import random

import pytest

from mqks.broker import Broker
from tests.broker.driver import PEER

WINDOW = 100.0
MOST_PER_ID = 64  # bytes


class Driven:
    """A broker whose clock is ours, with a consumer of all that it takes."""

    def __init__(self, count: int = 1_000_000, part_bits: int = 11) -> None:
        self.now = 1_000_000.0
        self.ahead = 0.0  # how much the clock on the wall is
        self.broker = Broker(
            clock=lambda: self.now,
            wall=lambda: self.now + self.ahead,
            dedup_window=WINDOW,
            dedup_count=count,
            dedup_part_bits=part_bits,
        )
        self.client = self.broker.connect(PEER)
        self.talk(b"c1 consume q1 e1", *[b"m publish e2 d"] * 50_000)  # the log's own memory at rest stays as it is now

    def talk(self, *lines: bytes) -> list[bytes]:
        self.broker.feed(self.client, b"".join(line + b"\n" for line in lines))
        self.broker.turn()
        said = []
        while self.client.pending_size:
            said.append(self.client.pending())
            self.broker.sent(self.client, self.client.pending_size)
            self.broker.turn()
        return b"".join(said).splitlines()

    def takes(self, *ids: bytes, scope: bytes = b"") -> list[bytes]:
        """Those of them that were taken."""
        flag = b"--once=" + scope if scope else b"--once"
        return [line.split(b" ")[2] for line in self.talk(*(b"%s publish %s e1 d" % (id, flag) for id in ids))]

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.broker.tick()

    @property
    def remembered(self) -> int:
        return len(self.broker.core.seen)

    @property
    def used(self) -> int:
        return self.broker.core.account.used


# ── how long ──


def test_an_id_is_forgotten_when_it_is_older_than_the_window() -> None:
    driven = Driven()
    assert driven.takes(b"m1") == [b"m1"]
    driven.now += WINDOW
    assert driven.takes(b"m1") == []
    driven.now += 0.1
    assert driven.takes(b"m1") == [b"m1"]
    driven.now += WINDOW
    assert driven.takes(b"m1") == [], "it counts from the one that was taken"


def test_a_duplicate_does_not_make_it_younger() -> None:
    driven = Driven()
    assert driven.takes(b"m1") == [b"m1"]
    for _ in range(9):
        driven.now += WINDOW / 10
        assert driven.takes(b"m1") == []
    driven.now += WINDOW / 9
    assert driven.takes(b"m1") == [b"m1"]


def test_a_clock_that_goes_back_forgets_nothing() -> None:
    driven = Driven()
    driven.takes(b"m1")
    driven.now -= 50
    assert driven.takes(b"m1", b"m2") == [b"m2"]
    driven.now += 60
    assert driven.takes(b"m1", b"m2") == []
    driven.now += 50
    assert driven.takes(b"m1", b"m2") == [b"m2"]


def test_a_clock_that_was_ahead_and_is_set_back_makes_nobody_remember_for_long() -> None:
    driven = Driven(part_bits=1)
    driven.ahead = 1e9
    driven.takes(b"m1", b"m2", b"m3")
    driven.ahead = 0.0
    assert driven.takes(b"m1", b"m4") == [b"m4"]
    driven.advance(WINDOW)
    assert driven.takes(b"m1", b"m4", b"m5") == [b"m5"], "nor is anything forgotten early"
    driven.advance(1)
    assert driven.takes(b"m1", b"m4", b"m5") == [b"m4"]
    driven.advance(WINDOW + 1)
    assert driven.remembered == 0
    assert driven.takes(b"m1", b"m2", b"m3", b"m4") == [b"m1", b"m2", b"m3", b"m4"]


def test_many_of_that_time_go_in_several_steps_and_no_later() -> None:
    driven = Driven()
    driven.ahead = 1e9
    driven.talk(*(b"m%d publish --once e2 d" % number for number in range(50_000)))
    driven.ahead = 0.0
    for _ in range(2):
        driven.advance(WINDOW + 1)
    assert 0 < driven.remembered < 50_000
    while driven.remembered:
        remembered = driven.remembered
        driven.advance(0.1)
        assert driven.remembered < remembered


def test_a_clock_that_was_behind_for_a_moment_forgets_nothing() -> None:
    driven = Driven()
    driven.takes(b"m1")
    for driven.ahead in (-1e6, 0.0):
        assert driven.takes(b"m1") == []
    driven.advance(WINDOW)
    assert driven.takes(b"m1") == []


def test_what_is_old_goes_by_itself_and_gives_its_memory_back() -> None:
    driven = Driven()
    driven.talk(*(b"m%d publish --once e2 d" % number for number in range(50_000)))
    assert driven.remembered == 50_000
    held = driven.used
    driven.advance(WINDOW / 2)
    driven.takes(b"late")
    driven.advance(WINDOW / 2 + 1)
    while driven.remembered > 1:
        remembered = driven.remembered
        driven.advance(0.1)
        assert driven.remembered < remembered
    assert driven.takes(b"late") == []
    driven.advance(WINDOW)
    assert driven.remembered == 0
    assert held - driven.used > 32 * 50_000
    assert driven.takes(b"late", b"m1") == [b"late", b"m1"]


# ── how many ──


def test_the_oldest_are_forgotten_when_there_are_too_many() -> None:
    driven = Driven(count=100, part_bits=3)
    ids = [b"m%d" % number for number in range(250)]
    assert driven.takes(*ids) == ids
    assert driven.remembered == 100
    assert driven.takes(*ids[150:]) == []
    assert driven.takes(ids[149]) == [ids[149]]
    assert driven.takes(ids[150]) == [ids[150]], "the one before took its place"


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 9])
def test_so_it_is_with_few(count: int) -> None:
    """Against a list: ids, scopes and time at random, parts of two."""
    driven = Driven(count=count, part_bits=1)
    rng = random.Random(count)
    known: list[tuple[bytes, bytes, float]] = []
    for _ in range(3000):
        scope, id = rng.choice((b"", b"s")), b"%d" % rng.randrange(2 * count)
        driven.now += rng.choice((0, 0, 0, 0, 1, WINDOW / count, 2 * WINDOW) if rng.random() < 0.5 else (0,))
        known = [one for one in known if driven.now - one[2] <= WINDOW]
        is_known = any(one[:2] == (scope, id) for one in known)
        assert driven.takes(id, scope=scope) == ([] if is_known else [id])
        if not is_known:
            known = [*known, (scope, id, driven.now)][-count:]
        if rng.random() < 0.05:
            driven.broker.tick()


def test_duplicates_are_counted() -> None:
    driven = Driven()
    driven.takes(b"m1", b"m1", b"m2", b"m1")
    driven.talk(b"m1 publish --once e1", b"m3 publish --once e1", b'm2 send --once {"x": 1}')
    assert (driven.broker.core.seen.duplicates, driven.remembered) == (4, 3)


# ── what it costs ──


@pytest.mark.parametrize("count", [40_000, 49_152, 49_153, 98_304, 98_305])
def test_memory_of_an_id(count: int) -> None:
    """Also where the table has just grown."""
    driven = Driven()
    before = driven.used
    driven.talk(*(b"a-rather-long-message-id-%d publish --once=a-scope e2 d" % number for number in range(count)))
    assert driven.remembered == count
    assert driven.used - before < MOST_PER_ID * count + (64 << 10)


def test_memory_is_bounded_by_the_count() -> None:
    driven = Driven(count=10_000)
    before = driven.used
    for start in range(0, 100_000, 10_000):
        driven.talk(*(b"m%d publish --once e2 d" % number for number in range(start, start + 10_000)))
        assert driven.used - before < MOST_PER_ID * 10_000 + (192 << 10)


def test_a_duplicate_is_answered_also_when_memory_is_full() -> None:
    broker = Broker(max_memory=8 << 20)
    client = broker.connect(PEER)

    def say(line: bytes) -> bytes:
        broker.feed(client, line + b"\n")
        broker.turn()
        said = client.pending()
        broker.sent(client, len(said))
        return said

    say(b"s1 subscribe q1 e1")
    assert say(b"m1 publish --once --confirm e1 d1") == b"m1 ok \n"
    while not broker.core.account.full:
        say(b"m publish e1 " + b"x" * 10_000)
    assert say(b"m2 publish --once --confirm e1 d2").startswith(b"m2 error ")
    assert say(b"m1 publish --once --confirm e1 d1") == b"m1 ok \n"
    say(b"d1 delete_queue q1")
    assert say(b"m2 publish --once --confirm e1 d2") == b"m2 ok \n"
    assert broker.core.seen.duplicates == 1, "what was refused was not remembered"


# ── digests ──


def test_ids_and_scopes_of_every_size_are_told_apart() -> None:
    """Neither what is in one scope is in another, nor does a scope's end run into the id."""
    driven = Driven()
    words = [b"a" * size for size in range(1, 40)] + [b"b" * size for size in (1, 7, 8, 9, 16)]
    for scope in (b"", *words):
        assert driven.takes(*words, scope=scope) == words
    assert driven.remembered == len(words) * (len(words) + 1)
    for scope in (b"", *words):
        assert driven.takes(*words, scope=scope) == []


def test_ids_that_differ_in_one_bit_are_told_apart() -> None:
    driven = Driven()
    base = b"0123456789abcdef0123456789abcdef"
    ids = [bytes([*base[:at], base[at] ^ bit, *base[at + 1 :]]) for at in range(len(base)) for bit in (1, 2, 4)]
    assert driven.takes(base, *ids) == [base, *ids]
    assert driven.takes(base, *ids) == []


def test_digests_are_siphash_and_stay_as_they_are() -> None:
    """The disk has them: so another version must make the same. Checked with `openssl mac ... SIPHASH`."""
    driven = Driven()
    seen = driven.broker.core.seen
    seen.use_key(bytes(range(16)))
    driven.takes(b"m1")
    driven.takes(b"0123456789abcdef-17", scope=b"orders")
    entries = seen.entries(0)
    assert [entries[at : at + 16].hex() for at in (0, 32)] == [
        "e3e4ee66b7552dd3cafd1a898380fdff",
        "d42fb8b0b2548ecf9deb9d6344af3b70",
    ]
