"""The session against a scripted peer: publishes, requests, keep-alive.

Consumers are in test_session_wanted.py, receivers and histories in test_session_read.py.
"""

import logging

import pytest

from mqks.client.errors import ConnectionLost, MqksError, Refused
from mqks.client.session import FIRST_DELAY, LONGEST_DELAY
from tests.client.talk import CUTS, Talk

Answers = list[str | MqksError]


@pytest.fixture(params=CUTS, ids=lambda cut: cut.__name__)
def talk(request: pytest.FixtureRequest) -> Talk:
    return Talk(request.param)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# ── publishing ──


def test_what_is_published_while_away_is_sent_in_order_when_connected(talk: Talk) -> None:
    for number in range(3):
        talk.session.publish("e1", f"d{number}", id=f"m{number}")
    talk("""
        > (nothing)
        * connected
        > m0 publish e1 d0
        > m1 publish e1 d1
        > m2 publish e1 d2
        > {p1} ping keep-alive
    """)
    talk.session.publish("e1", "d3", id="m3")
    talk("* lost")
    talk.session.publish("e1", "d4", id="m4")
    talk("""
        * connected
        > m3 publish e1 d3
        > m4 publish e1 d4
        > {p2} ping keep-alive
    """)


@pytest.mark.parametrize("answer", ["m1 ok␠", "m1 ok"])
def test_a_confirm(talk: Talk, answer: str) -> None:
    done: Answers = []
    talk("""
        * connected
        > {p1} ping keep-alive
    """)
    talk.session.publish("e1", "d1", id="m1", done=done.append)
    talk("> m1 publish --confirm e1 d1")
    assert done == []
    talk(f"< {answer}")
    assert done == [""]
    talk(f"< {answer}")
    assert done == [""]


def test_a_confirm_that_is_missing_is_asked_for_again_under_the_same_id(talk: Talk) -> None:
    done: Answers = []
    talk("""
        * connected
        > {p1} ping keep-alive
    """)
    talk.session.publish("e1", "d1", id="m1", done=done.append)
    talk.session.publish("e1", "d2", id="m2", done=done.append)
    talk("""
        > m1 publish --confirm e1 d1
        > m2 publish --confirm e1 d2
        < m1 ok␠
        * lost
        * connected
        > m2 publish --confirm e1 d2
        > {p2} ping keep-alive
        * lost
        * connected
        > m2 publish --confirm e1 d2
        > {p3} ping keep-alive
        < m2 ok␠
        * lost
        * connected
        > {p4} ping keep-alive
    """)
    assert done == ["", ""]


def test_half_an_answer_is_none(talk: Talk) -> None:
    done: Answers = []
    talk("* connected")
    talk.session.publish("e1", "d1", id="m1", done=done.append)
    talk("""
        > {p1} ping keep-alive
        > m1 publish --confirm e1 d1
    """)
    talk.session.received(b"m1 ok ")
    talk("""
        * lost
        * connected
        > m1 publish --confirm e1 d1
        > {p2} ping keep-alive
    """)
    assert done == []
    talk("< m1 ok␠")
    assert done == [""]


def test_a_confirmed_publish_that_never_left_is_not_sent_twice(talk: Talk) -> None:
    done: Answers = []
    talk("""
        * connected
        > {p1} ping keep-alive
    """)
    talk.session.publish("e1", "d1", id="m1", done=done.append)
    talk("> m1 publish --confirm e1 d1")
    talk.session.publish("e1", "d2", id="m2", done=done.append)
    talk.session.publish("e1", "d3", id="m3")
    talk("""
        * lost
        * connected
        > m1 publish --confirm e1 d1
        > m2 publish --confirm e1 d2
        > m3 publish e1 d3
        > {p2} ping keep-alive
    """)


def test_publishes_that_may_arrive_twice_are_said_unless_once(talk: Talk, caplog: pytest.LogCaptureFixture) -> None:
    talk("* connected")
    talk.session.publish("e1", "d1", id="m1", done=print)
    talk.session.publish("e1", "d2", id="m2", done=print, once="--once")
    talk("""
        > {p1} ping keep-alive
        > m1 publish --confirm e1 d1
        > m2 publish --confirm --once e1 d2
        * lost
        * connected
        > m1 publish --confirm e1 d1
        > m2 publish --confirm --once e1 d2
        > {p2} ping keep-alive
    """)
    assert warnings(caplog) == ["publishes without an answer that are sent again, and may arrive twice: 1"]


def test_a_refused_publish(talk: Talk, caplog: pytest.LogCaptureFixture) -> None:
    done: Answers = []
    talk("* connected")
    talk.session.publish("e1", "d1", id="m1", done=done.append)
    talk.session.publish("e1", "d2", id="m2")
    talk("""
        > {p1} ping keep-alive
        > m1 publish --confirm e1 d1
        > m2 publish e1 d2
        < m1 error 1234
        < m2 error 5678
        * lost
        * connected
        > {p2} ping keep-alive
    """)
    (refused,) = done
    assert isinstance(refused, Refused)
    assert (refused.error_id, refused.request) == ("1234", "m1 publish --confirm e1 d1")
    assert any("m2: error 5678" in warning for warning in warnings(caplog))


@pytest.mark.parametrize("length", [5, 99, 100, 101, 5000])
def test_a_refused_publish_is_known_by_its_whole_id(talk: Talk, length: int) -> None:
    done: Answers = []
    id = "i" * length
    talk("* connected")
    talk.session.publish("e1", "d" * 1000, id=id, done=done.append)
    talk(f"""
        > {{p1}} ping keep-alive
        > {id} publish --confirm e1 {"d" * 1000}
        < {id} error 1234
    """)
    (refused,) = done
    assert isinstance(refused, Refused)
    assert refused.id == id
    assert len(refused.request) == max(length, 100)
    assert len(str(refused)) < 200


def test_the_log_counts_publishes_at_risk(talk: Talk, caplog: pytest.LogCaptureFixture) -> None:
    talk("* connected")
    talk.session.publish("e1", "d1", id="m1")
    talk("""
        > {p1} ping keep-alive
        > m1 publish e1 d1
        < {p1} ok keep-alive
        * tick
    """)
    talk.session.publish("e1", "d2", id="m2")
    talk.session.send('{"x": 3}', id="m3")
    talk("""
        > {p2} ping keep-alive
        > m2 publish e1 d2
        > m3 send {"x": 3}
        < {p2} ok keep-alive
    """)
    talk.session.publish("e1", "confirmed", id="m4", done=print)
    talk("> m4 publish --confirm e1 confirmed")
    talk.session.publish("e1", "never left", id="m5")
    talk("* lost")
    # m1 was before the ping that was answered, m4 is sent again, m5 is still here
    assert warnings(caplog) == ["connection lost; publishes without confirm that may be lost with it: 2"]
    caplog.clear()
    talk("""
        * connected
        > m4 publish --confirm e1 confirmed
        > m5 publish e1 never left
        > {p3} ping keep-alive
        < {p3} ok keep-alive
    """)
    caplog.clear()
    talk("* lost")
    assert warnings(caplog) == []


def test_an_answered_send_is_not_at_risk(talk: Talk, caplog: pytest.LogCaptureFixture) -> None:
    """SEVX answers each `send`, also where nobody waits for it: with ok, or with an error."""
    talk("""
        * connected
        > {p1} ping keep-alive
    """)
    talk.session.publish("e1", "d1", id="m0")
    for number in range(1, 5):
        talk.session.send("{}", id=f"s{number}")
    talk("""
        > m0 publish e1 d1
        > s1 send {}
        > s2 send {}
        > s3 send {}
        > s4 send {}
        < s1 ok␠
        < s2 ok␠
    """)
    talk.session.send("{}", id="s5")
    talk("* lost")
    # m0 was before s1, and s5 is still here
    assert warnings(caplog) == ["connection lost; publishes without confirm that may be lost with it: 2"]
    caplog.clear()
    talk.session.publish("e1", "d6", id="m6")
    talk("""
        * connected
        > s5 send {}
        > m6 publish e1 d6
        > {p2} ping keep-alive
        < s5 ok␠
        * lost
    """)
    assert warnings(caplog) == ["connection lost; publishes without confirm that may be lost with it: 1"]
    talk.session.send("{}", id="s7")
    caplog.clear()
    talk("""
        * connected
        > s7 send {}
        > {p3} ping keep-alive
        < s7 error 2026
    """)
    caplog.clear()
    talk("* lost")
    assert warnings(caplog) == []


def test_what_nobody_waits_for_any_more_is_no_publish_at_risk(talk: Talk, caplog: pytest.LogCaptureFixture) -> None:
    talk("""
        * connected
        > {p1} ping keep-alive
    """)
    talk.session.forget(talk.session.publish("e1", "d1", id="m1", done=print))
    talk("* lost")
    assert warnings(caplog) == []


@pytest.mark.parametrize("data", ["a\nb", "a\tb", "a\0b", "a\r", "\ud800", {"x": "\ud800"}])
def test_what_a_line_cannot_carry_leaves_nothing_behind(talk: Talk, data: object) -> None:
    with pytest.raises(ValueError, match=r"may not|can't encode"):
        talk.session.publish("e1", data, done=print)
    talk.session.publish("e1", "d1", id="m1")
    talk("""
        * connected
        > m1 publish e1 d1
        > {p1} ping keep-alive
    """)


@pytest.mark.parametrize("event", ["", "two words", "--flag", "{x", "-", "a,retry=1", "a\n"])
def test_what_is_no_event(talk: Talk, event: str) -> None:
    with pytest.raises(ValueError, match="no name for an event"):
        talk.session.publish(event, "d1")
    talk("""
        * connected
        > {p1} ping keep-alive
    """)


def test_an_id_that_waits_already(talk: Talk) -> None:
    talk.session.publish("e1", "d1", id="m1", done=print)
    with pytest.raises(ValueError, match="waits for its confirm already"):
        talk.session.publish("e1", "d2", id="m1")


# ── requests ──


def test_a_request_is_answered_or_asked_again(talk: Talk) -> None:
    done: Answers = []
    talk.session.ask("stats", done.append)
    talk("""
        * connected
        > {r1} stats
        > {p1} ping keep-alive
        * lost
        * connected
        > {r1} stats
        > {p2} ping keep-alive
        < {r1} ok {"queues": {}}
        < {r1} ok {"queues": {}}
        * lost
        * connected
        > {p3} ping keep-alive
    """)
    assert done == ['{"queues": {}}']


def test_a_request_for_this_connection_only(talk: Talk) -> None:
    done: Answers = []
    talk.session.ask("ping 1", done.append, again=False)
    talk("* connected")
    talk.session.ask("ping 2", done.append, again=False)
    talk("""
        > {p1} ping keep-alive
        > {r2} ping 2
        * lost
        * connected
        > {p2} ping keep-alive
    """)
    assert [type(answer) for answer in done] == [ConnectionLost, ConnectionLost]


def test_a_request_that_is_forgotten(talk: Talk) -> None:
    done: Answers = []
    talk("* connected")
    id = talk.session.ask("stats", done.append)
    talk("""
        > {p1} ping keep-alive
        > {r1} stats
    """)
    talk.session.forget(id, "unknown")
    talk("""
        > (nothing)
        < {r1} ok late
        * lost
    """)
    talk.session.forget(talk.session.ask("stats", done.append))
    talk("""
        * connected
        > {p2} ping keep-alive
    """)
    assert done == []
    assert talk.session.size == 0


def test_answers_to_nobody(talk: Talk, caplog: pytest.LogCaptureFixture) -> None:
    talk("""
        * connected
        > {p1} ping keep-alive
        < - error 1234
        < unknown ok m1 event=e1 d1
        < unknown ok
        < unknown error 5678
        < {p1} ok keep-alive
        * tick
    """)
    first, more = warnings(caplog)  # of many only the number is told
    assert "-: error 1234" in first
    assert more.endswith(": 1")


def test_the_end(talk: Talk, caplog: pytest.LogCaptureFixture) -> None:
    done: Answers = []
    taken = talk.consumer("q1", ["e1"])
    talk("* connected")
    talk.session.publish("e1", "d1", done=done.append)
    talk.session.publish("e1", "d2")
    talk.session.ask("stats", done.append)
    closed = ConnectionLost("closed")
    talk("* lost")
    talk.session.end(closed)
    talk.session.write_notes()
    assert done == [closed, closed]
    assert taken.ends == [None]
    assert any("never sent" in line and line.endswith(": 2") for line in warnings(caplog))
    talk("""
        * connected
        > {p1} ping keep-alive
    """)


# ── keep-alive and backoff ──


def test_a_connection_is_dead_one_tick_after_a_ping_without_a_byte(talk: Talk) -> None:
    talk("""
        * connected
        > {p1} ping keep-alive
        < {p1} ok keep-alive
        * tick
        > {p2} ping keep-alive
        < {p2} ok keep-alive
        * tick
        > {p3} ping keep-alive
        * dead
    """)


def test_any_byte_counts(talk: Talk) -> None:
    talk("* connected")
    for byte in b"m1 o":
        talk.session.received(bytes([byte]))
        talk("* tick")
    talk("* dead")


def test_a_new_connection_is_not_held_guilty_for_the_old_one(talk: Talk) -> None:
    talk("""
        * connected
        * dead
        * lost
        * connected
        > {p2} ping keep-alive
        < {p2} ok keep-alive
        * tick
        > {p3} ping keep-alive
    """)


def test_backoff_grows_to_its_longest_and_starts_anew_with_an_answer(talk: Talk) -> None:
    session = talk.session
    longest = [min(LONGEST_DELAY, FIRST_DELAY * 2**attempt) for attempt in range(20)]
    for most in longest:
        assert most / 2 <= session.connect_failed() <= most
    talk("* connected")  # a connection that says nothing is no better than none
    talk("* lost")
    assert session.connect_failed() >= LONGEST_DELAY / 2
    talk("* connected")
    session.received(b"- error e1\n")  # nor is one that turns us away
    talk("* lost")
    assert session.connect_failed() >= LONGEST_DELAY / 2
    talk("""
        * connected
        > {p1} ping keep-alive
        < {p1} ok keep-alive
        * lost
    """)
    assert session.connect_failed() <= FIRST_DELAY


def test_backoff_has_jitter(talk: Talk) -> None:
    for _ in range(10):
        talk.session.connect_failed()
    assert len({talk.session.connect_failed() for _ in range(10)}) > 5
