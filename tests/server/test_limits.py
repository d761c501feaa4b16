"""Every limit: how it is reached, what the log says then, and that it is counted. Then what each of them leaves alone.

In process, with a clock that the test moves; in the end some of them by flags and over real sockets.
"""

import logging
import random
import re
import socket
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import fields
from itertools import product
from typing import Any, NamedTuple

import pytest

from mqks.broker import Broker
from mqks.broker.client import Client
from mqks.broker.durable import LONGEST_HOLD, MOST_HOLDS
from mqks.broker.history import MOST_STREAMS
from mqks.broker.limits import FIXED, REASONS, Limits
from mqks.broker.words import MOST_WORDS
from mqks.journal.disk import Reserve
from mqks.server.config import IN_FILE, Config
from tests.broker.on_disk import OnDisk
from tests.running import PATIENCE, Connection, running_broker
from tests.sim.disk import FakeDisk
from tests.web.stage import Stage
from tests.web.test_metrics import labelled, scraped

MUCH = 1 << 40
ELSEWHERE = {"max_length", "max_bytes"}  # with what they are about: full queues


def say(stage: Stage, client: Client, *lines: bytes) -> list[bytes]:
    """What the client is told."""
    stage.broker.feed(client, b"".join(line + b"\n" for line in lines))
    stage.broker.turn()
    told = client.pending()
    stage.broker.sent(client, len(told))
    return told.splitlines()


# ---- Each limit: the way there


def ask(*lines: bytes) -> Callable[[Stage], None]:
    """All is done, but the last is refused."""

    def reach(stage: Stage) -> None:
        *done, refused = say(stage, stage.connect(), *lines)
        assert not any(b" error " in line for line in done)
        assert re.fullmatch(rb"\S+ error [0-9]{20}\w{4}", refused)

    return reach


def come(peer: str) -> Callable[[Stage], None]:
    """The second one is turned away."""

    def reach(stage: Stage) -> None:
        stage.connect()
        bad = stage.broker.crowded(peer)
        assert bad
        stage.broker.refuse(peer, bad)

    return reach


def hurry(stage: Stage) -> None:
    assert len(say(stage, stage.connect(), *[b"p ping"] * 12)) == 11


def dawdle(stage: Stage) -> None:
    client = stage.connect()
    stage.broker.feed(client, b"p1 ping not the end")
    assert stage.broker.overdue() == []
    stage.now = 60.0
    assert stage.broker.overdue() == [client]
    assert client.pending().startswith(b"- error ")


def stay_unknown(stage: Stage) -> None:
    gone: list[Client] = []
    stage.broker.entrance.ask = lambda *_: None
    stage.broker.entrance.hang_up = gone.append
    client = stage.connect()
    stage.now = 11.0
    stage.broker.tick()
    assert gone == [client]
    assert client.pending().startswith(b"- error ")


def fill_disk(stage: Stage) -> None:
    stage.broker.recover()
    ask(b"m1 publish e1 d1")(stage)


def hold_much(stage: Stage) -> None:
    stage.broker.recover()
    ask(*(b"x hold n%d earliest --for=60" % number for number in range(MOST_HOLDS + 1)))(stage)


def grow_unacked(stage: Stage) -> None:
    client = stage.connect()
    say(stage, client, b"c1 consume q1 e1 --manual-ack --prefetch=8")
    assert client.consumers[b"c1"].prefetch == 7


class Case(NamedTuple):
    options: dict[str, Any]
    reach: Callable[[Stage], None]
    said: str  # in the log


CASES = {
    "max_line": Case({"max_line": 64}, ask(b"p1 ping " + b"x" * 64), r"the line is longer than --max-line"),
    "max_connections": Case(
        {"limits": Limits(max_connections=1)}, come("192.0.2.1:1"), r"--max-connections is reached"
    ),
    "max_connections_per_address": Case(
        {"limits": Limits(max_connections_per_address=1)},
        come("127.0.0.1:1"),
        r"--max-connections-per-address is reached",
    ),
    "max_rate": Case(
        {"limits": Limits(max_rate=10)}, hurry, r"is slowed down: it makes more requests a second than --max-rate"
    ),
    "line_timeout": Case({}, dawdle, r"a line did not end within --line-timeout' bytes=19"),
    "auth_timeout": Case({}, stay_unknown, r"it did not say who it is within --auth-timeout"),
    "max_queues": Case(
        {"limits": Limits(max_queues=1)},
        ask(b"r1 rebind q1 e1", b"c1 consume q2 e1"),
        r"--max-queues is reached: delete some queue first",
    ),
    "max_events": Case(
        {"limits": Limits(max_events=2)},
        ask(b"r1 rebind q1 e1 e2", b"r2 rebind q1 --add e3"),
        r"a queue or a history may have no more events than --max-events: 'q1'",
    ),
    "max_consumers": Case(
        {"limits": Limits(max_consumers=1)},
        ask(b"c1 consume q1 e1", b"c2 consume q2 e1"),
        r"--max-consumers of one connection is reached",
    ),
    "max_unacked": Case(
        {"limits": Limits(max_unacked=7)},
        grow_unacked,
        r"no more than 7 messages .* for consumer 'c1': a consumer asked for more unacked messages than --max-unacked",
    ),
    "min_free_disk": Case(
        {"disk": FakeDisk(random.Random(1)), "min_free": 2 * MUCH},
        fill_disk,
        r"the disk takes no more: see the log of the broker",
    ),
    "max_memory": Case(
        {"max_memory": 1 << 16},
        ask(b"r1 rebind q1 e1", b"m1 publish e1 d1", b"m2 publish e1 d2"),
        r"out of memory: --max-memory is reached, consume or delete some queue first",
    ),
    "histories": Case(
        {},
        ask(*(b"h%d history latest --follow" % number for number in range(MOST_STREAMS + 1))),
        rf"too many histories at once on one connection: {MOST_STREAMS}",
    ),
    "holds": Case({"disk": FakeDisk(random.Random(1))}, hold_much, rf"too many holds: {MOST_HOLDS}"),
}


@pytest.mark.parametrize("name", CASES)
def test_each_limit_is_said_and_counted(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    case = CASES[name]
    stage = Stage(**case.options)
    before = labelled(scraped(stage.figures), "mqks_limit_reached_total", "limit")
    assert before == {name.replace("_", "-"): 0 for name in REASONS}
    case.reach(stage)
    told = [record.getMessage() for record in caplog.records]
    assert len([line for line in told if re.search(case.said, line)]) == 1, told
    stage.wait()
    after = labelled(scraped(stage.figures), "mqks_limit_reached_total", "limit")
    assert after == {**before, name.replace("_", "-"): 1}


def test_each_limit_has_a_case() -> None:
    assert CASES.keys() | ELSEWHERE == REASONS.keys()


def test_each_limit_is_an_option_with_the_same_default() -> None:
    assert REASONS.keys() - FIXED.keys() <= IN_FILE.keys()
    for each in fields(Limits):
        if each.name != "times":
            assert getattr(Config(), each.name) == each.default, each.name


# ---- Addresses


@pytest.mark.parametrize(
    ("one", "another", "same"),
    [
        ("192.0.2.1:1", "192.0.2.1:2", True),
        ("192.0.2.1:1", "192.0.2.2:1", False),
        ("192.0.2.1:1", "[::ffff:192.0.2.1]:1", True),
        ("[::ffff:192.0.2.1]:1", "[::ffff:192.0.2.2]:1", False),
        ("[2001:db8::1]:1", "[2001:db8::ffff:0:0:2]:1", True),
        ("[2001:db8::1]:1", "[2001:db8:0:1::1]:1", False),
        ("[fe80::1%eth0]:1", "[fe80::2%eth1]:1", True),
        ("a name", "a name", True),
        ("a name", "another", False),
    ],
)
def test_who_counts_as_one_address(one: str, another: str, same: bool) -> None:
    broker = Broker(limits=Limits(max_connections_per_address=1))
    client = broker.connect(one)
    assert (broker.crowded(another) is not None) == same
    broker.disconnect(client)
    assert broker.crowded(one) is None, "who has gone is not counted"


def test_those_from_inside_are_not_counted() -> None:
    broker = Broker(limits=Limits(max_connections=1, max_connections_per_address=1, max_consumers=1, max_events=1))
    inside = broker.connect("inside", inside=True)
    assert broker.crowded("192.0.2.1:1") is None
    broker.feed(inside, b"c1 consume --confirm q1 e1\nc2 consume --confirm q2 e1\n")
    assert inside.pending() == b"c1 ok \nc2 ok \n"
    broker.feed(inside, b"h1 history earliest --events=e1,e.*\n")
    assert inside.pending().endswith(b"\nh1 ok --end 0\n")


# ---- Queues, events, consumers


def test_what_is_there_may_be_used_when_no_more_queues_are_made() -> None:
    stage = Stage(limits=Limits(max_queues=1))
    client = stage.connect()
    assert say(stage, client, b"c1 consume --confirm q1 e1", b"r1 rebind --confirm q1 e1 e2") == [
        b"c1 ok ", b"c1 ok --update q1 e1 e2", b"r1 ok ",
    ]  # fmt: skip
    for refused in (b"s1 subscribe q2 e1", b"r2 rebind q2", b'v1 recv {"pattern": {}, "queue": "q2"}'):
        assert b" error " in say(stage, client, refused)[0]
    assert list(stage.broker.queues) == [b"q1"]
    assert say(stage, client, b"d1 delete_queue --confirm q1")[-1] == b"d1 ok "
    assert say(stage, client, b"s2 subscribe --confirm q2 e1") == [b"s2 ok "]


@pytest.mark.parametrize(
    ("request_line", "taken"),
    [
        (b"r1 rebind --confirm q1 e1", True),
        (b"r1 rebind --confirm q1 e4 e5", True),
        (b"r1 rebind --confirm q1 --remove e1 --add e4", True),
        (b"r1 rebind --confirm q1 --add e3", True),
        (b"r1 rebind --confirm q1 --add e4", False),
        (b"s1 subscribe --confirm q1 e4 e5 e6 e7", False),
        (b"c1 consume --confirm q1", True),
        (b"c1 consume --confirm q1 --add e1", True),
        (b"c1 consume --confirm q1 --add e4", False),
        (b'v1 recv {"pattern": {"event": "e1"}, "queue": "q1", "delete_queue_when_unused": false}', True),
        (b'v1 recv {"pattern": {"a": 1}, "queue": "q1", "delete_queue_when_unused": false}', True),
        (b'v1 recv {"pattern": {"event": "e4"}, "queue": "q1", "delete_queue_when_unused": false}', False),
    ],
)
def test_a_queue_with_as_many_events_as_it_may_have(request_line: bytes, taken: bool) -> None:
    stage = Stage(limits=Limits(max_events=3))
    client = stage.connect()
    say(stage, client, b"r0 rebind q1 e1 e2 e3")
    before = stage.broker.queues[b"q1"].definition()
    *_, answer = say(stage, client, request_line)
    assert (b" error " not in answer) == taken
    if not taken:
        assert stage.broker.queues[b"q1"].definition() == before
        assert not client.consumers


@pytest.mark.parametrize("action", [b"consume", b"subscribe", b"rebind"])
def test_more_words_than_there_could_be_events_are_not_read(action: bytes, caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(limits=Limits(max_events=3))
    (answer,) = say(stage, stage.connect(), b"x1 %s q1 --nope%s" % (action, b" e1" * (2 * 3 + MOST_WORDS)))
    assert answer.startswith(b"x1 error ")
    assert REASONS["max_events"] in caplog.text and "unknown flag" not in caplog.text
    assert stage.broker.limits.times["max_events"] == 1


def test_all_events_of_a_full_queue_can_be_removed_and_as_many_be_added_at_once() -> None:
    stage, most = Stage(), Limits().max_events
    client = stage.connect()
    old, new = (b" ".join(b"%s%d" % (kind, number) for number in range(most)) for kind in (b"old", b"new"))
    assert say(stage, client, b"r1 rebind --confirm q1 " + old) == [b"r1 ok "]
    assert say(stage, client, b"r2 rebind --confirm q1 --remove %s --add %s" % (old, new)) == [b"r2 ok "]
    assert stage.broker.queues[b"q1"].events == set(new.split())


@pytest.mark.parametrize("request_line", [b"pause c1", b"ack c1", b"delete_queue q1", b"hold h1", b"send"])
def test_where_few_words_are_expected_many_are_not_read(request_line: bytes, caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    (answer,) = say(stage, stage.connect(), b"x1 %s%s {}" % (request_line, b" --nope" * (MOST_WORDS + 2)))
    assert answer.startswith(b"x1 error ")
    assert "too many words" in caplog.text


def test_the_event_that_a_pattern_names_counts_with_the_others() -> None:
    stage = Stage(limits=Limits(max_events=2))
    client = stage.connect()
    named = b'v1 recv {"pattern": {"event": "e1"}, "queue": "q1"}'
    assert say(stage, client, named, b"r1 rebind --confirm q1 e1 e2")[-1] == b"r1 ok "
    assert b" error " in say(stage, client, b"r2 rebind --confirm q1 e2 e3")[-1]


def test_a_consumer_that_is_there_may_be_changed_when_no_more_are_taken() -> None:
    stage = Stage(limits=Limits(max_consumers=1))
    one, another = stage.connect(), stage.connect()
    assert say(stage, one, b"c1 consume --confirm q1 e1", b"c1 consume --confirm q1 --prefetch=5")[-1] == b"c1 ok "
    assert b" error " in say(stage, one, b"c2 consume q2")[0]
    assert b"q2" not in stage.broker.queues, "what is refused changes nothing"
    assert say(stage, another, b"c1 consume --confirm q1") == [b"c1 ok "]
    assert say(stage, one, b"d1 delete_consumer c1", b"c2 consume --confirm q1") == [b"c2 ok "]


@pytest.mark.parametrize(
    ("limit", "flags", "prefetch"),
    [
        (0, b"--manual-ack", 0),
        (0, b"--manual-ack --prefetch=100", 100),
        (10, b"--manual-ack", 10),
        (10, b"--manual-ack --prefetch=9", 9),
        (10, b"--manual-ack --prefetch=10", 10),
        (10, b"--manual-ack --prefetch=11", 10),
        (10, b"", 0),
        (10, b"--prefetch=100", 100),
    ],
)
def test_how_many_unacked_a_consumer_may_have(limit: int, flags: bytes, prefetch: int) -> None:
    stage = Stage(limits=Limits(max_unacked=limit))
    client = stage.connect()
    say(stage, client, b"c1 consume q1 e1 " + flags)
    assert client.consumers[b"c1"].prefetch == prefetch
    assert stage.broker.limits.times["max_unacked"] == (prefetch == limit > 0 and b"=10" not in flags)
    say(stage, client, b"c2 consume q1", b"c2 consume q1 " + flags)
    assert client.consumers[b"c2"].prefetch == prefetch, "also when it is changed"


def test_a_start_keeps_what_is_beyond_the_limits() -> None:
    """They may be lower than before: what is there stays, and nothing is added."""
    on_disk = OnDisk()
    many = b" ".join(b"e%d" % number for number in range(10))
    on_disk.say(on_disk.connect(), *(b"r rebind q%d %s" % (number, many) for number in range(10)), b"m publish e1 d")
    on_disk.work()
    on_disk.options = {"limits": Limits(max_queues=5, max_events=5)}
    for begin_again in (on_disk.stop, on_disk.crash):
        begin_again()
        assert len(on_disk.broker.queues) == 10
        assert all(len(queue.events) == 10 and queue.ready_count == 1 for queue in on_disk.broker.queues.values())
    client = on_disk.connect()
    [refused] = on_disk.say(client, b"r1 rebind q10 e1")
    assert refused.startswith(b"r1 error ")
    [refused] = on_disk.say(client, b"r2 rebind q9 --add e10")
    assert refused.startswith(b"r2 error ")
    on_disk.say(client, b"c1 consume q9", b"r3 rebind q8 --remove e9")
    assert (len(on_disk.queue(b"q9").events), len(on_disk.queue(b"q8").events)) == (10, 9)
    assert on_disk.broker.limits.times["max_queues"] == on_disk.broker.limits.times["max_events"] == 1


def test_no_start_is_refused_by_a_limit() -> None:
    """What the broker has taken comes back, however low the limits are by then."""
    on_disk = OnDisk()
    long, deep = b"n" * 300, b'{"a": ' * 90 + b"{}" + b"}" * 90
    many = b" ".join(b"%d.%s" % (number, long) for number in range(50))
    wide = b"{%s}" % b", ".join(b'"%d": [1, "x"]' % number for number in range(30))
    on_disk.say(
        on_disk.connect(),
        b"r1 rebind %s %s --max-length=%d --max-bytes=%d --overflow=drop-oldest" % (long, many, 10**15 - 1, 10**15 - 1),
        b"c1 consume q2 e1 --manual-ack --prefetch=5000 --delete-queue-when-unused=0.00001",
        b'v1 recv {"queue": "q3", "pattern": %s}' % deep,
        b'v2 recv {"queue": "q4", "pattern": %s, "delete_queue_when_unused": 0.1}' % wide,
        b"d1 delete_queue q4 --when-unused=0.3333333333333333",
        b"h1 hold %s 0 --for=999999999999999.999999999999999" % long,
        b"h2 hold h2 0 --for=999999999",
        *(b"m%d publish --once=%s 1.%s %s" % (number, long, long, long) for number in range(10)),
        *(b's%d send --once {"event": "1.%s", "data": "%s"}' % (number, long, long) for number in range(10)),
    )
    before = {name: queue.definition() for name, queue in on_disk.broker.queues.items()}
    assert len(before) == 4
    numbers: dict[str, Any] = {field.name: 1 for field in fields(Limits) if field.type in (int, float, "int", "float")}
    on_disk.options = {
        "limits": Limits(**numbers), "max_line": 10, "max_memory": 1, "high_water": 1, "dedup_count": 0,
        "dedup_window": 0, "segment_size": 1, "tail_memory": 0, "spill_after": 1, "checkpoint_bytes": 1,
        "retain_bytes": 1, "retain_age": 0,
    }  # fmt: skip
    for found_in in ("journal", "checkpoint"):
        on_disk.crash()
        assert {name: queue.definition() for name, queue in on_disk.broker.queues.items()} == before, found_in
        assert on_disk.queue(long).length == 20, "but what is in it is kept, with what it may have of its own"


# ---- Histories and holds


@pytest.mark.parametrize(
    ("events", "taken"),
    [
        (b"e1,e2,e3,e4,e5", True),
        (b"e1,e2,e3,e4,e5,e6", False),
        (b"e1.a.b.c.d.e.f", True),
        (b"e1.*,e2,e3", True),  # a mask is one, and one more for each dot and star
        (b"e1.*,e2,e3,e4", False),
        (b"*.*.a", True),
        (b"*.*.*", False),
    ],
)
def test_how_many_events_a_history_may_have(events: bytes, taken: bool) -> None:
    stage = Stage(limits=Limits(max_events=5))
    (answer,) = say(stage, stage.connect(), b"h1 history earliest --events=" + events)
    assert answer.startswith(b"h1 ok --end" if taken else b"h1 error ")
    assert stage.broker.limits.times["max_events"] == (not taken)


def test_more_names_than_a_history_may_have_are_not_read(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(limits=Limits(max_events=5))
    say(stage, stage.connect(), b"h1 history earliest --events=e1,e2,,,e5,e6")
    assert REASONS["max_events"] in caplog.text and "not a legal name" not in caplog.text


def test_a_history_that_has_ended_makes_room_for_another() -> None:
    stage = Stage()
    client = stage.connect()
    follow = [b"h%d history latest --follow" % number for number in range(MOST_STREAMS)]
    assert say(stage, client, *follow) == []
    assert b" error " in say(stage, client, b"h history latest --follow")[0]
    assert say(stage, stage.connect(), *follow) == [], "each connection has its own"
    ended, begun = say(stage, client, b"d delete_consumer h3", b"h history latest")
    assert (ended[:12], begun[:11]) == (b"h3 ok --end ", b"h ok --end ")


def test_a_hold_that_is_there_is_renewed_when_no_more_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of an older broker may have a longer name than a new one."""
    monkeypatch.setattr("mqks.broker.durable.LONGEST_HOLD", 2 * LONGEST_HOLD)
    on_disk, older = OnDisk(), b"x" * (LONGEST_HOLD + 1)
    assert on_disk.say(on_disk.connect(), b"x hold %s earliest --for=9" % older) == []
    monkeypatch.undo()
    monkeypatch.setattr("mqks.broker.durable.MOST_HOLDS", 2)
    on_disk.stop()
    client = on_disk.connect()
    for refused in (b"%sx" % older, b"y" * (LONGEST_HOLD + 1)):
        assert b" error " in on_disk.say(client, b"x hold %s earliest --for=9" % refused)[0]
    assert on_disk.say(client, b"x hold %s earliest --for=9" % (b"y" * LONGEST_HOLD)) == []
    assert b" error " in on_disk.say(client, b"x hold z earliest --for=9")[0]
    assert on_disk.say(client, b"x hold %s earliest --for=0" % older) == []
    on_disk.stop()
    assert on_disk.broker.journal
    assert list(on_disk.broker.journal.retention.holds) == [b"y" * LONGEST_HOLD]


# ---- Requests a second


def test_who_is_slowed_down_loses_nothing_and_is_not_refused() -> None:
    stage = Stage(limits=Limits(max_rate=10))
    client = stage.connect()
    told = say(stage, client, *(b"p%d ping" % number for number in range(100)))
    assert len(told) == 11, "as many as in a second come at once, and one that shows that it goes on"
    while len(told) < 100:
        stage.now += 0.1
        stage.broker.tick()
        told += say(stage, client)
    assert told == [b"p%d ok " % number for number in range(100)]
    assert 8.8 <= stage.now <= 9.3, "ten a second from then on"
    assert stage.broker.errors == 0


@pytest.mark.parametrize("rate", [1, 7, 1000, 100_000])
def test_in_the_long_run_it_is_as_many_as_allowed(rate: int) -> None:
    stage = Stage(limits=Limits(max_rate=rate))
    client = stage.connect()
    wanted = 4 * rate
    stage.broker.feed(client, b"p ping\n" * wanted)
    while client.lines < wanted:
        assert stage.broker.timers.next is not None
        stage.now = max(stage.now, stage.broker.timers.next)
        stage.broker.tick()
        stage.serve()
    assert 2.9 - 1 / rate <= stage.now <= 3.2, "a second's worth at once, and one that shows that it goes on"


def test_who_keeps_to_it_is_never_slowed_down() -> None:
    stage = Stage(limits=Limits(max_rate=10))
    client, other = stage.connect(), stage.connect()
    for number in range(1000):
        stage.now = number / 10
        assert say(stage, client, b"p ping") == [b"p ok "]
    assert stage.broker.limits.times["max_rate"] == 0
    assert len(say(stage, other, *[b"p ping"] * 10)) == 10, "each has its own"


def test_it_is_told_once_until_all_was_calm(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(limits=Limits(max_rate=1))
    client = stage.connect()

    def pass_time(seconds: int, *lines: bytes) -> None:
        for _ in range(seconds):
            say(stage, client, *lines)
            stage.now += 1
            stage.broker.tick()

    pass_time(20, b"p ping", b"p ping")
    pass_time(20 + 3)
    pass_time(20, b"p ping", b"p ping")
    assert stage.broker.limits.times["max_rate"] == len(caplog.records) == 1
    pass_time(20 + 20)
    pass_time(5, b"p ping", b"p ping")
    assert stage.broker.limits.times["max_rate"] == len(caplog.records) == 2


def test_who_is_slowed_down_goes_on_once_each_time() -> None:
    """It costs more and more to go on as often as one has been stopped."""
    stage = Stage(limits=Limits(max_rate=1))
    client = stage.connect()
    stage.broker.feed(client, b"p ping\n" * 100)
    for _ in range(5):
        stage.now += 1
        stage.broker.tick()
        assert stage.broker.core.resumable() == [client]
        stage.broker.core.resume(client)
        assert client.blocked and client.unheard


def test_a_consumer_that_is_slowed_down_gets_its_messages() -> None:
    stage = Stage(limits=Limits(max_rate=2))
    client, publisher = stage.connect(), stage.connect()
    say(stage, client, b"c1 consume q1 e1", *[b"p ping"] * 10)
    assert client.blocked
    say(stage, publisher, b"m1 publish e1 d1")
    assert client.pending() == b"c1 ok m1 event=e1 d1\n"


def test_what_else_holds_a_client_back_is_not_undone() -> None:
    stage = Stage(limits=Limits(max_rate=1))
    client = stage.connect()
    stage.broker.core.block(client)
    stage.broker.pace.spent(client)
    client.budget = -1
    stage.broker.pace.spent(client)
    stage.now += 5
    stage.broker.tick()
    assert say(stage, client, b"p1 ping") == []
    stage.broker.core.unblock(client)
    assert say(stage, client) == [b"p1 ok "]


def test_a_client_that_goes_while_it_is_slowed_down_leaves_nothing_behind() -> None:
    stage = Stage(limits=Limits(max_rate=1))
    client = stage.connect()
    say(stage, client, *[b"p ping"] * 5)
    assert stage.broker.timers.next is not None
    stage.broker.disconnect(client)
    assert stage.broker.timers.next is None


# ---- Lines that do not end


@pytest.mark.parametrize(
    ("begun", "later", "overdue"),
    [
        (b"p1 ping", b"", True),
        (b"p1 ping", b" and on and on", True),
        (b"p1 ping", b"\n", False),
        (b"p1 ping", b"\np2 ping", False),
        (b"p1 ping\n", b"", False),
        (b"\n", b"p1", False),
        (b"x" * 100, b"", True),
        (b"x" * 100, b"x" * 100, True),
        (b"x" * 100, b"\n", False),
        (b"x" * 100, b"\np1", False),
    ],
    ids=lambda value: value.decode()[:12] if isinstance(value, bytes) else str(value),
)
def test_who_is_overdue(begun: bytes, later: bytes, overdue: bool) -> None:
    """A line that is too long counts too, though it is not kept."""
    stage = Stage(max_line=64)
    client = stage.connect()
    stage.broker.feed(client, begun)
    for seconds in (0, 30, 59):
        stage.now = seconds
        assert stage.broker.overdue() == []
    stage.broker.feed(client, later)
    stage.now = 60
    assert (stage.broker.overdue() == [client]) == overdue


def test_whom_the_broker_does_not_hear_is_not_overdue() -> None:
    stage = Stage()
    client = stage.connect()
    stage.broker.feed(client, b"p1 ping")
    assert stage.broker.overdue() == []
    stage.broker.core.block(client)
    for seconds in (60, 120):
        stage.now = seconds
        assert stage.broker.overdue() == []
    stage.broker.core.unblock(client)
    assert stage.broker.overdue() == [], "its time begins anew"
    stage.now += 60
    assert stage.broker.overdue() == [client]


def test_without_a_time_limit_nobody_is_overdue() -> None:
    stage = Stage(limits=Limits(line_timeout=0))
    stage.broker.feed(stage.connect(), b"p1 ping")
    for stage.now in (0, 1e6):
        assert stage.broker.overdue() == []


# ---- Disk


def test_what_is_to_stay_free_of_the_disk_stays_free() -> None:
    on_disk = OnDisk(min_free=1 << 30)
    disk, client = on_disk.disk, on_disk.connect()
    assert on_disk.say(client, b"r1 rebind q1 e1", b"m1 publish e1 d1") == []
    disk.capacity = 1 << 30  # of which something is used: others have filled the rest
    on_disk.wait(1.0)
    [refused] = on_disk.say(client, b"m2 publish e1 d2")
    assert refused.startswith(b"m2 error ")
    journal = on_disk.broker.journal
    assert journal and journal.full and "less than --min-free-disk, 1073741824)" in journal.full
    assert on_disk.say(client, b"c1 consume q1 --manual-ack") == [b"c1 ok m1 event=e1 d1"]
    assert on_disk.say(client, b"a1 ack --confirm c1 m1") == []
    on_disk.work()
    assert on_disk.said(client) == [b"a1 ok "], "what was taken can be settled"
    checkpoints = {name for name in disk.entries if name.endswith(".checkpoint")}
    on_disk.wait(60.0)
    assert {name for name in disk.entries if name.endswith(".checkpoint")} != checkpoints, (
        "else nothing could be removed"
    )
    disk.capacity = MUCH
    on_disk.wait(1.0)
    assert on_disk.say(client, b"m3 publish e1 d3") == [b"c1 ok m3 event=e1 d3"]
    assert journal.full is None


def test_a_start_on_a_disk_that_is_short() -> None:
    on_disk = OnDisk()
    on_disk.say(on_disk.connect(), b"r1 rebind q1 e1", b"m1 publish e1 d1")
    on_disk.work()
    on_disk.options = {"min_free": 2 * MUCH}
    for begin_again in (on_disk.crash, on_disk.stop):
        begin_again()
        client = on_disk.connect()
        [refused] = on_disk.say(client, b"m2 publish e1 d2")
        assert refused.startswith(b"m2 error ")
    assert on_disk.drain() == [b"m1 event=e1 d1"]


def filled(**options: int) -> OnDisk:
    """A queue has messages in many small segments, of which only acks can free the disk."""
    on_disk = OnDisk(segment_size=1 << 20, retain_bytes=1 << 20, **options)
    client = on_disk.connect()
    on_disk.say(client, b"r1 rebind q1 e1")
    for number in range(300):
        on_disk.say(client, b"m%d publish e1 %s" % (number, b"x" * 100_000))
        on_disk.work()
    return on_disk


def takes_again(on_disk: OnDisk) -> bool:
    on_disk.wait(60.0)  # a checkpoint, and segments go
    on_disk.wait(1.0)
    return on_disk.say(on_disk.connect(), b"again publish e1 d1") == []


def test_a_disk_that_was_short_for_long_is_freed_by_acks_alone() -> None:
    on_disk = filled(min_free=8 << 20)
    on_disk.disk.capacity -= on_disk.disk.space()[0] - (8 << 20) + 1
    on_disk.wait(60.0)  # with a checkpoint of all that was published
    on_disk.wait(60.0)
    assert on_disk.broker.journal and on_disk.broker.journal.full
    assert len(on_disk.drain()) == 300
    assert takes_again(on_disk)


def test_a_start_with_less_than_is_reserved_and_more_than_is_spared() -> None:
    """Checkpoints are made, else nothing would ever go."""
    on_disk = filled(min_free=8 << 20)
    on_disk.wait(1.0)
    on_disk.disk.crash(power_loss=True)  # so that nothing is reserved
    on_disk.disk.capacity -= on_disk.disk.space()[0] - (10 << 20)
    on_disk.start()
    journal = on_disk.broker.journal
    assert journal and journal.full and "--min-free-disk" not in journal.full
    assert len(on_disk.drain()) == 300
    assert takes_again(on_disk)


def test_acks_do_not_put_off_the_look_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each finds that the disk has no room, and old segments go only when somebody looks."""
    on_disk = OnDisk()
    client = on_disk.connect()
    on_disk.say(client, b"c1 consume q1 e1 --manual-ack", *(b"m%d publish e1 d1" % number for number in range(10)))
    on_disk.work()
    on_disk.said(client)
    journal = on_disk.broker.journal
    assert journal
    looks = []
    monkeypatch.setattr(journal, "retain", lambda: looks.append(on_disk.now))
    monkeypatch.setattr(Reserve, "has_room", lambda *_: False)
    on_disk.now = 0.0
    for number in range(10):
        on_disk.say(client, b"a1 ack c1 m%d" % number)
        on_disk.wait(0.5)
    assert journal.full
    assert looks == [1.0, 2.0, 3.0, 4.0, 5.0]


# ---- By flags, over sockets


def test_over_sockets() -> None:
    flags = ("--max-connections-per-address=2", "--line-timeout=0.1", "--max-rate=100", "--max-queues=1")
    with running_broker(*flags) as broker, ExitStack() as stack:
        one = stack.enter_context(closing(Connection(broker.port)))
        slow = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), PATIENCE))
        slow.sendall(b"p1 ping")
        with slow.makefile("rb") as said:
            begun, error_id = said.readline().split(b" error ")
            assert begun == b"-" and said.readline() == b""
        assert broker.wait_for_log(rf"error {error_id.decode().strip()} client=\S+ reason='a line did not end")
        two = stack.enter_context(closing(Connection(broker.port)))
        three = stack.enter_context(closing(Connection(broker.port)))
        error_id = three.line().removeprefix(b"- error ")
        assert broker.wait_for_log(rf"error {error_id.decode()} client=\S+ reason='--max-connections-per-address is")
        two.send(b"".join(b"p%d ping\n" % number for number in range(150)))
        assert [two.line() for _ in range(150)] == [b"p%d ok " % number for number in range(150)]
        assert broker.wait_for_log(rf"client {two.address} is slowed down: .* --max-rate")
        assert one.ask("r1 rebind --confirm q1 e1") == "r1 ok "
        assert one.ask("r2 rebind --confirm q2 e1").startswith("r2 error ")
        times = one.ask("~ _eval sorted((name, times) for name, times in state.limits.items() if times)")
        wanted = ("line_timeout", "max_connections_per_address", "max_queues", "max_rate")
        assert times == f"~ ok {list(product(wanted, (1,)))}"
