"""POST /api/publish: each shape of a message arrives as it was meant, and each mistake is told."""

import json
from typing import Any

import pytest

import mqks.testing
from mqks.web.publishing import Publish, publish
from tests.running import Connection
from tests.web.asking import ask

CYRILLIC = "пример 例 🙂"


def new_id() -> bytes:
    return b"new"


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ({"event": "e1"}, "new publish --confirm e1 "),
        ({"event": "e1", "data": "two  words "}, "new publish --confirm e1 two  words "),
        ({"event": "e1", "data": "\r"}, "new publish --confirm e1 \r"),
        ({"event": "e1", "data": {"a": [1, None]}}, 'new publish --confirm e1 {"a":[1,null]}'),
        ({"event": "e1", "data": CYRILLIC}, f"new publish --confirm e1 {CYRILLIC}"),
        ({"event": "e1", "data": [CYRILLIC]}, f'new publish --confirm e1 ["{CYRILLIC}"]'),
        ({"event": "e1", "data": ["\ud800"]}, 'new publish --confirm e1 ["\\ud800"]'),
        ({"event": "e1", "data": ["a\nb\t\0"]}, 'new publish --confirm e1 ["a\\nb\\t\\u0000"]'),
        ({"event": "e1", "data": None}, "new publish --confirm e1 null"),
        ({"event": "e1", "data": 5, "id": "m1"}, "m1 publish --confirm e1 5"),
        ({"event": "e1", "id": None, "once": None}, "new publish --confirm e1 "),
        ({"event": "e1", "once": False}, "new publish --confirm e1 "),
        ({"event": "e1", "once": True}, "new publish --confirm --once e1 "),
        ({"event": "e1", "once": "s1", "id": "m1"}, "m1 publish --confirm --once=s1 e1 "),
    ],
)
def test_as_a_line(body: dict[str, Any], line: str) -> None:
    assert publish(body, new_id) == Publish(line.split()[0].encode(), b"e1", line.encode())


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (None, "send an object"),
        ([], "send an object"),
        ("e1", "send an object"),
        ({}, "event is missing"),
        ({"data": 1}, "event is missing"),
        ({"event": "e1", "dat": 1}, "unknown key 'dat'"),
        ({"event": ""}, "event must be a name"),
        ({"event": 1}, "event must be a name"),
        ({"event": None}, "event must be a name"),
        ({"event": "two words"}, "event must be a name"),
        ({"event": "a\nb"}, "event must be a name"),
        ({"event": "--confirm"}, "event must be a name"),
        ({"event": "{e"}, "event must be a name"),
        ({"event": "e,retry=1"}, "event must be a name"),
        ({"event": "\ud800"}, "event must be a name"),
        ({"event": "e1", "id": ""}, "id must be a name"),
        ({"event": "e1", "id": 7}, "id must be a name"),
        ({"event": "e1", "id": "-"}, "id must be a name"),
        ({"event": "e1", "once": 1}, "once must be a name"),
        ({"event": "e1", "once": "--s"}, "once must be a name"),
        ({"event": "e1", "data": "a\nb"}, "newline"),
        ({"event": "e1", "data": "a\tb"}, "newline, TAB or NUL"),
        ({"event": "e1", "data": "a\0b"}, "newline, TAB or NUL"),
        ({"event": "e1", "data": "\udfff"}, "surrogate"),
    ],
)
def test_mistakes(body: object, told: str) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        publish(body, new_id)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("data", ["hello", "x\r", "\r\r", {"n": 1}, [CYRILLIC], "", 1.5, True])
def test_arrives(web: mqks.testing.Broker, wire: Connection, data: object) -> None:
    wire.ask("c1 consume --confirm q1 e1")
    answer = ask(web, "/api/publish", "POST", {"event": "e1", "data": data, "id": "m1"})
    assert (answer.status, answer.json) == (200, {"id": "m1"})
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    assert wire.line().decode() == f"c1 ok m1 event=e1 {text}"


def test_an_id_is_made(web: mqks.testing.Broker, wire: Connection) -> None:
    wire.ask("c1 consume --confirm q1 e1")
    message_id = ask(web, "/api/publish", "POST", {"event": "e1"}).json["id"]
    assert len(message_id) == 24
    assert wire.line().decode() == f"c1 ok {message_id} event=e1 "


def test_once(web: mqks.testing.Broker) -> None:
    for _ in range(3):
        assert ask(web, "/api/publish", "POST", {"event": "e1", "id": "m1", "once": "s1"}).status == 200
    totals = ask(web, "/api/state").json["totals"]
    assert (totals["published"], totals["duplicates"]) == (1, 2)


def test_it_is_in_the_journal_when_it_is_answered(durable: mqks.testing.Broker) -> None:
    ask(durable, "/api/publish", "POST", {"event": "e1", "data": "d1", "id": "m1"})
    durable.restart()
    journal = ask(durable, "/api/journal").json
    message = ask(durable, f"/api/messages/{first_message(durable)}").json
    assert journal["durability"] == "always"
    assert (message["id"], message["event"], message["data"]) == ("m1", "e1", "d1")


def first_message(broker: mqks.testing.Broker) -> int:
    with mqks.connect(broker.url) as client:
        return next(iter(client.history("earliest"))).position


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b'{"event": "e1"}', "text/plain", 415),
        (b'{"event": "e1"}', "", 415),
        (b'{"event": "e1"}', "application/json; charset=utf-8", 200),
        (b"", "application/json", 400),
        (b"{", "application/json", 400),
        (b"\xff", "application/json", 400),
        (b'{"event": "e1", "data": NaN}', "application/json", 400),
        (b'{"event": "e1", "data": 1e999}', "application/json", 400),
        (b'{"event": "e1", "data": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "application/json", 413),
        (b'{"event": "e1", "data": ' + b"[" * 20_000 + b"]" * 20_000 + b"}", "application/json", 400),
        (b'{"event": "e1", "data": "' + b"x" * 70_000 + b'"}', "application/json", 413),
        (b'{"event": "e1", "data": "' + b"x" * 65_505 + b'"}', "application/json", 413),  # the line is too long
        (b'{"event": "e1", "data": ' + b"9" * 10_000 + b"}", "application/json", 400),
    ],
)
def test_bodies(durable: mqks.testing.Broker, body: bytes, kind: str, status: int) -> None:
    answer = ask(durable, "/api/publish", "POST", body, content_type=kind)
    assert answer.status == status
    if status != 200:
        assert answer.error


def test_the_longest_message(durable: mqks.testing.Broker) -> None:
    head = "m1 publish --confirm e1 "
    data = "x" * (65536 - len(head))
    with_more = {"event": "e1", "id": "m1", "data": data + "x"}
    assert ask(durable, "/api/publish", "POST", with_more).status == 413
    assert ask(durable, "/api/publish", "POST", {"event": "e1", "id": "m", "data": data[:-60]}).status == 200


def test_refused_by_the_broker() -> None:
    with mqks.testing.broker(http=True, dedup_count=0) as broker:
        answer = ask(broker, "/api/publish", "POST", {"event": "e1", "once": True})
        assert answer.status == 400
        assert "its log has the reason" in answer.error


def test_memory_is_full() -> None:
    with mqks.testing.broker(http=True, max_memory="4M", max_line="1M") as broker:
        with mqks.connect(broker.url) as client:
            client.rebind("q1", ["e1"])
        message = {"event": "e1", "data": "x" * 1_000_000}
        answers = [ask(broker, "/api/publish", "POST", message) for _ in range(6)]
        assert [answer.status for answer in answers][-1] == 503
        assert "--max-memory" in answers[-1].error
