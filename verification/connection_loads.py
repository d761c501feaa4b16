"""Hostile loads that are made of connections: what is not read, what does not end, TLS and HTTP."""

import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress

from verification.process import DEADLINE, Gone
from verification.request_loads import publish
from verification.stage import Stage, wait_until

MIB = 1 << 20
GET = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /api/publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"

# ---- Connections for lines


def unread_replies(stage: Stage) -> Iterator[None]:
    size = stage.rng.choice((10, 1000, 60_000))
    line = b"p ping %s\n" % (b"x" * size)
    for _ in range(50):
        client = stage.socket()
        client.setblocking(False)
        with suppress(BlockingIOError):  # who does not read its replies is not heard
            for _ in range(MIB // 65536):
                client.send(line * (65536 // len(line) + 1))
                stage.created += 1
    yield


def unread_deliveries(stage: Stage) -> Iterator[None]:
    count = stage.rng.choice((20, 150))
    for at in range(count):
        client = stage.socket()
        client.sendall(b"c consume --confirm own%d job --delete-queue-when-unused\n" % at)
        if client.recv(100) != b"c ok \n":
            raise Gone
    publish(stage, "job", stage.rng.choice((3000, 900_000)), 2 * stage.limit)
    yield


def half_lines(stage: Stage) -> Iterator[None]:
    """Lines that are begun and do not end. When memory is full they are not read."""
    size = stage.rng.choice((1000, 60_000, MIB - 100))
    for _ in range(min(1000, 4 * stage.limit // size)):
        client = stage.socket()
        client.setblocking(False)
        with suppress(BlockingIOError):
            client.send(b"m publish job " + b"x" * size)
        stage.created += 1
    yield


def connections(stage: Stage) -> Iterator[None]:
    """Idle ones. A refused one is told an error, also if it has sent nothing."""
    clients: list[socket.socket] = []
    while not stage.refused and len(clients) < 4000:
        clients += (stage.socket() for _ in range(100))
        last = stage.socket()  # when it is answered, those before it are accepted or refused
        last.sendall(b"p ping\n")
        with suppress(ConnectionError):
            last.recv(100)
        for client in clients[-100:]:
            client.setblocking(False)
            try:
                told = client.recv(100).decode()
            except BlockingIOError:
                stage.created += 1
                continue
            stage.refuse(told.removeprefix("- error ").rstrip("\n"))
    yield


# ---- TLS


def tls_handshakes(stage: Stage) -> Iterator[None]:
    """Begun and not ended. They give way to each other, and to one who ends it."""
    assert stage.tls is not None
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        stage.tls.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    begun = outgoing.read() + stage.rng.choice((b"", b"\x16\x03\x03\x40\x00" + b"x" * 16_000))
    for _ in range(600):
        client = stage.socket()
        with suppress(ConnectionError):
            client.sendall(begun)
        stage.created += 1
    yield
    stage.ask(stage.connect(), ["p ping"])


def tls_connections(stage: Stage) -> Iterator[None]:
    """Idle ones. One that is too many is closed without a word; only the log tells."""
    while stage.refused < 20 and stage.created < 1000:
        try:
            stage.ask(stage.connect(), ["p ping"])
        except (OSError, Gone):
            stage.refused += 1
    yield


# ---- HTTP


def _status(client: socket.socket) -> int:
    """The status of an answer. A refusal is 503 and says why."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (piece := client.recv(65536)):
            raise Gone
        data += piece
    status = int(data.split(b" ", 2)[1])
    if status != 200:
        body = data.split(b"\r\n\r\n", 1)[1]
        while b"}" not in body and (piece := client.recv(65536)):
            body += piece
        if status != 503 or not json.loads(body)["error"]:
            raise AssertionError(f"a refusal that is not clear: {data!r}")
    return status


def _get(port: int, path: bytes) -> int:
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) as client:
        client.sendall(GET % path)
        return _status(client)


def _release_http(stage: Stage) -> None:
    """Health is answered while there are too many connections; all else when they have gone."""
    port = stage.http_port()
    if _get(port, b"/metrics") != 200:
        stage.failures.append("/metrics is refused")
    stage.release()
    wait_until(lambda: _get(port, b"/api/queues") == 200, "HTTP is refused after the release")


def http_streams(stage: Stage) -> Iterator[None]:
    """Streams that nobody reads. They miss messages instead."""
    for _ in range(100):
        client = stage.socket(stage.http_port())
        client.sendall(GET % stage.rng.choice((b"/api/tail", b"/api/live")))
        if _status(client) == 200:
            stage.created += 1
        else:
            stage.refused += 1
    publish(stage, "job", stage.rng.choice((300, 15_000)), stage.limit)
    yield
    _release_http(stage)


def http_requests(stage: Stage) -> Iterator[None]:
    """Requests that are begun and do not end, and connections that begin none."""
    begin = stage.rng.choice((b"", GET[:20], POST + b" " * 500_000))
    for _ in range(200):
        client = stage.socket(stage.http_port())
        with suppress(ConnectionError):  # it may be refused before it has sent all
            client.sendall(begin)
            stage.created += 1
    yield
    _release_http(stage)
