"""The clients' ends of connections: what they have sent and the broker has not read, and how much more they take.

It is the other side of the broker's turn (mqks.core.turn), which reads and sends as it does with sockets.
"""

from collections.abc import Callable, Iterator

from mqks.broker.connections.client import Client
from tests.sim.links import Link


class Network:
    def __init__(
        self, before: Callable[[Link], None], after: Callable[[], None], leaving: Callable[[Link, int], None]
    ) -> None:
        """Called before bytes of a link are taken, after that, and when so many bytes leave for it."""
        self._before = before
        self._after = after
        self._leaving = leaving
        self._links: dict[Client, Link] = {}
        self._sent: dict[Link, bytes] = {}  # by clients, in the order in which they come
        self._full: dict[Link, None] = {}  # those that did not take all
        self.reading: Link | None = None  # whose bytes are taken right now

    def connect(self, link: Link) -> None:
        self._links[link.client] = link

    def disconnect(self, link: Link) -> None:
        del self._links[link.client]
        self._sent.pop(link, None)
        self._full.pop(link, None)

    def is_sending(self, link: Link) -> bool:
        """Has it sent something that the broker has not read?"""
        return link in self._sent

    def put(self, link: Link, data: bytes) -> None:
        """The client sends this."""
        self._sent[link] = data

    # ── what the broker's turn asks for ──

    def input(self) -> Iterator[tuple[Client, bytes]]:
        for link in list(self._sent):
            if link.client.unheard or link not in self._sent:
                continue  # what it said before has its turn first
            data = self._sent.pop(link)
            self._before(link)
            self.reading = link
            yield link.client, data
            self.reading = None
            self._after()

    def writable(self) -> list[Client]:
        return [link.client for link in self._full if link.room]

    def send(self, client: Client) -> int:
        link = self._links.get(client)
        if link is None:  # one that only asks for stats
            return 0
        size = min(client.pending_size, link.room)
        if size:
            self._leaving(link, size)
        link.room -= size
        if size < client.pending_size:
            self._full[link] = None
        else:
            self._full.pop(link, None)
        return size
