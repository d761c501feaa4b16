"""What each path answers, against what the protocol made of the broker; and each mistake with its status."""

import asyncio
import errno
import json
import socket
import subprocess
import sys
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest
from starlette.exceptions import HTTPException
from starlette.responses import Response

import mqks.testing
from mqks.broker.auth.access import EVERYTHING
from mqks.client.errors import Refused
from mqks.web.answers import Json, dumps
from mqks.web.api import Api
from mqks.web.app import OPERATIONS
from mqks.web.gate import Caller
from mqks.web.live import event
from tests.running import PATIENCE, Connection
from tests.web.asking import address, ask, inner, stream

GETS = [operation.path for operation in OPERATIONS if operation.method == "GET" and "{" not in operation.path]
NAMES = ["a/b", "очередь", "100%", "a%2Fb", "?q=1#x", "a+b", "&amp;", "-q", "q:{1}", ".", "..", "~.", "~", "%7E."]
STREAMED = ("/api/live", "/api/tail")


# ── in general ──


@pytest.mark.parametrize("path", [*GETS, "/", "/openapi.json"])
def test_head_is_get_without_its_body(web: mqks.testing.Broker, path: str) -> None:
    head = ask(web, path, "HEAD")
    assert (head.status, head.body) == (200, b"")
    if path not in STREAMED:
        assert head.headers["content-type"] == ask(web, path).headers["content-type"]


@pytest.mark.parametrize(
    "path", ["/nowhere", "/api", "/api/", "/api/state/", "//", "/api/queues/a/b", "/page/none", "/%2e"]
)
def test_nothing_there(web: mqks.testing.Broker, path: str) -> None:
    answer = ask(web, path)
    assert answer.status == 404
    assert "/openapi.json" in answer.error


@pytest.mark.parametrize(
    ("path", "method", "allowed"),
    [
        ("/api/state", "POST", {"GET", "HEAD"}),
        ("/api/state", "OPTIONS", {"GET", "HEAD"}),
        ("/api/publish", "GET", {"POST"}),
        ("/api/queues/q1", "PUT", {"GET", "HEAD", "DELETE"}),
        ("/api/queues/q1/purge", "GET", {"POST"}),
        ("/", "DELETE", {"GET", "HEAD"}),
    ],
)
def test_wrong_method(web: mqks.testing.Broker, path: str, method: str, allowed: set[str]) -> None:
    answer = ask(web, path, method)
    assert answer.status == 405
    assert set(answer.headers["allow"].split(", ")) == allowed
    assert method in answer.error


@pytest.mark.parametrize(
    "query",
    [
        *(f"limit={value}" for value in ("0", "1001", "-1", "x", "", "1&limit=2", "1.0", "%D9%A1", "9" * 5000)),
        *("sort=size", "sort=", "offset=-1", "name=a&name=b", "limt=1"),
    ],
)
def test_parameters_that_are_not_right(web: mqks.testing.Broker, query: str) -> None:
    answer = ask(web, f"/api/queues?{query}")
    assert answer.status == 400
    assert query.partition("=")[0] in answer.error


def test_the_page_and_its_files(web: mqks.testing.Broker) -> None:
    page = ask(web, "/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.body.startswith(b"<!doctype html>")
    script = ask(web, "/page/api.js")
    assert script.status == 200 and script.headers["content-type"].startswith("text/javascript")
    again = ask(web, "/page/api.js", If_None_Match=script.headers["etag"])
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", script.headers["etag"])
    assert ask(web, "/page/api.js", If_None_Match='"other"').status == 200


def test_openapi_tells_of_every_operation(web: mqks.testing.Broker) -> None:
    told = ask(web, "/openapi.json").json
    assert told["openapi"] == "3.1.0"
    found = {(method.upper(), path) for path, methods in told["paths"].items() for method in methods}
    assert found == {(operation.method, operation.path) for operation in OPERATIONS}
    ids = [operation["operationId"] for methods in told["paths"].values() for operation in methods.values()]
    assert len(set(ids)) == len(ids)
    responses = {path: each["responses"] for path, methods in told["paths"].items() for each in methods.values()}
    assert [path for path, statuses in responses.items() if "503" not in statuses] == ["/metrics"]
    assert "status" in responses["/healthz"]["503"]["content"]["application/json"]["schema"]["properties"]


def test_health(web: mqks.testing.Broker) -> None:
    assert ask(web, "/healthz").json == {"status": "ok"}


def test_a_disk_that_takes_no_more(web: mqks.testing.Broker) -> None:
    inner(web).core.log.refusing = True
    health = ask(web, "/healthz")
    assert (health.status, health.json) == (503, {"status": "the disk takes no more"})
    refused = ask(web, "/api/publish", "POST", {"event": "e1"})
    assert refused.status == 503 and "the disk takes no more" in refused.error
    inner(web).core.log.refusing = False
    assert ask(web, "/healthz").status == 200


def test_a_journal_that_has_failed_is_told_without_its_files() -> None:
    """A broker with such a journal stops, so it is played here."""

    async def answered() -> tuple[Response, HTTPException]:
        broker = Mock(
            broken="cannot write /srv/secret/0.mqks: Input/output error", core=Mock(output=Mock(max_line=1000))
        )
        inside = Mock(request=AsyncMock(side_effect=Refused("m1 publish e1", "20261231235959123456uN1q")))
        api = Api(broker, Mock(), inside, asyncio.Event(), Mock())
        caller = Caller("127.0.0.1", False, "any", EVERYTHING)
        with pytest.raises(HTTPException) as refused:
            await api.publish(caller, {"event": "e1", "id": "m1"})
        return await api.healthz(caller), refused.value

    health, refused = asyncio.run(answered())
    assert (health.status_code, json.loads(bytes(health.body))) == (503, {"status": "the journal has failed"})
    assert refused.detail == "the journal has failed; the broker's log has it as 20261231235959123456uN1q"


def test_memory_that_is_full(web: mqks.testing.Broker) -> None:
    core = inner(web).core
    core.account.charge(core.account.max_memory)
    health = ask(web, "/healthz")
    assert health.status == 503 and "--max-memory is reached" in health.json["status"]
    refused = ask(web, "/api/publish", "POST", {"event": "e1"})
    assert refused.status == 503 and "--max-memory is reached" in refused.error
    core.account.charge(-core.account.max_memory)
    assert ask(web, "/healthz").status == 200


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many open files"), TimeoutError()])
def test_when_the_broker_cannot_be_asked(
    web: mqks.testing.Broker, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr("mqks.web.inside.socket.socketpair", fail)
    answer = ask(web, "/api/publish", "POST", {"event": "e1"})
    assert answer.status == 503
    assert ("may still be done" if isinstance(error, TimeoutError) else "Too many open files") in answer.error


def test_json_is_made_of_whatever_json_may_hold() -> None:
    told = {"half": "\ud800", "é": [None, 1.5]}
    made = b'{"half":"\\ud800","\xc3\xa9":[null,1.5]}'
    assert dumps(told) == Json(told).body == made
    assert event("state", told) == b"event: state\ndata: %s\n\n" % made
    assert json.loads(made) == told


@pytest.mark.parametrize("path", [*(path for path in GETS if path not in STREAMED), "/api/queues/x"])
def test_halves_of_surrogate_pairs(web: mqks.testing.Broker, wire: Connection, path: str) -> None:
    """JSON may hold them, and UTF-8 may not: whatever a client says, answers are made."""
    wire.send(b'r1 recv {"queue": "x", "pattern": {"a": "\\udc80"}}\n')
    wire.ask('m1 publish --confirm mqks.pipeline.progress {"job": "\\ud800", "state": "\\ud800"}')
    row = '{"minute": "\\ud800", "kind": "event", "name": "\\ud800", "count": 1, "bytes": 1, "rate": 1}'
    wire.ask(f"m2 publish --confirm mqks.stats.minute {row}")
    with stream(web, "/api/live") as live:
        assert live.wait_for("state") and live.wait_for("state")  # by the second one it has been heard
    assert ask(web, path).status == 200


def test_a_fault_is_told_and_logged(
    web: mqks.testing.Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("staged")

    monkeypatch.setattr("mqks.web.state.Figures.pipeline", fail)
    answer = ask(web, "/api/pipeline")
    assert answer.status == 500 and "log" in answer.error
    assert ask(web, "/api/journal").status == 200
    assert "a request over HTTP met a fault" in caplog.text and "staged" in caplog.text


def test_metrics(web: mqks.testing.Broker) -> None:
    ask(web, "/api/publish", "POST", {"event": "e1"})
    answer = ask(web, "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert b"mqks_published_total 1.0\n" in answer.body
    assert ask(web, "/metrics", Accept="application/openmetrics-text").body.endswith(b"# EOF\n")


# ── queues ──


def test_queues(web: mqks.testing.Broker, wire: Connection) -> None:
    assert ask(web, "/api/queues").json == {"total": 0, "queues": []}
    for name in ("mail", "maintenance", "post"):
        wire.ask(f"r1 rebind --confirm {name} e.{name}")
    for _ in range(3):
        wire.ask("m1 publish --confirm e.post d")
    listed = ask(web, "/api/queues?sort=name").json
    assert (listed["total"], [row["name"] for row in listed["queues"]]) == (3, ["mail", "maintenance", "post"])
    assert [row["name"] for row in ask(web, "/api/queues?sort=ready&limit=1").json["queues"]] == ["post"]
    assert [row["name"] for row in ask(web, "/api/queues?sort=name&offset=1&limit=1").json["queues"]] == ["maintenance"]
    found = ask(web, "/api/queues?sort=name&name=mai&limit=1").json
    assert (found["total"], [row["name"] for row in found["queues"]]) == (2, ["mail"])
    assert ask(web, "/api/queues?offset=1000000").json == {"total": 3, "queues": []}


def test_queue(web: mqks.testing.Broker, wire: Connection) -> None:
    wire.ask("c1 consume --confirm q1 e1 e2 --manual-ack")
    row = ask(web, "/api/queues/q1").json
    assert (row["name"], row["all_events"], row["consumers"]) == ("q1", ["e1", "e2"], 1)
    assert row["consumers_list"][0]["id"] == "c1"


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_no_such_queue(web: mqks.testing.Broker, method: str) -> None:
    assert "no such queue" in ask(web, "/api/queues/q1", method).error
    assert ask(web, "/api/queues/q1/messages").status == 404
    assert ask(web, "/api/queues/q1/purge", "POST").status == 404


@pytest.mark.parametrize("name", NAMES)
def test_names_of_all_kinds(web: mqks.testing.Broker, wire: Connection, name: str) -> None:
    wire.ask(f"r1 rebind --confirm {name} e1")
    row = ask(web, "/api/queues").json["queues"][0]
    assert row["name"] == name
    assert ask(web, f"/api/queues/{row['key']}").json["name"] == name
    assert ask(web, f"/api/queues/{row['key']}/messages").json == {"ready": 0, "messages": []}
    assert ask(web, f"/api/queues/{row['key']}", "DELETE").json == {"deleted": name}
    assert ask(web, "/api/queues").json["total"] == 0


def test_names_that_are_not_text(web: mqks.testing.Broker, wire: Connection) -> None:
    wire.send(b"r1 rebind --confirm q\xff\xfe e\xff\n")
    wire.line()
    wire.send(b"m\xff publish --confirm e\xff d\xff\n")
    wire.line()
    row = ask(web, "/api/queues").json["queues"][0]
    assert (row["name"], row["key"]) == ("q\\xff\\xfe", "q%FF%FE")
    [message] = ask(web, f"/api/queues/{row['key']}/messages").json["messages"]
    assert (message["id"], message["event"], message["key"], message["data"]) == ("m\\xff", "e\\xff", "e%FF", "d\\xff")
    assert ask(web, f"/api/queues/{row['key']}", "DELETE").json == {"deleted": "q\\xff\\xfe"}


# ── the rest ──


def test_consumers_connections_and_events(web: mqks.testing.Broker, wire: Connection) -> None:
    wire.ask("c1 consume --confirm q1 e1 e2 --prefetch=7 --manual-ack")
    wire.send(b"m1 publish e1 d1\n")
    wire.line()
    [consumer] = ask(web, "/api/consumers").json["consumers"]
    assert (consumer["id"], consumer["queue"], consumer["client"], consumer["prefetch"]) == (
        "c1",
        "q1",
        wire.address,
        7,
    )
    [connection] = ask(web, "/api/connections").json["connections"]
    assert (connection["client"], connection["consumers"]) == (wire.address, 1)
    with stream(web, "/api/live") as live:  # events are counted each second
        while not (told := ask(web, "/api/events").json)["events"]:
            live.wait_for("state")
    assert told["total"] == 2
    assert [(event["name"], event["count"], event["queues"]) for event in told["events"]] == [
        ("e1", 1, ["q1"]),
        ("e2", 0, ["q1"]),
    ]
    assert len(ask(web, "/api/events?limit=1").json["events"]) == 1


def test_journal_and_pipeline(durable: mqks.testing.Broker) -> None:
    ask(durable, "/api/publish", "POST", {"event": "e1"})
    assert ask(durable, "/api/journal").json["written"] > 0
    assert ask(durable, "/api/pipeline").json["jobs"] == []


def test_the_state_is_json_for_everyone(durable: mqks.testing.Broker) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    json.loads(ask(durable, "/api/state").body, parse_constant=refuse)


# ── where it is served ──


def test_same_address_after_a_restart(tmp_path: Path) -> None:
    with mqks.testing.broker(http=True, data=tmp_path) as broker:
        url = broker.http_url
        broker.restart()
        assert broker.http_url == url
        assert ask(broker, "/healthz").status == 200


def test_without_http() -> None:
    with mqks.testing.broker() as broker, pytest.raises(RuntimeError, match="http=True"):
        assert broker.http_url


def test_on_ipv6() -> None:
    with mqks.testing.broker(http=True, http_host="::1") as broker:
        assert broker.http_url.startswith("http://[::1]:")
        assert ask(broker, "/healthz").status == 200


@pytest.mark.parametrize(
    "request_line", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\xff\r\n\r\n"]
)
def test_what_is_not_http(web: mqks.testing.Broker, request_line: bytes) -> None:
    with socket.create_connection(address(web), PATIENCE) as wire:
        wire.sendall(request_line)
        assert b"".join(iter(lambda: wire.recv(1000), b"")).startswith(b"HTTP/1.1 400 ")


def test_nobody_else_loads_it() -> None:
    """Clients and commands start quickly: what HTTP needs is loaded by brokers that serve it."""
    code = (
        "import sys, mqks, mqks.cli.mqks, mqks.cli.mqksd, mqks.testing.thread, mqks.web;"
        "print({name.partition('.')[0] for name in sys.modules} & {'starlette', 'uvicorn', 'prometheus_client'})"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"set()\n"
