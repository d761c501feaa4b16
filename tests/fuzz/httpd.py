r"""HTTP: any bytes on a connection to the dashboard's port.

An input is what a client sends, with \x02 where a piece ends; if it begins with \x01, tokens are asked for, of which
`boss` and `limited` are known. The boss is logged in: `$session` stands for what the cookie holds, `$csrf` for what his
page knows besides. What must hold: no request is answered with a 500, nothing is logged as an error, and nothing fails
in the event loop; when the client has gone all that it asked for ends; who says no token changes nothing, by another's
cookie neither; and who is not the boss takes nothing away, and sees no queue's name that it did not know. A first
request whose head is malformed gets a 400 and ends the connection, whatever comes after it.
"""

import asyncio
import logging
import re
import socket
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import uvicorn
from uvicorn.server import ServerState

from mqks.broker.auth.access import EVERYTHING, Rights
from mqks.web.api import Api
from mqks.web.app import application
from mqks.web.gate import Gate
from mqks.web.guard import Guard
from mqks.web.inside import Inside
from mqks.web.memory import HttpMemory
from mqks.web.server import MEMORY, Connection
from mqks.web.state import Figures
from tests.fuzz.lines import StrictBroker
from tests.fuzz.strangers import LIMITED

KEPT = b"for-the-boss"
QUEUES = (b"q1", b"q/2", b"\xff", KEPT)
STEPS = 60  # of the loop, in which what can be answered at once is
SESSION, CSRF = b"$session", b"$csrf"
STATUS = re.compile(rb"HTTP/1\.1 ([0-9]+) ")
END_OF_HEAD = re.compile(rb"^\r?\n|\n\r?\n")
BARE_LF_OR_FOLD = re.compile(rb"(?<!\r)\n|\n[ \t]")
LENGTH_OF_BODY = re.compile(rb"^(content-length|transfer-encoding):", re.IGNORECASE | re.MULTILINE)
SHORT, LONG = 0.2, 10.0  # seconds: for what a thread does; after which something hangs


class Wire(asyncio.Transport):
    """What a protocol writes to, when nobody is there."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 5000), "sockname": ("127.0.0.1", 25080)})
        self.said = bytearray()
        self.statuses: list[int] = []
        self._closing = False

    def write(self, data: Any) -> None:
        self.said += data
        if status := STATUS.match(data):  # the head of an answer is written by itself
            self.statuses.append(int(status[1]))

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True

    abort = close

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record))


class Tokens:
    """Who knows two tokens by heart."""

    KNOWN: ClassVar[Mapping[str, Rights]] = {"boss": replace(EVERYTHING, name="boss"), "limited": LIMITED}

    def remembered(self, token: str) -> Rights | None:
        return self.KNOWN.get(token)

    async def check(self, token: str, _: str) -> Rights | Awaitable[None]:
        """Who is wrong waits for nothing here."""
        over = asyncio.get_running_loop().create_future()
        over.set_result(None)
        return self.remembered(token) or over

    def current(self, rights: Rights) -> Rights | None:
        return self.KNOWN.get(rights.name)


class World:
    """A broker with HTTP, and a loop of its own. It lives on from input to input: to make one takes long."""

    def __init__(self, asks: bool) -> None:
        self.loop = asyncio.new_event_loop()
        self.errors = Errors()
        logging.getLogger().addHandler(self.errors)
        self.loop.set_exception_handler(lambda _, context: self.errors.found.append(str(context)))
        self.broker = StrictBroker(max_line=1 << 16)
        self.client = self.broker.connect("127.0.0.1:1")
        self.served: set[asyncio.Task[None]] = set()  # what HTTP asks of the broker
        figures = Figures(self.broker, "127.0.0.1:25000")
        self.gate = Gate(Tokens() if asks else None, figures)
        self.session = self.gate.sessions.begin(Tokens.KNOWN["boss"])
        api = Api(self.broker, figures, Inside(self), asyncio.Event(), self.gate)
        self.memory = HttpMemory(self.broker.core, lambda: 0)
        app = Guard(application(api, self.gate, self.memory, max_body=1 << 16), (), figures, only_here=not asks)
        self.config = uvicorn.Config(app, http=Connection, ws="none", lifespan="off", log_config=None, access_log=False)
        self.config.load()

    def adopt(self, connection: socket.socket, rights: Rights) -> None:
        """The broker's door for what HTTP asks of it."""
        served = self.loop.create_task(self._serve(connection, rights))
        self.served.add(served)
        served.add_done_callback(self.served.discard)

    async def _serve(self, connection: socket.socket, rights: Rights) -> None:
        reader, writer = await asyncio.open_connection(sock=connection)
        client = self.broker.connect("inside", inside=True, rights=rights)
        while data := await reader.read(1 << 16):
            self.broker.feed(client, data)
            self.broker.turn()
            writer.write(client.pending())
            self.broker.sent(client, client.pending_size)
        self.broker.disconnect(client)
        writer.close()

    async def hear(self, data: bytes) -> bytes:
        """Answers what is said to it."""
        state, wire = ServerState(), Wire()
        protocol = Connection(self.config, state, {MEMORY: self.memory}, self.loop)
        protocol.connection_made(wire)
        for piece in filter(None, data.split(b"\x02")):
            if wire.is_closing():
                break
            protocol.data_received(piece)
            await self._answer(state.tasks)
        if not wire.is_closing() and state.tasks:
            await asyncio.wait(state.tasks, timeout=SHORT if protocol.cycle.response_started else 0)
        protocol.connection_lost(None)
        while tasks := state.tasks | self.served:
            _, hang = await asyncio.wait(tasks, timeout=LONG)
            assert not hang, "a request goes on without its client"
        assert 500 not in wire.statuses
        if malformed(data.replace(b"\x02", b"")):
            assert wire.statuses == [400] and wire.is_closing(), "a malformed head does not end the connection"
        return bytes(wire.said)

    def prepare(self) -> None:
        """Every queue is there again, and has something; the boss is logged in."""
        self.errors.found.clear()
        if self.gate.sessions.find(self.session.secret) is None:
            self.session = self.gate.sessions.begin(Tokens.KNOWN["boss"])
        for queue in QUEUES:
            self.broker.feed(self.client, b"r rebind %s e1\nm publish e1 d\n" % queue)
        self.broker.turn()

    def filled(self, data: bytes) -> bytes:
        return data.replace(SESSION, self.session.secret.encode()).replace(CSRF, self.session.csrf.encode())

    def figures(self) -> tuple[int, dict[bytes, int]]:
        """What only those who may can change."""
        return self.broker.core.router.published, {
            name: queue.ready_count for name, queue in self.broker.queues.by_name.items()
        }

    def close(self) -> None:
        """Nobody after it is told of its errors, nor finds its loop and sockets."""
        logging.getLogger().removeHandler(self.errors)
        self.loop.run_until_complete(self._end())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        self.broker.close()

    async def _end(self) -> None:
        """Those inside end by themselves, when the other side of their connection has gone."""
        if served := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(served, timeout=LONG)

    @staticmethod
    async def _answer(tasks: set[asyncio.Task[None]]) -> None:
        for _ in range(STEPS):
            if not tasks:
                break
            await asyncio.sleep(0)


def malformed(data: bytes) -> bool:
    """Is the head of the first request complete, and may two parsers disagree on it?"""
    end = END_OF_HEAD.search(data)
    head = data[: end.end()] if end else b""
    return bool(BARE_LF_OR_FOLD.search(head)) or len(LENGTH_OF_BODY.findall(head)) > 1


worlds: dict[bool, World] = {}


def close() -> None:
    while worlds:
        worlds.popitem()[1].close()


def httpd(data: bytes) -> None:
    asks = data.startswith(b"\x01")
    if asks not in worlds:
        worlds[asks] = World(asks)
    here = worlds[asks]
    here.prepare()
    published, ready = here.figures()
    heard = here.loop.run_until_complete(here.hear(here.filled(data.removeprefix(b"\x01"))))
    assert not here.errors.found, here.errors.found
    said = data.replace(b"\x02", b"").lower()
    if not asks:
        return
    if b"bearer" not in said and CSRF not in said:
        assert here.figures() == (published, ready), "one who is not known has changed something"
    if b"boss" not in said and CSRF not in said:
        left = here.figures()[1]
        assert all(left.get(name, -1) >= count for name, count in ready.items()), "one who may not has taken something"
        assert KEPT not in heard or SESSION in said, "one who may not has seen something"
