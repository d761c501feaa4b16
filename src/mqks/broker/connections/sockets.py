"""What the broker asks of whoever has its clients' sockets: one protocol, attached once by the server."""

from typing import Protocol

from mqks.broker.connections.client import Client


class Sockets(Protocol):
    def hang_up(self, client: Client) -> None:
        """Close the connection after what the client was told has gone out. The client may be in the middle of a line:
        its connection must not close before this returns."""

    def dismiss(self, client: Client) -> None:
        """Close the connection now, with what the client was told."""

    def cut_off(self, client: Client) -> None:
        """Close the connection now, and send nothing more."""

    def notice_closes(self, joining: Client) -> None:
        """Learn which peers have closed, before this client joins a queue that has other consumers."""


class NoSockets:
    """For a broker in process: whoever feeds it has no connection to close, and tells of each peer that goes."""

    def hang_up(self, client: Client) -> None:
        pass

    def dismiss(self, client: Client) -> None:
        pass

    def cut_off(self, client: Client) -> None:
        pass

    def notice_closes(self, joining: Client) -> None:
        pass
