"""Hostile load: create as many objects of one kind as the broker allows, then release them all.

Each case has a broker of its own with little memory, and another client that pings and publishes all the time
(witness.py). The broker must live, stay below `--max-memory` and 80 MB, say why it refuses, lose nothing that it
confirmed, and be as before when all is released. How long pings take is reported and not judged: that is up to the
machine.
"""

import random
import re
import resource
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from verification import witness
from verification.loads import KINDS, MEMORY_ONLY, TLS, Kind
from verification.process import Broker, Gone, Stuck
from verification.stage import Stage, wait_until
from verification.witness import Report, Witness

MIB = 1 << 20
ALLOWED = 80 * MIB  # resident bytes beside --max-memory, as docs/GUARANTEES.md says
REST = 1 * MIB  # counted bytes beside the log's tail that may come and go: buffers, a checkpoint
FILES = 8192  # that the tool and the broker may have open
SHOWN = 300  # characters of a line of the log
# Requests that must be accepted when all is released.
WORK = (
    "again1 rebind --confirm again again",
    "again2 consume --confirm again --manual-ack",
    "again3 publish --confirm nobody d",
    "again4 publish --confirm --once nobody d",
    "again5 delete_consumer --confirm again2",
    "again6 delete_queue --confirm again",
)
JOURNAL_WORK = ("again7 hold again earliest --for=60 --confirm", "again8 hold again earliest --for=0 --confirm")


class Sizes(NamedTuple):
    """Of the broker's process, in bytes."""

    now: int
    peak: int


def sizes(pid: int) -> Sizes:
    status = Path(f"/proc/{pid}/status").read_text()
    found = dict(re.findall(r"(VmRSS|VmHWM):\s+(\d+) kB", status))
    return Sizes(int(found["VmRSS"]) << 10, int(found["VmHWM"]) << 10)


def case_seeds(seed: int, count: int) -> Iterator[int]:
    """The seeds of the cases of a run. A case's seed gives its kind; a run of one case has the seed of that case."""
    rng = random.Random(seed)
    kinds = list(range(len(KINDS)))
    rng.shuffle(kinds)
    kinds.remove(seed % len(KINDS))
    kinds.insert(0, seed % len(KINDS))
    for number in range(count):
        yield rng.randrange(1 << 24) * len(KINDS) + kinds[number % len(KINDS)] if number else seed


class Hostile:
    unit = "loads"

    def __init__(self, folder: Path, _: Path, seed: int) -> None:
        self._folder = folder
        self._seed = seed
        self._objects = self._refused = 0
        self._pings: list[float] = []
        self._share = 0.0
        self.count = 0
        self.failures: list[str] = []

    @property
    def details(self) -> str:
        worst = max(self._pings, default=0.0)
        return (
            f"{self._objects} objects, {self._refused} refused, {len(self._pings)} pings, worst {worst * 1000:.0f} ms, "
            f"at most {self._share:.0%} of the memory allowed"
        )

    def run(self, count: int) -> None:
        with many_files():
            for seed in case_seeds(self._seed, count):
                self._one(seed)

    def _one(self, seed: int) -> None:
        name = list(KINDS)[seed % len(KINDS)]
        kind = KINDS[name]
        rng = random.Random(seed)
        limit = rng.choice(kind.limits) * MIB
        self.count += 1
        data = self._folder / f"data{self.count}"
        authority = certify(self._folder) if TLS in kind.flags else None
        certificate = f"{TLS}={self._folder / 'server.pem'}"
        flags = [certificate if flag == TLS else flag for flag in kind.flags]
        broker = Broker(data, f"--max-memory={limit}", f"--fsync={rng.choice(('always', 'never'))}", *flags)
        found: list[str] = []
        try:
            if not broker.wait_until_ready():
                raise Stuck("it does not start")
            with closing(Stage(broker, rng, limit, authority)) as stage:
                found = stage.failures
                found += self._load(name, kind, stage)
        except (Stuck, Gone, OSError, AssertionError) as error:
            found.append(repr(error))
        finally:
            if broker.process.poll() is not None:
                found.append(f"the broker ended with {broker.process.returncode}")
            broker.kill()
        if found:
            log = [f"  {line.rstrip()[:SHOWN]}" for line in broker.lines[-10:]]
            replay = f"replay: python -m verification hostile --count=1 --seed={seed}"
            self.failures.append(
                "\n".join([f"{name}, --max-memory={limit >> 20}M: {found[0]}", *found[1:], *log, replay])
            )
        shutil.rmtree(data, ignore_errors=True)

    def _load(self, name: str, kind: Kind, stage: Stage) -> list[str]:
        """One case. Answers the violations that the stage has not."""
        broker = stage.broker
        with Witness(broker.port, stage.authority) as other:
            before = stage.figures()
            load = kind.load(stage)
            next(load)
            full = stage.figures()["memory"]
            next(load, None)
            stage.release()
            wait_until(lambda: stage.figures()["connections"] <= before["connections"], "connections are not released")
            report = other.stop()
        if stage.drain(witness.QUEUE, report.accepted) != report.accepted:
            stage.failures.append("messages of another client are lost or out of order")
        allowed = before["memory"] + stage.limit // 4 + REST  # a quarter is the tail's
        wait_until(lambda: stage.figures()["memory"] <= allowed, f"counted memory does not fall to {allowed}")
        after, size = stage.figures()["memory"], sizes(broker.process.pid)
        stage.must(WORK if MEMORY_ONLY in kind.flags else (*WORK, *JOURNAL_WORK))
        found = stage.unclear_refusals(kind.reasons)
        found += [report.problem] if report.problem else []
        if size.peak > stage.limit + ALLOWED:
            found.append(f"the process took {size.peak >> 20} MiB")
        if "Traceback" in broker.text:
            found.append("an exception is in the log")
        self._record(name, stage, report, size, (before["memory"], full, after))
        return found

    def _record(self, name: str, stage: Stage, report: Report, size: Sizes, counted: tuple[int, int, int]) -> None:
        self._objects += stage.created
        self._refused += stage.refused
        self._pings += report.pings
        self._share = max(self._share, size.peak / (stage.limit + ALLOWED))
        print(
            f"  {name}: {stage.created} created, {stage.refused} refused, {len(report.pings)} pings "
            f"p99 {report.percentile(99) * 1000:.1f} ms worst {report.percentile(100) * 1000:.1f} ms, "
            f"RSS peak {size.peak >> 20} of {(stage.limit + ALLOWED) >> 20} MiB, then {size.now >> 20}, "
            f"counted {' → '.join(f'{bytes / MIB:.1f}' for bytes in counted)} MiB of {stage.limit >> 20}",
            flush=True,
        )


def certify(folder: Path) -> Path:
    """A certificate for the broker, and that of its authority, which is the answer."""
    import trustme  # here: only TLS needs it

    authority = trustme.CA()
    path = folder / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    server = folder / "server.pem"
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(server))
    server.chmod(0o600)
    return path


@contextmanager
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(FILES, hard)), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
