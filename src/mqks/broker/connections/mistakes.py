"""Requests that were answered with an error: they are counted here, and each error_id can be found in the log.

The first few mistakes of one kind that a connection makes in a second have each an id and a line; the others share the
last id, and are counted. All connections together have so many lines and bytes in a second, of which half is kept for
those that make their first mistake; beyond that the connections share an id for each kind. So nobody can flood the log.
What the broker or its disk is to blame for is told whatever clients do. No token is told: of what strangers say, and of
what looks like an auth, only the size is. Only the log, timers and what a client's
mistakes were lately is touched here.
"""

import logging
from dataclasses import dataclass, field

from mqks.broker.connections.client import Client, Flood
from mqks.broker.errors import BadRequest, Fault
from mqks.broker.timers import Timers
from mqks.dtid import Dtids
from mqks.logs import Entry

log = logging.getLogger(__name__)

SHOWN_OF_A_LINE = 1024  # bytes
LOGGED_ONE_BY_ONE = 10  # of one mistake, on one connection, in one second
LOGGED_LINES = 100  # of all mistakes in one second
LOGGED_BYTES = 64 << 10  # likewise


@dataclass
class Mistakes:
    timers: Timers
    new_dtid: Dtids
    errors: int = 0  # requests that were answered so
    _second: int = 0
    _lines: int = 0  # in this second
    _bytes: int = 0
    _of_all: dict[str, Flood] = field(default_factory=dict)  # those of no connection in particular
    _counted: dict[Client, None] = field(default_factory=dict)  # whose mistakes of this second are known

    def made(self, client: Client, bad: BadRequest, **about: object) -> bytes:
        """The error_id for a request that cannot be done; `about` says which one it was."""
        self.errors += 1
        self._look_at_clock()
        if isinstance(bad, Fault):
            return self._note(self._of_all, LOGGED_ONE_BY_ONE, client.peer, bad, about)
        has_room = self._has_room(1 if client.floods is None else 2)
        if client.floods is None:
            client.floods = {}
        own = client.floods.get(bad.reason)
        if not has_room and (own is None or own.second != self._second):
            return self._note(self._of_all, 1, client.peer, bad, about)
        self._counted[client] = None
        self._tell_later()
        return self._note(client.floods, LOGGED_ONE_BY_ONE if has_room else 0, client.peer, bad, about)

    def made_of_line(self, client: Client, bad: BadRequest, line: bytes) -> bytes:
        if client.stranger or _looks_like_auth(line):
            return self.made(client, bad.without_detail(), bytes=len(line))
        whose = {"token": client.rights.name} if client.rights.name else {}
        return self.made(client, bad, **whose, line=line[:SHOWN_OF_A_LINE])

    def refused(self, peer: str, bad: BadRequest) -> bytes:
        """The error_id for one who is turned away."""
        self._look_at_clock()
        return self._note(self._of_all, LOGGED_ONE_BY_ONE, peer, bad, {})

    def forget(self, client: Client) -> None:
        """The client goes: what was counted of its mistakes is told."""
        self._counted.pop(client, None)
        self._end_all(client.floods or {}, client.peer)

    def tell(self) -> None:
        """What was counted in seconds that are over."""
        self._look_at_clock()
        counted, self._counted = self._counted, {}
        goes_on = self._tell_of(self._of_all, None)
        for client in counted:
            if client.floods and self._tell_of(client.floods, client.peer):
                self._counted[client] = None
        if goes_on or self._counted:
            self.timers.set("mistakes", 1.0, self.tell)

    def _tell_later(self) -> None:
        if not self.timers.is_set("mistakes"):
            self.timers.set("mistakes", 1.0, self.tell)

    def tell_rest(self) -> None:
        """The broker stops: what was counted in this second too. Of its own a client is told of when it goes."""
        rest, self._of_all = self._of_all, {}
        self._end_all(rest, None)

    def _tell_of(self, floods: dict[str, Flood], peer: str | None) -> bool:
        """Forget what is over; answers whether there is something left."""
        over = {reason: flood for reason, flood in floods.items() if flood.second != self._second}
        for reason in over:
            del floods[reason]
        self._end_all(over, peer)
        return bool(floods)

    @staticmethod
    def _end_all(floods: dict[str, Flood], peer: str | None) -> None:
        for reason, flood in floods.items():
            _end(flood, peer, reason)

    def _look_at_clock(self) -> None:
        if (second := int(self.timers.clock())) != self._second:
            self._second = second
            self._lines = self._bytes = 0

    def _has_room(self, share: int) -> bool:
        return self._lines < LOGGED_LINES // share and self._bytes < LOGGED_BYTES // share

    def _note(self, floods: dict[str, Flood], most: int, peer: str, bad: BadRequest, about: dict[str, object]) -> bytes:
        """An id and a line of its own, if it is one of the first so many; else the last of these."""
        flood = floods.get(bad.reason)
        if flood is None or flood.second != self._second:
            if flood is not None:
                _end(flood, None if floods is self._of_all else peer, bad.reason)
            flood = floods[bad.reason] = Flood(self._second)
        if flood.logged >= most:
            flood.unlogged += 1
            self._tell_later()
            return flood.error_id
        flood.logged += 1
        flood.error_id = self.new_dtid()
        said = "error {error_id} client={client} reason={reason!a}" + "".join(f" {name}={{{name}!a}}" for name in about)
        entry = Entry(said, error_id=flood.error_id, client=peer, reason=str(bad), **about)
        self._lines += 1
        self._bytes += len(str(entry))
        if isinstance(bad, Fault):
            log.error(entry, exc_info=bad.__cause__)
        else:
            log.warning(entry)
        return flood.error_id


def _end(flood: Flood, peer: str | None, reason: str) -> None:
    if flood.unlogged:
        who = {} if peer is None else {"client": peer}
        said = " client={client}" if who else ""
        log.warning(
            Entry(
                "error {error_id}" + said + " reason={reason!a} was met {more} times more in that second",
                error_id=flood.error_id,
                **who,
                reason=reason,
                more=flood.unlogged,
            )
        )


def _looks_like_auth(line: bytes) -> bool:
    """Whatever was meant by it, its data may be a token. Not by an expression: a line of spaces takes them for ever."""
    return any(b"auth" in word.lower() for word in line.split(None, 2)[:2])
