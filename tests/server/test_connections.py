"""Connections as the network makes them: refused, half closed, reset, in pieces, by hundreds, idle by the thousand.

Real sockets. What the broker has seen and done is asked of the broker (`Control`), so that nothing here sleeps.
"""

import re
import resource
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from mqks.broker.connections.client import CONNECTION_COST
from tests.running import PATIENCE, Connection, RunningBroker, running_broker

LONG_LINES = 4 << 20  # --max-line of the shared broker; a client may have unread replies in proportion to it
REFUSED = re.compile(rb"- error ([0-9]{20}[0-9a-zA-Z]{4})\n")


class Control(Connection):
    """A connection that asks the broker about itself."""

    def eval(self, code: str) -> str:
        answer = self.ask(f"~ _eval {code}")
        assert answer.startswith("~ ok "), answer
        return answer.removeprefix("~ ok ")

    def until(self, condition: str) -> None:
        """Waits until this expression is true."""
        deadline = time.monotonic() + PATIENCE
        while self.eval(condition) != "True":
            assert time.monotonic() < deadline, f"never came true: {condition}"

    def until_received(self, client: socket.socket, size: int) -> None:
        """Waits until the broker has read so many bytes of this client."""
        host, port = client.getsockname()
        address = f"{host}:{port}"
        self.until(f"'{address}' in state.clients and state.clients['{address}'].received == {size}")


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(f"--max-line={LONG_LINES}") as broker:
        yield broker


@pytest.fixture
def control(broker: RunningBroker) -> Iterator[Control]:
    """In the end of a test its clients are gone, and they have left no queue behind."""
    with closing(Control(broker.port)) as control:
        yield control
        control.until("state.connections == 1 and len(state.queues) == 0")


def connect(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def read_all(client: socket.socket) -> bytes:
    return b"".join(iter(lambda: client.recv(1 << 20), b""))


def reset(client: socket.socket) -> None:
    """Close with an RST."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def open_files(broker: RunningBroker) -> int:
    return len(list(Path(f"/proc/{broker.process.pid}/fd").iterdir()))


# ---- Refused


def test_too_many_connections_are_refused_and_the_others_live_on() -> None:
    with running_broker("--max-connections=2") as broker, ExitStack() as stack:
        first, second = (stack.enter_context(closing(Control(broker.port))) for _ in range(2))
        assert second.ask("p1 ping here") == "p1 ok here"
        files = open_files(broker)
        for _ in range(3):
            with connect(broker.port) as refused:
                error = REFUSED.fullmatch(read_all(refused))
            assert error
            said = broker.wait_for_log(f"{error[1].decode()}.*")
            assert said and "--max-connections" in said[0]
        assert first.ask("p2 ping still") == "p2 ok still"
        assert second.ask("p3 ping here") == "p3 ok here"
        assert open_files(broker) == files
        second.close()
        first.until("state.connections == 1")
        with connect(broker.port) as welcome:
            welcome.sendall(b"p4 ping hello\n")
            assert welcome.recv(100) == b"p4 ok hello\n"


# ---- Ends


def test_half_closed_connection_gets_its_replies(broker: RunningBroker, control: Control) -> None:
    with connect(broker.port) as client:
        client.sendall(b"p1 ping a\np2 ping b\nx nope\nlast line without an end")
        client.shutdown(socket.SHUT_WR)
        replies = read_all(client).split(b"\n")
    assert replies[:2] == [b"p1 ok a", b"p2 ok b"]
    assert replies[2].startswith(b"x error ")
    assert replies[3:] == [b""]
    assert control.eval("state.connections") == "1"


def test_half_closed_connection_gets_a_great_many_replies(broker: RunningBroker, control: Control) -> None:
    """All are asked for before the first is read: what the kernel does not take must wait in the broker."""
    count = 200_000
    with connect(broker.port) as client:
        client.sendall(b"".join(b"%06d ping\n" % n for n in range(count)))
        control.until_received(client, count * len(b"000000 ping\n"))
        client.shutdown(socket.SHUT_WR)
        assert read_all(client) == b"".join(b"%06d ok \n" % n for n in range(count))


def test_half_closed_consumer_is_gone_but_got_its_replies(broker: RunningBroker, control: Control) -> None:
    with connect(broker.port) as client:
        client.sendall(b"c1 consume --confirm q1 e1 --manual-ack\nm1 publish --confirm e1 d1\n")
        control.until("'q1' in state.queues and state.queues['q1'].delivered == 1")
        client.shutdown(socket.SHUT_WR)
        assert sorted(read_all(client).splitlines()) == [b"c1 ok ", b"c1 ok m1 event=e1 d1", b"m1 ok "]
    control.until("len(state.consumers) == 0")
    control.send(b"c2 consume q1 --delete-queue-when-unused\n")
    assert control.line() == b"c2 ok m1 event=e1,retry=1 d1"
    assert control.ask("d delete_consumer --confirm c2") == "d ok "


@pytest.mark.parametrize("unread", [0, 100_000])
def test_reset(broker: RunningBroker, control: Control, unread: int) -> None:
    """A consumer is cut off, with or without replies that it never read: its messages go to the next one."""
    client = connect(broker.port)
    client.sendall(b"c1 consume q1 e1 --manual-ack\nm1 publish e1 d1\n" + b"p ping\n" * unread)
    control.until("'q1' in state.queues and state.queues['q1'].delivered == 1")
    reset(client)
    control.until("state.connections == 1")
    control.send(b"c2 consume q1 e1 --delete-queue-when-unused\n")
    assert control.line().startswith(b"c2 ok m1 event=e1")
    assert control.ask("d delete_consumer --confirm c2") == "d ok "


def test_churn_leaves_nothing(broker: RunningBroker, control: Control) -> None:
    """Clients come, consume, publish, and go in every way, most without waiting for anything."""
    memory = int(control.eval("state.memory"))
    files = open_files(broker)  # after an answer: before it, this connection might not be among them
    for n in range(500):
        client = connect(broker.port)
        client.sendall(
            b"c1 consume --confirm q%d e%d --delete-queue-when-unused\nm1 publish e%d d1\nhalf a li" % (n, n, n)
        )
        if n % 2:
            assert client.recv(6) == b"c1 ok "
        if n % 3 == 0:
            reset(client)
        elif n % 3 == 1:
            client.shutdown(socket.SHUT_WR)
            read_all(client)
        client.close()
    control.until("state.connections == 1")
    assert control.eval("(len(state.queues), len(state.consumers), len(state.events))") == "(0, 0, 0)"
    assert open_files(broker) == files
    assert int(control.eval("state.memory")) <= memory + (1 << 20)


# ---- Pieces


def test_bytes_one_by_one(broker: RunningBroker, control: Control) -> None:
    """Each byte is read by the broker before the next one is sent."""
    requests = b"c1 consume q1 e1 --delete-queue-when-unused\r\n\n1 publish --confirm e1 \xff\xc3 d\nx\ty\np ping\n"
    with connect(broker.port) as client:
        for n in range(len(requests)):
            client.sendall(requests[n : n + 1])
            control.until_received(client, n + 1)
        client.shutdown(socket.SHUT_WR)
        replies = read_all(client).split(b"\n")
    assert replies[:2] == [b"1 ok ", b"c1 ok 1 event=e1 \xff\xc3 d"]
    assert replies[2].startswith(b"- error ")
    assert replies[3:] == [b"p ok ", b""]


def test_request_in_several_packets(broker: RunningBroker, control: Control) -> None:
    """A line of almost --max-line; meanwhile the others are served."""
    line = b"p1 ping " + bytes(range(32, 127)) * (LONG_LINES // 95 - 1) + b"\n"
    with connect(broker.port) as client:
        for start in range(0, len(line), len(line) // 4):
            client.sendall(line[start : start + len(line) // 4])
            control.until_received(client, min(start + len(line) // 4, len(line)))
            assert control.ask("p ping meanwhile") == "p ok meanwhile"
        client.shutdown(socket.SHUT_WR)
        assert read_all(client) == line.replace(b"ping", b"ok")


# ---- Many


def test_two_hundred_consumers_take_turns(broker: RunningBroker, control: Control) -> None:
    """Each on its own connection; they joined in order, so it is known who gets which message."""
    each, consumers = 25, 200
    with ExitStack() as stack:
        clients: list[Connection] = []
        for n in range(consumers):
            clients.append(stack.enter_context(closing(Connection(broker.port))))
            ok = clients[n].ask(f"c{n} consume --confirm q1 e1 --delete-queue-when-unused")
            assert ok == f"c{n} ok "
        control.send(b"".join(b"m%d publish e1 d\n" % n for n in range(each * consumers)))
        for n, client in enumerate(clients):
            wanted = [f"c{n} ok m{turn * consumers + n} event=e1 d".encode() for turn in range(each)]
            assert [client.line() for _ in range(each)] == wanted
        assert control.eval(f"all(c.delivered == {each} for c in state.consumers)") == "True"


def test_a_thousand_idle_connections(broker: RunningBroker, control: Control) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < 1200:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1200, hard))
    memory = int(control.eval("state.memory"))
    files = open_files(broker)  # after an answer: before it, this connection might not be among them
    with ExitStack() as stack:
        idle = [stack.enter_context(connect(broker.port)) for _ in range(1000)]
        control.until("state.connections == 1001")
        counted = int(control.eval("state.memory")) - memory
        assert counted <= 1000 * CONNECTION_COST + (64 << 10), "an idle connection has no buffers"
        for client in idle[::100]:
            client.sendall(b"p ping awake\n")
            assert client.recv(100) == b"p ok awake\n"
    control.until("state.connections == 1")
    assert open_files(broker) == files
