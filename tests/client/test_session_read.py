"""The session against a scripted peer: receivers (SEVX), and histories page by page."""

import json
import logging
from typing import Any

import pytest

from mqks.client import session as session_module
from mqks.client import wanted as wanted_module
from mqks.client.errors import MqksError, Refused
from tests.client.talk import CUTS, Talk

Answers = list[str | MqksError]


@pytest.fixture(params=CUTS, ids=lambda cut: cut.__name__)
def talk(request: pytest.FixtureRequest) -> Talk:
    return Talk(request.param)


# ── receivers (SEVX) ──


def test_a_receiver_learns_its_pattern(talk: Talk, caplog: pytest.LogCaptureFixture) -> None:
    taken = talk.receiver("q1", {"obj": "user"}, manual_ack=True, delete_queue_when_unused=5.42)
    options = '"delete_queue_when_unused": 5.42, "manual_ack": true'
    talk("* connected")
    talk(f"""
        > {{c1}} recv --prefetch=100 {{"pattern": {{"obj": "user"}}, "queue": "q1", {options}}}
        > {{p1}} ping keep-alive
    """)
    talk("""
        < {c1} ok␠
        < {c1} ok m1 {"obj": "user", "n": 1}
        < {c1} ok {"update": {"queue": "q1", "pattern": {"obj": "cart"}}}
    """)
    (message,) = taken.items
    assert (message.id, message.event, message.json) == ("m1", "", {"obj": "user", "n": 1})
    talk.session.settle(taken.wanted, message, "ack")
    talk('> {s1} ack {"receiver_id": "{c1}", "event_id": "m1"}')
    talk.session.settle(taken.wanted, None, "reject")
    talk('> {s2} reject {"receiver_id": "{c1}", "all": true}')
    done: Answers = []
    talk.session.settle(taken.wanted, message, "ack", done.append)
    talk('> {a1} ack {"receiver_id": "{c1}", "event_id": "m1"}\n< {a1} ok')
    assert done == [""]
    talk("* lost\n* connected")
    said = talk.session.outgoing().splitlines()
    assert json.loads(said[0].split(b" ", 3)[3])["pattern"] == {"obj": "cart"}
    assert said[0].split()[0].decode() == taken.wanted.id != talk.names["c1"]
    talk.session.unwant(taken.wanted)
    assert json.loads(talk.session.outgoing().split(b" ", 2)[2]) == {"receiver_id": said[0].split()[0].decode()}
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_receiver_whose_queue_was_deleted_is_at_its_end(talk: Talk) -> None:
    taken = talk.receiver("q1", {})
    talk("* connected")
    talk("""
        > {c1} recv {"pattern": {}, "queue": "q1"}
        > {p1} ping keep-alive
        < {c1} ok␠
        < {c1} ok m1 {"n": 1}
        < {c1} ok {"update": {"queue": "q1", "pattern": null}}
        < {c1} ok m2 {"n": 2}
        > (nothing)
        * lost
        * connected
        > {p2} ping keep-alive
    """)
    assert taken.shown == ['m1  {"n": 1}']
    assert taken.ends == [None]


def test_a_receiver_that_is_paused(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "MOST_WAITING", 10)
    taken = talk.receiver("q1", {})
    taken.quick = False
    talk("""
        * connected
        > {c1} recv {"pattern": {}, "queue": "q1"}
        > {p1} ping keep-alive
        < {c1} ok m1 {"n": "some bytes"}
        > {a1} pause {c1}
    """)
    taken.take()
    talk("> {c1} resume {c1}")


# ── histories ──


@pytest.fixture
def pages_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wanted_module, "PAGE", 2)


@pytest.mark.usefixtures("pages_of_two")
@pytest.mark.parametrize("quick", [True, False])
def test_a_history_is_asked_for_page_by_page(talk: Talk, quick: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "MOST_WAITING", 1)
    taken = talk.history("earliest", quick=quick, to="100", events=["e1", "a.*"])
    talk("""
        * connected
        > {h} history earliest --limit=2 --to=100 --events=e1,a.*
        > {p1} ping keep-alive
        < {h} ok 0 m1 event=e1 d1
        < {h} ok 20 m2 event=a.b␠
        < {h} ok --end 40
    """)
    if not quick:
        talk("> (nothing)")  # a slow reader holds one page
        taken.take()
    talk("""
        > {h} history 40 --limit=2 --to=100 --events=e1,a.*
        < {h} ok 40 m3 event=e1 d3
        < {h} ok --end 100
        > (nothing)
    """)
    assert taken.shown == ["m1 e1 d1", "m2 a.b ", "m3 e1 d3"]
    assert [item.position for item in taken.items] == [0, 20, 40]
    assert taken.ends == [None]


@pytest.mark.usefixtures("pages_of_two")
def test_the_end_of_a_page_may_come_when_all_of_it_is_taken(talk: Talk) -> None:
    taken = talk.history("0", follow=True)
    talk("""
        * connected
        > {h} history 0 --limit=2 --follow
        > {p1} ping keep-alive
        < {h} ok 0 m1 event=e1 d1
        < {h} ok 20 m2 event=e1 d2
    """)
    taken.take()
    talk("""
        < {h} ok --end 40
        > {h} history 40 --limit=2 --follow
    """)


@pytest.mark.usefixtures("pages_of_two")
def test_a_history_goes_on_where_the_connection_was_lost(talk: Talk) -> None:
    taken = talk.history("earliest", follow=True, limit=5)
    talk("""
        * connected
        > {h1} history earliest --limit=2 --follow
        > {p1} ping keep-alive
        < {h1} ok 0 m1 event=e1 d1
        * lost
        * connected
        > {h2} history 0 --limit=3 --follow
        > {p2} ping keep-alive
        < {h2} ok 0 m1 event=e1 d1
        * lost
        * connected
        > {h3} history 0 --limit=3 --follow
        > {p3} ping keep-alive
        < {h3} ok 0 m1 event=e1 d1
        < {h3} ok 20 m2 event=e1 d2
        < {h3} ok 40 m3 event=e1 d3
        < {h3} ok --end 60
        > {h3} history 60 --limit=2 --follow
        * lost
        * connected
        > {h4} history 60 --limit=2 --follow
        > {p4} ping keep-alive
        < {h4} ok 60 m4 event=e1 d4
        < {h4} ok 80 m5 event=e1 d5
        < {h4} ok --end 100
        > (nothing)
    """)
    assert [item.id for item in taken.items] == ["m1", "m2", "m3", "m4", "m5"]
    assert taken.ends == [None]


@pytest.mark.usefixtures("pages_of_two")
def test_latest_is_pinned(talk: Talk) -> None:
    taken = talk.history("latest", follow=True)
    talk("""
        * connected
        > {h1} history latest --to=latest
        > {p1} ping keep-alive
        < {h1} ok --end 700
        > {h1} history 700 --limit=2 --follow
        * lost
        * connected
        > {h2} history 700 --limit=2 --follow
        > {p2} ping keep-alive
        < {h2} ok 710 m1 event=e1 d1
    """)
    assert taken.shown == ["m1 e1 d1"]


def test_a_followed_history_outlives_a_broker_that_stops_in_order(talk: Talk) -> None:
    taken = talk.history("0", follow=True)
    talk("""
        * connected
        > {h1} history 0 --limit=1000 --follow
        > {p1} ping keep-alive
        < {h1} ok 0 m1 event=e1 d1
        < {h1} ok --end 20
        * lost
        * connected
        > {h2} history 20 --limit=1000 --follow
        > {p2} ping keep-alive
        < {h2} ok 20 m2 event=e1 d2
    """)
    assert taken.ends == []
    assert taken.shown == ["m1 e1 d1", "m2 e1 d2"]


def test_a_followed_history_has_an_end_where_it_was_told_to(talk: Talk) -> None:
    """Whether the broker stops or the end is reached shows when it is asked from there again."""
    taken = talk.history("0", follow=True, to="30")
    talk("* connected")
    talk.session.outgoing()
    answers: list[str] = ["< {h} ok 0 m1 event=e1 d1\n< {h} ok --end 30", "< {h} ok --end 30"]
    while answers and not taken.ends:
        talk.names["h"] = taken.wanted.id
        talk(answers.pop(0))
    assert taken.ends == [None]
    assert taken.shown == ["m1 e1 d1"]


@pytest.mark.parametrize("options", [{}, {"follow": True}])
def test_a_history_that_is_refused_or_not_wanted_any_more(talk: Talk, options: dict[str, Any]) -> None:
    refused, left = talk.history("99", **options), talk.history("0", **options)
    talk("* connected")
    talk.session.outgoing()
    talk.names |= {"h1": refused.wanted.id, "h2": left.wanted.id}
    talk.session.unwant(left.wanted)
    talk("""
        > {d} delete_consumer --confirm {h2}
        < {h1} error 1234
        < {d} ok␠
        < {h2} ok 0 m1 event=e1 nobody wants it
        < {h2} ok --end 20
        > (nothing)
        * lost
        * connected
        > {p2} ping keep-alive
    """)
    assert isinstance(refused.ends[0], Refused)
    assert (left.ends, left.shown) == ([None], [])
