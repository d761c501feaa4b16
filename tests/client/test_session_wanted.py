"""The session against a scripted peer: consumers, and what becomes of acks."""

import pytest

from mqks.client import session as session_module
from mqks.client.errors import ConnectionLost, MqksError, Refused
from mqks.client.wire import Message
from tests.client.talk import CUTS, Talk


@pytest.fixture(params=CUTS, ids=lambda cut: cut.__name__)
def talk(request: pytest.FixtureRequest) -> Talk:
    return Talk(request.param)


# ── consumers ──


def test_each_connection_is_told_what_is_wanted_under_new_ids(talk: Talk) -> None:
    first = talk.consumer("q1", ["e1", "e2"], manual_ack=True)
    second = talk.consumer("q2", ["e3"], delete_queue_when_unused=5)
    talk("""
        > (nothing)
        * connected
        > {c1} consume --confirm q1 e1 e2 --manual-ack --prefetch=100
        > {c2} consume --confirm q2 e3 --delete-queue-when-unused=5.0
        > {p1} ping keep-alive
        < {c1} ok␠
        < {c2} ok
    """)
    third = talk.consumer("q3", add_events=["e4"], manual_ack=True, prefetch=7, delete_queue_when_unused=True)
    talk("""
        > {c3} consume --confirm q3 --add e4 --delete-queue-when-unused --manual-ack --prefetch=7
        < {c1} ok m1 event=e1 d1
        < {c2} ok m2 event=e3,retry=2 d2 and more
        * lost
        * connected
        > {d1} consume --confirm q1 e1 e2 --manual-ack --prefetch=100
        > {d2} consume --confirm q2 e3 --delete-queue-when-unused=5.0
        > {d3} consume --confirm q3 --add e4 --delete-queue-when-unused --manual-ack --prefetch=7
        > {p2} ping keep-alive
        < {d1} ok␠
        < {c2} ok m3 event=e3 of the old connection
        < {d2} ok m4 event=e3␠
    """)
    assert first.shown == ["m1 e1 d1"]
    assert second.shown == ["m2 e3 d2 and more", "m4 e3 "]
    assert [item.retry for item in second.items] == [2, 0]
    assert (first.said_ok, second.said_ok, third.said_ok) == (2, 1, 0)


@pytest.mark.parametrize(
    ("seconds", "said"), [(1 / 3, "0.333"), (0.1 + 0.2, "0.3"), (1e-5, "0.0"), (0, "0.0"), (1e15 - 1, f"{1e15 - 1}")]
)
def test_seconds_are_said_as_the_broker_takes_them(talk: Talk, seconds: float, said: str) -> None:
    talk.consumer("q1", ["e1"], delete_queue_when_unused=seconds)
    talk(f"""
        * connected
        > {{c1}} consume --confirm q1 e1 --delete-queue-when-unused={said}
        > {{p1}} ping keep-alive
    """)


def test_an_update_is_used_on_the_next_connection(talk: Talk) -> None:
    taken = talk.consumer("q1", ["e1"], add_events=["e2"], manual_ack=True, prefetch=0, delete_queue_when_unused=5)
    talk("""
        * connected
        > {c1} consume --confirm q1 e1 --add e2 --delete-queue-when-unused=5.0 --manual-ack
        > {p1} ping keep-alive
        < {c1} ok --update q1 e1 e2 --delete-queue-when-unused=5.0 --manual-ack
        < {c1} ok␠
        < {c1} ok --update q1 e2 e7 --manual-ack
        > (nothing)
        * lost
        * connected
        > {d1} consume --confirm q1 e2 e7 --manual-ack
        > {p2} ping keep-alive
        < {d1} ok --update q1 e2 e7 --delete-queue-when-unused --manual-ack
        * lost
        * connected
        > {f1} consume --confirm q1 e2 e7 --delete-queue-when-unused --manual-ack
        > {p3} ping keep-alive
    """)
    assert taken.shown == []
    assert list(taken.wanted.events) == ["e2", "e7"]


def test_a_queue_that_was_deleted_is_asked_for_again_under_the_same_id(talk: Talk) -> None:
    taken = talk.consumer("q1", ["e1"], delete_queue_when_unused=5)
    talk("""
        * connected
        > {c1} consume --confirm q1 e1 --delete-queue-when-unused=5.0
        > {p1} ping keep-alive
        < {c1} ok␠
        < {c1} ok --update q1
        > {c1} consume --confirm q1 --delete-queue-when-unused=5.0
        < {c1} ok␠
        < {c1} ok m1 event=e9 d1
    """)
    assert taken.shown == ["m1 e9 d1"]
    assert taken.ends == []


def test_a_deleted_queue_is_asked_for_again_with_the_flags_that_it_had(talk: Talk) -> None:
    """The update keeps the flags, so it looks like that of an emptied queue."""
    talk.consumer("q1", ["e1"], manual_ack=True, prefetch=7, delete_queue_when_unused=5)
    talk("""
        * connected
        > {c1} consume --confirm q1 e1 --delete-queue-when-unused=5.0 --manual-ack --prefetch=7
        > {p1} ping keep-alive
        < {c1} ok␠
        < {c1} ok --update q1 --delete-queue-when-unused=9.0 --manual-ack --prefetch=7
        > {c1} consume --confirm q1 --delete-queue-when-unused=9.0 --manual-ack --prefetch=7
        < {c1} ok --update q1 --manual-ack --prefetch=7
        > {c1} consume --confirm q1 --manual-ack --prefetch=7
    """)


def test_limits_are_stated_again_as_they_are_now(talk: Talk) -> None:
    talk.consumer("q1", ["e1"], limits={"max_length": 10, "overflow": "reject"})
    talk("""
        * connected
        > {c1} consume --confirm q1 e1 --max-length=10 --overflow=reject
        > {p1} ping keep-alive
        < {c1} ok␠
        < {c1} ok --update q1 e1 --max-length=20 --overflow=drop-oldest
        < {c1} ok --update q1 e1 e2
        * lost
        * connected
        > {d1} consume --confirm q1 e1 e2 --max-length=20 --overflow=drop-oldest
        > {p2} ping keep-alive
    """)


def test_refused_at_first_is_the_end(talk: Talk) -> None:
    taken = talk.consumer("q1", ["e1"])
    talk("""
        * connected
        > {c1} consume --confirm q1 e1
        > {p1} ping keep-alive
        < {c1} error 1234
        * tick
        > {p2} ping keep-alive
        * lost
        * connected
        > {p3} ping keep-alive
    """)
    (refused,) = taken.ends
    assert isinstance(refused, Refused)
    assert (refused.error_id, refused.request) == ("1234", "consume --confirm q1 e1")


def test_refused_later_is_asked_for_again_at_the_next_tick(talk: Talk) -> None:
    taken = talk.consumer("q1", ["e1"])
    talk("""
        * connected
        > {c1} consume --confirm q1 e1
        > {p1} ping keep-alive
        < {c1} ok␠
        * lost
        * connected
        > {c2} consume --confirm q1 e1
        > {p2} ping keep-alive
        < {c2} error 1234
        > (nothing)
        * tick
        > {c2} consume --confirm q1 e1
        > {p3} ping keep-alive
        < {c2} error 5678
        * tick
        > {c2} consume --confirm q1 e1
        > {p4} ping keep-alive
        < {c2} ok␠
        * tick
        > {p5} ping keep-alive
        < {c2} ok m1 event=e1 d1
    """)
    assert taken.ends == []
    assert taken.shown == ["m1 e1 d1"]


def test_not_wanted_any_more(talk: Talk) -> None:
    """What is on its way when somebody leaves still comes, and then the end."""
    first, second = talk.consumer("q1", ["e1"]), talk.consumer("q2", ["e2"])
    talk("""
        * connected
        > {c1} consume --confirm q1 e1
        > {c2} consume --confirm q2 e2
        > {p1} ping keep-alive
        < {c1} ok␠
    """)
    talk.session.unwant(first.wanted)
    talk.session.unwant(first.wanted)
    talk("""
        > {d1} delete_consumer --confirm {c1}
        < {c1} ok m1 event=e1 on its way
        < {c1} ok --update q1
        > (nothing)
    """)
    assert (first.ends, first.shown) == ([], ["m1 e1 on its way"])
    talk("""
        < {d1} ok␠
        < {c1} ok m2 event=e1 of nobody
    """)
    talk.session.delete_queue("q2")
    talk("""
        > (nothing)
        * lost
        * connected
        > {p2} ping keep-alive
    """)
    assert (first.ends, len(first.items), second.ends) == ([None], 1, [None])


@pytest.mark.parametrize("how", ["< {c1} error 1234", "< {c1} ok --update q1", "< {c1} ok␠", "* tick", "* lost"])
def test_whatever_happens_to_one_who_leaves_is_the_end_once(talk: Talk, how: str) -> None:
    taken = talk.consumer("q1", ["e1"])
    talk("""
        * connected
        > {c1} consume --confirm q1 e1
        > {p1} ping keep-alive
        < {p1} ok keep-alive
    """)
    talk.session.unwant(taken.wanted)
    talk("> {d1} delete_consumer --confirm {c1}")
    talk(how)
    talk.session.outgoing()
    talk("""
        < {d1} ok␠
        * lost
        * connected
        > {p3} ping keep-alive
    """)
    assert len(taken.ends) == 1


def test_one_who_leaves_while_away_is_gone_at_once(talk: Talk) -> None:
    taken = talk.consumer("q1", ["e1"])
    talk.session.unwant(taken.wanted)
    assert taken.ends == [None]
    talk("""
        * connected
        > {p1} ping keep-alive
    """)


@pytest.mark.parametrize("event", ["a,retry=b", "a,retry=", "a,retry=1,b", ",retry=x,retry=y", "a,retry=١٢"])
def test_an_event_may_almost_look_like_a_retry(talk: Talk, event: str) -> None:
    taken = talk.consumer("q1", [event])
    talk(f"""
        * connected
        > {{c1}} consume --confirm q1 {event}
        > {{p1}} ping keep-alive
        < {{c1}} ok m1 event={event} d1
        < {{c1}} ok m2 event={event},retry=12 d2
    """)
    assert [(item.event, item.retry) for item in taken.items] == [(event, 0), (event, 12)]


def test_a_line_that_no_broker_says_harms_one_connection_only(talk: Talk) -> None:
    first, second = talk.consumer("q1", ["e1"]), talk.consumer("q2", ["e1"])
    talk("""
        * connected
        > {c1} consume --confirm q1 e1
        > {c2} consume --confirm q2 e1
        > {p1} ping keep-alive
    """)
    with pytest.raises(ValueError, match=r"not|expected"):
        talk("""
            < {c1} ok m1 event=e1 d1
            < {c2} ok m2 event=e1 d2
            < {c1} ok junk
        """)
    talk("""
        * lost
        * connected
        > {d1} consume --confirm q1 e1
        > {d2} consume --confirm q2 e1
        > {p2} ping keep-alive
        < {d1} ok m3 event=e1 d3
        < {d2} ok m4 event=e1 d4
    """)
    assert (first.shown, second.shown) == (["m1 e1 d1", "m3 e1 d3"], ["m2 e1 d2", "m4 e1 d4"])


def test_bytes_that_are_no_text_come_and_go_as_they_are(talk: Talk) -> None:
    taken = talk.consumer("q1", ["e1"])
    data = bytes(byte for byte in range(256) if byte not in b"\n\t\0")
    text = data.decode("utf-8", "surrogateescape")
    talk.session.publish("e1", data, id="m1")
    talk.session.publish("e1", text, id="m2")
    talk.session.publish("e1", "é ☃ 🙂", id="m3")
    talk("* connected")
    sent = talk.session.outgoing().split(b"\n")
    assert sent[1:4] == [b"m1 publish e1 " + data, b"m2 publish e1 " + data, "m3 publish e1 é ☃ 🙂".encode()]
    for piece in talk.cut(b"%s ok m1 event=e1 %s\n" % (taken.wanted.id.encode(), data)):
        talk.session.received(piece)
    (message,) = taken.items
    assert message.bytes == data
    assert message.data == text


def test_a_consumer_that_is_not_read_is_paused_and_goes_on(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "MOST_WAITING", 100)
    slow, quick = talk.consumer("q1", ["e1"], quick=False), talk.consumer("q2", ["e1"])
    talk("""
        * connected
        > {c1} consume --confirm q1 e1
        > {c2} consume --confirm q2 e1
        > {p1} ping keep-alive
        < {c1} ok m1 event=e1 a short one
        > (nothing)
    """)
    talk("< {c1} ok m2 event=e1 " + "x" * 200)
    talk("""
        > {a1} pause {c1}
        < {c1} ok m3 event=e1 already on its way
        > (nothing)
        * lost
        * connected
        > {d1} consume --confirm q1 e1
        > {d2} consume --confirm q2 e1
        > {p2} ping keep-alive
        < {d1} ok m4 event=e1 d4
        < {d2} ok m5 event=e1 d5
        > {a2} pause {d1}
    """)
    slow.take()
    talk("> {d1} resume {d1}")
    slow.take()
    talk("> (nothing)")
    assert [item.id for item in slow.items] == ["m1", "m2", "m3", "m4"]
    assert quick.shown == ["m5 e1 d5"]


# ── acks ──


def test_acks_speak_of_the_connection_that_the_message_came_over(talk: Talk) -> None:
    taken = talk.consumer("q1", ["e1"], manual_ack=True)
    talk("""
        * connected
        > {c1} consume --confirm q1 e1 --manual-ack --prefetch=100
        > {p1} ping keep-alive
        < {c1} ok m1 event=e1 d1
        < {c1} ok m2 event=e1 d2
        < {c1} ok m3 event=e1 d3
    """)
    one, two, three = taken.items
    assert talk.session.settle(taken.wanted, one, "ack")
    assert talk.session.settle(taken.wanted, two, "reject")
    talk("""
        > {s1} ack {c1} m1
        > {s2} reject {c1} m2
    """)
    assert talk.session.settle(taken.wanted, three, "ack")
    assert not taken.wanted.is_stale(three)
    talk("* lost")
    assert not talk.session.settle(taken.wanted, three, "ack")
    assert not talk.session.settle(taken.wanted, None, "ack")
    talk("* connected")
    assert not talk.session.settle(taken.wanted, three, "ack")
    assert taken.wanted.is_stale(three)
    talk("""
        > {d1} consume --confirm q1 e1 --manual-ack --prefetch=100
        > {p2} ping keep-alive
        < {d1} ok m3 event=e1,retry=1 d3
    """)
    assert talk.session.settle(taken.wanted, None, "reject")
    talk("> {s3} reject {d1} --all")


def test_confirmed_acks_fail_with_their_connection(talk: Talk) -> None:
    taken = talk.consumer("q1", ["e1"], manual_ack=True)
    done: list[tuple[str, str | MqksError]] = []
    talk("""
        * connected
        > {c1} consume --confirm q1 e1 --manual-ack --prefetch=100
        > {p1} ping keep-alive
        < {c1} ok m1 event=e1 d1
        < {c1} ok m2 event=e1 d2
        < {c1} ok m3 event=e1 d3
    """)

    def ack(message: Message) -> None:
        talk.session.settle(taken.wanted, message, "ack", lambda result: done.append((message.id, result)))

    ack(taken.items[0])
    ack(taken.items[1])
    talk("""
        > {a1} ack --confirm {c1} m1
        > {a2} ack --confirm {c1} m2
        < {a1} ok␠
    """)
    assert done == [("m1", "")]
    ack(taken.items[2])
    talk("""
        * lost
        * connected
        > {d1} consume --confirm q1 e1 --manual-ack --prefetch=100
        > {p2} ping keep-alive
    """)
    assert [(id, type(result)) for id, result in done] == [("m1", str), ("m2", ConnectionLost), ("m3", ConnectionLost)]
