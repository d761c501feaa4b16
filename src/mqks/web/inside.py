"""A client of the broker within its own process: the protocol over a pair of sockets.

So publishing, deleting and reading history need no second way into the broker, and have its back-pressure: who does not
take its history keeps nobody waiting. Each request and each history has a connection of its own, which goes with it.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol

from mqks.broker.auth.access import EVERYTHING, Rights
from mqks.client import protocol
from mqks.client.protocol import decode, encode

CHUNK = 64 * 1024
HISTORY = "h"  # the id of the one history of a connection
PATIENCE = 10.0  # seconds for an answer; a disk that is this slow is worth an error


class Line(NamedTuple):
    """A message of a history. A long one is cut: `size` is that of all its data, or of what follows cut names."""

    position: int
    id: bytes
    event: bytes
    data: bytes
    size: int


class Door(Protocol):
    """What lets connections in: the server."""

    def adopt(self, connection: socket.socket, rights: Rights) -> None: ...


class Ended(Exception):
    """The broker stops."""


class Inside:
    def __init__(self, server: Door) -> None:
        self._server = server

    async def request(self, line: bytes, rights: Rights) -> str:
        """The data of the one answer to a request. Raises Refused, Ended, or TimeoutError."""
        async with asyncio.timeout(PATIENCE), self._connected(rights) as (reader, writer):
            writer.write(line + protocol.SAFE_END)
            reply, _ = (await anext(_lines(reader, len(line) + CHUNK)))[0]
        return protocol.answer(decode(reply), decode(line))

    async def history(
        self,
        where: int | str,
        masks: Iterable[bytes],
        *,
        most: int,
        follow: bool = False,
        limit: int = 0,
        rights: Rights = EVERYTHING,
    ) -> AsyncGenerator[list[Line], None]:
        """Messages from a position or time on, with at most so many bytes of each, in the pieces in which they come. It
        ends after `limit` messages, if there is one.

        Leave it by cancelling the task, or under `contextlib.aclosing`: the connection goes at that moment.
        """
        request = protocol.history(where, events=map(decode, masks), limit=limit or None, follow=follow)
        async with self._connected(rights) as (reader, writer):
            writer.write(encode(protocol.line(HISTORY, request)))
            async for came in _lines(reader, most):
                found: list[Line] = []
                for text, size in came:
                    # Names longer than what is kept leave no room for what comes after them.
                    answer = protocol.parse_cut_history(protocol.answer(decode(text), request))
                    if isinstance(answer, str):
                        if found:
                            yield found
                        return
                    position, *words = answer
                    name, event, data = map(encode, words)
                    left = size - (len(text) - len(data))
                    found.append(Line(int(position), name, event, data, left))
                if found:
                    yield found

    @asynccontextmanager
    async def _connected(self, rights: Rights) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        ours, theirs = socket.socketpair()
        try:
            self._server.adopt(theirs, rights)
        except BaseException:
            ours.close()
            theirs.close()
            raise
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            yield reader, writer
        finally:
            writer.close()


async def _lines(reader: asyncio.StreamReader, most: int) -> AsyncGenerator[list[tuple[bytes, int]], None]:
    """The lines of each piece that comes: at most so many bytes of a line, and its whole size."""
    begun, size = b"", 0  # of a line whose end has not come
    while piece := await reader.read(CHUNK):
        *whole, rest = piece.split(b"\n")
        lines = []
        for end in whole:
            lines.append(((begun + end)[:most], size + len(end)))
            begun, size = b"", 0
        size += len(rest)
        if len(begun) < most:
            begun = (begun + rest)[:most]
        if lines:
            yield lines
    raise Ended
