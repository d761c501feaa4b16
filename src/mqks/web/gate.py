"""Who asks, and whether it may: by a token, as `Authorization: Bearer`, or by the session of a browser that logged in.

The gate knows tokens only by what the authority says of them. What each path needs stands in the table of app.py; the
rights on names (which event, which queue) are asked where the name is known. Without an authority all may do all.
"""

import asyncio
import hmac
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from starlette.exceptions import HTTPException
from starlette.requests import Request

from mqks.broker.auth.access import EVERYTHING, FROM_AFAR, NOTHING, Rights
from mqks.broker.connections.client import is_loopback, origin
from mqks.web.guard import CHANGING, MET, Counting
from mqks.web.sessions import Session, Sessions, cookie_name

Needs = tuple[str, ...] | None  # rights by name, all of them; (): any token will do; None: not even that
OPEN: Needs = None
KNOWN: Needs = ()

HAS: Mapping[str, Callable[[Rights], bool]] = {
    "admin": lambda rights: rights.admin,
    "history": lambda rights: bool(rights.history),
    "manage": lambda rights: bool(rights.manage),
    "publish": lambda rights: bool(rights.publish),
}

CSRF = "x-csrf-token"
LONGEST_TOKEN = 200  # characters
MOST_ATTEMPTS = 8  # with tokens not said before, of one address at one time; a wrong one waits, with its connection
MOST_CHECKED = 32  # of all addresses that wait for a check: more than a second's worth of them
WHO = "say who you are: send the header authorization: Bearer {token}, or log in at /login"
WRONG = "this token is not known"
BUSY = "too many tokens at one time that were not said before: wait until those are answered"


class Authority(Protocol):
    def remembered(self, token: str) -> Rights | None:
        """At once, if it was right before."""

    async def check(self, token: str, address: str) -> Rights | Awaitable[None]:
        """Its rights, or what to wait for before one is told that it is wrong."""

    def current(self, rights: Rights) -> Rights | None:
        """What their token may do now; None if it was revoked, or made anew under its old name."""


@dataclass(frozen=True, slots=True)
class Caller:
    address: str
    encrypted: bool  # it came over TLS
    cookie: str  # the name of that for its sessions
    rights: Rights
    session: Session | None = None  # if it is by a session that it is known


class Gate:
    def __init__(self, authority: Authority | None, counting: Counting) -> None:
        self.sessions = Sessions()
        self._authority = authority
        self._counting = counting
        self._attempts: Counter[str] = Counter()  # that have no answer yet, by address
        self._checks: dict[asyncio.Task[Rights | Awaitable[None]], str] = {}  # by address; in their order

    @property
    def has_authority(self) -> bool:
        return self._authority is not None

    async def admit(self, request: Request, needs: Needs) -> Caller:
        """Who asks. An HTTPException says why it may not."""
        with self._counted():
            caller = await self._caller(request, needs)
            request.state.token = caller.rights.name
            _permitted(caller, needs)
        if caller.rights is not NOTHING and (met := request.scope["state"].get(MET)):
            met()
        return caller

    def admit_again(self, caller: Caller, needs: Needs) -> Caller:
        """It has kept the broker waiting, or has waited itself: what it may do now. An HTTPException as before."""
        if needs is None:
            return caller
        with self._counted():
            rights = self.current(caller)
            if rights is None:
                raise unknown(WHO if caller.session else WRONG)
            return _permitted(replace(caller, rights=rights), needs)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        try:
            yield
        except HTTPException:
            self._counting.refused_requests += 1
            raise

    async def _caller(self, request: Request, needs: Needs) -> Caller:
        address = request.client.host if request.client else "?"
        encrypted = request.scope["scheme"] == "https"
        cookie = cookie_name(request.headers.get("host", ""), encrypted)
        if self._authority is None:
            return Caller(address, encrypted, cookie, _of_anybody(address))
        if needs is not None and (said := request.headers.get("authorization")) is not None:
            scheme, _, token = said.partition(" ")
            if scheme.lower() != "bearer":
                raise unknown(WHO)
            return Caller(address, encrypted, cookie, await self.rights_of(token.strip(), address))
        session = self.sessions.find(request.cookies.get(cookie, ""))
        if needs is None:
            return Caller(address, encrypted, cookie, NOTHING, session)
        rights = self._authority.current(session.rights) if session else None
        if session is None or rights is None:
            raise unknown(WHO)
        if request.method in CHANGING and not _same(request.headers.get(CSRF, ""), session.csrf):
            raise HTTPException(403, f"send the header {CSRF} with what GET /api/session tells as csrf")
        return Caller(address, encrypted, cookie, rights, session)

    async def rights_of(self, token: str, address: str) -> Rights:
        """Those of a token, after a while if it is wrong.

        Who is refused since there are many learns nothing of its token: that comes before the check is over. An attempt
        counts with its address until its time is over, though its client may be gone: so no more than these wait,
        whoever comes and goes. Of all addresses together only checks count: a wrong token that waits for its answer
        keeps out nobody else.
        """
        if self._authority is None:
            return _of_anybody(address)
        if rights := self._authority.remembered(token):
            return rights
        if len(token) > LONGEST_TOKEN:
            raise unknown(WRONG)
        place = origin(address)
        if self._attempts[place] >= MOST_ATTEMPTS or not self._has_room(place):
            raise HTTPException(429, BUSY)
        self._attempts[place] += 1
        try:
            answer = await self._check(token, address, place)
            if isinstance(answer, Rights):
                return answer
            await answer
        finally:
            self._attempts[place] -= 1
            self._attempts += Counter()  # without those that are at zero
        raise unknown(WRONG)

    async def _check(self, token: str, address: str, place: str) -> Rights | Awaitable[None]:
        assert self._authority
        check = asyncio.ensure_future(self._authority.check(token, address))
        self._checks[check] = place
        try:
            await asyncio.wait([check])
        finally:
            check.cancel()  # unless it is over
            self._checks.pop(check, None)
        if check.cancelled():  # for another
            raise HTTPException(429, BUSY)
        return check.result()

    def _has_room(self, place: str) -> bool:
        """Room for one more check. Where there is none, the address that has most gives up its last one, if it has
        more than this one would have then."""
        if len(self._checks) < MOST_CHECKED:
            return True
        crowds = Counter(self._checks.values())
        most = max(crowds.values())
        if crowds[place] + 1 >= most:
            return False
        last = next(check for check, each in reversed(self._checks.items()) if crowds[each] == most)
        del self._checks[last]
        last.cancel()
        return True

    def current(self, caller: Caller) -> Rights | None:
        """What it may do now, since it may have been admitted a while ago; None: it is not known any more."""
        if self._authority is None:
            return caller.rights
        if caller.session and self.sessions.find(caller.session.secret) is None:
            return None
        return self._authority.current(caller.rights)


def _permitted(caller: Caller, needs: Needs) -> Caller:
    if missing := next((need for need in needs or () if not HAS[need](caller.rights)), None):
        raise forbidden(missing)
    return caller


def _of_anybody(address: str) -> Rights:
    """Where nobody has to say who it is."""
    return EVERYTHING if is_loopback(address) else FROM_AFAR


def unknown(why: str) -> HTTPException:
    return HTTPException(401, why, {"www-authenticate": "Bearer"})


def forbidden(what: str, name: str = "") -> HTTPException:
    return HTTPException(403, f"not permitted: {what}{' ' if name else ''}{name}")


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())
