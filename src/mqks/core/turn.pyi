"""The types of turns, for whoever takes them in process: see turn.pyx."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from mqks.core.hub import Core

class Links(Protocol):
    """The clients' ends of connections in process."""

    def input(self) -> Iterable[tuple[Any, bytes]]:
        """What clients have sent, one connection after the other; each is taken before the next one is asked for."""

    def writable(self) -> Iterable[Any]:
        """Connections that did not take all, and have room again."""

    def send(self, c: Any) -> int:
        """How many of the bytes that wait for this client it takes now."""

class Transport:
    patience: float

class Turn:
    def __init__(self, core: Core, pump: Callable[[], None]) -> None: ...
    def run(self, transport: Transport) -> None: ...

class LocalTransport(Transport):
    links: Links | None
    def __init__(self, core: Core) -> None: ...
