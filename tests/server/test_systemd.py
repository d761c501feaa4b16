"""mqksd below systemd: what it tells by datagrams, and the sockets that it is given. Real processes, real sockets."""

import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from uuid import uuid4

import pytest

from mqks.broker import Broker
from mqks.journal.disk import RealDisk
from mqks.journal.salvage import Salvaged
from mqks.server.app import run
from mqks.server.config import Config, ConfigError
from mqks.server.systemd import VARIABLES, from_environment
from mqks.server.tcp import TcpServer
from tests.conftest import Connect
from tests.running import MQKSD, PATIENCE, Connection, RunningBroker

# What systemd does between fork and exec: descriptors from 3 on, and the variables that name the new process.
EXEC = """
import fcntl, os, sys
names, command = sys.argv[1].split(","), sys.argv[2:]
numbers = [int(number) for number in os.environ.pop("GIVEN").split()]
for at, number in enumerate([fcntl.fcntl(number, fcntl.F_DUPFD, 100) for number in numbers], 3):
    os.dup2(number, at)
os.environ.update({name: str(os.getpid()) for name in names if name})
os.execv(command[0], command)
"""

Start = Callable[..., RunningBroker]
Told = dict[str, str]


class Manager:
    """The other end of NOTIFY_SOCKET."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(PATIENCE)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)

    def close(self) -> None:
        self._socket.close()

    def hears(self) -> Told:
        """The next message."""
        text = self._socket.recv(1 << 16).decode()
        assert text.endswith("\n")
        return dict(line.split("=", 1) for line in text.splitlines())

    def heard_nothing(self) -> bool:
        return not select.select([self._socket], [], [], 0)[0]

    def hears_until(self, name: str, regex: str = "") -> list[Told]:
        """All messages up to the one in which a variable has such a value."""
        heard = [self.hears()]
        while not re.search(regex, heard[-1].get(name, "")) or name not in heard[-1]:
            heard.append(self.hears())
        return heard


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    address = str(tmp_path / "n") if request.param == "path" else f"@mqks-{uuid4()}"
    with closing(Manager(address)) as made:
        yield made


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start mqksd as systemd does: with sockets, and with variables that hold its process id."""
    with ExitStack() as stack:

        def started(
            *flags: str, sockets: tuple[socket.socket, ...] = (), pids: str = "", **environ: str
        ) -> RunningBroker:
            clean = {name: value for name, value in os.environ.items() if not name.startswith("MQKS_")}
            numbers = [one.fileno() for one in sockets]
            given = {"GIVEN": " ".join(map(str, numbers)), "LISTEN_FDS": str(len(sockets))}
            process = subprocess.Popen(
                [sys.executable, "-c", EXEC, pids, str(MQKSD), "--port=0", "--no-http", "--memory", *flags],
                cwd=tmp_path,
                env=clean | given | environ,
                pass_fds=numbers,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            broker = RunningBroker(process)
            stack.callback(broker.stop)
            return broker

        yield started


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A socket that systemd would listen on."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


# ---- What systemd is told


def test_ready_is_when_clients_can_connect(start: Start, manager: Manager) -> None:
    broker = start(NOTIFY_SOCKET=manager.address)
    ready = manager.hears()
    assert ready["READY"] == "1"
    listening = re.fullmatch(r"listening on 127\.0\.0\.1:(\d+); queues: 0, connections: 0", ready["STATUS"])
    assert listening, ready
    with closing(Connection(int(listening[1]))) as client:
        assert client.ask("p1 ping hello") == "p1 ok hello"
    broker.stop()
    assert manager.hears_until("STOPPING")[-1]["STOPPING"] == "1"


def test_it_is_not_ready_while_it_cannot_listen(start: Start, manager: Manager, listener: socket.socket) -> None:
    broker = start(f"--port={port_of(listener)}", NOTIFY_SOCKET=manager.address)
    assert broker.process.wait(PATIENCE) == 1
    assert manager.heard_nothing()


def test_heart_beats_and_status_is_up_to_date(start: Start, manager: Manager) -> None:
    start(pids="WATCHDOG_PID", NOTIFY_SOCKET=manager.address, WATCHDOG_USEC="100000")
    ready = manager.hears()
    port = int(ready["STATUS"].partition(";")[0].rpartition(":")[2])
    for _ in range(3):
        assert manager.hears() == {"WATCHDOG": "1"}
    with closing(Connection(port)) as client:
        assert client.ask("s1 subscribe --confirm q1 e1") == "s1 ok "
        beats = manager.hears_until("STATUS")
    assert beats[-1]["STATUS"].endswith("; queues: 1, connections: 1")
    assert all(beat["WATCHDOG"] == "1" for beat in beats)


def test_watchdog_of_another_process_is_not_ours(start: Start, manager: Manager) -> None:
    broker = start(NOTIFY_SOCKET=manager.address, WATCHDOG_PID="1", WATCHDOG_USEC="100000")
    manager.hears_until("READY")
    broker.stop()
    assert not [told for told in manager.hears_until("STOPPING") if "WATCHDOG" in told]


def test_a_long_recovery_says_how_far_it_is(start: Start, manager: Manager, tmp_path: Path, connect: Connect) -> None:
    broker = start("--no-memory", f"--data={tmp_path / 'd1'}", "--fsync=never")
    broker.wait_until_it_listens()
    client = connect(broker)
    for number in range(3):  # each is a batch of its own
        assert client.ask(f"m{number} publish --confirm e1 d") == f"m{number} ok "
    broker.process.send_signal(signal.SIGKILL)
    broker.process.wait(PATIENCE)
    systemd = from_environment({"NOTIFY_SOCKET": manager.address}, os.getpid())
    hours = iter(range(0, 1_000_000, 3600))  # each look at the clock takes an hour
    disk = RealDisk(tmp_path / "d1")
    try:
        Broker(disk=disk, clock=lambda: float(next(hours))).recover(going_on=systemd.recovering)
    finally:
        disk.stop()
    assert re.fullmatch(r"reading the journal: \d+ % of 0 MB", manager.hears()["STATUS"])


def test_whatever_takes_long_in_a_start_asks_for_time(
    manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A salvage reads all there is, and can tell nothing meanwhile."""
    (tmp_path / "d1" / "journal").mkdir(parents=True)
    monkeypatch.setattr("mqks.server.systemd.EXTEND_EVERY", 0.01)

    def salvage(_folder: Path) -> list[Salvaged]:
        assert manager.hears()["STATUS"] == "looking for damage in the journal"
        for _ in range(3):
            assert int(manager.hears()["EXTEND_TIMEOUT_USEC"]) >= 60_000_000
        return []

    def started(_: TcpServer, stop: Callable[[], None], _reload: Callable[[], None]) -> None:
        assert "starting" not in {thread.name for thread in threading.enumerate()}
        stop()

    monkeypatch.setattr("mqks.server.app.salvage", salvage)
    config = Config.load(["--port=0", "--no-http", "--salvage", f"--data={tmp_path / 'd1'}"], {})
    run(config, started, from_environment({"NOTIFY_SOCKET": manager.address}, os.getpid()))
    assert "READY" in manager.hears_until("STOPPING")[-2]


def test_reload(manager: Manager, start: Start) -> None:
    """systemd takes what is told at one moment for the end of the reload that began then."""
    broker = start(NOTIFY_SOCKET=manager.address)
    manager.hears_until("READY")
    before = time.monotonic_ns() // 1000
    broker.process.send_signal(signal.SIGHUP)
    began = manager.hears_until("RELOADING")[-1]
    assert before <= int(began["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
    assert manager.hears_until("READY")[-1]["READY"] == "1"
    assert broker.wait_for_log("nothing to reload")


@pytest.mark.parametrize("text", ["soon", "-1", "1.5", "9" * 30, "\u0661"])
@pytest.mark.parametrize("name", ["WATCHDOG_USEC", "LISTEN_FDS"])
def test_what_is_no_number_is_said(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} .* should be a number"):
        from_environment({name: text, "LISTEN_PID": str(os.getpid())}, os.getpid())


def test_a_manager_that_is_gone_is_no_reason_to_stop(start: Start) -> None:
    broker = start(NOTIFY_SOCKET="/nowhere/to/be/found")
    assert broker.wait_for_log(r"warning systemd could not be told .*READY.*: .*No such file")
    broker.wait_until_it_listens()


# ---- Sockets that systemd gives


@pytest.mark.parametrize("names", ["mqks", "mqksd.socket", "unknown", ""])
def test_listens_on_the_socket_it_is_given(start: Start, listener: socket.socket, names: str) -> None:
    broker = start("--port=1", sockets=(listener,), pids="LISTEN_PID", LISTEN_FDNAMES=names)
    broker.wait_until_it_listens()
    assert broker.port == port_of(listener)
    with closing(Connection(broker.port)) as client:
        assert client.ask("p1 ping hello") == "p1 ok hello"


def test_listens_on_several(start: Start, listener: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        start(sockets=(listener, other), pids="LISTEN_PID", LISTEN_FDNAMES="mqks:mqks")
        for each in (listener, other):
            with closing(Connection(port_of(each))) as client:
                assert client.ask("p1 ping hello") == "p1 ok hello"


def test_who_comes_during_a_restart_waits_and_is_served(start: Start, listener: socket.socket) -> None:
    for _ in range(3):
        with closing(Connection(port_of(listener))) as client:  # nobody is there yet, or any more
            client.send(b"p1 ping hello\n")
            broker = start(sockets=(listener,), pids="LISTEN_PID", LISTEN_FDNAMES="mqks")
            assert client.line() == b"p1 ok hello"
        broker.stop()


def test_dashboard_on_the_socket_it_is_given(start: Start, listener: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as http:
        start("--http", sockets=(http, listener), pids="LISTEN_PID", LISTEN_FDNAMES="http:mqks")
        with closing(Connection(port_of(listener))) as client:
            assert client.ask("p1 ping hello") == "p1 ok hello"
        with urllib.request.urlopen(f"http://127.0.0.1:{port_of(http)}/healthz", timeout=PATIENCE) as answer:
            assert answer.status == 200


def test_sockets_of_another_process_are_not_ours(start: Start, listener: socket.socket) -> None:
    broker = start(sockets=(listener,), LISTEN_PID="1", LISTEN_FDNAMES="mqks")
    broker.wait_until_it_listens()
    assert broker.port != port_of(listener)


@pytest.mark.parametrize(
    ("kind", "name", "advice"),
    [
        (socket.SOCK_STREAM, "mqks", "does not listen on TCP; use ListenStream=25000"),
        (socket.SOCK_DGRAM, "mqks", "does not listen on TCP; use ListenStream=25000"),
        (socket.SOCK_STREAM, "ftp", "named 'ftp'; name it mqks or http, by FileDescriptorName="),
    ],
    ids=["does not listen", "UDP", "unknown name"],
)
def test_a_socket_that_will_not_do(start: Start, kind: socket.SocketKind, name: str, advice: str) -> None:
    with socket.socket(socket.AF_INET, kind) as made:
        made.bind(("127.0.0.1", 0))
        broker = start(sockets=(made,), pids="LISTEN_PID", LISTEN_FDNAMES=name)
        assert broker.process.wait(PATIENCE) == 2
    broker.stop()
    assert advice in broker.log and broker.log.count("\n") == 1


def test_the_variables_are_for_nobody_else() -> None:
    environ = dict.fromkeys(VARIABLES, "1") | {"LISTEN_PID": "2", "HOME": "h"}
    systemd = from_environment(environ, 3)
    assert environ == {"HOME": "h"}
    assert systemd.sockets("mqks") == []


def test_a_dashboard_that_is_off_does_not_answer_and_this_is_said(start: Start, listener: socket.socket) -> None:
    broker = start("--no-http", sockets=(listener,), pids="LISTEN_PID", LISTEN_FDNAMES="http")
    assert broker.wait_for_log(r"warning .*disable mqksd-http\.socket or use --http")
    broker.wait_until_it_listens()
    assert broker.port != port_of(listener)
