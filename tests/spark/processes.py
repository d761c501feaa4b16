"""All processes of one run, found by a mark in their environment, which whatever a run starts inherits.

Spark starts Java, which starts daemons, which fork workers, in groups of their own; some outlive a parent that was
killed. It reads /proc, so it needs Linux.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

MARK = "RUN_OF_TESTS"
PATIENCE = 180.0  # seconds until something that must happen counts as not happening, on a busy machine
LOOK = 0.05  # seconds between two looks
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # half the work for a Java that does not live long
QUICK = {"spark.driver.extraJavaOptions": QUICK_START}  # the same for a session


class Process(NamedTuple):
    pid: int
    words: str  # its command line


def environment(mark: Path, **more: str) -> dict[str, str]:
    """For a process that is to be found; what Spark leaves behind when it is killed goes to the folder `mark`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MQKS_")}
    ours = {MARK: str(mark), "TMPDIR": str(mark), "SPARK_LOCAL_DIRS": str(mark), "JAVA_TOOL_OPTIONS": QUICK_START}
    return {**kept, **ours, **more}


def marked(mark: Path, session: int | None = None) -> list[Process]:
    """Those that run now; only of this session, if one is given."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            ours = session is None or os.getsid(int(folder.name)) == session
            if ours and wanted in (folder / "environ").read_bytes().split(b"\0"):
                words = (folder / "cmdline").read_bytes().decode(errors="replace")
                found.append(Process(int(folder.name), words.replace("\0", " ").strip()))
        except OSError:  # it has ended meanwhile, or is not ours
            continue
    return found


def kill(process: Process) -> bool:
    """`kill -9`; False: it had ended before."""
    try:
        os.kill(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def kill_all(mark: Path) -> None:
    while left := marked(mark):
        for process in left:
            kill(process)
        time.sleep(LOOK)


def until(done: Callable[[], object], seconds: float = PATIENCE) -> bool:
    """Looks again and again; False when the time is over and it is not done."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(LOOK)
    return True
