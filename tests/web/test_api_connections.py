"""Connections over HTTP: how many there may be, who is answered all the same, and who is cut off."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest

import mqks.testing
from mqks.web.memory import CONNECTION_COST, CONNECTION_SHARE, Places
from mqks.web.server import FINISH, TAKE
from mqks.web.server import PATIENCE as PATIENCES
from tests.running import PATIENCE, Connection
from tests.web.asking import address, ask, inner, stream, until
from tests.web.logins import ALL, Tokens, bearer, guarded

MOST = Places()
LIVE = b"GET /api/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


def connected(broker: mqks.testing.Broker, receiving: int = 0, host: str = "") -> socket.socket:
    wire = socket.socket()
    if host:
        wire.bind((host, 0))
    if receiving:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receiving)
    wire.settimeout(PATIENCE)
    wire.connect(address(broker))
    return wire


def said_until_the_end(wire: socket.socket) -> bytes:
    said = b""
    try:
        while piece := wire.recv(1 << 16):
            said += piece
    except ConnectionResetError:
        pass
    return said


@contextmanager
def all_taken(broker: mqks.testing.Broker) -> Iterator[list[socket.socket]]:
    """As many streams as there may be connections."""
    with ExitStack() as stack:
        wires = []
        for _ in range(MOST.usual):
            wires.append(stack.enter_context(connected(broker)))
            wires[-1].sendall(LIVE)
            assert wires[-1].recv(1) == b"H"
        yield wires


def test_connections_are_limited(web: mqks.testing.Broker) -> None:
    with all_taken(web) as wires:
        for path in ("/api/state", "/", "/api/live"):
            refused = ask(web, path)
            assert refused.status == 503 and "too many connections" in refused.error
            assert refused.headers["connection"] == "close"
        for path in ("/healthz", "/metrics"):
            answer = ask(web, path)
            assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert ask(web, "/healthz", Host="evil.example").status == 403
        with closing(Connection(web.port)) as client:
            assert client.ask("p1 ping the broker itself goes on") == "p1 ok the broker itself goes on"
        wires[0].close()
        until(lambda: ask(web, "/api/journal").status == 200, "the place of one who went is given to another")


def test_who_holds_all_connections_does_not_hide_the_broker(
    web: mqks.testing.Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """More than there are of both kinds, each with half a request: beyond the limit the oldest makes room."""
    with ExitStack() as stack, all_taken(web):
        wires = [stack.enter_context(connected(web)) for _ in range(2 * MOST.spare)]
        for wire in wires:
            wire.sendall(b"G")
        assert ask(web, "/healthz").status == 200
        for wire in wires[: MOST.spare + 1]:
            assert said_until_the_end(wire) == b""
        assert ask(web, "/metrics").status == 200
    assert "is cut off: others came" in caplog.text


def test_strangers_of_one_address_leave_room_for_others() -> None:
    """Each holds half a request, or was answered what anybody is; with a token one is no stranger."""
    with guarded(Tokens(ALL)) as broker, ExitStack() as stack:

        def asked(path: str, host: str, who: str = "") -> bytes:
            wire = stack.enter_context(connected(broker, host=host))
            said = f"authorization: {bearer(who)}\r\n" if who else ""
            wire.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{said}\r\n".encode())
            return wire.recv(12)[9:]

        for _ in range(MOST.unknown + 1):  # those who are known count among all only
            assert asked("/api/live", "127.0.0.2", "all") == b"200"
        for _ in range(MOST.unknown - 1):
            stack.enter_context(connected(broker, host="127.0.0.2")).sendall(b"G")
        assert asked("/login", "127.0.0.2") == b"200"
        for _ in range(3):
            assert asked("/login", "127.0.0.2") == b"503"
        assert asked("/healthz", "127.0.0.2") == b"200"
        for _ in range(2 * MOST.spare):
            stack.enter_context(connected(broker, host="127.0.0.2")).sendall(b"G")
        assert asked("/login", "127.0.0.3") == b"200"
        assert asked("/api/state", "127.0.0.3", "all") == b"200"


# ── memory ──


@pytest.mark.parametrize(
    "memory, places",
    [(0, (1, 1, 1)), (4 << 20, (3, 1, 1)), (16 << 20, (13, 6, 3)), (64 << 20, (52, 16, 12)), (1 << 30, (64, 16, 16))],
)
def test_with_little_memory_there_are_fewer(memory: int, places: tuple[int, int, int]) -> None:
    found = Places.within(memory // CONNECTION_SHARE)
    assert found == places
    assert CONNECTION_SHARE * CONNECTION_COST * (found.usual + found.spare) <= max(memory, 8 * CONNECTION_COST)


@pytest.mark.parametrize("begun", [b"", b"G", LIVE], ids=["idle", "begun", "stream"])
def test_connections_leave_memory_for_publishers(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as by default would take all of it."""
    monkeypatch.setattr("mqks.web.server.IDLE", 3600)
    monkeypatch.setitem(PATIENCES, FINISH, 3600.0)
    memory = 8 << 20
    places = Places.within(memory // CONNECTION_SHARE)
    with mqks.testing.broker(http=True, max_memory=memory) as broker, ExitStack() as stack:
        used = inner(broker).core.account.used
        for number in range(MOST.usual + MOST.spare):
            wire = stack.enter_context(connected(broker, host=f"127.0.0.{2 + number % 20}"))
            wire.sendall(begun)
        until(lambda: inner(broker).core.account.used > used, "they count as memory")
        assert ask(broker, "/healthz").status == 200  # all before it were accepted
        assert inner(broker).core.account.used - used <= (places.usual + places.spare + 1) * CONNECTION_COST + (
            256 << 10
        )
        refused = ask(broker, "/api/state")
        assert (refused.status, refused.headers["connection"]) == (503, "close")
        with closing(Connection(broker.port)) as client:
            assert client.ask("m1 publish --confirm e1 " + "x" * 100_000) == "m1 ok "
            used = inner(broker).core.account.used
            stack.close()
            until(
                lambda: inner(broker).core.account.used <= used - places.usual * CONNECTION_COST,
                "what they took is free",
            )


# ── deadlines ──


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes quickly for those who wait for clients."""
    monkeypatch.setattr("mqks.web.server.SECOND", 0.01)


@pytest.mark.parametrize(
    "begun",
    [
        b"G",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n",
        b"POST /api/publish HTTP/1.1\r\nHost: [::1]\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
        b"GET /api/live HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n",
    ],
    ids=["a byte", "a head", "a body", "a stream"],
)
@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("before", [b"", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"], ids=["first", "second"])
def test_a_request_has_its_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, before: bytes, begun: bytes
) -> None:
    with mqks.testing.broker(http=True) as broker, connected(broker) as wire:
        with monkeypatch.context() as patched:
            patched.setitem(PATIENCES, FINISH, 0.05)
            wire.sendall(before + begun)
            said_until_the_end(wire)
        assert ask(broker, "/healthz").status == 200
    assert "is cut off: it did not finish its request in time" in caplog.text


def test_who_says_nothing_goes_without_a_word(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Browsers connect before they know what to ask for."""
    monkeypatch.setattr("mqks.web.server.IDLE", 0)
    with mqks.testing.broker(http=True) as broker, connected(broker) as wire:
        assert said_until_the_end(wire) == b""
    assert "cut off" not in caplog.text


@pytest.mark.usefixtures("hasty")
def test_an_answer_is_read_in_time(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setitem(PATIENCES, TAKE, 0.05)
    with mqks.testing.broker(http=True) as broker:
        with mqks.connect(broker.url) as client:
            client.rebind("q1", ["e1"])
            client.publish("e1", "x" * 900_000)
        with connected(broker, receiving=4096) as wire:
            wire.sendall(b"GET /api/messages/0 HTTP/1.1\r\nHost: localhost\r\n\r\n" * 10)
            until(lambda: "it did not take what it was sent in time" in caplog.text, "one who does not read is cut off")
            assert len(said_until_the_end(wire)) < 9_000_000


@pytest.mark.usefixtures("hasty")
def test_a_stream_lasts_while_it_is_read(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with mqks.testing.broker(http=True) as broker, stream(broker, "/api/live") as live:
        monkeypatch.setitem(PATIENCES, FINISH, 0.05)
        monkeypatch.setitem(PATIENCES, TAKE, 0.05)
        for _ in range(3):
            assert live.wait_for("state")
    assert "cut off" not in caplog.text
