"""The damage tester: change files of a stopped broker, and see whether it says so.

A damage is a bit flipped, a block zeroed, two blocks swapped, the end cut off, a file emptied or removed, or two files
swapped. A broker that starts without a word must have lost nothing. One that refuses must say what to do. Then
`--salvage`, or `mqks journal salvage`, must bring back every message outside of the damaged batches.
"""

import collections
import random
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from verification import journal_files, oplog
from verification.case import SMALL, Case
from verification.checks import NOTHING, Allowed
from verification.facts import Facts
from verification.process import MQKSD, Broker, Line, Stuck
from verification.workload import Workload, set_up

BLOCK = 512
FLAGS = (SMALL[0],)
FOLDERS = 25  # damaged copies of one folder
ADVICE = re.compile(r"--salvage|put .*back|remove the folder|remove it|mqks journal salvage", re.S)
REPORT = re.compile(r"Z (?:warning|error|critical) (?!queue .* is full)")  # a full queue is no damage
FOUND = re.compile(r"the journal is damaged: run mqks journal verify| is damaged at byte ")  # when it was read
CUT = re.compile(r"the journal was cut at position (\d+)")  # the end was torn: what comes after it is gone too
IGNORED = {"lock"}  # nothing is in it


def _flip(path: Path, rng: random.Random) -> str:
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data))
    data[at] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return f"flip a bit at byte {at}"


def _zero(path: Path, rng: random.Random) -> str:
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data)) // BLOCK * BLOCK
    data[at : at + BLOCK] = bytes(len(data[at : at + BLOCK]))
    path.write_bytes(data)
    return f"zero a block at byte {at}"


def _swap_blocks(path: Path, rng: random.Random) -> str:
    data = bytearray(path.read_bytes())
    count = len(data) // BLOCK
    if count < 2:
        return _flip(path, rng)
    one, two = (at * BLOCK for at in rng.sample(range(count), 2))
    data[one : one + BLOCK], data[two : two + BLOCK] = data[two : two + BLOCK], data[one : one + BLOCK]
    path.write_bytes(data)
    return f"swap blocks at bytes {one} and {two}"


def _cut(path: Path, rng: random.Random) -> str:
    at = rng.randrange(path.stat().st_size)
    with path.open("r+b") as file:
        file.truncate(at)
    return f"cut at byte {at}"


def _empty(path: Path, _: random.Random) -> str:
    path.write_bytes(b"")
    return "empty"


def _remove(path: Path, _: random.Random) -> str:
    path.unlink()
    return "remove"


def _swap_files(path: Path, rng: random.Random) -> str:
    others = [other for other in sorted(path.parent.iterdir()) if other != path and other.suffix == path.suffix]
    if not others:
        return _flip(path, rng)
    other = rng.choice(others)
    one, two = path.read_bytes(), other.read_bytes()
    path.write_bytes(two)
    other.write_bytes(one)
    return f"swap with {other.name}"


DAMAGES: tuple[Callable[[Path, random.Random], str], ...] = (
    _flip, _flip, _zero, _swap_blocks, _cut, _empty, _remove, _swap_files,
)  # fmt: skip


@dataclass
class Base:
    """A folder that a broker has left, and what it had promised."""

    folder: Path
    facts: Facts


class Damage:
    unit = "damages"

    def __init__(self, folder: Path, library: Path, seed: int) -> None:
        self._folder = folder
        self._library = library
        self._rng = random.Random(seed)
        self.count = 0
        self.failures: list[str] = []
        self._outcomes: collections.Counter[str] = collections.Counter()

    @property
    def details(self) -> str:
        return ", ".join(f"{count} {outcome}" for outcome, count in sorted(self._outcomes.items()))

    def run(self, count: int) -> None:
        base: Base | None = None
        for number in range(count):
            if base is None or number % FOLDERS == 0:
                base = self._make_base(number)
            self._damage(base)
            if self.failures:
                return

    def _make_base(self, number: int) -> Base:
        folder = self._folder / f"base{number}"
        folder.mkdir()
        log = self._folder / f"base{number}.log"
        broker = Broker(folder, *FLAGS, preload=self._library, log=log)
        try:
            if not broker.wait_until_ready():
                raise Stuck(broker.text)
            with Workload(broker.port, str(number + 1), self._rng.randrange(1 << 30)) as workload:
                set_up(workload.control)
                workload.run(100)
                _fill(broker.port, number)
                workload.run(100)
            if number // FOLDERS % 2:  # the others are killed, and need their progress logs
                broker.stop()
        finally:
            broker.kill()
        facts = Facts()
        for op in oplog.read(log):
            facts.apply(op)
        log.unlink()
        return Base(folder, facts.copy())

    def _damage(self, base: Base) -> None:
        self.count += 1
        folder = self._folder / f"damaged{self.count}"
        shutil.copytree(base.folder, folder)
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in IGNORED]
        kinds = sorted({(path.parent.name, path.suffix) for path in paths})
        kind = self._rng.choice([*kinds, ("journal", ".mqks"), ("progress", ".log")])
        path = self._rng.choice([one for one in paths if (one.parent.name, one.suffix) == kind])
        damage = self._rng.choice(DAMAGES) if path.stat().st_size else _remove
        what = f"{path.relative_to(folder)}: {damage(path, self._rng)}"
        case = Case(what, base.facts.copy(), FLAGS, prefix=f"look{self.count}")
        outcome, found = self._start(base.folder, folder, case)
        self._outcomes[outcome] += 1
        self.failures += found
        shutil.rmtree(folder)

    def _start(self, before: Path, folder: Path, case: Case) -> tuple[str, list[str]]:
        """What the broker does, and which promises it breaks."""
        changed = journal_files.changed(before, folder)
        keep = self._folder / f"case{self.count}"
        first = self._folder / f"first{self.count}"
        shutil.copytree(folder, first)
        broker = Broker(first, *FLAGS)
        try:
            starts = broker.wait_until_ready()
        finally:
            broker.kill()
            shutil.rmtree(first)
        if starts:
            if REPORT.search(broker.text):
                cut = CUT.search(broker.text)
                torn = [batch for batch in journal_files.batches(before) if cut and batch.position >= int(cut[1])]
                if cut and any(batch.synced > int(cut[1]) for batch in torn if batch not in changed):
                    return "cut", [f"{case.name}: it cuts off what was known to be on disk:\n{broker.text}"]
                case.allowed = _missing([*changed, *torn])
            found = case.check(folder, keep)
            if not found or not all(FOUND.search(one) or one.startswith("replay:") for one in found):
                return "silent" if case.allowed == NOTHING else "reported", found
            shutil.rmtree(folder)
            (keep / "data").rename(folder)
            shutil.rmtree(keep)
        elif not ADVICE.search(broker.text):
            return "refused", [f"{case.name}: it refuses without advice:\n{broker.text}"]
        if self._rng.random() < 0.5:
            command = [str(MQKSD.parent / "mqks"), "journal", "salvage", str(folder)]
            subprocess.run(command, capture_output=True, check=False)
        case.flags = (*FLAGS, "--salvage")
        case.allowed = _missing(changed)
        found = case.check(folder, keep)
        if any("refuses to start" in one and ADVICE.search(one) for one in found):
            return "refused", []
        return "salvaged", found


def _missing(batches: list[journal_files.Batch]) -> Allowed:
    """A report of damage allows that these are missing."""
    messages = frozenset(message for batch in batches for message in batch.messages)
    return Allowed(messages, acks=True, queues=any(batch.defines for batch in batches))


def _fill(port: int, number: int) -> None:
    """Several segments of confirmed messages that stay in queues."""
    line = Line(port)
    for start in range(0, 3000, 100):
        line.send(*(f"f{number}.{start + at} publish --confirm job {'y' * 1000}" for at in range(100)))
        last = f"f{number}.{start + 99} "
        for _ in line.until(lambda reply, last=last: reply.startswith(last)):  # type: ignore[misc]
            pass
    line.close()
