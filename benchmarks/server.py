"""A contender's server process: started on a free port, watched through /proc, always stopped."""

import os
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from benchmarks.contenders.base import BenchError, Contender, Exchange

START_SECONDS = 120  # recovery included
STALL_SECONDS = 30
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Server:
    """`with Server(contender) as server:` runs it; leaving the block ends it, whatever happened inside."""

    def __init__(self, contender: Contender) -> None:
        self.contender = contender
        self.folder = Path(tempfile.mkdtemp(prefix="mqks-bench-"))
        self.port = free_port()
        try:
            self.command = contender.command(self.port, self.folder)
        except BaseException:
            self.remove()
            raise

    def __enter__(self) -> "Server":
        self.start()
        return self

    def start(self) -> float:
        """Runs it until it listens; answers how many seconds that took."""
        started = time.monotonic()
        self.log = (self.folder / "server.log").open("ab")
        # A session of its own: Ctrl-C reaches the benchmark only, which then stops its servers itself.
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log, start_new_session=True)
        try:
            self._await_listening()
        except BaseException:
            self._stop()
            raise
        return time.monotonic() - started

    def kill(self) -> None:
        """As a crash ends it; the folder stays, so that `start` shows what it makes of it."""
        self.process.kill()
        self.process.wait()
        self.log.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def connect(self, exchange: Exchange | None = None) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Not settimeout(): that would cost a poll before each recv.
        stall = struct.pack("ll", STALL_SECONDS, 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, stall)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, stall)
        sock = self.contender.secure(sock, self.folder)
        if exchange is not None:
            talk(sock, exchange)
        return sock

    def cpu(self) -> float:
        """Seconds of CPU, user and system, of all server processes so far."""
        return cpu_seconds(self.process.pid)

    def rss(self) -> int:
        """Resident bytes of all server processes."""
        return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE for pid in processes(self.process.pid))

    def peak_rss(self) -> int:
        """The most that was ever resident, of all server processes."""
        status = "".join(Path(f"/proc/{pid}/status").read_text() for pid in processes(self.process.pid))
        return sum(1024 * int(kib) for kib in re.findall(r"VmHWM:\s+(\d+) kB", status))

    def forget_files(self) -> None:
        """Has the kernel write its folder out and drop it from memory: what is read next is read from the disk."""
        for path in self.folder.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    os.fdatasync(file.fileno())
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def settled_rss(self, seconds: float = 3.0) -> int:
        """The resident bytes once they have stopped changing, or after a few seconds."""
        deadline, last = time.monotonic() + seconds, self.rss()
        while time.monotonic() < deadline:
            time.sleep(0.3)
            now = self.rss()
            if abs(now - last) < 64 * 1024:
                return now
            last = now
        return last

    def _await_listening(self) -> None:
        # Asked of the kernel and not by connecting: the copy would take a probe for a consumer.
        wanted, deadline = f":{self.port:04X} 00000000:0000 0A", time.monotonic() + START_SECONDS
        while wanted not in Path("/proc/net/tcp").read_text():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"{self.contender.name} did not start: {self._last_words()}")
            time.sleep(0.01)

    def _last_words(self) -> str:
        lines = (self.folder / "server.log").read_text(errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"

    def _stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        self.remove()

    def remove(self) -> None:
        """Its folder goes; nothing else is left of a server that was never started."""
        shutil.rmtree(self.folder, ignore_errors=True)


def processes(pid: int) -> list[int]:
    """A process and all below it."""
    pids, found = [pid], 0
    while found < len(pids):
        for children in Path(f"/proc/{pids[found]}/task").glob("*/children"):
            with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
                pids += [int(pid) for pid in children.read_text().split()]
        found += 1
    return pids


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and all below it so far, those that have ended included."""
    ticks = 0
    for each in processes(pid):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended: its parent has its time now
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / TICKS


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def talk(sock: socket.socket, exchange: Exchange) -> bytes:
    """Sends the request and reads up to its answer; returns what came after the answer."""
    sock.sendall(exchange.request)
    received = bytearray()
    while (at := received.find(exchange.answer)) < 0:
        try:
            chunk = sock.recv(65536)
        except BlockingIOError:
            chunk = b""
        if not chunk:
            raise BenchError(f"no answer {exchange.answer!r}, only {bytes(received[-300:])!r}")
        received += chunk
    return bytes(received[at + len(exchange.answer) :])
