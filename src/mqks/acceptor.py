"""Accepts connections on sockets that listen, in the event loop that runs: those of clients, and those of HTTP.

Each owner says what becomes of a connection and what is logged. It may say that there is no room: then the others wait
in the kernel's queue, as they do while the process has no file descriptor left.
"""

import asyncio
import errno
import socket
from collections.abc import Callable, Sequence
from typing import Any

RETRY = 1.0  # seconds, after an error
RETRY_ROOM = 0.05  # seconds, when there was no room
NOBODY = (BlockingIOError, InterruptedError, ConnectionAbortedError)
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    def __init__(
        self,
        listeners: Sequence[socket.socket],
        accepted: Callable[[socket.socket, Any], None],
        failed: Callable[[OSError, bool], None],
        *,
        at_once: int,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        """`accepted` is given the connection and its address; `failed` the error, and whether more
        file descriptors or memory would help. After `at_once` connections others get their turn."""
        self._listeners = listeners
        self._accepted = accepted
        self._failed = failed
        self._at_once = at_once
        self._has_room = has_room
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        """Accept from now on."""
        for listener in self._listeners:
            self._loop.add_reader(listener, self._accept, listener)

    def accept_waiting(self) -> None:
        """Accept now those who wait in the kernel's queue."""
        for listener in self._listeners:
            self._accept(listener)

    def stop(self) -> None:
        for listener in self._listeners:
            self._loop.remove_reader(listener)
        self.close()

    def close(self) -> None:
        """Close the sockets, whatever became of the loop."""
        for listener in self._listeners:
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(self._at_once):
            if not self._has_room():
                self._pause(listener, RETRY_ROOM)
                return
            try:
                connection, address = listener.accept()
            except NOBODY:
                return
            except OSError as error:
                self._failed(error, error.errno in EXHAUSTED)
                self._pause(listener, RETRY)
                return
            self._accepted(connection, address)

    def _pause(self, listener: socket.socket, seconds: float) -> None:
        self._loop.remove_reader(listener)
        self._loop.call_later(seconds, self._resume, listener)

    def _resume(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:  # it may be closed by now
            self._loop.add_reader(listener, self._accept, listener)
