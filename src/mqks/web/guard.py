"""Who may ask for what: the one place that decides about a request before anything else looks at it.

A browser is a door for every page that it shows. A page can point a name of its own at any address, and what answers
there is then of its own origin. So we answer to addresses, to names that are surely ours and to those that we were
told; nothing that changes something is taken from another origin, and no answer may be read, framed or run by one.
Who is refused is named in the log.
"""

import ipaddress
import logging
import re
import socket
from collections.abc import Iterable, Mapping
from typing import Protocol

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mqks.broker.connections.client import is_loopback
from mqks.logs import Entry
from mqks.web.answers import Json

log = logging.getLogger(__name__)

SPARE = "spare"  # in a scope's state: the connection is one of those beyond the most there may be
MET = "met"  # in the state of all: to be called when it is known who asks
ALWAYS = {"/healthz", "/metrics"}  # answered on those too
BUSY = "too many connections over HTTP: close some"
ELSEWHERE = "only this host itself may ask: start mqksd with --auth-file and send a token, or with --insecure"
CHANGING = {"POST", "DELETE", "PUT", "PATCH"}
OWN_SITES = {None, "same-origin", "none"}  # of Sec-Fetch-Site; only browsers send it
HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:@/\\\s]+)(?::[0-9]{1,5})?")
HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


class Counting(Protocol):
    refused_requests: int


class Guard:
    def __init__(self, app: ASGIApp, names: Iterable[str], counting: Counting, *, only_here: bool) -> None:
        """`names` are those of the host under which it is asked for, beside its own; `only_here`: by no other host."""
        self._app = app
        self._names = {name.lower() for name in ("localhost", socket.gethostname(), *names)}
        self._counting = counting
        self._only_here = only_here

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        api = scope["path"].startswith("/api/")
        spare = SPARE in scope["state"]

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store" if api else "no-cache")
                if spare:
                    headers["connection"] = "close"
            await send(message)

        headers = Headers(scope=scope)
        status, refusal = 403, self.refusal(scope["method"], headers)
        if self._only_here and not (scope["client"] and is_loopback(scope["client"][0])):
            refusal = ELSEWHERE
        if refusal is None and spare and scope["path"] not in ALWAYS:
            status, refusal = 503, BUSY
        if refusal is None:
            await self._app(scope, receive, sealed)
            return
        self._counting.refused_requests += 1
        said = "a request of {client} over HTTP, for host {host!a}, is refused: {reason}"
        log.warning(Entry(said, client=peer(scope["client"]), host=headers.get("host", "")[:200], reason=refusal))
        await Json({"error": refusal}, status)(scope, receive, sealed)

    def refusal(self, method: str, headers: Mapping[str, str]) -> str | None:
        """Why this request is refused, if it is."""
        host = headers.get("host", "")
        if not self._is_ours(host):
            return "nobody told that this host is called so: open it by its IP address, or start mqksd with --http-name"
        if method in CHANGING:
            if headers.get("sec-fetch-site") not in OWN_SITES:
                return "pages of other sites may not change anything here"
            origin = headers.get("origin")
            if origin is not None and origin.lower().partition("://")[2] != host.lower():
                return "pages of other origins may not change anything here"
        return None

    def _is_ours(self, host: str) -> bool:
        """Is this Host header, with or without a port, an address or a name of ours?"""
        match = HOST.fullmatch(host)
        if match is None:
            return False
        name = match[1].lower()
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True


def peer(client: tuple[str, int] | None) -> str:
    """The other end, as the log names it."""
    if client is None:  # it is gone already
        return "?"
    host, port = client
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
