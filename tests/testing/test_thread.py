"""The broker for users' tests: a real one, in a thread, that leaves nothing behind and hides no failure."""

import asyncio
import errno
import gc
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

import mqks.testing
from mqks.journal.disk import RealDisk
from mqks.journal.errors import JournalError
from mqks.server.config import ConfigError
from mqks.server.tcp import TcpServer
from tests.running import PATIENCE, Connection

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextmanager
def connected(broker: mqks.testing.Broker) -> Iterator[Connection]:
    with closing(Connection(broker.port)) as connection:
        yield connection


def ask(broker: mqks.testing.Broker, request: str) -> str:
    with connected(broker) as connection:
        return connection.ask(request)


def is_closed(connection: Connection) -> bool:
    try:
        line = connection.line()
    except ConnectionError:
        return True
    raise AssertionError(f"still open, and says {line!r}")


def fail() -> NoReturn:
    raise RuntimeError("a fault")


def test_it_is_a_broker() -> None:
    with mqks.testing.broker() as broker:
        assert broker.url == f"mqks://{broker.host}:{broker.port}"
        assert broker.host == "127.0.0.1"
        with connected(broker) as connection:
            assert connection.ask("c1 consume --confirm q1 e1") == "c1 ok "
            assert connection.ask("m1 publish e1 hello") == "c1 ok m1 event=e1 hello"


def test_it_keeps_messages_in_memory_unless_it_is_given_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with mqks.testing.broker() as broker:
        assert ask(broker, "r1 rebind --confirm q1 e1") == "r1 ok "
        broker.restart()
        assert ask(broker, "e1 _eval len(state.queues)") == "e1 ok 0"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [str, Path])
def test_what_is_in_its_folder_survives(tmp_path: Path, kind: type[str | Path]) -> None:
    with mqks.testing.broker(data=kind(tmp_path / "data")) as broker:
        port = broker.port
        assert ask(broker, "r1 rebind --confirm q1 e1") == "r1 ok "
        assert ask(broker, "m1 publish --confirm e1 d1") == "m1 ok "
        broker.restart()
        assert broker.port == port
        assert ask(broker, "c1 consume q1") == "c1 ok m1 event=e1 d1"


def test_while_it_is_stopped_it_is_refused_and_keeps_its_port() -> None:
    with mqks.testing.broker() as broker:
        with connected(broker) as connection:
            broker.stop()
            assert is_closed(connection)
        with pytest.raises(ConnectionRefusedError):
            Connection(broker.port)
        with socket.socket() as other, pytest.raises(OSError) as refused:
            other.bind((broker.host, broker.port))
        assert refused.value.errno == errno.EADDRINUSE
        broker.stop()  # again
        broker.start()
        assert ask(broker, "p1 ping x") == "p1 ok x"
        with pytest.raises(RuntimeError, match="running already"):
            broker.start()
        assert ask(broker, "p1 ping x") == "p1 ok x"


def test_connections_can_be_dropped() -> None:
    with mqks.testing.broker() as broker:
        assert broker.drop_connections() == 0
        with connected(broker) as consumer, connected(broker) as other:
            assert consumer.ask("c1 consume --confirm q1 e1 --manual-ack") == "c1 ok "
            assert consumer.ask("m1 publish e1 d1") == "c1 ok m1 event=e1 d1"
            assert broker.drop_connections() == 2
            assert is_closed(consumer) and is_closed(other)
        assert ask(broker, "c1 consume q1") == "c1 ok m1 event=e1,retry=1 d1"
        broker.stop()
        assert broker.drop_connections() == 0


def test_two_at_once_have_nothing_in_common() -> None:
    with mqks.testing.broker() as one, mqks.testing.broker() as two:
        assert one.port != two.port
        assert ask(one, "r1 rebind --confirm q1 e1") == "r1 ok "
        assert ask(two, "e1 _eval len(state.queues)") == "e1 ok 0"
        one.stop()
        assert ask(two, "p1 ping x") == "p1 ok x"


def test_it_works_beside_an_event_loop() -> None:
    async def test() -> bytes:
        with mqks.testing.broker() as broker:
            reader, writer = await asyncio.open_connection(broker.host, broker.port)
            writer.write(b"p1 ping x\n")
            answer = await reader.readline()
            writer.close()
            await writer.wait_closed()
            return answer

    assert asyncio.run(test()) == b"p1 ok x\n"


# ── options ──


@pytest.mark.parametrize("limit", [100, "100"])
def test_options_are_those_of_mqksd(limit: int | str) -> None:
    with mqks.testing.broker(max_line=limit) as broker:
        assert ask(broker, "p1 ping " + "x" * 92) == "p1 ok " + "x" * 92
        assert ask(broker, "p1 ping " + "x" * 93).startswith("p1 error ")


def test_another_address() -> None:
    with mqks.testing.broker(host="127.0.0.2") as broker:
        assert broker.url == f"mqks://127.0.0.2:{broker.port}"
        with socket.create_connection((broker.host, broker.port)):
            assert broker.drop_connections() == 1


def test_the_environment_of_mqksd_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQKS_MAX_LINE", "64")
    with mqks.testing.broker() as broker:
        assert ask(broker, "p1 ping " + "x" * 100).startswith("p1 ok ")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_lines": 100}, "unknown option 'max_lines'; did you mean max_line?"),
        ({"max_line": 3}, "max_line: '3' will not do; give a size"),
        ({"fsync": "often"}, "fsync: 'often' will not do; give always"),
        ({"memory": False}, "give data=folder"),
    ],
)
def test_a_wrong_option_is_said(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as wrong, mqks.testing.broker(data=None, **options):
        pass
    assert said in str(wrong.value)


# ── what goes wrong is told ──


def test_a_port_in_use_is_told() -> None:
    with mqks.testing.broker() as broker, pytest.raises(OSError) as refused, mqks.testing.broker(port=broker.port):
        pass
    assert refused.value.errno == errno.EADDRINUSE


def test_a_start_that_fails_is_told_and_leaves_no_thread(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    threads = threading.active_count()
    with pytest.raises(FileExistsError), mqks.testing.broker(data=file):
        pass
    assert threading.active_count() == threads


def test_a_fault_that_the_broker_goes_on_after_is_raised_by_its_stop(caplog: pytest.LogCaptureFixture) -> None:
    with mqks.testing.broker() as broker:
        assert broker._running
        broker._running.loop.call_soon_threadsafe(fail)
        assert ask(broker, "p1 ping x") == "p1 ok x"
        with pytest.raises(RuntimeError, match="a fault"):
            broker.stop()
        broker.restart()  # it was told once
        assert ask(broker, "p1 ping x") == "p1 ok x"
    assert "a fault" in caplog.text


def test_a_fault_that_ends_the_broker_closes_its_connections_and_is_raised_at_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fault, keep_time = threading.Event(), TcpServer._keep_time

    def keep_time_or_fail(server: TcpServer) -> None:
        if fault.is_set():
            fault.clear()
            fail()
        keep_time(server)

    monkeypatch.setattr(TcpServer, "_keep_time", keep_time_or_fail)
    with pytest.raises(RuntimeError, match="a fault"), mqks.testing.broker() as broker, connected(broker) as connection:
        assert connection.ask("p1 ping x") == "p1 ok x"
        fault.set()  # and within a tenth of a second it keeps time again
        assert is_closed(connection)
    assert "the broker failed" in caplog.text


def test_a_disk_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: object) -> NoReturn:
        raise OSError(errno.EIO, "the disk is gone")

    with pytest.raises(JournalError, match="the disk is gone"), mqks.testing.broker(data=tmp_path) as broker:
        monkeypatch.setattr(RealDisk, "write", write)
        assert ask(broker, "m1 publish --confirm e1 d1").startswith("m1 error ")


def test_a_failing_test_stops_the_broker_too() -> None:
    with pytest.raises(AssertionError, match="of the test"), mqks.testing.broker() as broker:
        raise AssertionError("of the test")
    with pytest.raises(ConnectionRefusedError):
        Connection(broker.port)


def test_its_log_is_pythons(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="mqks")
    with mqks.testing.broker() as broker:
        error = ask(broker, "x1 fly")
        assert f"listening on {broker.host}:{broker.port}" in caplog.text
        assert error.removeprefix("x1 error ") in caplog.text
    assert all(record.name.startswith("mqks.") for record in caplog.records if record.threadName != "MainThread")


# ── nothing is left behind ──


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def os_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def ended(threads: int) -> bool:
    """A thread that was joined has left Python; the system may take a moment more, and tells nobody."""
    deadline = time.monotonic() + PATIENCE
    while os_threads() != threads and time.monotonic() < deadline:
        time.sleep(0.001)
    return os_threads() == threads


@pytest.mark.parametrize("durable", [False, True])
def test_no_file_and_no_thread_is_left(tmp_path: Path, durable: bool) -> None:
    data = tmp_path if durable else None
    with mqks.testing.broker(data=data):
        pass
    gc.collect()
    gc.disable()  # nothing may wait for it
    try:
        files, threads = open_files(), os_threads()
        for _ in range(3):
            with mqks.testing.broker(data=data) as broker, connected(broker) as connection:
                assert connection.ask("c1 consume --confirm q1 e1 --delete-queue-when-unused=60") == "c1 ok "
                broker.restart()
                with connected(broker):
                    broker.drop_connections()
                broker.stop()
        assert open_files() == files
        assert ended(threads)
    finally:
        gc.enable()


def test_what_belongs_to_the_process_is_left_alone() -> None:
    def process() -> tuple[object, ...]:
        return *map(signal.getsignal, SIGNALS), resource.getrlimit(resource.RLIMIT_NOFILE), dict(os.environ)

    before = process()
    with mqks.testing.broker(max_connections=1_000_000):
        assert process() == before
    assert process() == before


def test_importing_it_is_cheap() -> None:
    """pytest does it in every run, also where nobody needs a broker."""
    code = "import sys, mqks.testing.plugin; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(run.stdout.split())
    assert "mqks.testing.plugin" in imported
    assert not {"mqks.core", "mqks.broker", "mqks.server", "mqks.journal", "mqks.client", "mqks.cli"} & imported


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'brokers'"):
        _ = mqks.testing.brokers
