"""A real `mqksd` for tests: its process, its log, and connections on which dialogues are played.

    with running_broker("--max-line=100") as broker:            # in memory
        socket.create_connection(("127.0.0.1", broker.port))
    with running_broker(fsync="never") as broker: ...           # with a journal, in a folder that goes with it

It touches a process, its stderr, sockets on loopback and a temporary folder, and leaves none of them behind.
"""

import ast
import contextlib
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

PATIENCE = 60.0  # seconds until something that must happen counts as not happening: a busy machine may stand still
MQKSD = Path(sys.executable).parent / "mqksd"
TOKENS = Path(__file__).parent / "dialogues" / "tokens.toml"
CONTROL = "control.looks-inside"  # one of those tokens
LISTENING = re.compile(r"listening on 127\.0\.0\.1:(\d+)")


class RunningBroker:
    """One process. A thread reads its stderr: no pipe fills up, and tests can wait for a line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.port = 0
        self._lines: list[str] = []
        self._ended = False
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, name="mqksd log", daemon=True)
        self._reader.start()

    @property
    def log(self) -> str:
        """All that the broker has written to stderr so far."""
        with self._news:
            return "".join(self._lines)

    def wait_for_log(self, regex: str | re.Pattern[str], seconds: float = PATIENCE) -> re.Match[str] | None:
        """The first match in the log, waited for; None when the time is over or the broker is."""
        with self._news:
            self._news.wait_for(lambda: self._ended or re.search(regex, "".join(self._lines)), seconds)
            return re.search(regex, "".join(self._lines))

    def wait_until_it_listens(self, seconds: float = PATIENCE) -> None:
        listening = self.wait_for_log(LISTENING, seconds)
        if listening is None:
            raise AssertionError(f"mqksd did not say where it listens:\n{self.log}")
        self.port = int(listening[1])

    def stop(self) -> None:
        """SIGTERM, if it still runs; a broker that does not exit with 0 is a failure."""
        if self.process.poll() is not None:
            self._reader.join(PATIENCE)
            return
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"mqksd did not stop within {PATIENCE} s of SIGTERM:\n{self.log}") from None
        self._reader.join(PATIENCE)
        assert self.process.returncode == 0, f"mqksd exited with {self.process.returncode}:\n{self.log}"
        assert "--- Logging error ---" not in self.log, f"mqksd could not format a record:\n{self.log}"

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self._lines.append(line)
                self._news.notify_all()
        self.process.stderr.close()
        with self._news:
            self._ended = True
            self._news.notify_all()


def launch(*arguments: str, folder: Path | None = None, prefix: tuple[str, ...] = ()) -> RunningBroker:
    """Start `mqksd` on a free port, in this folder, under the command that `prefix` is; it may not listen yet.

    HTTP is off, unless `--http` is among the arguments.
    """
    if not MQKSD.exists():
        raise FileNotFoundError(f"{MQKSD} is not there: run `make install`")
    process = subprocess.Popen(
        [*prefix, str(MQKSD), "--port=0", "--no-http", *arguments],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("MQKS_")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    return RunningBroker(process)


def has_tokens(flags: Iterable[str]) -> bool:
    """Is it to be started with the tokens of the dialogues?"""
    return f"--auth-file={TOKENS.name}" in flags


@contextlib.contextmanager
def running_broker(*flags: str, fsync: str | None = None) -> Iterator[RunningBroker]:
    """Start `mqksd` on a free port, in an empty folder: in memory, or with a journal where a mode of fsync is named."""
    with tempfile.TemporaryDirectory(prefix="mqksd-") as folder:
        if has_tokens(flags):
            shutil.copy(TOKENS, folder)
            (Path(folder) / TOKENS.name).chmod(0o600)
        broker = launch(f"--fsync={fsync}" if fsync else "--memory", *flags, folder=Path(folder))
        try:
            broker.wait_until_it_listens()
            yield broker
        finally:
            broker.stop()


class Connection:
    """A blocking connection that reads lines; by TLS where there is a context for it."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            self._socket = context.wrap_socket(self._socket, server_hostname="localhost")
        self._file = self._socket.makefile("rb")
        host, own_port = self._socket.getsockname()
        self.address = f"{host}:{own_port}"
        self.got: list[bytes] = []  # before the pong that is waited for

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def line(self) -> bytes:
        """The next line, without its newline."""
        line = self._file.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError(f"the broker closed the connection, or stopped in {line!r}")
        return line[:-1]

    def ask(self, request: str) -> str:
        """The one answer to one request."""
        self.send(f"{request}\n".encode())
        return self.line().decode()

    def until_true(self, condition: str) -> None:
        """Ask the broker until it is so; the test's own timeout ends what never comes true."""
        while self.ask(f"until _eval {condition}") != "until ok True":
            pass

    def close(self) -> None:
        self._file.close()
        self._socket.close()


CLOSED = b"(closed)"


class SocketWire:
    """The wire of `tests/dialogue.py` over real sockets.

    That the broker has done a thing is told by the broker: by private pings (`~sync…`) that dialogues never
    see, and on a connection of its own that asks `_eval`. A context manager: in the end it deletes every
    queue, so that one broker serves many dialogues. One who was cut off has got `(closed)`.
    """

    def __init__(self, broker: RunningBroker, context: ssl.SSLContext | None = None, token: str = "") -> None:
        self._broker = broker
        self._context = context
        self._connections: dict[str, Connection] = {}
        self._pings = 0
        self._control = Connection(broker.port, context)
        if token:
            assert self._control.ask(f"~control auth {token}") == "~control ok "

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for name in list(self._connections):
                self.close(name)
            for queue in ast.literal_eval(self._eval("sorted(state.queues)")):
                answer = self._control.ask(f"~control delete_queue --confirm {queue}")
                assert answer == "~control ok ", answer
        finally:
            for connection in [*self._connections.values(), self._control]:
                connection.close()

    def send(self, name: str, data: bytes) -> None:
        if name not in self._connections:
            self._connections[name] = Connection(self._broker.port, self._context)
        self._connections[name].send(data)

    def close(self, name: str) -> None:
        connection = self._connections.pop(name)
        connection.close()
        self._until(f"{connection.address!r} not in state.clients")

    def settle(self) -> dict[str, list[bytes]]:
        """Ping everybody, twice.

        The first pong of a connection says that its requests were taken; the broker delivers after that, at
        the end of its turn. The second ping is sent when the first pong is there, so it is taken in a later
        turn, and its pong comes after all that the first turn delivered to this connection.
        """
        came: dict[str, list[bytes]] = {name: [] for name in self._connections}
        for _ in range(2):
            for name, connection in list(self._connections.items()):
                try:
                    came[name] += self._until_pong(connection)
                except ConnectionError:
                    came[name] += [*connection.got, CLOSED]
                    self._connections.pop(name).close()
        return came

    def _until_pong(self, connection: Connection) -> list[bytes]:
        """What came before it; to a stranger it is an error."""
        self._pings += 1
        connection.got = []
        connection.send(b"~sync%d ping .\n" % self._pings)
        while not (line := connection.line()).startswith(b"~sync%d " % self._pings):
            connection.got.append(line)
        return connection.got

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def logged(self, error_id: str) -> bool:
        return self._broker.wait_for_log(re.escape(error_id)) is not None

    def _eval(self, code: str) -> str:
        answer = self._control.ask(f"~control _eval {code}")
        assert answer.startswith("~control ok "), answer
        return answer.removeprefix("~control ok ")

    def _until(self, condition: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while self._eval(condition) != "True":
            assert time.monotonic() < deadline, f"never came true: {condition}"
