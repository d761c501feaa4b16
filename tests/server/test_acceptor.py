"""The acceptor: pauses while there is no room or no file descriptor, goes on, and leaves nothing open."""

import asyncio
import errno
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from mqks import acceptor
from mqks.acceptor import Acceptor


class Exhausted:
    """A listener whose first `accept` finds no file descriptor."""

    def __init__(self, listener: socket.socket, error: int) -> None:
        self._listener = listener
        self._error = error

    def accept(self) -> tuple[socket.socket, Any]:
        if error := self._error:
            self._error = 0
            raise OSError(error, "no more")
        return self._listener.accept()

    def fileno(self) -> int:
        return self._listener.fileno()

    def close(self) -> None:
        self._listener.close()


class Door:
    def __init__(self, listener: Any, has_room: Callable[[], bool] = lambda: True, at_once: int = 8) -> None:
        self.listener = listener
        self.accepted: asyncio.Queue[socket.socket] = asyncio.Queue()
        self.failures: list[tuple[int | None, bool]] = []
        self.acceptor = Acceptor(
            [listener],
            lambda connection, _: self.accepted.put_nowait(connection),
            lambda error, exhausted: self.failures.append((error.errno, exhausted)),
            at_once=at_once,
            has_room=has_room,
        )
        self.acceptor.start()

    async def serves(self, *clients: socket.socket) -> None:
        for _ in clients:
            (await self.accepted.get()).close()


def listening() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    return listener


def connected(listener: socket.socket) -> socket.socket:
    return socket.create_connection(listener.getsockname())


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "RETRY", 0.001)
    monkeypatch.setattr(acceptor, "RETRY_ROOM", 0.001)


def test_waits_until_there_is_room() -> None:
    answers = [False, False]

    async def run() -> None:
        with listening() as listener, connected(listener) as client:
            door = Door(listener, lambda: not (answers and not answers.pop()))
            await door.serves(client)
            assert not answers, "it was asked until it had room"
            door.acceptor.stop()

    asyncio.run(run())


@pytest.mark.parametrize(("error", "exhausted"), [(errno.EMFILE, True), (errno.ENOMEM, True), (errno.EPERM, False)])
def test_tells_of_an_error_once_and_goes_on(error: int, exhausted: bool) -> None:
    async def run() -> None:
        with listening() as listener, connected(listener) as client:
            door = Door(Exhausted(listener, error))
            await door.serves(client)
            assert door.failures == [(error, exhausted)]
            door.acceptor.stop()

    asyncio.run(run())


def test_accepts_no_more_than_its_share_in_a_row() -> None:
    async def run() -> None:
        with listening() as listener:
            clients = [connected(listener) for _ in range(5)]
            door = Door(listener, at_once=2)
            door.acceptor.accept_waiting()
            assert door.accepted.qsize() == 2
            await door.serves(*clients)
            door.acceptor.stop()
            for client in clients:
                client.close()

    asyncio.run(run())


def test_a_pause_that_ends_after_the_stop_does_nothing() -> None:
    async def run() -> None:
        listener = listening()
        with connected(listener) as client:
            asked = asyncio.Event()

            def has_room() -> bool:
                asked.set()
                return False

            door = Door(listener, has_room)
            await asked.wait()
            door.acceptor.stop()
            await asyncio.sleep(0.002)  # longer than the pause
            assert listener.fileno() == -1 and door.accepted.empty()
            with suppress(OSError):
                client.send(b"x")

    asyncio.run(run())
