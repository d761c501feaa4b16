"""Sessions: what a login gives, what a cookie may and may not, and when it is over. And attempts that fail."""

import asyncio
import http.client
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from dataclasses import replace
from http.cookies import SimpleCookie
from unittest.mock import Mock

import pytest
from starlette.responses import Response

import mqks.testing
from mqks.broker.auth.access import EVERYTHING, NOTHING, Rights
from mqks.broker.queues.queue import Queue
from mqks.web.api import Api
from mqks.web.gate import MOST_ATTEMPTS, MOST_CHECKED, Caller, Gate
from mqks.web.sessions import LASTS, MOST, MOST_OF_ONE, Sessions, cookie_name
from tests.running import PATIENCE, Connection
from tests.web.asking import address, ask, inner, stream
from tests.web.logins import ALL, Browser, Tokens, bearer, guarded

WORKER = Rights("worker", publish=("order.*",), proof="1")


@pytest.fixture
def tokens() -> Tokens:
    return Tokens(ALL, WORKER)


@pytest.fixture
def broker(tokens: Tokens) -> Iterator[mqks.testing.Broker]:
    with guarded(tokens) as running:
        yield running


@pytest.fixture
def browser(broker: mqks.testing.Broker) -> Browser:
    return Browser(broker, "all.secret")


# ── logging in ──


def test_what_a_login_answers(broker: mqks.testing.Broker) -> None:
    browser = Browser(broker, "worker.secret")
    told = browser.login.json
    assert told["name"] == "worker" and len(told["csrf"]) >= 43
    assert told["rights"]["publish"] == ["order.*"] and told["rights"]["admin"] is False
    assert browser.ask("/api/session").json == told
    assert ask(broker, "/api/session", authorization=bearer("worker")).json == told | {"csrf": None}


def test_the_cookie(browser: Browser) -> None:
    [cookie] = SimpleCookie(browser.login.headers["set-cookie"]).values()
    assert cookie.key == f"mqks_session_{address(browser.broker)[1]}" and len(cookie.value) >= 43
    assert cookie["httponly"] and cookie["samesite"].lower() == "strict"
    assert (cookie["path"], cookie["max-age"], cookie["domain"]) == ("/", str(LASTS), "")
    assert not cookie["secure"]  # a browser would not send it back over plain HTTP


@pytest.mark.parametrize("encrypted", [True, False])
@pytest.mark.parametrize("does", ["login", "logout"])
def test_over_tls_the_cookie_is_secure(does: str, encrypted: bool) -> None:
    async def answered() -> Response:
        api = Api(Mock(), Mock(), Mock(), asyncio.Event(), Gate(Tokens(ALL), Mock()))
        caller = Caller("127.0.0.1", encrypted, "any", NOTHING)
        return await (api.login(caller, {"token": "all.secret"}) if does == "login" else api.logout(caller))

    answer = asyncio.run(answered())
    assert ("; Secure" in answer.headers["set-cookie"]) == encrypted


@pytest.mark.parametrize(
    ("host", "encrypted", "name"),
    [
        ("127.0.0.1:25080", False, "mqks_session_25080"),
        ("[::1]:25081", True, "__Host-mqks_session_25081"),
        ("localhost", False, "mqks_session_80"),
        ("[::1]", True, "__Host-mqks_session_443"),
        ("", False, "mqks_session_80"),
    ],
)
def test_the_name_of_the_cookie(host: str, encrypted: bool, name: str) -> None:
    assert cookie_name(host, encrypted) == name


def test_two_brokers_of_one_host_do_not_log_each_other_out(browser: Browser) -> None:
    """A browser sends the cookies of both to each."""
    with guarded(Tokens(ALL)) as second:
        other = Browser(second, "all.secret")
        both = f"{browser.cookie}; {other.cookie}"
        assert browser.ask("/api/state", cookie=both).status == other.ask("/api/state", cookie=both).status == 200
        names = {each.cookie.partition("=")[0] for each in (browser, other)}
        assert len(names) == 2


def test_each_login_has_secrets_of_its_own(broker: mqks.testing.Broker) -> None:
    one, other = Browser(broker, "all.secret"), Browser(broker, "all.secret")
    assert len({one.cookie, other.cookie, one.csrf, other.csrf}) == 4
    assert one.ask("/api/state").status == other.ask("/api/state").status == 200


def test_a_login_ends_the_session_before(browser: Browser) -> None:
    assert browser.ask("/api/session", "POST", {"token": "worker.secret"}).status == 200
    assert browser.ask("/api/session").status == 401


@pytest.mark.parametrize("body", [{}, [], None, "all.secret", {"token": 1}, {"token": ""}, {"token": "x" * 201}])
def test_what_is_no_login(broker: mqks.testing.Broker, body: object) -> None:
    answer = ask(broker, "/api/session", "POST", b"null" if body is None else body, content_type="application/json")
    assert answer.status == 400 and "token" in answer.error
    assert answer.headers["set-cookie"] is None


def test_a_stranger_sends_little(broker: mqks.testing.Broker) -> None:
    assert ask(broker, "/api/session", "POST", {"token": "x" * 4096}).status == 413


@pytest.mark.parametrize("token", ["all.guessed", "nobody.secret", "all", "\ud800", "é", " all.secret"])
def test_a_wrong_token(broker: mqks.testing.Broker, token: str) -> None:
    answer = ask(broker, "/api/session", "POST", {"token": token})
    assert answer.status == 401 and answer.headers["set-cookie"] is None
    assert token not in answer.error


@pytest.mark.parametrize("headers", [{"Sec_Fetch_Site": "cross-site"}, {"Origin": "http://evil.example"}])
def test_no_other_page_logs_one_in(broker: mqks.testing.Broker, headers: dict[str, str]) -> None:
    assert ask(broker, "/api/session", "POST", {"token": "all.secret"}, **headers).status == 403


def test_where_nobody_has_to_log_in(web: mqks.testing.Broker) -> None:
    told = ask(web, "/api/session").json
    assert told["name"] is told["csrf"] is None
    assert told["rights"]["admin"] is True and told["rights"]["publish"] == ["**"]
    answer = ask(web, "/api/session", "POST", {"token": "any"})
    assert answer.json == told and answer.headers["set-cookie"] is None
    assert ask(web, "/api/session", "DELETE").json == {"ended": False}


# ── what a cookie may ──

CHANGES = [
    ("POST", "/api/publish", {"event": "e1"}),
    ("POST", "/api/queues/q/purge", None),
    ("DELETE", "/api/session", None),
]


@pytest.mark.parametrize("csrf", ["", "guessed", "é", "other"])
@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
def test_what_changes_something_needs_the_csrf_token(
    browser: Browser, method: str, path: str, body: object, csrf: str
) -> None:
    """Another session's is as wrong as none."""
    given = Browser(browser.broker, "all.secret").csrf if csrf == "other" else csrf
    answer = browser.ask(path, method, body, x_csrf_token=given)
    assert answer.status == 403 and "x-csrf-token" in answer.error
    assert browser.ask("/api/state").json["totals"]["published"] == 0


def test_with_it_things_change(browser: Browser) -> None:
    assert browser.ask("/api/publish", "POST", {"event": "e1"}).status == 200
    assert ask(browser.broker, "/api/state", cookie=browser.cookie).json["totals"]["published"] == 1


def test_a_token_needs_none(broker: mqks.testing.Broker) -> None:
    assert ask(broker, "/api/publish", "POST", {"event": "e1"}, authorization=bearer("all")).status == 200


def test_a_wrong_token_is_not_helped_by_a_cookie(browser: Browser) -> None:
    assert browser.ask("/api/state", authorization="Bearer all.guessed").status == 401


def test_rights_are_those_of_the_token(broker: mqks.testing.Broker) -> None:
    browser = Browser(broker, "worker.secret")
    assert browser.ask("/api/state").status == 403
    assert browser.ask("/api/publish", "POST", {"event": "order.paid"}).status == 200
    assert browser.ask("/api/publish", "POST", {"event": "user.created"}).status == 403


def test_the_page_comes_by_cookie(browser: Browser) -> None:
    assert b"/page/app.js" in browser.ask("/").body
    assert browser.ask("/page/app.js").status == 200


# ── when it is over ──


def log_out(browser: Browser, _: Tokens) -> None:
    answer = browser.ask("/api/session", "DELETE")
    assert answer.json == {"ended": True}
    [cookie] = SimpleCookie(answer.headers["set-cookie"]).values()
    name = f"mqks_session_{address(browser.broker)[1]}"
    assert (cookie.key, cookie.value, cookie["max-age"]) == (name, "", "0")


def revoke(_: Browser, tokens: Tokens) -> None:
    del tokens.rights["all"]


def make_anew(_: Browser, tokens: Tokens) -> None:
    tokens.rights["all"] = replace(ALL, proof="another")


ENDS = [log_out, revoke, make_anew]


@pytest.mark.parametrize("end", ENDS)
def test_a_session_ends(browser: Browser, tokens: Tokens, end: Callable[[Browser, Tokens], None]) -> None:
    end(browser, tokens)
    assert browser.ask("/api/state").status == 401
    assert browser.ask("/api/publish", "POST", {"event": "e1"}).status == 401
    assert browser.ask("/").status == 303


def change(_: Browser, tokens: Tokens) -> None:
    tokens.rights["all"] = replace(ALL, admin=False, history=())


@pytest.mark.parametrize("path", ["/api/live", "/api/tail"])
@pytest.mark.parametrize("end", [*ENDS, change])
def test_a_stream_ends_with_it(
    browser: Browser, tokens: Tokens, end: Callable[[Browser, Tokens], None], path: str
) -> None:
    with stream(browser.broker, path, cookie=browser.cookie) as live:
        end(browser, tokens)
        live.rest()  # which returns


@pytest.mark.parametrize("path", ["/api/live", "/api/tail"])
@pytest.mark.parametrize("end", [revoke, make_anew, change])
def test_a_stream_ends_with_its_token(
    browser: Browser, tokens: Tokens, end: Callable[[Browser, Tokens], None], path: str
) -> None:
    with stream(browser.broker, path, authorization=bearer("all")) as live:
        end(browser, tokens)
        live.rest()


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("/api/live", ALL, replace(ALL, publish=(), history=())),
        ("/api/tail", ALL, replace(ALL, publish=(), admin=False)),
        ("/api/tail", replace(ALL, history=("order.*",)), replace(ALL, history=("user.*", "order.*"))),
        ("/api/tail", replace(ALL, history=("order.*",)), ALL),
    ],
)
def test_a_stream_goes_on_while_its_token_may_have_it(
    broker: mqks.testing.Broker, tokens: Tokens, path: str, old: Rights, new: Rights
) -> None:
    """Whatever else was given or taken: its reader would miss what comes before it is back."""
    tokens.rights["all"] = old
    with stream(broker, path, authorization=bearer("all")) as live, mqks.connect(broker.url) as client:
        tokens.rights["all"] = new
        for _ in range(2):  # the first state may have come before
            client.publish("order.paid", "d")
            assert live.wait_for("state" if path == "/api/live" else "message")


@pytest.mark.parametrize("history", [("order.*", "c"), ("order.x",)])
def test_a_tail_ends_with_any_of_what_it_read(
    broker: mqks.testing.Broker, tokens: Tokens, history: tuple[str, ...]
) -> None:
    tokens.rights["all"] = replace(ALL, history=("order.*", "user.*"))
    with stream(broker, "/api/tail", authorization=bearer("all")) as tail:
        tokens.rights["all"] = replace(ALL, history=history)
        tail.rest()


def test_changed_rights_are_those_of_the_session_too(browser: Browser, tokens: Tokens) -> None:
    change(browser, tokens)
    assert browser.ask("/api/state").status == 403
    assert browser.ask("/api/session").json["rights"]["admin"] is False


# ── while one is at it ──


def publish_other(_: Browser, tokens: Tokens) -> None:
    tokens.rights["all"] = replace(ALL, publish=("mail.*",))


def publish_nothing(_: Browser, tokens: Tokens) -> None:
    tokens.rights["all"] = replace(ALL, publish=())


@pytest.mark.parametrize(
    ("end", "expected"), [(revoke, 401), (make_anew, 401), (log_out, 401), (publish_other, 403), (publish_nothing, 403)]
)
def test_what_a_token_may_counts_when_the_body_has_come(
    browser: Browser,
    tokens: Tokens,
    monkeypatch: pytest.MonkeyPatch,
    end: Callable[[Browser, Tokens], None],
    expected: int,
) -> None:
    """Who sends it slowly has not been let through for as long as it likes."""
    admitted = threading.Event()
    current = tokens.current
    body = b'{"event": "order.paid"}'

    def noted(rights: Rights) -> Rights | None:
        admitted.set()
        return current(rights)

    monkeypatch.setattr(tokens, "current", noted)
    with closing(http.client.HTTPConnection(*address(browser.broker), timeout=PATIENCE)) as connection:
        connection.putrequest("POST", "/api/publish")
        for name, value in {"cookie": browser.cookie, "x-csrf-token": browser.csrf}.items():
            connection.putheader(name, value)
        connection.putheader("content-type", "application/json")
        connection.putheader("content-length", str(len(body)))
        connection.endheaders(body[:5])
        assert admitted.wait(PATIENCE)
        end(browser, tokens)
        connection.send(body[5:])
        assert connection.getresponse().status == expected
    assert inner(browser.broker).core.router.published == 0


@pytest.mark.parametrize(("lost", "expected"), [({}, 401), ({"all": replace(ALL, manage=("q",))}, 403)])
def test_a_purge_ends_with_its_token(
    browser: Browser,
    tokens: Tokens,
    monkeypatch: pytest.MonkeyPatch,
    lost: dict[str, Rights],
    expected: int,
) -> None:
    broker = inner(browser.broker)
    purge = broker.queues.purge

    def purge_and_lose(queue: Queue, most: int) -> int:
        tokens.rights = lost
        return purge(queue, most)

    monkeypatch.setattr("mqks.web.api.PURGED_AT_ONCE", 10)
    monkeypatch.setattr(broker.queues, "purge", purge_and_lose)
    with closing(Connection(browser.broker.port)) as wire:
        wire.send(b"r1 rebind q1 e1\n" + b"m publish e1 d\n" * 30)
        wire.ask("p1 ping")
        assert browser.ask("/api/queues/q1/purge", "POST").status == expected
        assert wire.ask("e1 _eval state.queues['q1'].ready") == "e1 ok 20"


def test_after_twelve_hours() -> None:
    now = 0.0
    sessions = Sessions(lambda: now)
    session = sessions.begin(EVERYTHING)
    now = 12 * 3600 - 1
    assert sessions.find(session.secret) is session
    later = sessions.begin(EVERYTHING)
    now += 1
    assert sessions.find(session.secret) is None
    assert sessions.find(later.secret) is later


def test_there_are_so_many_and_one_token_ends_only_its_own() -> None:
    sessions = Sessions()
    first = sessions.begin(replace(NOTHING, name="first"))
    own = [sessions.begin(replace(NOTHING, name="greedy")) for _ in range(MOST_OF_ONE + 1)]
    assert [sessions.find(each.secret) is None for each in own] == [True] + [False] * MOST_OF_ONE
    others = [sessions.begin(replace(NOTHING, name=f"n{n}")) for n in range(MOST - MOST_OF_ONE - 1)]
    assert sessions.find(first.secret) is first and sessions.find(others[-1].secret)
    sessions.begin(replace(NOTHING, name="last"))
    assert sessions.find(first.secret) is None and sessions.find(own[1].secret)


def test_secrets_are_not_shown() -> None:
    session = Sessions().begin(EVERYTHING)
    assert session.secret not in repr(session) and session.csrf not in repr(session)


@pytest.mark.parametrize(("address", "has_eval"), [("127.0.0.1", True), ("::1", True), ("192.0.2.1", False)])
def test_without_tokens_only_this_host_has_eval(address: str, has_eval: bool) -> None:
    rights = asyncio.run(Gate(None, Mock()).rights_of("any", address))
    assert (rights.eval, rights.admin, rights.publishes_all) == (has_eval, True, True)


# ── attempts that fail ──


def test_few_of_one_address_wait_at_one_time(broker: mqks.testing.Broker, tokens: Tokens) -> None:
    """An attempt that fails is answered late: they must not take all connections. Who is known does not wait; of
    others nothing is looked at meanwhile, so that being refused does not tell whether a token is right."""
    tokens.hold = True
    statuses: list[int] = []

    def guess(token: str) -> None:
        statuses.append(ask(broker, "/api/session", "POST", {"token": token}).status)

    guesses = [f"all.{number}" for number in range(MOST_ATTEMPTS)]
    guessing = [threading.Thread(target=guess, args=(token,)) for token in guesses]
    for thread in guessing:
        thread.start()
    for _ in guessing:
        assert tokens.came.acquire(timeout=PATIENCE)
    answer = ask(broker, "/api/session", "POST", {"token": "all.guessed"})
    assert answer.status == 429 and "wait" in answer.error
    assert ask(broker, "/api/state", authorization="Bearer all.guessed").status == 429
    assert ask(broker, "/api/state", authorization=bearer("all")).status == 200
    tokens.late["new.token"] = tokens.rights["all"]
    assert ask(broker, "/api/state", authorization="Bearer new.token").status == 429
    assert sorted(tokens.checked) == guesses
    tokens.let_go(broker)
    for thread in guessing:
        thread.join(PATIENCE)
    assert statuses == [401] * MOST_ATTEMPTS
    assert ask(broker, "/api/session", "POST", {"token": "all.guessed"}).status == 401
    assert ask(broker, "/api/state", authorization="Bearer new.token").status == 200


@pytest.mark.parametrize(
    ("address", "most"),
    [("192.0.2.{}", MOST_CHECKED), ("2001:db8::{}", MOST_ATTEMPTS)],
    ids=["of all addresses", "of a network of IPv6, which is one"],
)
def test_those_that_are_checked_still_count_too(address: str, most: int) -> None:
    attempts = [(f"a.{number}", address.format(number)) for number in range(MOST_CHECKED + 8)]

    async def attempted() -> None:
        over = asyncio.Event()

        async def checking(*_: str) -> Rights:
            await over.wait()
            return WORKER

        authority = Mock(remembered=lambda _: None, check=checking)
        gate = Gate(authority, Mock())
        asked = [asyncio.create_task(gate.rights_of(*attempt)) for attempt in attempts]
        async with asyncio.timeout(PATIENCE):
            refused = await asyncio.gather(*asked[most:], return_exceptions=True)
        assert [getattr(each, "status_code", None) for each in refused] == [429] * (len(attempts) - most)
        over.set()
        assert await asyncio.gather(*asked[:most]) == [WORKER] * most
        assert await gate.rights_of(*attempts[-1]) is WORKER

    asyncio.run(attempted())


class Desk:
    """An authority whose checks, and whose penalties, end when the test says so."""

    def __init__(self) -> None:
        self.checked: list[str] = []
        self.over, self.answered = asyncio.Event(), asyncio.Event()

    def remembered(self, _: str) -> None:
        return None

    async def check(self, token: str, _: str) -> Rights | Awaitable[None]:
        self.checked.append(token)
        await self.over.wait()
        return WORKER if token == "right" else asyncio.ensure_future(self._penalty())

    async def _penalty(self) -> None:
        await self.answered.wait()

    def current(self, rights: Rights) -> Rights | None:
        return rights


def guessing(gate: Gate, address: str) -> list[asyncio.Task[Rights]]:
    """As many as may be of one address."""
    return [asyncio.create_task(gate.rights_of("wrong", address)) for _ in range(MOST_ATTEMPTS)]


async def statuses(*asked: Awaitable[Rights]) -> list[int | None]:
    return [getattr(each, "status_code", None) for each in await asyncio.gather(*asked, return_exceptions=True)]


def test_wrong_ones_that_wait_for_their_answer_keep_out_only_their_own_address() -> None:
    async def attacked() -> None:
        desk = Desk()
        gate = Gate(desk, Mock())
        desk.over.set()
        guesses: list[asyncio.Task[Rights]] = []
        for number in range(2 * MOST_CHECKED // MOST_ATTEMPTS):
            guesses += guessing(gate, f"192.0.2.{number}")
            while len(desk.checked) < len(guesses) or gate._checks:
                await asyncio.sleep(0)
        assert await gate.rights_of("right", "192.0.2.99") is WORKER
        assert await statuses(gate.rights_of("right", "192.0.2.0")) == [429]
        desk.answered.set()
        assert await statuses(*guesses) == [401] * len(guesses)

    asyncio.run(asyncio.wait_for(attacked(), PATIENCE))


def test_when_there_are_too_many_checks_the_address_that_has_most_gives_one_up() -> None:
    async def attacked() -> None:
        desk = Desk()
        gate = Gate(desk, Mock())
        guesses = [guessing(gate, f"192.0.2.{number}") for number in range(MOST_CHECKED // MOST_ATTEMPTS)]
        while len(desk.checked) < MOST_CHECKED:
            await asyncio.sleep(0)
        right = [asyncio.create_task(gate.rights_of("right", "192.0.2.99")) for _ in range(MOST_ATTEMPTS)]
        while len(desk.checked) < MOST_CHECKED + 6:
            await asyncio.sleep(0)
        desk.over.set()
        desk.answered.set()
        assert await statuses(*right) == [None] * 6 + [429] * 2, "the last ones would be more than any other has"
        assert [(await statuses(*each)).count(429) for each in guesses] == [1, 1, 2, 2], "and so many fewer have these"
        assert desk.checked[-6:] == ["right"] * 6 and not gate._checks

    asyncio.run(asyncio.wait_for(attacked(), PATIENCE))
