"""The broker's process and what is under it: a small disk that can be filled, a clock that can jump, certificates.

It touches processes, a mount that only this process and its children see, and files below one folder.
"""

import asyncio
import contextlib
import errno
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections import Counter
from pathlib import Path

import trustme

from tests.running import MQKSD
from tests.soak.link import HOST, Door, within
from tests.soak.nuisances import MAX_LINE

START, STOP = 60.0, 60.0  # seconds that a start and a stop may take
DISK = 192 << 20
FAKETIME = [Path(f"/usr/lib/{sys.implementation._multiarch}/faketime/libfaketimeMT.so.1")]  # where Debian has it
FLAGS = (
    "--segment-size=4M", "--retain-bytes=32M", "--dedup-count=20000", "--dedup-window=7d", "--max-memory=256M",
    f"--max-line={MAX_LINE}", "--line-timeout=5s", "--auth-timeout=5s", "--min-free-disk=8M", "--restart-grace=10",
)  # fmt: skip
MODES = {"plain": (False, False), "TLS": (True, False), "tokens": (False, True), "TLS and tokens": (True, True)}


class Ground:
    """What outlives the broker's lives. What this machine does not allow is left out, and `left_out` says so."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data = folder, folder / "data"
        self.left_out: list[str] = []
        self.data.mkdir(parents=True)
        self.has_disk = self._mount()
        self._ballast = self.data / "ballast"
        self._clock = folder / "clock"
        self.faketime = next((path for path in FAKETIME if path.exists()), None)
        if self.faketime is None:
            self.left_out.append("clock jumps: libfaketime is not there; sudo apt-get install faketime")
        self.set_clock(0)
        self._certify()

    def _mount(self) -> bool:
        """Only where `__main__` has made a namespace of mounts: else everybody would see it."""
        if os.environ.get(NAMESPACE) != "yes":
            self.left_out.append("full disk: unshare --mount is not allowed here")
            return False
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "soak", str(self.data)]
        mounting = subprocess.run(command, capture_output=True, text=True, check=False)
        if mounting.returncode:
            self.left_out.append(f"full disk: {mounting.stderr.strip()}")
        return not mounting.returncode

    def close(self) -> None:
        if self.has_disk:
            subprocess.run(["umount", str(self.data)], check=True)

    def fill_disk(self) -> None:
        with self._ballast.open("wb") as ballast:
            size, piece = 0, 1 << 24
            while piece >= 4096:
                try:
                    os.posix_fallocate(ballast.fileno(), size, piece)
                    size += piece
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    piece //= 2

    def free_disk(self) -> None:
        self._ballast.unlink(missing_ok=True)

    @property
    def used(self) -> int:
        """Bytes of the small disk; 0 if there is none."""
        found = os.statvfs(self.data)
        return (found.f_blocks - found.f_bfree) * found.f_frsize if self.has_disk else 0

    def set_clock(self, seconds: int) -> None:
        """So many seconds beside the truth, for the broker; it looks every second."""
        self._clock.write_text(f"{seconds:+d}\n")

    @property
    def environment(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith("MQKS_")}
        if self.faketime is None:
            return own
        return own | {
            "LD_PRELOAD": str(self.faketime),
            "FAKETIME_TIMESTAMP_FILE": str(self._clock),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def _certify(self) -> None:
        authority = trustme.CA()
        certificate = authority.issue_cert("localhost", HOST)
        self.certificate = self.folder / "broker.pem"
        self.certificate.touch(mode=0o600)
        certificate.private_key_and_cert_chain_pem.write_to_path(self.certificate)
        self.tls = ssl.create_default_context()
        authority.configure_trust(self.tls)


NAMESPACE = "SOAK_NAMESPACE"  # in the environment: `yes` where mounts are our own


class Process:
    """The lives of the broker, one after the other, on the same ports and data."""

    def __init__(self, ground: Ground, door: Door, logs: Path) -> None:
        self.ground, self.door, self.logs = ground, door, logs
        self.process: asyncio.subprocess.Process | None = None
        self.mode = ""
        door.port, door.http_port = free_ports(2)
        self._token = ""

    async def start(self, mode: str) -> None:
        tls, tokens = MODES[mode]
        self.mode = mode
        self.door.life += 1
        flags = [*FLAGS, f"--data={self.ground.data}", f"--port={self.door.port}", f"--http-port={self.door.http_port}"]
        if tls:
            flags.append(f"--tls-cert={self.ground.certificate}")
        if tokens:
            flags.append(f"--auth-file={self._auth_file()}")
        with self.log.open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(
                str(MQKSD), *flags, env=self.ground.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        await self._listening()
        self.door.tls = self.ground.tls if tls else None
        self.door.token = self._token if tokens else None
        if not await within(self.door.let_in(), START):
            raise RuntimeError(f"these do not notice that the broker has ended: {sorted(self.door.inside)}")

    @property
    def log(self) -> Path:
        return self.logs / f"life-{self.door.life:03}.log"

    @property
    def end_of_log(self) -> str:
        return self.log.read_text(errors="replace")[-1000:]

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    async def _listening(self) -> None:
        deadline = asyncio.get_running_loop().time() + START
        while not re.search(r"listening on \S+:\d+", self.log.read_text(errors="replace")):
            assert self.process is not None
            if self.process.returncode is not None or asyncio.get_running_loop().time() > deadline:
                raise RuntimeError(f"mqksd does not start: {self.end_of_log}")
            await asyncio.sleep(0.02)

    def _auth_file(self) -> Path:
        path = self.ground.folder / "auth.toml"
        if not path.exists():
            making = [str(MQKSD.with_name("mqks")), "token", "new", "all", f"--auth-file={path}", "--all"]
            made = subprocess.run(making, check=True, capture_output=True, text=True)
            self._token = made.stdout.strip()
        return path

    async def kill(self) -> int:
        """`kill -9`."""
        self.door.close()
        self.signal(signal.SIGKILL)
        return await self._ended()

    async def stop(self) -> int | None:
        """SIGTERM; answers the exit code, or None if it did not stop in time and was killed."""
        self.door.close()
        self.signal(signal.SIGTERM)
        try:
            return await asyncio.wait_for(self._ended(), STOP)
        except TimeoutError:
            await self.kill()
            return None

    async def _ended(self) -> int:
        assert self.process is not None
        code = await self.process.wait()
        for left in Path("/dev/shm").glob(f"*faketime*_{self.pid}"):  # libfaketime tidies up only at a normal end
            left.unlink(missing_ok=True)
        return code

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def memory_and_files(self) -> tuple[int, int]:
        """Bytes of its own memory, and how many files it has open."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"RssAnon:\s+(\d+) kB", status)
        return (int(found[1]) << 10 if found else 0), self.files().total()

    def files(self) -> Counter[str]:
        """What it has open, by kind; but for segments that are there: it reads as many of them as there is use for."""
        kinds: Counter[str] = Counter()
        for path in Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed since it was listed
                link = path.readlink()
                if link.suffix != ".mqks":  # one that was removed ends in " (deleted)"
                    kinds[str(link).partition(":")[0]] += 1
        return kinds


def free_ports(count: int) -> list[int]:
    """Ports that are free now; the broker needs the same ones in each life."""
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [int(listening.getsockname()[1]) for listening in sockets]
    for listening in sockets:
        listening.close()
    return ports
