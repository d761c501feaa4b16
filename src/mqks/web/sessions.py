"""Who is logged in: sessions, which browsers name by a cookie, in a table of this process. No I/O.

A session stands for the token that it was made with, of which it knows the name and the proof, never the text. It ends
when one logs out, after twelve hours, and with the broker. Whether its token still stands is asked at each request.
"""

import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from mqks.broker.auth.access import Rights

PORT = re.compile(r":([0-9]+)\Z")  # of a Host header
LASTS = 12 * 3600  # seconds
MOST = 1000
MOST_OF_ONE = 100  # of one token's, so that nobody's logins end those of others
SECRET_BYTES = 32


@dataclass(frozen=True, eq=False, slots=True)
class Session:
    rights: Rights  # as they were at the login: by name and proof they tell which token it was
    until: float
    secret: str = field(repr=False)  # what the cookie holds
    csrf: str = field(repr=False)  # what a page of ours knows and no other page can


def cookie_name(host: str, encrypted: bool) -> str:
    """Of the cookie for pages of this host, as the browser names it. It has the port, which cookies do not look at, so
    that brokers on one host do not log each other out. What begins with __Host- no other host or plain page can set."""
    port = PORT.search(host)
    return f"{'__Host-' * encrypted}mqks_session_{port[1] if port else 443 if encrypted else 80}"


class Sessions:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: dict[str, Session] = {}  # by secret, the oldest first

    def begin(self, rights: Rights) -> Session:
        """A new one; the oldest goes where there are too many."""
        self._drop_old()
        own = [each for each in self._open.values() if each.rights.name == rights.name]
        if len(own) >= MOST_OF_ONE:
            self.end(own[0])
        elif len(self._open) >= MOST:
            self.end(next(iter(self._open.values())))
        until = self._clock() + LASTS
        session = Session(rights, until, secrets.token_urlsafe(SECRET_BYTES), secrets.token_urlsafe(SECRET_BYTES))
        self._open[session.secret] = session
        return session

    def find(self, secret: str) -> Session | None:
        self._drop_old()
        return self._open.get(secret)

    def end(self, session: Session) -> None:
        self._open.pop(session.secret, None)

    def _drop_old(self) -> None:
        """All last equally long: the first of the table are the first to go."""
        now = self._clock()
        while self._open and (oldest := next(iter(self._open.values()))).until <= now:
            self.end(oldest)
