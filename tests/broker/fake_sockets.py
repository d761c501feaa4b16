"""A server's sockets, as far as a test wants to know what the broker asks of them."""

from collections.abc import Callable

from mqks.broker.connections.client import Client

Call = Callable[[Client], object]


class FakeSockets:
    def __init__(self, **calls: Call) -> None:
        """Each call takes the place of the method of its name."""
        self._calls = calls

    def hang_up(self, client: Client) -> None:
        self._call("hang_up", client)

    def dismiss(self, client: Client) -> None:
        self._call("dismiss", client)

    def cut_off(self, client: Client) -> None:
        self._call("cut_off", client)

    def notice_closes(self, joining: Client) -> None:
        self._call("notice_closes", joining)

    def _call(self, name: str, client: Client) -> None:
        if name in self._calls:
            self._calls[name](client)
