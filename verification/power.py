"""The power-loss tester: run a broker, cut the power at random calls, and start it on what may be left.

A generation is one life of a broker under load, recorded by preload.c. Its log gives several images: all calls up to a
cut, and of what was not synced by then all, nothing, a beginning, or any blocks. A broker starts on each image and is
checked. The last image is where the next generation starts.
"""

import random
import shutil
from dataclasses import dataclass
from pathlib import Path

from verification import oplog
from verification.case import SMALL, Case
from verification.disk_model import POLICIES, Disk
from verification.facts import Facts
from verification.process import Broker, Gone, Stuck
from verification.workload import Workload, set_up

GENERATIONS = 4  # lives in a row before a new folder
STEPS = 150  # requests in one life


@dataclass
class Image:
    cut: int
    data: str
    names: str
    block: int
    seed: int

    def __str__(self) -> str:
        return f"cut {self.cut}, data {self.data}, names {self.names}, block {self.block}, image seed {self.seed}"


class PowerLoss:
    unit = "images"

    def __init__(self, folder: Path, library: Path, seed: int) -> None:
        self._folder = folder
        self._library = library
        self._rng = random.Random(seed)
        self._left = 0
        self._life = 0
        self.count = 0
        self.failures: list[str] = []

    def run(self, count: int) -> None:
        self._left = count
        while self._left > 0 and not self.failures:
            self._chain()

    @property
    def details(self) -> str:
        return f"{self._life} folders"

    def _chain(self) -> None:
        """Generations in a row, each from an image of the one before."""
        flags = self._rng.choice(((), SMALL))
        start = self._fresh("start")
        facts = Facts()
        for _ in range(GENERATIONS):
            if self._left <= 0 or self.failures:
                return
            start, facts = self._generation(start, facts, flags)

    def _fresh(self, name: str) -> Path:
        self._life += 1
        folder = self._folder / f"{self._life:05d}-{name}"
        folder.mkdir()
        return folder

    def _generation(self, start: Path, facts: Facts, flags: tuple[str, ...]) -> tuple[Path, Facts]:
        live = self._fresh("live")
        shutil.copytree(start, live, dirs_exist_ok=True)
        log = self._folder / f"{live.name}.log"
        self._load(live, log, facts, flags)
        ops = oplog.read(log)
        images = sorted((self._image(len(ops)) for _ in range(self._rng.randint(6, 16))), key=lambda image: image.cut)
        disk = Disk(start)
        known = facts.copy()
        applied = 0
        left = start
        for image in images[: self._left]:
            for op in ops[applied : image.cut]:
                disk.apply(op)
                known.apply(op)
            applied = image.cut
            left = self._fresh("start")
            disk.image(left, image.data, image.names, image.block, random.Random(image.seed))
            tried = self._fresh("image")
            shutil.copytree(left, tried, dirs_exist_ok=True)
            case = Case(str(image), known.copy(), flags, prefix=str(self._life))
            self.failures += case.check(tried, self._fresh("case"), lambda cut=image.cut: ops[:cut])  # type: ignore[misc]
            self._left -= 1
            self.count += 1
            shutil.rmtree(tried)
            if self.failures:
                break
        shutil.rmtree(live)
        log.unlink()
        return left, known.copy()

    def _image(self, calls: int) -> Image:
        return Image(
            self._rng.randint(1, calls),
            self._rng.choice((*POLICIES, "mixed", "mixed")),
            self._rng.choice(("all", "none", "prefix")),
            self._rng.choice((512, 4096)),
            self._rng.randrange(1 << 30),
        )

    def _load(self, live: Path, log: Path, facts: Facts, flags: tuple[str, ...]) -> None:
        broker = Broker(live, *flags, preload=self._library, log=log)
        try:
            if not broker.wait_until_ready():
                raise Stuck("it does not start again")
            with Workload(broker.port, str(self._life), self._rng.randrange(1 << 30)) as workload:
                if not facts.setup:
                    set_up(workload.control)
                workload.run(STEPS)
            if self._rng.random() < 0.3:
                broker.stop()
        except (Gone, ConnectionError, Stuck) as error:
            self.failures.append(f"under load: {error!r}\n{broker.text}")
        finally:
            broker.kill()
