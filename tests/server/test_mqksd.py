"""mqksd as people run it: a real process, its signals, its exit codes and what it says."""

import errno
import os
import re
import signal
import socket
import subprocess
import sysconfig
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from mqks.cli.mqksd import explain
from mqks.server.config import OPTIONS, Config
from tests.running import launch

MQKSD = Path(sysconfig.get_path("scripts")) / "mqksd"
LISTENING = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info mqksd \S+ listening on 127\.0\.0\.1:(\d+), messages in (.+)\n"
)
STOPPING = pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT], ids=lambda stop: stop.name)


class Mqksd:
    """A running broker. Its stderr is read line by line: that is how a test knows where it is."""

    def __init__(self, folder: Path, *flags: str, **environ: str) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("MQKS_")}
        self.process = subprocess.Popen(
            [MQKSD, *flags],
            cwd=folder,
            env=clean | {"MQKS_HTTP_PORT": "0"} | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()

    def port(self) -> int:
        """Waits until it listens."""
        return int(self.listening()[1])

    def listening(self) -> re.Match[str]:
        """The line that says where it listens, and where messages are."""
        assert self.process.stderr
        said = ""
        for line in self.process.stderr:
            if found := LISTENING.fullmatch(line):
                return found
            said += line
        raise AssertionError(f"mqksd ended without listening:\n{said}")

    def result(self) -> tuple[int, str, str]:
        """Waits for its end: exit code, stdout, the rest of stderr."""
        out, err = self.process.communicate()
        return self.process.returncode, out, err


Start = Callable[..., Mqksd]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def started(*flags: str, **environ: str) -> Mqksd:
            mqksd = Mqksd(tmp_path, *flags, **environ)
            stack.callback(mqksd.close)
            return mqksd

        yield started


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port))


def ask(client: socket.socket, request: bytes) -> bytes:
    """Sends the request and waits for one line."""
    client.sendall(request)
    line = b""
    while not line.endswith(b"\n"):
        part = client.recv(1)
        assert part, f"closed after {line!r}"
        line += part
    return line


def read_all(client: socket.socket) -> bytes:
    return b"".join(iter(lambda: client.recv(1 << 20), b""))


# ---- Running


@STOPPING
def test_runs_without_flags_in_an_empty_folder_until_stopped(start: Start, stop: signal.Signals) -> None:
    mqksd = start(MQKS_PORT="0")
    with connect(mqksd.port()) as client:
        assert ask(client, b"p1 ping hello\n") == b"p1 ok hello\n"
        mqksd.process.send_signal(stop)
        assert mqksd.result()[0] == 0
        assert read_all(client) == b""


def test_as_a_background_job_it_is_not_for_ctrl_c(tmp_path: Path) -> None:
    """A shell without job control starts it with SIGINT ignored."""
    broker = launch("--memory", folder=tmp_path, prefix=("sh", "-c", "trap '' INT; exec \"$@\"", "sh"))
    try:
        broker.wait_until_it_listens()
        with connect(broker.port) as client:
            assert ask(client, b"p1 ping hello\n") == b"p1 ok hello\n"
            status = Path(f"/proc/{broker.process.pid}/status").read_text()
            ignored = re.search(r"^SigIgn:\s*([0-9a-f]+)$", status, re.MULTILINE)
            assert ignored and int(ignored[1], 16) & 1 << signal.SIGINT - 1
            broker.process.send_signal(signal.SIGINT)
            assert ask(client, b"p2 ping hello\n") == b"p2 ok hello\n"
    finally:
        broker.stop()


@pytest.mark.parametrize(
    ("flags", "kept"),
    [
        ([], "mqks-data, fsync always"),
        (["--data=d1", "--fsync=interval=50"], "d1, fsync interval=50"),
        (["--memory"], "memory"),
    ],
)
def test_says_in_one_line_where_it_listens_and_where_messages_are(
    start: Start, tmp_path: Path, flags: list[str], kept: str
) -> None:
    mqksd = start("--port", "0", *flags)
    said = mqksd.listening()
    mqksd.process.terminate()
    _, out, err = mqksd.result()
    assert int(said[1]) > 0 and said[2] == kept
    assert out == "" and "listening" not in err
    assert [each.name for each in tmp_path.iterdir()] == ([] if kept == "memory" else [kept.partition(",")[0]])


def test_sighup_is_harmless(start: Start) -> None:
    mqksd = start("--port=0")
    with connect(mqksd.port()) as client:
        mqksd.process.send_signal(signal.SIGHUP)
        assert ask(client, b"p1 ping still here\n") == b"p1 ok still here\n"
        mqksd.process.terminate()
        assert mqksd.result()[0] == 0


def test_same_port_again_right_after_stopping(start: Start) -> None:
    first = start("--port=0")
    port = first.port()
    with connect(port) as client:
        first.process.terminate()
        assert first.result()[0] == 0
        assert read_all(client) == b""
    assert start("--port", str(port)).port() == port


# ---- Stopping with bytes still to send


# More than the kernel keeps for a connection: most is in the broker's own buffer when the signal comes.

DATA = b"x" * (24 << 20)


def give_it_much_to_send(port: int) -> socket.socket:
    """A consumer that has not read yet, with one large message on its way to it."""
    consumer = connect(port)
    assert ask(consumer, b"c1 consume --confirm q1 e1\n") == b"c1 ok \n"
    with connect(port) as publisher:
        assert ask(publisher, b"m1 publish --confirm e1 " + DATA + b"\n") == b"m1 ok \n"
    return consumer


@STOPPING
def test_flushes_what_is_buffered_before_it_ends(start: Start, stop: signal.Signals) -> None:
    mqksd = start("--port=0", "--max-line=32M")
    with give_it_much_to_send(mqksd.port()) as consumer:
        mqksd.process.send_signal(stop)
        assert read_all(consumer) == b"c1 ok m1 event=e1 " + DATA + b"\n"
        assert mqksd.result()[0] == 0


def test_ends_though_a_client_never_reads(start: Start) -> None:
    mqksd = start("--port=0", "--max-line=32M")
    with give_it_much_to_send(mqksd.port()):
        mqksd.process.terminate()
        assert mqksd.result()[0] == 0


# ---- Mistakes


def test_port_in_use(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, out, err = start("--port", str(port)).result()
    assert (code, out) == (1, "")
    advice = f"error port {port} on 127.0.0.1 is in use; stop the other broker or choose --port\n"
    assert err.endswith(advice) and err.count("\n") == 1


def test_port_of_the_dashboard_in_use(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, out, err = start("--port=0", f"--http-port={port}").result()
        assert (code, out) == (1, "")
        advice = f"error port {port} on 127.0.0.1, for the dashboard, is in use; choose --http-port and --http-host, or"
        assert advice in err and "--no-http" in err and err.count("\n") == 1
        without = start("--port=0", f"--http-port={port}", "--no-http")
        assert without.port()
        without.process.terminate()
        code, _, err = without.result()
        assert code == 0 and "dashboard" not in err


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_address_of_the_dashboard_that_is_not_here(start: Start, host: str) -> None:
    code, _, err = start("--port=0", f"--http-host={host}", "--insecure").result()
    assert code == 1
    *_, said = err.splitlines()  # before it there may be a warning of what --insecure means
    assert f" on {host}, for the dashboard, " in said and "--http-host" in said


def test_says_where_the_dashboard_is(start: Start) -> None:
    mqksd = start("--port=0", "--memory")
    mqksd.listening()
    assert mqksd.process.stderr
    said = mqksd.process.stderr.readline()
    found = re.fullmatch(r"\S+Z info dashboard at (http://127\.0\.0\.1:\d+/)\n", said)
    assert found, said
    with urllib.request.urlopen(f"{found[1]}healthz") as answer:
        assert answer.read() == b'{"status":"ok"}'


def test_address_of_another_machine(start: Start) -> None:
    code, _, err = start("--port=0", "--host=192.0.2.1", "--insecure").result()
    assert code == 1
    assert err.endswith("error 192.0.2.1 is not an address of this machine; choose --host\n")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (socket.gaierror(socket.EAI_NONAME, "?"), "h1 is not a host that can be found; choose --host"),
        (
            PermissionError(errno.EACCES, "?"),
            "port 80 on h1 is not allowed to this user; choose a --port above 1023",
        ),
        (
            PermissionError(errno.EACCES, "No", "f1"),
            "f1 may not be written by this user; choose another --data, or --memory",
        ),
        (
            FileNotFoundError(errno.ENOENT, "No", "/proc/x"),
            "/proc/x could not be made; choose another --data, or --memory",
        ),
        (OSError(errno.EIO, "No", "f1"), "cannot serve: [Errno 5] No: 'f1'"),
        (OSError("no number"), "cannot serve: no number"),
    ],
)
def test_other_reasons_are_explained(error: OSError, line: str) -> None:
    assert explain(error, Config(host="h1", port=80)) == line


@pytest.mark.parametrize(
    ("flags", "environ"),
    [(["--prot=0"], {}), (["--port=70000"], {}), (["--config=none.toml"], {}), ([], {"MQKS_PROT": "0"})],
)
def test_mistake_in_the_configuration(start: Start, flags: list[str], environ: dict[str, str]) -> None:
    code, out, err = start(*flags, **environ).result()
    assert (code, out) == (2, "")
    assert err.startswith("mqksd: ") and err.count("\n") == 1


def test_help_lists_every_option(start: Start) -> None:
    code, out, err = start("--help").result()
    assert (code, err) == (0, "")
    assert all(f"\n  {option.flag}" in out for option in OPTIONS)


def test_what_was_sent_arrives_though_the_client_had_more_to_say(start: Start) -> None:
    """To close with input unread would reset the connection, and the kernel would throw away what it was given."""
    mqksd = start(MQKS_PORT="0")
    with connect(mqksd.port()) as client:
        requests = b"".join(b"p%d ping x\n" % n for n in range(100_000))
        client.setblocking(False)
        with suppress(BlockingIOError):
            while requests:
                requests = requests[client.send(requests) :]
        mqksd.process.send_signal(signal.SIGTERM)
        client.setblocking(True)
        received = b""
        while chunk := client.recv(1 << 20):
            received += chunk
    replies = received.split(b"\n")
    assert replies.pop() == b""
    assert replies == [b"p%d ok x" % n for n in range(len(replies))]
    assert mqksd.result()[0] == 0
