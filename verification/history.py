"""The history checker: random clients against a real broker whose disk, clock and process fail.

The broker lives many times in one folder. Each life has clients of every kind (workload.py) and one fault: calls to the
system fail (faults.py), a signal, or a clock that jumps. What it received and sent is recorded. After each life a
broker without faults starts on the folder, and every promise is decided (checks.py).
"""

import collections
import contextlib
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

from verification import oplog
from verification.case import SMALL, Case
from verification.facts import Facts
from verification.faults import FAULTS, KINDS, PATHS, Control
from verification.process import DEADLINE, Broker, Gone, Stuck
from verification.workload import Workload, set_up

LIVES = 12  # in one folder
STEPS = 60  # requests in a part of a life
PATIENT = ("--dedup-window=365d", "--retain-age=365d")  # a clock that jumps makes ids and messages old
SIGNALS = ("kill", "kill during recovery", "stop for a while", "terminate", "clock jumps", "second broker")


class History:
    unit = "faults"

    def __init__(self, folder: Path, library: Path, seed: int) -> None:
        self._folder = folder
        self._library = library
        self._rng = random.Random(seed)
        self._life = 0
        self._faults: collections.Counter[str] = collections.Counter()
        self.failures: list[str] = []

    @property
    def count(self) -> int:
        return self._faults.total()

    @property
    def details(self) -> str:
        return ", ".join(f"{count} {kind}" for kind, count in sorted(self._faults.items()))

    def run(self, count: int) -> None:
        while self.count < count and not self.failures:
            self._life += 1
            data = self._folder / f"data{self._life}"
            data.mkdir()
            flags = (*self._rng.choice(((), SMALL)), *PATIENT)
            facts = Facts()
            for _ in range(min(LIVES, count - self.count)):
                facts = self._one_life(data, facts, flags)
                if self.failures:
                    return
            shutil.rmtree(data)

    def _one_life(self, data: Path, facts: Facts, flags: tuple[str, ...]) -> Facts:
        self._life += 1
        log = self._folder / f"{self._life:05d}.log"
        control = Control(self._folder / "faults")
        fault = self._rng.choice((*(kind.name for kind in KINDS), *SIGNALS))
        self._faults[fault] += 1
        broker = Broker(data, *flags, preload=self._library, log=log, faults=control.path)
        name = f"life {self._life}, {fault}"
        try:
            self._live(broker, control, fault, facts)
        except Stuck as error:
            self.failures.append(f"{name}: {error}\n{broker.text}")
        except (Gone, ConnectionError):
            pass  # the broker ended, or cut a connection off
        finally:
            broker.kill()
            control.clear()
        ops = oplog.read(log) if log.exists() else []
        for op in ops:
            facts.apply(op)
        case = Case(name, facts.copy(), flags, prefix=f"look{self._life}")
        if not self.failures:
            self.failures += case.check(data, self._folder / f"case{self._life}", lambda: ops)
        log.unlink(missing_ok=True)
        return case.facts

    def _live(self, broker: Broker, control: Control, fault: str, facts: Facts) -> None:
        kind = next((kind for kind in KINDS if kind.name == fault), None)
        if fault == "kill during recovery":
            time.sleep(self._rng.uniform(0.1, 0.6))  # anywhere in its start
            return
        if kind is not None and self._rng.random() < 0.15:
            control.arm(0, kind, self._rng.choice(PATHS), self._rng.randint(0, 30))
        if not broker.wait_until_ready():
            return
        with Workload(broker.port, str(self._life), self._rng.randrange(1 << 30)) as workload:
            if not facts.setup:
                set_up(workload.control)
            workload.run(self._rng.randint(0, STEPS))
            if kind is not None:
                for slot in range(self._rng.choice((1, 1, 2))):
                    control.arm(slot % FAULTS, kind, self._rng.choice(PATHS), self._rng.randint(0, 20))
            else:
                self._disturb(broker, control, fault)
            workload.run(self._rng.randint(0, STEPS))
            if kind is not None and self._rng.random() < 0.5:
                control.clear()
                workload.run(STEPS)
        if self._rng.random() < 0.3:
            broker.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                broker.process.wait(DEADLINE)

    def _disturb(self, broker: Broker, control: Control, fault: str) -> None:
        if fault == "kill":
            broker.kill()
        elif fault == "terminate":
            broker.process.terminate()
        elif fault == "clock jumps":
            control.set_clock(self._rng.choice((-86400, -3600, -5, 5, 3600, 40 * 86400)))
        elif fault == "second broker":
            self._start_another(broker)
        else:
            broker.process.send_signal(signal.SIGSTOP)
            time.sleep(0.05)
            broker.process.send_signal(signal.SIGCONT)

    def _start_another(self, broker: Broker) -> None:
        another = Broker(broker.data)
        try:
            if another.wait_until_ready():
                self.failures.append(f"life {self._life}: a second broker starts on the folder")
        finally:
            another.kill()
