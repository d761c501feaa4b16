"""Who may ask for what: every path with no token, with one that lacks what it needs, and with one that has just that;
and the rights on names. By real requests."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import mqks.testing
from mqks.broker.auth.access import NOTHING, Rights
from mqks.web.app import OPERATIONS
from mqks.web.gate import HAS
from mqks.web.openapi import Operation, document
from tests.web.asking import Answer, address, ask, stream
from tests.web.logins import ALL, Tokens, bearer, guarded, status

OF_ONE: dict[str, Any] = {"admin": True, "history": ("**",), "manage": ("**",), "publish": ("**",)}
NEEDED = {"/healthz": None, "/metrics": ["admin"], "/api/tail": ["history"], "/api/publish": ["publish"]}
BODIES = {"/api/publish": {"event": "e1"}, "/api/session": {"token": "all.secret"}}
LABELS = {f"{each.method} {each.path}": each for each in OPERATIONS}
GUARDED = [label for label, each in LABELS.items() if each.needs is not None]


def just(needs: tuple[str, ...]) -> Rights:
    return replace(NOTHING, name="just-" + "-".join(needs), **{need: OF_ONE[need] for need in needs})


def all_but(need: str) -> Rights:
    return replace(ALL, name=f"all-but-{need}", **{need: getattr(NOTHING, need)})


WORKER = Rights("worker", publish=("order.*",), manage=("mail", "mail.**"), history=("order.**",), admin=True)
TOKENS = Tokens(
    ALL, replace(NOTHING, name="nothing"), WORKER,
    *(just(each.needs) for each in OPERATIONS if each.needs), *map(all_but, HAS),
)  # fmt: skip


@pytest.fixture(scope="module")
def broker() -> Iterator[mqks.testing.Broker]:
    with guarded(TOKENS) as running, mqks.connect(running.url) as client:
        client.rebind("kept", ["e1", "order.paid", "user.created"])
        client.publish("e1", "kept")
        yield running


def asked(broker: mqks.testing.Broker, operation: Operation, **headers: str) -> int:
    with mqks.connect(broker.url) as client:
        client.rebind("q1", ["nothing"])  # the test before may have deleted it
    path = operation.path.replace("{key}", "q1").replace("{position}", "0")
    return status(broker, operation.method, path, BODIES.get(path) if operation.body else None, **headers)


# ── what each path needs ──


def test_the_table_says_what_is_meant() -> None:
    """Only health and the login are for everyone, and what changes something is never for those who only see."""
    assert {label for label, each in LABELS.items() if each.needs is None} == {"GET /healthz", "POST /api/session"}
    for label, each in LABELS.items():
        if each.needs and each.method != "GET":
            assert "admin" not in each.needs, label
    told = document(OPERATIONS, secured=True, cookie="mqks_session_80")["paths"]
    for path, needs in NEEDED.items():
        [operation] = told[path].values()
        assert operation["security"] == ([] if needs is None else [{"token": needs}, {"session": needs}])


@pytest.mark.parametrize("label", GUARDED)
def test_without_a_token(broker: mqks.testing.Broker, label: str) -> None:
    assert asked(broker, LABELS[label]) == 401


@pytest.mark.parametrize("label", GUARDED)
def test_with_a_wrong_one(broker: mqks.testing.Broker, label: str) -> None:
    assert asked(broker, LABELS[label], authorization="Bearer all.guessed") == 401


@pytest.mark.parametrize(("label", "need"), [(each, need) for each in GUARDED for need in LABELS[each].needs or ()])
def test_with_all_rights_but_what_it_needs(broker: mqks.testing.Broker, label: str, need: str) -> None:
    assert asked(broker, LABELS[label], authorization=bearer(all_but(need).name)) == 403


@pytest.mark.parametrize("label", GUARDED)
def test_with_just_what_it_needs(broker: mqks.testing.Broker, label: str) -> None:
    needs = LABELS[label].needs
    assert asked(broker, LABELS[label], authorization=bearer(just(needs).name if needs else "nothing")) == 200


@pytest.mark.parametrize("label", sorted(set(LABELS) - set(GUARDED)))
def test_what_is_for_everyone(broker: mqks.testing.Broker, label: str) -> None:
    assert asked(broker, LABELS[label]) == 200


@pytest.mark.parametrize("said", ["", "Bearer", "Bearer ", "Basic YWxsOnNlY3JldA==", "all.secret", "Bearer a b"])
def test_what_is_no_bearer_token(broker: mqks.testing.Broker, said: str) -> None:
    answer = ask(broker, "/api/state", authorization=said)
    assert answer.status == 401 and answer.headers["www-authenticate"] == "Bearer" and answer.error


def test_bearer_in_any_case(broker: mqks.testing.Broker) -> None:
    assert ask(broker, "/api/state", authorization="bearer  all.secret").status == 200


# ── the page ──


@pytest.mark.parametrize(
    ("path", "stranger"),
    [
        ("/", 303),
        ("/login", 200),
        ("/page/login.js", 200),
        ("/page/api.js", 200),
        ("/page/theme.js", 200),
        ("/page/style.css", 200),
        ("/page/icon.svg", 200),
        ("/page/app.js", 401),
        ("/page/queue.js", 401),
        ("/openapi.json", 401),
        ("/nowhere", 404),
    ],
)
def test_the_page(broker: mqks.testing.Broker, path: str, stranger: int) -> None:
    answer = ask(broker, path)
    assert answer.status == stranger
    assert answer.headers["location"] == ("/login" if stranger == 303 else None)
    assert ask(broker, path, authorization=bearer("nothing")).status == (200 if stranger != 404 else 404)


def test_the_login_page_has_all_it_loads(broker: mqks.testing.Broker) -> None:
    """And what that loads, and so on."""
    found, left = set(), {"/login"}
    while left:
        path = left.pop()
        found.add(path)
        answer = ask(broker, path)
        assert answer.status == 200, path
        text = answer.body.decode()
        loaded = re.findall(r'(?:src|href)="(/[^"]*)"', text) + [
            f"/page/{name}" for name in re.findall(r'from "\./([^"]*)"', text)
        ]
        left |= set(loaded) - found
    assert "/page/style.css" in found


# ── rights on names ──


def by(broker: mqks.testing.Broker, method: str, path: str, body: object = None) -> Answer:
    return ask(broker, path, method, body, authorization=bearer("worker"))


@pytest.mark.parametrize(("event", "expected"), [("order.paid", 200), ("order", 403), ("user.created", 403)])
def test_publish(broker: mqks.testing.Broker, event: str, expected: int) -> None:
    answer = by(broker, "POST", "/api/publish", {"event": event})
    assert answer.status == expected
    if expected == 403:
        assert answer.error == f"not permitted: publish {event}"


@pytest.mark.parametrize(
    ("queue", "expected"),
    [("mail", 200), ("mail.urgent", 200), ("work", 403), ("mail.none", 404), ("none", 403)],
)
@pytest.mark.parametrize(("method", "path"), [("POST", "/api/queues/{}/purge"), ("DELETE", "/api/queues/{}")])
def test_manage(broker: mqks.testing.Broker, method: str, path: str, queue: str, expected: int) -> None:
    with mqks.connect(broker.url) as client:
        for name in ("mail", "mail.urgent", "work"):
            client.rebind(name, [])
        assert by(broker, method, path.format(queue)).status == expected
        assert "work" in client.stats()["queues"]


def test_a_queue_says_whether_one_may_manage_it(broker: mqks.testing.Broker) -> None:
    with mqks.connect(broker.url) as client:
        client.rebind("mail", [])
    assert by(broker, "GET", "/api/queues/mail").json["may_manage"] is True
    assert by(broker, "GET", "/api/queues/kept").json["may_manage"] is False


def test_messages(broker: mqks.testing.Broker) -> None:
    """Of a queue those that may be read, wherever they are listed."""
    with mqks.connect(broker.url) as client:
        client.rebind("q2", ["user.created", "order.paid", "order.x.y"])
        for event in ("user.created", "order.paid", "order.x.y"):
            client.publish(event, "d")
    listed = by(broker, "GET", "/api/queues/q2/messages").json
    assert listed["ready"] == 3
    assert [each["event"] for each in listed["messages"]] == ["order.paid", "order.x.y"]
    for message in ask(broker, "/api/queues/q2/messages", authorization=bearer("all")).json["messages"]:
        answer = by(broker, "GET", f"/api/messages/{message['position']}")
        if message["event"] == "user.created":
            assert answer.status == 403 and answer.error == "not permitted: history", "nor is its event told"
        else:
            assert answer.json["event"] == message["event"]


def test_a_name_that_is_cut_is_not_known(broker: mqks.testing.Broker) -> None:
    """Its beginning could be covered by a mask that does not cover all of it."""
    name = "order." + "x" * 20_000
    with mqks.connect(broker.url) as client:
        client.rebind("q3", [name])
        client.publish(name, "d")
    assert by(broker, "GET", "/api/queues/q3/messages").json["messages"] == []
    [message] = ask(broker, "/api/queues/q3/messages", authorization=bearer("all")).json["messages"]
    assert by(broker, "GET", f"/api/messages/{message['position']}").json["event"] == name


def test_tail(broker: mqks.testing.Broker) -> None:
    with stream(broker, "/api/tail", authorization=bearer("worker")) as tail, mqks.connect(broker.url) as client:
        client.publish("user.created", "no")
        client.send({"no": "name"})
        client.publish("order.paid", "yes")
        assert tail.wait_for("message")["data"] == "yes"


# ── what is told of it ──


def test_refused_requests_are_counted() -> None:
    with guarded(TOKENS) as broker:
        ask(broker, "/api/state")
        ask(broker, "/api/state", authorization=bearer("nothing"))
        figures = ask(broker, "/metrics", authorization=bearer("all")).body
        assert b"mqks_refused_requests_total 2.0\n" in figures


def test_the_document_tells_of_tokens_where_they_are_needed(
    broker: mqks.testing.Broker, web: mqks.testing.Broker
) -> None:
    told = ask(broker, "/openapi.json", authorization=bearer("nothing")).json
    assert told["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert told["components"]["securitySchemes"]["session"]["name"] == f"mqks_session_{address(broker)[1]}"
    assert "401" in told["paths"]["/api/state"]["get"]["responses"]
    open_to_all = ask(web, "/openapi.json").json
    assert "securitySchemes" not in open_to_all["components"]
    assert "security" not in open_to_all["paths"]["/api/state"]["get"]
