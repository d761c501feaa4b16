"""Who is let in, and as whom. With an auth file a client is unauthenticated until its token was accepted; without, one
is let in from this host alone, or with --insecure from anywhere.

Whether a token is right is decided elsewhere, and takes a while: see `require_tokens`. This part changes the rights of
clients, blocks their input while a token is checked, and owns the timer for clients that do not authenticate.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from mqks.broker.auth.access import EVERYTHING, FROM_AFAR, NOTHING, Rights
from mqks.broker.connections.client import Client, is_loopback
from mqks.broker.connections.connections import Connections
from mqks.broker.connections.mistakes import Mistakes
from mqks.broker.errors import BadRequest
from mqks.broker.limits import Limits
from mqks.broker.persistence.history import Histories
from mqks.broker.protocol.bridge import event_name
from mqks.broker.queues.queue import Queue
from mqks.broker.timers import Timers
from mqks.core.hub import Core
from mqks.core.parts import Consumer
from mqks.logs import Entry

log = logging.getLogger(__name__)

Decided = Callable[[Rights | bytes], None]  # with the error_id, if it is refused
Drop = Callable[[], object]  # nobody waits for it any more: it will not be decided
Ask = Callable[[str, str, Decided], Drop | None]  # a token, and where it comes from; None: it is decided already

SHARE = 8  # the part of all memory that clients may have before they are authenticated,
LEAST_SHARE = 2 << 20  # and at least so many bytes
GRACE = 0.25  # seconds that each of them has, though others wait for its memory
MOST_GRANTED = 4096  # events of one token that the core may take by itself
TOLD_ONE_BY_ONE = 10  # clients of a token that are cut off; the others are counted
LONGEST_GRANTED = 256  # bytes of such a name
MOST_IN_VAIN = 16  # lines of a stranger: it can do nothing but say who it is, and each costs as much as a request

IN_VAIN = "it is hung up on, since it has said much and not who it is"
ONLY_THIS_HOST = "only this host is let in, since there is no --auth-file; see --auth-file and --insecure"
STILL_SUBSCRIBED = (
    "token {token} has lost consume.events of what queues have that it consumes, and gets it from them still: "
    "{queue!a} is one of {queues}; remove the events with rebind, or the queues from the token"
)


class Authentication:
    def __init__(
        self,
        core: Core,
        timers: Timers,
        limits: Limits,
        mistakes: Mistakes,
        connections: Connections,
        histories: Histories,
        *,
        insecure: bool,
    ) -> None:
        self._core = core
        self._timers = timers
        self._limits = limits
        self._mistakes = mistakes
        self._connections = connections
        self._unauthenticated = connections.unauthenticated
        self._histories = histories
        self._insecure = insecure
        self._most_cost = max(core.account.max_memory // SHARE, LEAST_SHARE)
        self._ask: Ask | None = None  # there is an auth file
        self._asked: dict[Client, Drop] = {}  # those about whom is not yet decided
        self.failures = 0  # tokens that were refused

    def require_tokens(self, ask: Ask | None) -> None:
        """Clients need a token from now on: there is an auth file, and `ask` looks one up. None: they need none."""
        self._ask = ask

    # ── at the door ──

    def barred(self, peer: str) -> BadRequest | None:
        """Why nobody from there is let in."""
        if self._ask is not None or self._insecure or is_loopback(peer):
            return None
        return BadRequest(ONLY_THIS_HOST)

    def on_connect(self, client: Client, rights: Rights) -> None:
        """It has just come; one from inside has these rights."""
        if client.inside:
            self.entitle(client, rights)
        elif self._ask is not None:
            self.expect(client)
        else:
            self.entitle(client, EVERYTHING if is_loopback(client.peer) else FROM_AFAR)

    def expect(self, client: Client) -> None:
        """It has so long to become known, by its token or at least by a handshake; 0 for any time."""
        client.stranger = True
        self._unauthenticated.add(client)
        if seconds := self._limits.auth_timeout:
            self._timers.set(_timer(client), seconds, partial(self._overdue, client))

    def has_room(self) -> bool:
        """May one more be accepted, as far as the memory of unauthenticated clients goes? For it the first to go is cut
        off, unless that one has only just come: then the others wait to be accepted, as when many reconnect at once."""
        if self._unauthenticated.cost < self._most_cost:
            return True
        client = self._unauthenticated.first_to_go()
        if client is None or self._timers.clock() - client.since < GRACE:
            return False
        return self._connections.make_room(self._limits.reached("max_memory"))

    def on_handshake_done(self, client: Client) -> None:
        """Its handshake is done: who it is may be asked still."""
        if self._ask is None:
            client.stranger = False
            self.forget(client)

    def forget(self, client: Client) -> None:
        self._unauthenticated.discard(client)
        self._timers.cancel(_timer(client))
        if drop := self._asked.pop(client, None):
            drop()

    def _overdue(self, client: Client) -> None:
        error_id = self._mistakes.made(client, self._limits.reached("auth_timeout"))
        self._core.output.say(client, b"- error %s\n" % error_id)
        self._connections.sockets.hang_up(client)

    def limit_failures(self, client: Client) -> None:
        """A stranger was told an error; one who goes on like that is heard no more."""
        if client.lines >= MOST_IN_VAIN and not client.blocked:
            self._mistakes.refused(client.peer, BadRequest(IN_VAIN))
            self._connections.cut_short(client)

    # ── tokens ──

    def admit(self, client: Client, request_id: bytes, token: bytes) -> None:
        """It says who it is; what it says after that waits until this is decided. Where nobody asks, that is fine."""
        if self._ask is None:
            self._core.output.say(client, b"%s ok \n" % request_id)
            return
        if not client.stranger:
            raise BadRequest("it has said who it is already")
        self._timers.cancel(_timer(client))
        self._core.parser.block(client)
        said, decided = token.decode("utf-8", "backslashreplace"), partial(self._decided, client, request_id)
        try:
            if drop := self._ask(said, client.peer, decided):
                self._asked[client] = drop
        except Exception:  # nobody will decide
            self._connections.sockets.hang_up(client)
            raise

    def _decided(self, client: Client, request_id: bytes, answer: Rights | bytes) -> None:
        self._asked.pop(client, None)
        if isinstance(answer, Rights):
            client.stranger = False
            self._unauthenticated.discard(client)
            self.entitle(client, answer)
            log.debug(Entry("client {client} is {token}", client=client.peer, token=answer.name))
            self._core.output.say(client, b"%s ok \n" % request_id)
            self._core.parser.unblock(client)
        else:
            self._mistakes.errors += 1
            self._core.output.say(client, b"%s error %s\n" % (request_id, answer))
            self._connections.sockets.hang_up(client)

    def failed(self, peer: str, bad: BadRequest) -> bytes:
        """A token was refused, here or over HTTP; answers the error_id to tell."""
        self.failures += 1
        return self._mistakes.refused(peer, bad)

    # ── rights ──

    @staticmethod
    def entitle(client: Client, rights: Rights) -> None:
        client.rights = rights
        client.granted = rights.granted  # one set for all connections of a token: of such sets there are few

    @staticmethod
    def grant(client: Client, event: bytes) -> None:
        """It may publish this event: the core need not ask again."""
        if client.granted is not None and len(event) <= LONGEST_GRANTED:
            if len(client.granted) >= MOST_GRANTED:
                client.granted.clear()
            client.granted.add(event)

    def reconsider(self, current: Callable[[Rights], Rights | None]) -> None:
        """Tokens have changed. `current` tells what somebody's rights are now; None: its token is gone."""
        told: Counter[tuple[str, str]] = Counter()  # by token and reason
        kept: dict[str, dict[Queue, bool]] = {}  # by token, the queues that it consumes
        for client in list(self._connections.clients):
            if client.inside or client.stranger:
                continue
            old, new = client.rights, current(client.rights)
            if new is None:
                self._dismiss(client, "its token was revoked", told)
            else:
                self.entitle(client, new)
                if new != old and self._oversteps(client, old):
                    self._dismiss(client, "its token no longer permits what it is at", told)
                elif new.events != old.events:
                    looked_at = kept.setdefault(new.name, {})
                    for queue in _queues(client) - looked_at.keys():
                        looked_at[queue] = _has_lost(queue, old, new)
        for (name, reason), count in told.items():
            if count > TOLD_ONE_BY_ONE:
                said = "clients beside these that are cut off: {reason}: {token}: {clients}"
                log.warning(Entry(said, reason=reason, token=name, clients=count - TOLD_ONE_BY_ONE))
        for name, looked_at in kept.items():
            if names := sorted(queue.name for queue, lost in looked_at.items() if lost):
                log.warning(Entry(STILL_SUBSCRIBED, token=name, queue=names[0], queues=len(names)))

    def _oversteps(self, client: Client, old: Rights) -> bool:
        """Has it something that it would not get now?"""
        if not all(client.rights.may_consume(queue.name) for queue in _queues(client)):
            return True
        return not client.rights.reads_no_less_than(old) and self._histories.is_reading(client)

    def _dismiss(self, client: Client, reason: str, told: Counter[tuple[str, str]]) -> None:
        """Nothing more goes out to it, nor what waits for it already: its messages return, and others get them."""
        told[client.rights.name, reason] += 1
        if told[client.rights.name, reason] <= TOLD_ONE_BY_ONE:
            said = "client {client} is cut off: {reason}: {token}"
            log.warning(Entry(said, client=client.peer, reason=reason, token=client.rights.name))
        self.entitle(client, NOTHING)
        self._core.parser.block(client)
        self._connections.sockets.cut_off(client)


def _timer(client: Client) -> tuple[str, Client]:
    return "auth", client


def _queues(client: Client) -> set[Queue]:
    """Those that it consumes."""
    consumers: Iterable[Consumer] = (client.consumers or {}).values()
    return {queue for consumer in consumers if isinstance(queue := consumer.queue, Queue)}


def _has_lost(queue: Queue, old: Rights, new: Rights) -> bool:
    """Has it something that could be bound with the old rights, and cannot with the new ones?"""
    by_pattern = () if queue.pattern is None else (event_name(queue.pattern.content),)
    return any(old.may_bind(event) and not new.may_bind(event) for event in (*queue.events, *by_pattern))
