"""`python -m benchmarks.syncs`: how often each server really syncs while it confirms messages, counted with strace.

Only fsync and fdatasync are traced, by a filter in the kernel, so a server runs nearly as fast as without it.
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.contenders.base import BenchError, Contender
from benchmarks.scenarios import SCENARIOS

MESSAGES = 100_000
CALLS = 3  # the column of strace's table
PATIENCE = 3


def traced(kind: type[Contender], report: Path) -> Contender:
    """The same contender, whose server runs under strace."""

    class Traced(kind):  # type: ignore[misc, valid-type]
        def command(self, port: int, folder: Path) -> list[str]:
            # -D: the server stays our own child, so that it is watched and stopped as ever.
            strace = ["strace", "-D", "-f", "--seccomp-bpf", "-c", "-e", "trace=fsync,fdatasync", "-o", str(report)]
            command: list[str] = super().command(port, folder)
            return [*strace, *command]

    made: Contender = Traced()
    return made


def counted(report: Path) -> int:
    """All calls that strace counted; it writes them when the server has ended."""
    deadline = time.monotonic() + PATIENCE
    while "total" not in (text := report.read_text() if report.exists() else ""):
        if time.monotonic() > deadline:
            return 0  # strace writes nothing when there was nothing to count
        time.sleep(0.05)
    rows = [line.split() for line in text.splitlines()]
    return sum(int(row[CALLS]) for row in rows if row and row[-1] in ("fsync", "fdatasync"))


def main() -> int:
    if shutil.which("strace") is None:
        print("strace was not found. To have it: apt install strace (or your system's package of it)")
        return 1
    (scenario,) = [s for s in SCENARIOS if s.name == "confirmed"]
    print(f"{MESSAGES:,} messages of {scenario.load.size} B, {scenario.title}\n")
    print(f"{'':28}{'syncs':>8}{'messages per sync':>20}")
    with tempfile.TemporaryDirectory(prefix="mqks-bench-") as folder:
        for number, kind in enumerate(scenario.messages):
            report = Path(folder) / f"{number}.txt"
            try:
                scenario.measure(traced(kind, report), scenario.load, MESSAGES)
            except (BenchError, OSError) as error:
                print(f"{kind.name:28}FAILED: {error}")
                continue
            syncs = counted(report)
            each = f"{MESSAGES / syncs:,.0f}" if syncs else "-"
            print(f"{kind.name:28}{syncs:>8,}{each:>20}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
