"""The floor: a socket-to-socket copy in C, compiled when the benchmark starts. No broker can be cheaper."""

# ruff: noqa: ARG002 (every contender has the base's parameters, whether its protocol needs them or not)

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.contenders.base import Contender, Exchange

SOURCE = Path(__file__).with_name("copy.c")


class Copy(Contender):
    family = name = "copy"
    install = "apt install gcc (or your system's package of it)"

    def command(self, port: int, folder: Path) -> list[str]:
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            raise FileNotFoundError("gcc")
        binary = folder / "copy"
        subprocess.run([compiler, "-O2", "-o", str(binary), str(SOURCE)], check=True)
        return [str(binary), str(port)]

    def publish(self, number: int, event: bytes, data: bytes, last: bool) -> bytes:
        return b"m%08d publish %s %s\n" % (number, event, data)

    def deliver(self, number: int, event: bytes, queue: bytes, data: bytes) -> bytes:
        return self.publish(number, event, data, False)

    def open_consumer(self, subscriptions: Sequence[tuple[bytes, Sequence[bytes]]], shared: bool) -> Exchange:
        return Exchange()
