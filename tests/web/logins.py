"""Brokers over HTTP whose tokens are the test's own: no file, nothing slow, and a token goes when the test says so.

    tokens = Tokens(worker=Rights("worker", publish=("order.*",)))
    with guarded(tokens) as broker:
        ask(broker, "/api/session", authorization=bearer("worker"))

Its broker's own port is open to all. That the real authority is asked, test_login_file.py shows.
"""

import asyncio
import http.client
import threading
from collections.abc import Awaitable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import mqks.testing
from mqks.broker.auth.access import EVERYTHING, Rights
from mqks.web.server import WebServer
from tests.running import PATIENCE
from tests.web.asking import Answer, address, ask

ALL = replace(EVERYTHING, name="all")


class Tokens:
    """The token of a name is `{name}.secret`. A wrong one is answered at once, unless `hold` is set."""

    def __init__(self, *rights: Rights) -> None:
        self.rights = {each.name: each for each in rights}
        self.late: dict[str, Rights] = {}  # tokens that are right, and were not said before
        self.checked: list[str] = []
        self.held: list[asyncio.Event] = []
        self.hold = False
        self.came = threading.Semaphore(0)  # one for each attempt that waits

    def remembered(self, token: str) -> Rights | None:
        name, _, secret = token.partition(".")
        return self.rights.get(name) if secret == "secret" else None

    async def check(self, token: str, address: str) -> Rights | Awaitable[None]:
        assert address == "127.0.0.1"
        self.checked.append(token)
        return self.remembered(token) or self.late.get(token) or asyncio.ensure_future(self._penalty())

    async def _penalty(self) -> None:
        if self.hold:
            self.held.append(asyncio.Event())
            self.came.release()
            await self.held[-1].wait()

    def current(self, rights: Rights) -> Rights | None:
        now = self.rights.get(rights.name)
        return now if now and now.proof == rights.proof else None

    def let_go(self, broker: mqks.testing.Broker) -> None:
        assert broker._running
        self.hold = False
        for each in self.held:
            broker._running.loop.call_soon_threadsafe(each.set)


@contextmanager
def guarded(tokens: Tokens, **options: Any) -> Iterator[mqks.testing.Broker]:
    with ExitStack() as stack:
        with patch("mqks.server.app._web", lambda _, broker, server, *__: WebServer(broker, server, authority=tokens)):
            broker = stack.enter_context(mqks.testing.broker(http=True, **options))
        yield broker


def bearer(name: str) -> str:
    return f"Bearer {name}.secret"


class Browser:
    """What a browser does for one who logged in: it sends the cookie, and the page what it was told as csrf."""

    def __init__(self, broker: mqks.testing.Broker, token: str) -> None:
        self.broker = broker
        self.login = ask(broker, "/api/session", "POST", {"token": token})
        assert self.login.status == 200, self.login
        self.cookie = self.login.headers["set-cookie"].partition(";")[0]
        self.csrf = self.login.json["csrf"]

    def ask(self, path: str, method: str = "GET", body: object = None, **headers: str) -> Answer:
        return ask(self.broker, path, method, body, **{"cookie": self.cookie, "x_csrf_token": self.csrf} | headers)


def status(broker: mqks.testing.Broker, method: str, path: str, body: object = None, **headers: str) -> int:
    """Of an answer that need not end."""
    if method != "GET":
        return ask(broker, path, method, body, **headers).status
    with closing(http.client.HTTPConnection(*address(broker), timeout=PATIENCE)) as connection:
        connection.request(method, path, headers=headers)
        return connection.getresponse().status
