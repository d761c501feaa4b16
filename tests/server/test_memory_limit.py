"""Under each kind of load the process stays below `--max-memory` and 80 MB, and is of use afterwards.

A real broker for each kind, with a small limit, and clients that create far more than it allows. What counts is the
largest resident size that the process ever had.
"""

import json
import re
import resource
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.certificates import Authority
from tests.running import PATIENCE, Connection, RunningBroker, running_broker

ALLOWED = 80 << 20  # bytes beyond --max-memory: Python, its libraries, and what is on its way
FILES = 4096
MIB = 1 << 20
TLS = "--tls-cert"  # of the test's own authority
HTTP = re.compile(r"dashboard at http://127\.0\.0\.1:(\d+)/")


def peak(broker: RunningBroker) -> int:
    """The largest resident size so far."""
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found[1]) << 10


class Stage:
    def __init__(self, broker: RunningBroker, stack: ExitStack, authority: Authority) -> None:
        self.broker = broker
        self.port = broker.port
        self._stack = stack
        self.authority = authority

    def connect(self, context: ssl.SSLContext | None = None) -> Connection:
        return self._stack.enter_context(closing(Connection(self.port, context)))

    def socket(self, port: int = 0) -> socket.socket:
        """One with a small receive buffer: what it does not read stays with the broker."""
        client = self._stack.enter_context(socket.socket())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(PATIENCE)
        client.connect(("127.0.0.1", port or self.port))
        return client

    def http_port(self) -> int:
        found = self.broker.wait_for_log(HTTP)
        assert found
        return int(found[1])

    def flood(self, lines: Iterable[bytes], client: Connection | None = None) -> int:
        """Send all of these, and read what comes; answers how many were refused."""
        client = client or self.connect()
        refused = 0

        def read() -> None:
            nonlocal refused
            while (line := client.line()) != b"end ok ":
                refused += line.split(b" ", 2)[1] == b"error"

        reader = threading.Thread(target=read)
        reader.start()
        batch: list[bytes] = []
        for line in lines:
            batch.append(line)
            if len(batch) == 100:
                client.send(b"\n".join(batch) + b"\n")
                batch.clear()
        client.send(b"\n".join([*batch, b"end ping"]) + b"\n")
        reader.join()
        return refused


# ---- The loads. Each answers whether something was refused, or raises.


def messages(stage: Stage) -> int:
    client = stage.connect()
    client.send(b"c consume other\n")  # who only publishes is slowed down instead
    stage.flood([b"r rebind q e"], client)
    return stage.flood((b"m%d publish e %s" % (n, b"x" * 1000) for n in range(40_000)), client)


def unread_deliveries(stage: Stage) -> int:
    clients = [stage.socket() for _ in range(150)]
    for number, client in enumerate(clients):
        client.sendall(b"c consume --confirm q%d e\n" % number)
    for client in clients:
        assert client.recv(100) == b"c ok \n"
    publisher = stage.connect()
    publisher.send(b"c consume other\n")
    return stage.flood((b"m publish e " + b"x" * 900_000 for _ in range(30)), publisher)


def unread_replies(stage: Stage) -> int:
    clients = [stage.socket() for _ in range(100)]
    for client in clients:
        client.settimeout(0.0)
        for _ in range(20):
            try:
                client.send(b"p ping %s\n" % (b"x" * 60_000))
            except BlockingIOError:
                break
    return stage.flood([b"p ping"] * 1000) + 1  # they are not heard instead


def queues(stage: Stage) -> int:
    return stage.flood(b"r rebind q%d%s e --max-length=5" % (n, b"x" * 10_000) for n in range(3500))


def events(stage: Stage) -> int:
    names = [b"%d%s" % (n, b"x" * 5000) for n in range(100)]
    return stage.flood(
        b"r rebind q%d %s --max-length=5" % (q, b" ".join(b"%d.%s" % (q, name) for name in names)) for q in range(80)
    )


def patterns(stage: Stage) -> int:
    def recv(number: int) -> bytes:
        pattern: dict[str, object] = {f"{number}.{key}": {} for key in range(100)}
        asked = {"queue": f"q{number}", "pattern": pattern, "delete_queue_when_unused": False}
        return b"r%d recv %s" % (number, json.dumps(asked).encode())

    return stage.flood(recv(number) for number in range(300))


def consumers(stage: Stage) -> int:
    return stage.flood(b"%d%s consume q" % (n, b"x" * 180) for n in range(90_000))


def histories(stage: Stage) -> int:
    refused = 0
    for number in range(1000):
        asked = [b"%d.%d%s history latest --follow" % (number, n, b"x" * 3000) for n in range(16)]
        refused += stage.flood(asked)
    return refused


def holds(stage: Stage) -> int:
    return stage.flood(b"h hold %d%s earliest --for=60" % (n, b"x" * 250) for n in range(1100))


def ids(stage: Stage) -> int:
    return stage.flood(b"%d publish --once e d" % n for n in range(200_000)) + 1  # the oldest are forgotten instead


def handshakes(stage: Stage) -> int:
    """Clients that begin a handshake, and a record, and end neither."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = stage.authority.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    begun = outgoing.read() + b"\x16\x03\x03\x40\x00" + b"x" * 16_000
    clients = [stage.socket() for _ in range(950)]
    for client in clients:
        client.sendall(begun)
    *_, last = clients
    assert last.recv(1)  # all before it were accepted
    return 1  # they gave way instead


def tls_connections(stage: Stage) -> int:
    context, refused = stage.authority.context(), 0
    for _ in range(300):
        try:
            client = stage.connect(context)
            client.send(b"p ping " + b"x" * 20_000 + b"\n")
            client.line()
        except OSError:
            refused += 1
    return refused


def http_bodies(stage: Stage) -> int:
    """Long ones, that do not end."""
    port = stage.http_port()
    head = b"POST /api/publish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    for _ in range(60):
        client = stage.socket(port)
        with suppress(OSError):  # it may be refused before it has sent all
            client.sendall(head + b"Content-Length: 8000000\r\n\r\n" + b" " * 7_000_000)
    return client.recv(12) == b"HTTP/1.1 503"


def http_streams(stage: Stage) -> int:
    """That nobody reads."""
    port = stage.http_port()
    answers = []
    for _ in range(60):
        client = stage.socket(port)
        client.sendall(b"GET /api/tail HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answers.append(client.recv(12))
    assert answers.count(b"HTTP/1.1 200") > 20
    for _ in range(5):
        stage.flood(b"m publish e " + b"\x01" * 15_000 for _ in range(200))
    return answers.count(b"HTTP/1.1 503")


class Kind(NamedTuple):
    load: Callable[[Stage], int]
    limit: int
    flags: tuple[str, ...] = ()
    fsync: str | None = None


KINDS = {
    "messages": Kind(messages, 16 * MIB),
    "deliveries that nobody reads": Kind(unread_deliveries, 16 * MIB),
    "replies that nobody reads": Kind(unread_replies, 16 * MIB),
    "queues": Kind(queues, 34 * MIB, fsync="never"),
    "events": Kind(events, 34 * MIB, fsync="never"),
    "patterns": Kind(patterns, 8 * MIB),
    "consumers": Kind(consumers, 4 * MIB, ("--max-consumers=200000",)),
    "histories": Kind(histories, 4 * MIB),
    "holds": Kind(holds, 16 * MIB, fsync="never"),
    "ids": Kind(ids, 16 * MIB),
    "TLS handshakes": Kind(handshakes, 4 * MIB, (TLS,)),
    "TLS connections": Kind(tls_connections, 16 * MIB, (TLS,)),
    "HTTP bodies": Kind(http_bodies, 16 * MIB, ("--http", "--http-port=0", "--max-line=8M")),
    "HTTP streams": Kind(http_streams, 32 * MIB, ("--http", "--http-port=0")),
}


@pytest.fixture(scope="module", autouse=True)
def _many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(FILES, hard)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_of_load_stays_within_the_limit(name: str, authority: Authority) -> None:
    kind = KINDS[name]
    flags = [f"{TLS}={authority.issue()}" if flag == TLS else flag for flag in kind.flags]
    with (
        running_broker(f"--max-memory={kind.limit}", *flags, fsync=kind.fsync) as broker,
        ExitStack() as stack,
    ):
        stage = Stage(broker, stack, authority)
        refused = kind.load(stage)
        assert peak(broker) <= kind.limit + ALLOWED
        assert refused
        if TLS not in kind.flags:
            assert stage.connect().ask("p ping") == "p ok "
