"""HTTP with a real --auth-file: its tokens let one in, wrong ones wait, and what it says when it is read anew holds."""

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import mqks.testing
from mqks.server import auth
from tests.certificates import Authority
from tests.running import PATIENCE
from tests.tokens import auth_file, token
from tests.web.asking import address, ask, stream
from tests.web.logins import Browser

WORKER = {"publish": ["order.*"]}
VIEWER = {"admin": True}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[mqks.testing.Broker]:
    file = auth_file(tmp_path, worker=WORKER, viewer=VIEWER)
    with mqks.testing.broker(http=True, auth_file=file) as running:
        yield running


def bearer(name: str) -> str:
    return f"Bearer {token(name)}"


def test_its_tokens(broker: mqks.testing.Broker, caplog: pytest.LogCaptureFixture) -> None:
    order = {"event": "order.paid"}
    assert ask(broker, "/api/state", authorization=bearer("viewer")).json["totals"]["published"] == 0
    assert ask(broker, "/api/publish", "POST", order, authorization=bearer("viewer")).status == 403
    assert ask(broker, "/api/publish", "POST", order, authorization=bearer("worker")).status == 200
    assert ask(broker, "/api/state", authorization=bearer("worker")).status == 403
    refused = [record.getMessage() for record in caplog.records if "is refused" in record.getMessage()]
    assert [text.partition("HTTP, ")[2] for text in refused] == [
        "POST '/api/publish', is refused: not permitted: publish token='viewer'",
        "GET '/api/state', is refused: not permitted: admin token='worker'",
    ]
    assert ask(broker, "/api/state").status == 401
    browser = Browser(broker, token("worker"))
    assert browser.login.json["name"] == "worker"
    assert browser.ask("/api/publish", "POST", order).status == 200


def test_a_wrong_one_waits_and_is_logged(
    broker: mqks.testing.Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waited: list[str] = []
    penalty = auth.Penalties.next

    def shortened(self: auth.Penalties, place: str) -> float:
        waited.append(place)
        return penalty(self, place) / 1000

    monkeypatch.setattr(auth.Penalties, "next", shortened)
    guessed = token("worker", edition=2)
    assert ask(broker, "/api/session", "POST", {"token": guessed}).status == 401
    assert ask(broker, "/api/state", authorization=f"Bearer {guessed}x").status == 401
    assert waited == ["127.0.0.1"] * 2
    assert ask(broker, "/api/state", authorization=bearer("viewer")).status == 200
    assert len(waited) == 2
    said = [str(record.msg) for record in caplog.records]
    assert any("127.0.0.1" in each and "worker" in each for each in said)
    assert not any(guessed.partition(".")[2] in each for each in said)


def test_with_both(tmp_path: Path) -> None:
    """With an auth file there is no way in for those of the same host, nor by --insecure."""
    with mqks.testing.broker(http=True, auth_file=auth_file(tmp_path, worker=WORKER), insecure=True) as broker:
        assert ask(broker, "/api/state").status == 401


# ── read anew ──


def test_a_revoked_token(broker: mqks.testing.Broker, tmp_path: Path) -> None:
    browser = Browser(broker, token("viewer"))
    with (
        stream(broker, "/api/live", cookie=browser.cookie) as one,
        stream(broker, "/api/live", authorization=bearer("viewer")) as other,
    ):
        auth_file(tmp_path, worker=WORKER)
        broker.reload()
        one.rest()
        other.rest()
    assert browser.ask("/api/state").status == 401


def test_a_token_made_anew_under_its_name(broker: mqks.testing.Broker, tmp_path: Path) -> None:
    browser = Browser(broker, token("viewer"))
    auth_file(tmp_path, edition=2, viewer=VIEWER)
    broker.reload()
    assert browser.ask("/api/state").status == 401
    assert Browser(broker, token("viewer", edition=2)).ask("/api/state").status == 200


def test_rights_that_changed(broker: mqks.testing.Broker, tmp_path: Path) -> None:
    browser = Browser(broker, token("viewer"))
    file = auth_file(tmp_path, viewer={"publish": ["**"]})
    broker.reload()
    assert browser.ask("/api/state").status == 403
    assert browser.ask("/api/publish", "POST", {"event": "e1"}).status == 200
    file.write_text("not a file of tokens")
    broker.reload()
    assert browser.ask("/api/publish", "POST", {"event": "e1"}).status == 200
    auth_file(tmp_path, viewer=VIEWER)
    broker.reload()
    assert browser.ask("/api/state").status == 200


# ── over TLS ──


def test_over_tls(tmp_path: Path) -> None:
    authority, file = Authority(tmp_path), auth_file(tmp_path, worker=WORKER)
    trusting = authority.context()
    with mqks.testing.broker(http=True, auth_file=file, tls_cert=authority.issue()) as broker:
        assert broker.http_url.startswith("https://")
        with closing(http.client.HTTPSConnection(*address(broker), timeout=PATIENCE, context=trusting)) as connection:

            def asked(method: str, path: str, body: object, **headers: str) -> http.client.HTTPResponse:
                given = {"content-type": "application/json", "origin": broker.http_url} | headers
                connection.request(method, path, json.dumps(body), given)
                return connection.getresponse()

            login = asked("POST", "/api/session", {"token": token("worker")})
            told, cookie = json.loads(login.read()), login.headers["set-cookie"]
            assert "; Secure" in cookie and "; HttpOnly" in cookie and "Path=/;" in cookie and "omain" not in cookie
            assert cookie.startswith(f"__Host-mqks_session_{address(broker)[1]}=")
            proof = {"cookie": cookie.partition(";")[0], "x-csrf-token": told["csrf"]}
            published = asked("POST", "/api/publish", {"event": "order.paid"}, **proof)
            assert published.status == 200, published.read()
