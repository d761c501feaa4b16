"""What the sink's tests talk to: a peer that plays what a script says, and what a real broker has taken."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import mqks
from mqks.client.address import Address

PATIENCE = 60.0  # seconds until something that must happen counts as not happening
STATS = b'{"max_line": 1000}'


class Talk:
    """One connection, as the peer sees it."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(PATIENCE)
        self.socket = connection
        self._file = connection.makefile("rb")

    def let_in(self) -> "Talk":
        """Answer a client's first words."""
        id, *request = self.line().split()
        assert request == [b"ping", b"hello"]
        self.say(b"%s ok hello\n" % id)
        return self

    def greet(self) -> "Talk":
        id, request = self.line().split()
        assert request == b"stats"
        self.say(b"%s ok %s\n" % (id, STATS))
        return self

    def line(self) -> bytes:
        return self._file.readline().removesuffix(b"\n")

    def lines(self, count: int) -> list[bytes]:
        return [self.line() for _ in range(count)]

    def say(self, text: bytes) -> None:
        self.socket.sendall(text)

    def confirm(self, *lines: bytes) -> None:
        self.say(b"".join(line.partition(b" ")[0] + b" ok \n" for line in lines))

    def until_the_end(self) -> bytes:
        """All that comes before the other side closes."""
        return self._file.read()


Scene = Callable[[Talk], object]


class Played(NamedTuple):
    address: Address
    errors: list[BaseException]


@contextlib.contextmanager
def peer(*scenes: Scene) -> Iterator[Played]:
    """Plays a scene on each connection, one after the other; after the last one nobody listens any more."""
    errors: list[BaseException] = []
    listener = socket.create_server(("127.0.0.1", 0))
    address = Address(*listener.getsockname()[:2])
    listener.settimeout(PATIENCE)

    def play() -> None:
        try:
            with listener:
                for scene in scenes:
                    with listener.accept()[0] as connection:
                        scene(Talk(connection).let_in())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    yield Played(address, errors)
    thread.join(PATIENCE)
    assert not thread.is_alive(), "the peer waits for something that does not come"
    assert not errors, errors


class Clock:
    """Stands where modules have `time`: what they take for now can be moved on."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class Taken(NamedTuple):
    id: str
    event: str
    data: str


def taken(url: str) -> list[Taken]:
    """All that the broker has taken, in its order."""
    with mqks.connect(url) as mq:
        return [Taken(record.id, record.event, record.data) for record in mq.history()]
