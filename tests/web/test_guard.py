"""Who is let in: hosts, origins, sites; and what every answer carries."""

import asyncio
import http.client
import socket
from contextlib import closing
from unittest.mock import AsyncMock

import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.types import Message, Scope

import mqks.testing
from mqks.web.guard import Guard, peer
from tests.running import PATIENCE
from tests.web.asking import address, ask

OURS = [
    "localhost",
    "LOCALHOST",
    "localhost:25080",
    "127.0.0.1",
    "127.0.0.1:80",
    "10.1.2.3:25080",
    "[::1]",
    "[2001:db8::1]:25080",
    "broker",
    "Broker.Example.org:25080",
    socket.gethostname(),
]
OTHERS = [
    "",
    "example.org",
    "evil.example:25080",
    "localhost.example.org",
    "127.0.0.1.example.org",
    "broker.evil.example",
    "::1x",
    "[::1",
    "[evil.example]",
    "a b",
    "user@localhost",
    "localhost/",
    "localhost:x",
    "127.0.0.1:",
]


class Counts:
    refused_requests = 0


@pytest.fixture
def guard() -> Guard:
    return Guard(Starlette(), ["broker", "broker.example.ORG"], Counts(), only_here=False)


@pytest.mark.parametrize("host", OURS)
def test_addresses_and_names_of_ours(guard: Guard, host: str) -> None:
    assert guard.refusal("GET", {"host": host}) is None


@pytest.mark.parametrize("host", OTHERS)
def test_names_of_others(guard: Guard, host: str) -> None:
    """A page that points such a name here would be of our origin."""
    same_origin = {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"}
    for method in ("GET", "POST", "DELETE"):
        assert "--http-name" in (guard.refusal(method, same_origin) or "")


@pytest.mark.parametrize(
    ("method", "headers", "allowed"),
    [
        ("GET", {}, True),
        ("GET", {"sec-fetch-site": "cross-site", "origin": "http://evil.example"}, True),
        ("POST", {}, True),
        ("POST", {"sec-fetch-site": "same-origin", "origin": "http://localhost:1"}, True),
        ("POST", {"sec-fetch-site": "none"}, True),
        ("DELETE", {"origin": "HTTP://LOCALHOST:1"}, True),
        ("POST", {"sec-fetch-site": "cross-site"}, False),
        ("POST", {"sec-fetch-site": "same-site"}, False),
        ("DELETE", {"sec-fetch-site": "cross-site"}, False),
        ("POST", {"origin": "http://evil.example"}, False),
        ("POST", {"origin": "http://localhost:2"}, False),
        ("POST", {"origin": "null"}, False),
        ("POST", {"origin": "http://["}, False),
        ("DELETE", {"origin": ""}, False),
    ],
)
def test_what_changes_something_comes_from_here(
    guard: Guard, method: str, headers: dict[str, str], allowed: bool
) -> None:
    assert (guard.refusal(method, {"host": "localhost:1"} | headers) is None) == allowed


def test_another_host_gets_nothing(web: mqks.testing.Broker) -> None:
    for path in ("/", "/api/state", "/api/live", "/metrics", "/healthz", "/nowhere"):
        answer = ask(web, path, Host="evil.example")
        assert answer.status == 403
        assert "by its IP address" in answer.error


def test_beyond_loopback_names_are_told() -> None:
    with mqks.testing.broker(
        http=True, http_host="0.0.0.0", insecure=True, http_name="broker.example.org,broker"
    ) as broker:
        for name, status in (
            ("broker.example.org:25080", 200),
            ("broker", 200),
            ("10.0.0.1", 200),
            ("evil.example", 403),
        ):
            assert ask(broker, "/healthz", Host=name).status == status


@pytest.mark.parametrize(
    ("client", "allowed"),
    [
        (("127.0.0.1", 1), True),
        (("127.1.2.3", 1), True),
        (("::1", 1), True),
        (("::ffff:127.0.0.1", 1), True),
        (("10.0.0.1", 1), False),
        (("2001:db8::1", 1), False),
        (("fe80::1%eth0", 1), False),
        (("::ffff:10.0.0.1", 1), False),
        (None, False),
    ],
)
def test_without_tokens_only_this_host_may_ask(client: tuple[str, int] | None, allowed: bool) -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def asked(*, only_here: bool) -> tuple[int, bytes]:
        sent.clear()
        scope: Scope = {"type": "http", "method": "GET", "path": "/", "state": {}, "client": client}
        guard = Guard(Response(b"here"), [], Counts(), only_here=only_here)
        scope["headers"] = [(b"host", b"localhost")]
        await guard(scope, AsyncMock(), send)
        return sent[0]["status"], sent[1]["body"]

    assert asyncio.run(asked(only_here=False)) == (200, b"here")
    status, body = asyncio.run(asked(only_here=True))
    assert (status == 200) == allowed
    assert allowed or (b"--auth-file" in body and b"--insecure" in body)


def test_who_is_refused_is_named_and_counted(web: mqks.testing.Broker, caplog: pytest.LogCaptureFixture) -> None:
    with closing(http.client.HTTPConnection(*address(web), timeout=PATIENCE)) as connection:
        connection.request("GET", "/api/state", headers={"Host": "evil.example"})
        assert connection.getresponse().read()
        client = peer(connection.sock.getsockname())
    [said] = [str(record.msg) for record in caplog.records if "is refused" in str(record.msg)]
    assert client in said and "'evil.example'" in said and "--http-name" in said
    assert b"mqks_refused_requests_total 1.0\n" in ask(web, "/metrics").body


@pytest.mark.parametrize(("client", "shown"), [(("127.0.0.1", 1), "127.0.0.1:1"), (("::1", 2), "[::1]:2"), (None, "?")])
def test_peers(client: tuple[str, int] | None, shown: str) -> None:
    assert peer(client) == shown


def test_a_page_elsewhere_changes_nothing(web: mqks.testing.Broker) -> None:
    message = {"event": "e1"}
    assert ask(web, "/api/publish", "POST", message, Sec_Fetch_Site="cross-site").status == 403
    assert ask(web, "/api/publish", "POST", message, Origin="http://evil.example").status == 403
    assert ask(web, "/api/state").json["totals"]["published"] == 0
    assert ask(web, "/api/publish", "POST", message, Origin=web.http_url).status == 200


@pytest.mark.parametrize("path", ["/", "/api/state", "/nowhere", "/metrics"])
def test_headers_of_every_answer(web: mqks.testing.Broker, path: str) -> None:
    headers = ask(web, path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy
    assert "access-control-allow-origin" not in headers
    assert headers["cache-control"] == ("no-store" if path.startswith("/api") else "no-cache")
    assert headers["date"]
    assert "server" not in headers
