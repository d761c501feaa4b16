"""A real `mqksd` under preload.c, and line connections to it."""

import os
import re
import selectors
import signal
import socket
import ssl
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

DEADLINE = 120.0  # seconds until something that must happen counts as a failure
MQKSD = Path(sys.executable).parent / "mqksd"
LISTENING = re.compile(r"listening on 127\.0\.0\.1:(\d+)")
SOURCE = Path(__file__).parent / "preload.c"


class Stuck(Exception):
    """The broker did not do in time what it must do."""


def build_preload(folder: Path) -> Path:
    """Compile preload.c into this folder, unless it is there."""
    library = folder / "preload.so"
    if not library.exists() or library.stat().st_mtime < SOURCE.stat().st_mtime:
        folder.mkdir(parents=True, exist_ok=True)
        compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
        fresh = folder / f"preload.{os.getpid()}"
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O2", "-o", str(fresh), str(SOURCE), "-ldl", "-lpthread"], check=True
        )
        fresh.rename(library)
    return library


class Broker:
    def __init__(
        self, data: Path, *flags: str, preload: Path | None = None, log: Path | None = None, faults: Path | None = None
    ) -> None:
        self.data = data
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MQKS_")}
        if preload is not None:
            environment |= {"LD_PRELOAD": str(preload), "PRELOAD_ROOT": str(data)}
            environment |= {"PRELOAD_LOG": str(log)} if log else {}
            environment |= {"PRELOAD_FAULTS": str(faults)} if faults else {}
        self.process = subprocess.Popen(
            [str(MQKSD), "--port=0", "--no-http", f"--data={data}", *flags],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        self.port = 0
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            for line in stream:
                with self._changed:
                    self.lines.append(line)
                    if found := LISTENING.search(line):
                        self.port = int(found[1])
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def text(self) -> str:
        with self._changed:
            return "".join(self.lines)

    def wait_until_ready(self) -> bool:
        """False: it ended before it listened."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.port or self._ended, DEADLINE):
                raise Stuck("the broker does not start")
        return bool(self.port)

    def wait_for(self, text: str) -> str:
        """The first line of the log with this text."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or any(text in line for line in self.lines), DEADLINE)
            return next((line for line in self.lines if text in line), "")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(DEADLINE)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Stuck("the broker does not stop") from None


class Gone(Exception):
    """The broker closed the connection."""


class Line:
    """One connection: send lines without waiting, take the lines that have come."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self._rest = b""
        self._ahead: list[str] = []  # lines that came with the one that was waited for

    def send(self, *lines: str) -> None:
        try:
            self.socket.sendall("".join(line + "\n" for line in lines).encode())
        except TimeoutError:
            raise Stuck("the broker does not read") from None
        except OSError:
            raise Gone from None

    def take(self, seconds: float = 0.0) -> list[str]:
        """Lines that have come, or come within so long."""
        if self._ahead:
            lines, self._ahead = self._ahead, []
            return lines
        with selectors.DefaultSelector() as selector:
            selector.register(self.socket, selectors.EVENT_READ)
            decrypted = isinstance(self.socket, ssl.SSLSocket) and self.socket.pending()
            if not decrypted and not selector.select(seconds):
                return []
        try:
            data = self.socket.recv(1 << 20)
        except OSError:
            raise Gone from None
        if not data:
            raise Gone
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [line.decode() for line in whole]

    def until(self, ended: Callable[[str], bool]) -> Iterator[str]:
        """Lines up to the one that ends them, which is the last."""
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            lines = self.take(1.0)
            for number, line in enumerate(lines, 1):
                if ended(line):
                    self._ahead = lines[number:]
                    yield line
                    return
                yield line
        raise Stuck("the broker does not answer")

    def close(self) -> None:
        self.socket.close()
