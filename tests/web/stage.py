"""A broker in process with figures over it, and a clock that only the test moves: no sockets, no sleeping."""

from collections.abc import Iterable
from typing import Any

from mqks.broker import Broker
from mqks.broker.connections.client import Client
from mqks.web.state import Figures

HOST = "127.0.0.1:25000"
BEGAN = 1_800_000_000.0


class Stage:
    def __init__(self, **options: Any) -> None:
        self.now = 0.0
        self.broker = Broker(clock=lambda: self.now, wall=lambda: BEGAN + self.now, **options)
        self.figures = Figures(self.broker, HOST)
        self.figures.listen()
        self.figures.sample()
        self._clients = 0

    def connect(self) -> Client:
        self._clients += 1
        return self.broker.connect(f"127.0.0.1:{5000 + self._clients}")

    def say(self, client: Client, *lines: bytes) -> None:
        """The client says this, all are served, and all but those who are deaf read."""
        self.broker.feed(client, b"".join(line + b"\n" for line in lines))
        self.serve()

    def ask(self, client: Client, *lines: bytes) -> list[bytes]:
        """The client says this, and reads what it is told; the others are left alone."""
        self.broker.feed(client, b"".join(line + b"\n" for line in lines))
        self.broker.turn()
        told = client.pending()
        self.broker.sent(client, len(told))
        return told.splitlines()

    def serve(self, but: Iterable[Client] = ()) -> None:
        self.broker.turn()
        for client in self.broker.connections.clients:
            if client not in but:
                self.broker.sent(client, client.pending_size)

    def wait(self, seconds: int = 1) -> None:
        """A sample for each second."""
        for _ in range(seconds):
            self.now += 1
            self.figures.sample()

    def queue(self, name: str) -> dict[str, Any]:
        return self.figures.queue(self.broker.queues.by_name[name.encode()])

    @property
    def phrases(self) -> dict[str, str]:
        """What the health says, by kind; the last of each."""
        return {phrase["kind"]: phrase["text"] for phrase in self.figures.state()["health"]["phrases"]}
