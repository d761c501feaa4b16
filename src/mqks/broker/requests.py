"""A request that the core leaves to Python: it is found an action, or answered with an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqks.broker.actions import find
from mqks.broker.connections.client import Client
from mqks.broker.errors import BadRequest, Fault, show
from mqks.broker.protocol.early import is_early
from mqks.core.parts import Connection
from mqks.names import is_name

if TYPE_CHECKING:
    from mqks.broker.broker import Broker

SHORT_LINES = "until a client has said who it is, its lines have at most 4096 bytes"
SAY_WHO = "say who you are first: auth {token}"
NO_HTTP = "this is not HTTP; the dashboard has a port of its own"
NO_TLS = "it speaks TLS to a plain port: connect with mqks://, or give the broker --tls-cert"
TLS_RECORD = b"\x16\x03"  # what a handshake begins with, in all versions
HTTP_METHODS = (b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE", b"PRI")
LIMITS_OF_LINES = {1: "max_line", 3: "max_memory"}  # by the core's flaw; the other one is a character


class Requests:
    def __init__(self, broker: Broker) -> None:
        """The broker is what actions work on."""
        self._broker = broker
        self._updates = broker.updates

    def handle(self, client: Connection, line: bytes, flaw: int) -> None:
        """Answer a line that the core leaves to Python; with a flaw (see the core) it cannot be served."""
        assert isinstance(client, Client)
        broker = self._broker
        request_id, space, rest = line.partition(b" ")
        name, _, data = rest.partition(b" ")
        if client.early_only and (flaw or not is_early(name, data)):
            client.early_only = False
        self._updates.asking = client
        try:
            if another := other_protocol(line, is_first=client.lines <= 1):
                broker.connections.cut_short(client)
                request_id = b"-"
                raise BadRequest(another)
            if not is_name(request_id) or (flaw and len(request_id) >= broker.core.output.max_line):
                request_id = b"-"
            if flaw:
                raise self._flawed(client, flaw)
            if request_id == b"-":
                raise BadRequest("no legal request_id")
            if client.stranger and name != b"auth":
                raise BadRequest(SAY_WHO)
            action = find(name, data)
            if action is None:
                raise BadRequest("unknown action", show(name)) if space else BadRequest("no action")
            action(broker, client, request_id, data)
        except BadRequest as bad:
            self._fail(client, request_id, line, bad)
        except Exception as unforeseen:
            self._fail(client, request_id, line, Fault.unforeseen(unforeseen))
        finally:
            self._updates.asking = None

    def _flawed(self, client: Client, flaw: int) -> BadRequest:
        limit = LIMITS_OF_LINES.get(flaw)
        if limit is None:
            return BadRequest("the line has a TAB or NUL character")
        bad = self._broker.limits.reached(limit)
        return BadRequest(SHORT_LINES) if client.stranger and limit == "max_line" else bad

    def _fail(self, client: Client, request_id: bytes, line: bytes, bad: BadRequest) -> None:
        """Tell the client an error_id and the log what it is."""
        error_id = self._broker.mistakes.made_of_line(client, bad, line)
        self._broker.core.output.say(client, b"%s error %s\n" % (request_id, error_id))
        if client.stranger:
            self._broker.authentication.limit_failures(client)


def other_protocol(line: bytes, is_first: bool) -> str | None:
    """What to say to a browser. What would follow is what some web page likes to send, and nobody on this host has
    meant it; in TLS it stands in what the other side may choose: a session id, a ticket, the name of a host."""
    if is_first and line.startswith(TLS_RECORD):
        return NO_TLS
    return NO_HTTP if speaks_http(line) else None


def speaks_http(line: bytes) -> bool:
    """A line that a browser begins with, and that no client of ours says: the first of a request, or its host."""
    first, _, rest = line.partition(b" ")
    if first in HTTP_METHODS:
        return rest.startswith((b"/", b"*", b"http://", b"https://"))
    return first.lower() == b"host:"
