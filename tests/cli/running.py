"""`mqks` for tests: in this process, in one of its own, and on a terminal.

cli("queues", "--json").json           # in this process: quick
with started("sub", "q1") as sub: ...  # a process: stdin, signals
with on_terminal("top") as top: ...    # a process whose stdin and stdout are a pty
"""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tests.running import PATIENCE

COMMAND = [sys.executable, "-m", "mqks.cli.mqks"]


@dataclass
class Said:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def words(self) -> list[list[str]]:
        return [line.split() for line in self.lines]

    @property
    def json(self) -> Any:
        """Of each line; of the only one."""
        found = [json.loads(line) for line in self.lines]
        return found[0] if len(found) == 1 else found


@contextmanager
def started(*arguments: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    with subprocess.Popen([*COMMAND, *arguments], **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[bytes], stdin: bytes | None = None) -> Said:
    out, err = process.communicate(stdin, PATIENCE * 6)
    return Said(process.returncode, (out or b"").decode("utf-8", "surrogateescape"), (err or b"").decode())


def stopped(process: subprocess.Popen[bytes]) -> Said:
    """By Ctrl-C."""
    process.send_signal(signal.SIGINT)
    return ended(process)


def with_stdin(stdin: bytes, *arguments: str) -> Said:
    with started(*arguments, stdin=subprocess.PIPE) as process:
        return ended(process, stdin)


class Terminal:
    """What a process has put on its terminal."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self._master = master
        self.shown = ""

    def fileno(self) -> int:
        return self._master

    def interrupt(self) -> None:
        """As Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for(self, regex: str) -> re.Match[str]:
        """What comes after all that was waited for before."""
        end = time.monotonic() + PATIENCE * 3
        while not (found := re.search(regex, self.shown)):
            assert self._read(end - time.monotonic()), f"no {regex!r} in {self.shown[-1000:]!r}"
        self.shown = self.shown[found.end() :]
        return found

    def end(self) -> int:
        """All that is left to read is in `shown`."""
        end = time.monotonic() + PATIENCE * 3
        while self._read(end - time.monotonic()):
            pass
        return self.process.wait(PATIENCE)

    def _read(self, seconds: float) -> bool:
        if seconds <= 0 or not select.select([self._master], [], [], seconds)[0]:
            return False
        try:
            piece = os.read(self._master, 1 << 16)
        except OSError:  # the other side is gone
            return False
        self.shown += piece.decode("utf-8", "replace")
        return bool(piece)


@contextmanager
def on_terminal(
    *arguments: str, stdin: int | None = None, environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    environment = {**kept, "TERM": "xterm", "COLUMNS": "100", "LINES": "20", **environment}
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=slave if stdin is None else stdin,
        stdout=slave,
        stderr=slave,
        env=environment,
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)
