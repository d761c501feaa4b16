"""Requests whose end is not clear: a 400, the end of the connection, and no answer to what comes after."""

import re
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

import h11
import pytest

import mqks.testing
from mqks.web.framing import StrictConnection
from tests.running import PATIENCE, Connection
from tests.web.asking import address

SMUGGLED = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
STATUS = re.compile(rb"HTTP/1\.1 ([0-9]+) ")
BODY = b'{"event": "e1", "data": "d"}'
CHUNK = b"%x\r\n%s\r\n" % (len(BODY), BODY)


def post(*headers: bytes, body: bytes = b"", end: bytes = b"\r\n") -> bytes:
    head = (b"POST /api/publish HTTP/1.1", b"Host: localhost", b"Content-Type: application/json", *headers, b"")
    return b"".join(line + end for line in head) + body


LENGTH, CHUNKED = b"Content-Length: %d" % len(BODY), b"Transfer-Encoding: chunked"
WELL_FORMED = {
    "a length": post(LENGTH, body=BODY),
    "chunks": post(CHUNKED, body=CHUNK + b"0\r\n\r\n"),
    "a trailer": post(CHUNKED, body=CHUNK + b"0;x=y\r\nX-Note: 1\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n"),
}
MALFORMED = {
    "length, then chunks": post(LENGTH, CHUNKED, body=CHUNK + b"0\r\n\r\n"),
    "chunks, then length": post(CHUNKED, LENGTH.upper(), body=CHUNK + b"0\r\n\r\n"),
    "no length, yet chunks": post(b"Content-Length: 0", CHUNKED, body=CHUNK + b"0\r\n\r\n"),
    "two lengths": post(LENGTH, b"content-length: 5", body=BODY),
    "the same length twice": post(LENGTH, LENGTH.lower(), body=BODY),
    "chunked twice": post(CHUNKED, CHUNKED, body=CHUNK + b"0\r\n\r\n"),
    "another encoding": post(b"Transfer-Encoding: xchunked", body=CHUNK + b"0\r\n\r\n"),
    "a folded header": post(b"X-Note: a\r\n b", LENGTH, body=BODY),
    "a folded length": post(b"Content-Length:\r\n %d" % len(BODY), body=BODY),
    "a folded trailer": post(CHUNKED, body=CHUNK + b"0\r\nX-Note: a\r\n\tb\r\n\r\n"),
    "LF everywhere": post(LENGTH, body=BODY, end=b"\n"),
    "LF after the request line": post(LENGTH, body=BODY).replace(b"\r\n", b"\n", 1),
    "LF in a header": post(b"X-Note: a\nX-More: b", LENGTH, body=BODY),
    "LF before the empty line": post(LENGTH + b"\n\r\n", body=BODY)[: -len(b"\r\n") - len(BODY)] + BODY,
    "LF as the empty line": post(LENGTH)[: -len(b"\r\n")] + b"\n" + BODY,
    "LF before the request": b"\n" + post(LENGTH, body=BODY),
    "LF after a chunk's size": post(CHUNKED, body=CHUNK.replace(b"\r\n", b"\n", 1) + b"0\r\n\r\n"),
    "LF in a chunk's extension": post(CHUNKED, body=CHUNK.replace(b"\r\n", b";a\nb\r\n", 1) + b"0\r\n\r\n"),
    "LF after a chunk": post(CHUNKED, body=CHUNK[: -len(b"\r\n")] + b"\n0\r\n\r\n"),
    "LF after the last chunk's size": post(CHUNKED, body=CHUNK + b"0\n\r\n"),
    "LF after the last chunk": post(CHUNKED, body=CHUNK + b"0\r\n\n"),
    "LF in a trailer": post(CHUNKED, body=CHUNK + b"0\r\nX-Note: 1\n\r\n"),
}


@pytest.fixture(scope="module")
def served() -> Iterator[mqks.testing.Broker]:
    with mqks.testing.broker(http=True) as broker:
        yield broker


@contextmanager
def connected(broker: mqks.testing.Broker) -> Iterator[socket.socket]:
    with socket.create_connection(address(broker), PATIENCE) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield wire


def statuses(wire: socket.socket) -> list[int]:
    """Of all answers until the broker closes the connection."""
    said = b""
    try:
        while piece := wire.recv(1 << 16):
            said += piece
    except ConnectionResetError:  # the broker closed it with bytes unread
        pass
    return [int(status) for status in STATUS.findall(said)]


def published(broker: mqks.testing.Broker) -> str:
    with closing(Connection(broker.port)) as client:
        answer = client.ask("p _eval state.published")
    assert answer.startswith("p ok "), answer
    return answer


@pytest.mark.parametrize("bytewise", [False, True], ids=["whole", "bytewise"])
@pytest.mark.parametrize("request_", WELL_FORMED.values(), ids=WELL_FORMED)
def test_well_formed_requests_share_a_connection(served: mqks.testing.Broker, request_: bytes, bytewise: bool) -> None:
    with connected(served) as wire:
        sent = request_ + SMUGGLED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        for piece in [sent[at : at + 1] for at in range(len(sent))] if bytewise else [sent]:
            wire.sendall(piece)
        assert statuses(wire) == [200, 200]


@pytest.mark.parametrize("request_", MALFORMED.values(), ids=MALFORMED)
def test_a_request_whose_end_is_unclear_ends_the_connection(served: mqks.testing.Broker, request_: bytes) -> None:
    before = published(served)
    with connected(served) as wire:
        wire.sendall(request_ + SMUGGLED)
        assert statuses(wire) == [400]
    assert published(served) == before


@pytest.mark.parametrize("name", ["length, then chunks", "a folded header", "LF everywhere", "LF after the last chunk"])
def test_it_ends_it_also_byte_by_byte_and_after_others(served: mqks.testing.Broker, name: str) -> None:
    before = published(served)
    with connected(served) as wire:
        sent = SMUGGLED + MALFORMED[name] + SMUGGLED
        try:
            for at in range(len(sent)):
                wire.sendall(sent[at : at + 1])
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert statuses(wire) in ([200, 400], [200], [])  # the kernel drops answers if bytes come after the end
    assert published(served) == before


def parsed(*pieces: bytes) -> bool:
    """Does a parser that gets these pieces see a whole request?"""
    connection = StrictConnection(h11.SERVER)
    try:
        for piece in pieces:
            connection.receive_data(piece)
            while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                if isinstance(event, h11.EndOfMessage):
                    return True
    except h11.RemoteProtocolError:
        return False
    raise AssertionError("the request does not end")


@pytest.mark.parametrize("request_", WELL_FORMED.values(), ids=WELL_FORMED)
def test_a_well_formed_request_may_be_split_anywhere(request_: bytes) -> None:
    assert all(parsed(request_[:at], request_[at:]) for at in range(1, len(request_)))


@pytest.mark.parametrize("request_", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_request_is_refused_wherever_it_is_split(request_: bytes) -> None:
    assert not any(parsed(request_[:at], request_[at:]) for at in range(1, len(request_)))
