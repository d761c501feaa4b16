"""All clients of the broker: how many there are and from where, who may still come, and whose connection closes.

It owns the list of clients and the memory that their connections take. What a client may do is decided in `auth`.
"""

from collections import Counter
from collections.abc import Sequence

from mqks.broker.capacity import Reserve
from mqks.broker.connections.client import CONNECTION_COST, Client, origin
from mqks.broker.connections.mistakes import Mistakes
from mqks.broker.connections.pace import Pace
from mqks.broker.connections.sockets import NoSockets, Sockets
from mqks.broker.connections.strangers import Strangers
from mqks.broker.errors import BadRequest
from mqks.broker.limits import Limits
from mqks.core.hub import Core

GAVE_WAY = "another takes its place, since it has not said who it is"


class Connections:
    def __init__(self, core: Core, limits: Limits, pace: Pace, mistakes: Mistakes) -> None:
        self._core = core
        self._limits = limits
        self._pace = pace
        self._mistakes = mistakes
        self.clients: dict[Client, None] = {}  # in the order in which they came
        self.unauthenticated = Strangers()
        self.count = 0  # clients, without those from inside
        self.refused = 0  # clients that were turned away, because there were too many
        self.addresses: Sequence[str] = ()  # where clients connect, as "host:port"
        self.sockets: Sockets = NoSockets()
        self._origins: Counter[str] = Counter()  # how many of them come from where
        self._reserve = Reserve(core)

    # ── the server ──

    def attach(self, sockets: Sockets, addresses: Sequence[str] = ()) -> None:
        """A server serves the clients from now on, and listens there."""
        self.sockets = sockets
        self.addresses = addresses

    def detach(self) -> None:
        """The server is gone."""
        self.sockets = NoSockets()

    # ── clients come and go ──

    def register(self, client: Client) -> None:
        self.clients[client] = None
        self._reserve.charge(client.cost)
        self._pace.welcome(client)
        if not client.inside:
            self.count += 1
            self._origins[origin(client.peer)] += 1

    def unregister(self, client: Client) -> None:
        del self.clients[client]
        self._reserve.charge(-client.cost)
        self._pace.forget(client)
        if not client.inside:
            self.count -= 1
            where = origin(client.peer)
            self._origins[where] -= 1
            if not self._origins[where]:
                del self._origins[where]

    def limit_error(self, peer: str, cost: int = CONNECTION_COST) -> BadRequest | None:
        """Why one more client, which takes so many bytes of memory, cannot be served, if it cannot."""
        if self._origins[origin(peer)] >= self._limits.max_connections_per_address:
            return self._limits.reached("max_connections_per_address")
        if self.count >= self._limits.max_connections:
            bad = self._limits.reached("max_connections")
            return None if self.make_room(bad) else bad
        if not self._reserve.has_room(cost):
            bad = self._limits.reached("max_memory")
            return None if self.make_room(bad) else bad
        return None

    def make_room(self, bad: BadRequest) -> bool:
        """For one more there is no room: one who is not authenticated goes, if there is one. Who is known stays."""
        client = self.unauthenticated.first_to_go()
        if client is None:
            return False
        self.refused += 1
        error_id = self._mistakes.refused(client.peer, BadRequest(bad.reason, GAVE_WAY))
        self._core.output.say(client, b"- error %s\n" % error_id)
        self.sockets.dismiss(client)
        return True

    def refuse(self, peer: str, bad: BadRequest) -> bytes:
        """Somebody is turned away; answers the error_id to tell."""
        self.refused += 1
        return self._mistakes.refused(peer, bad)

    # ── connections that close ──

    def cut_short(self, client: Client) -> None:
        """Nothing that it says after this line is heard; it is hung up on when it was told why."""
        self._core.parser.block(client)
        self.sockets.hang_up(client)

    def overdue(self) -> list[Client]:
        """Those who keep the broker waiting for too long; they have been told, and are to be cut off."""
        found = self._pace.overdue(self.clients)
        for client in found:
            error_id = self._mistakes.made(client, self._limits.reached("line_timeout"), bytes=client.unfinished)
            self._core.output.say(client, b"- error %s\n" % error_id)
        stalled = self._pace.stalled(self.clients)
        for client in stalled:
            self._mistakes.made(client, self._limits.reached("max_memory"), unread=client.pending_size)
        return list(dict.fromkeys(found + stalled))
