"""What is still allowed, and what is kept, when there may be no more queues, events, consumers, histories or holds."""

from dataclasses import fields
from typing import Any

import pytest

from mqks.broker.limits import REASONS, Limits
from mqks.broker.persistence.history import MOST_STREAMS
from mqks.broker.persistence.persistence import LONGEST_HOLD
from mqks.broker.protocol.words import MOST_WORDS
from tests.broker.on_disk import OnDisk
from tests.web.stage import Stage

# ---- Queues, events, consumers


def test_what_is_there_may_be_used_when_no_more_queues_are_made() -> None:
    stage = Stage(limits=Limits(max_queues=1))
    client = stage.connect()
    assert stage.ask(client, b"c1 consume --confirm q1 e1", b"r1 rebind --confirm q1 e1 e2") == [
        b"c1 ok ", b"c1 ok --update q1 e1 e2", b"r1 ok ",
    ]  # fmt: skip
    for refused in (b"s1 subscribe q2 e1", b"r2 rebind q2", b'v1 recv {"pattern": {}, "queue": "q2"}'):
        assert b" error " in stage.ask(client, refused)[0]
    assert list(stage.broker.queues.by_name) == [b"q1"]
    assert stage.ask(client, b"d1 delete_queue --confirm q1")[-1] == b"d1 ok "
    assert stage.ask(client, b"s2 subscribe --confirm q2 e1") == [b"s2 ok "]


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
    stage.ask(client, b"r0 rebind q1 e1 e2 e3")
    before = stage.broker.queues.by_name[b"q1"].definition()
    *_, answer = stage.ask(client, request_line)
    assert (b" error " not in answer) == taken
    if not taken:
        assert stage.broker.queues.by_name[b"q1"].definition() == before
        assert not client.consumers


@pytest.mark.parametrize("action", [b"consume", b"subscribe", b"rebind"])
def test_more_words_than_there_could_be_events_are_not_read(action: bytes, caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(limits=Limits(max_events=3))
    (answer,) = stage.ask(stage.connect(), b"x1 %s q1 --nope%s" % (action, b" e1" * (2 * 3 + MOST_WORDS)))
    assert answer.startswith(b"x1 error ")
    assert REASONS["max_events"] in caplog.text and "unknown flag" not in caplog.text
    assert stage.broker.limits.times["max_events"] == 1


def test_all_events_of_a_full_queue_can_be_removed_and_as_many_be_added_at_once() -> None:
    stage, most = Stage(), Limits().max_events
    client = stage.connect()
    old, new = (b" ".join(b"%s%d" % (kind, number) for number in range(most)) for kind in (b"old", b"new"))
    assert stage.ask(client, b"r1 rebind --confirm q1 " + old) == [b"r1 ok "]
    assert stage.ask(client, b"r2 rebind --confirm q1 --remove %s --add %s" % (old, new)) == [b"r2 ok "]
    assert stage.broker.queues.by_name[b"q1"].events == set(new.split())


@pytest.mark.parametrize("request_line", [b"pause c1", b"ack c1", b"delete_queue q1", b"hold h1", b"send"])
def test_where_few_words_are_expected_many_are_not_read(request_line: bytes, caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    (answer,) = stage.ask(stage.connect(), b"x1 %s%s {}" % (request_line, b" --nope" * (MOST_WORDS + 2)))
    assert answer.startswith(b"x1 error ")
    assert "too many words" in caplog.text


def test_the_event_that_a_pattern_names_counts_with_the_others() -> None:
    stage = Stage(limits=Limits(max_events=2))
    client = stage.connect()
    named = b'v1 recv {"pattern": {"event": "e1"}, "queue": "q1"}'
    assert stage.ask(client, named, b"r1 rebind --confirm q1 e1 e2")[-1] == b"r1 ok "
    assert b" error " in stage.ask(client, b"r2 rebind --confirm q1 e2 e3")[-1]


def test_a_consumer_that_is_there_may_be_changed_when_no_more_are_taken() -> None:
    stage = Stage(limits=Limits(max_consumers=1))
    one, another = stage.connect(), stage.connect()
    assert stage.ask(one, b"c1 consume --confirm q1 e1", b"c1 consume --confirm q1 --prefetch=5")[-1] == b"c1 ok "
    assert b" error " in stage.ask(one, b"c2 consume q2")[0]
    assert b"q2" not in stage.broker.queues.by_name, "what is refused changes nothing"
    assert stage.ask(another, b"c1 consume --confirm q1") == [b"c1 ok "]
    assert stage.ask(one, b"d1 delete_consumer c1", b"c2 consume --confirm q1") == [b"c2 ok "]


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
    stage.ask(client, b"c1 consume q1 e1 " + flags)
    assert client.consumers[b"c1"].prefetch == prefetch
    assert stage.broker.limits.times["max_unacked"] == (prefetch == limit > 0 and b"=10" not in flags)
    stage.ask(client, b"c2 consume q1", b"c2 consume q1 " + flags)
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
        assert len(on_disk.broker.queues.by_name) == 10
        assert all(
            len(queue.events) == 10 and queue.ready_count == 1 for queue in on_disk.broker.queues.by_name.values()
        )
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
    before = {name: queue.definition() for name, queue in on_disk.broker.queues.by_name.items()}
    assert len(before) == 4
    numbers: dict[str, Any] = {field.name: 1 for field in fields(Limits) if field.type in (int, float, "int", "float")}
    on_disk.options = {
        "limits": Limits(**numbers), "max_line": 10, "max_memory": 1, "high_water": 1, "dedup_count": 0,
        "dedup_window": 0, "segment_size": 1, "tail_memory": 0, "spill_after": 1, "checkpoint_bytes": 1,
        "retain_bytes": 1, "retain_age": 0,
    }  # fmt: skip
    for found_in in ("journal", "checkpoint"):
        on_disk.crash()
        assert {name: queue.definition() for name, queue in on_disk.broker.queues.by_name.items()} == before, found_in
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
    (answer,) = stage.ask(stage.connect(), b"h1 history earliest --events=" + events)
    assert answer.startswith(b"h1 ok --end" if taken else b"h1 error ")
    assert stage.broker.limits.times["max_events"] == (not taken)


def test_more_names_than_a_history_may_have_are_not_read(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(limits=Limits(max_events=5))
    stage.ask(stage.connect(), b"h1 history earliest --events=e1,e2,,,e5,e6")
    assert REASONS["max_events"] in caplog.text and "not a legal name" not in caplog.text


def test_a_history_that_has_ended_makes_room_for_another() -> None:
    stage = Stage()
    client = stage.connect()
    follow = [b"h%d history latest --follow" % number for number in range(MOST_STREAMS)]
    assert stage.ask(client, *follow) == []
    assert b" error " in stage.ask(client, b"h history latest --follow")[0]
    assert stage.ask(stage.connect(), *follow) == [], "each connection has its own"
    ended, begun = stage.ask(client, b"d delete_consumer h3", b"h history latest")
    assert (ended[:12], begun[:11]) == (b"h3 ok --end ", b"h ok --end ")


def test_a_hold_that_is_there_is_renewed_when_no_more_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of an older broker may have a longer name than a new one."""
    monkeypatch.setattr("mqks.broker.persistence.persistence.LONGEST_HOLD", 2 * LONGEST_HOLD)
    on_disk, older = OnDisk(), b"x" * (LONGEST_HOLD + 1)
    assert on_disk.say(on_disk.connect(), b"x hold %s earliest --for=9" % older) == []
    monkeypatch.undo()
    monkeypatch.setattr("mqks.broker.persistence.persistence.MOST_HOLDS", 2)
    on_disk.stop()
    client = on_disk.connect()
    for refused in (b"%sx" % older, b"y" * (LONGEST_HOLD + 1)):
        assert b" error " in on_disk.say(client, b"x hold %s earliest --for=9" % refused)[0]
    assert on_disk.say(client, b"x hold %s earliest --for=9" % (b"y" * LONGEST_HOLD)) == []
    assert b" error " in on_disk.say(client, b"x hold z earliest --for=9")[0]
    assert on_disk.say(client, b"x hold %s earliest --for=0" % older) == []
    on_disk.stop()
    assert on_disk.broker.persistence.journal
    assert list(on_disk.broker.persistence.journal.retention.holds) == [b"y" * LONGEST_HOLD]


def test_holds_that_have_ended_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqks.broker.persistence.persistence.MOST_HOLDS", 2)
    on_disk = OnDisk()
    client = on_disk.connect()
    assert on_disk.say(client, b"x hold a earliest --for=9", b"y hold b earliest --for=9") == []
    assert b" error " in on_disk.say(client, b"z hold c earliest --for=9")[0]
    assert on_disk.say(client, b"x hold a earliest --for=0", b"z hold c earliest --for=9") == []
    assert on_disk.broker.persistence.journal
    assert list(on_disk.broker.persistence.journal.retention.holds) == [b"b", b"c"]


def test_a_followed_history_whose_client_closes_ends_with_what_there_is_then() -> None:
    """Also one that has not read all of that: what comes later does not keep it."""
    on_disk = OnDisk()
    follower, publisher = on_disk.connect(), on_disk.connect()
    on_disk.say(publisher, b"m1 publish --confirm e1 d1")
    on_disk.work()
    on_disk.say(follower, b"h1 history earliest --follow")
    on_disk.broker.input_ended(follower)
    on_disk.say(publisher, b"m2 publish --confirm e1 d2")
    on_disk.work()
    on_disk.wait(1)
    first, end = on_disk.said(follower)
    assert first.endswith(b" m1 event=e1 d1")
    assert end.startswith(b"h1 ok --end ")
