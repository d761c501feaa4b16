"""Kills driver, Python workers and broker with -9 under an archive and a sink, and says what was lost or doubled.

    python -m tests.spark.kill --kills=50 [--seed=N]

The seed decides what is killed, and when; what it is doing at that moment is up to the machine, so a seed repeats a run
only nearly. A driver takes long to start, so most kills are of the others. In the end all is caught up, and each id is
once in the lake and once in the queue behind the sink.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

import mqks
from mqks.pipeline import lake
from mqks.pipeline.archive import NAME
from mqks.pipeline.lake.commit import POSITION
from mqks.pipeline.lake.delta_table import Table
from mqks.pipeline.lake.forget import forget
from mqks.pipeline.lake.location import Location
from mqks.pipeline.place import EVENTS, Place
from mqks.pipeline.session import session
from tests.crash.brokers import kill as kill_broker
from tests.crash.brokers import start_broker
from tests.spark.driving import CAME, DOOMED, SINK, WENT
from tests.spark.processes import PATIENCE, Process, environment, kill, kill_all, marked, until

REPO = Path(__file__).parents[2]
QUEUE = "behind"  # the sink
SOME = 20  # messages that are confirmed together
EVERY = 0.05  # seconds between them

KINDS = ("driver", "worker", "broker", "worker", "broker")  # and so on
DRIVERS = {  # a part of it → its command line; what starts Java has the same words, but is another program
    "Python": r"-m tests\.spark\.driving",
    "Java": r"^\S*/java (?!.*launcher\.Main).*deploy\.SparkSubmit",
    "both": "",
}
WORKERS = {"of tasks": r"daemon pyspark\.worker$", "of a source": "streaming_source_runner", "any": r"-m pyspark\."}
LIFE = (0.0, 1.5)  # seconds from progress to the next kill
AGAIN, SOON = 0.25, (0.0, 6.0)  # how often the next one comes before there is progress, and after how many seconds
LOST = 0.3  # how often the archive has lost its checkpoint when a driver starts
AWAY = (0.0, 0.0, 0.5, 2.0)  # seconds that a broker is


class Publishing:
    """Goes on publishing under known ids; each is taken once, however often the client has to say it."""

    def __init__(self, url: str) -> None:
        self.count = 0  # confirmed
        self.failure: Exception | None = None
        self._client = mqks.Client(url, timeout=PATIENCE)
        self._quiet = threading.Event()
        self._thread = threading.Thread(target=self._run, name="publishing")
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._quiet.wait(EVERY):
                numbers = range(self.count, self.count + SOME)
                self._client.publish_many([(CAME, json.dumps({"n": n}), f"m{n}") for n in numbers], once="publishing")
                self._client.publish(DOOMED, confirm=True)
                self.count += SOME
        except Exception as error:
            self.failure = error

    def stop(self) -> int:
        """Answers how many were published."""
        self._quiet.set()
        self._thread.join()
        self._client.close()
        assert self.failure is None, f"publishing failed: {self.failure!r}"
        return self.count


@dataclass(frozen=True)
class Progress:
    """How far the archive is, and the last batch of the sink that is done, as their files tell."""

    archived: int = -1
    sunk: int = -1

    def beyond(self, other: "Progress") -> bool:
        return self.archived > other.archived and self.sunk > other.sunk


class Run:
    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.rng = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.broker = start_broker(folder / "data")
        self.url = f"mqks://127.0.0.1:{self.broker.port}"
        self.place = Place(self.url, str(folder / "data"), str(folder / "lake"))
        self._log = folder / "driver.log"
        self._pause = threading.Event()  # nobody sets it: time passes
        with mqks.connect(self.url) as mq:
            mq.rebind(QUEUE, [WENT])
        self.publishing = Publishing(self.url)
        self.driver = self.start_driver()

    # ---- What runs

    def start_driver(self) -> subprocess.Popen[bytes]:
        assert self.place.data
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.spark.driving", self.url, self.place.data, self.place.lake],
                cwd=REPO,
                env=environment(self.folder),
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def log(self) -> str:
        """What the drivers said."""
        return self._log.read_text(errors="replace")

    @property
    def progress(self) -> Progress:
        commits = Path(self.place.checkpoint(SINK)) / "commits"
        numbers = [int(file.name) for file in commits.glob("*") if file.name.isdigit()]
        return Progress(self.archived, max(numbers, default=-1))

    @property
    def archived(self) -> int:
        """The position that the lake has all before; -1 where it has nothing."""
        table = Table.open(Location(self.place.table(EVENTS)))
        return (table and table.progress(POSITION)) or -1

    def going(self) -> bool:
        """AssertionError: someone has ended by himself."""
        assert self.driver.poll() is None, f"the driver ended with {self.driver.returncode}:\n{self.log[-5000:]}"
        assert self.publishing.failure is None, f"publishing failed: {self.publishing.failure!r}"
        return True

    def await_progress(self, since: Progress) -> None:
        assert until(lambda: self.going() and self.progress.beyond(since)), (
            f"no progress in {PATIENCE:.0f} s beyond {since}: {self.progress}\n{self.log[-5000:]}"
        )

    # ---- The kills

    def run(self, kills: int, say: bool = False) -> None:
        started = time.monotonic()
        kinds = [KINDS[number % len(KINDS)] for number in range(kills)]
        self.rng.shuffle(kinds)
        self.await_progress(Progress())
        awaited = True
        for number, kind in enumerate(kinds, 1):
            before = self.progress
            {"driver": self.kill_driver, "worker": self.kill_worker, "broker": self.kill_broker}[kind]()
            awaited = not awaited or self.rng.random() >= AGAIN
            if awaited:
                self.await_progress(before)
            self._pause.wait(self.rng.uniform(*(LIFE if awaited else SOON)))
            if say and not number % 10:
                seconds = time.monotonic() - started
                print(f"kills {number:4}/{kills}  {seconds:5.0f} s  published {self.publishing.count:,}", flush=True)

    def kill_driver(self) -> None:
        """What is left of it finds out by itself, while the next one starts already."""
        self.going()
        which = self.rng.choice(list(DRIVERS))
        if which == "both":
            os.killpg(self.driver.pid, signal.SIGKILL)
        else:
            kill(self.found(DRIVERS[which]))
        try:
            self.driver.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the driver lives on without its Java:\n{self.log[-5000:]}") from None
        self.kills[f"driver ({which})"] += 1
        if self.rng.random() < LOST:
            kill_all(self.folder)  # else its last words would be in the new checkpoint
            shutil.rmtree(self.place.checkpoint(NAME), ignore_errors=True)
            self.kills["lost checkpoint"] += 1
        self.driver = self.start_driver()

    def kill_worker(self) -> None:
        which = self.rng.choice(list(WORKERS))
        while not kill(self.found(WORKERS[which])):
            pass
        self.kills[f"worker ({which})"] += 1

    def kill_broker(self) -> None:
        kill_broker(self.broker)
        assert "Traceback" not in self.broker.log, self.broker.log
        self.kills["broker"] += 1
        self._pause.wait(self.rng.choice(AWAY))
        self.broker = start_broker(self.folder / "data", f"--port={self.broker.port}")

    def found(self, regex: str) -> Process:
        """One of the driver's processes of this kind, waited for."""
        some: list[Process] = []

        def look() -> list[Process]:
            ours = marked(self.folder, session=self.driver.pid)  # what is left of an earlier one is not
            some[:] = sorted(process for process in ours if re.search(regex, process.words))
            return some

        assert until(lambda: self.going() and look()), f"there is no process {regex}"
        return self.rng.choice(some)

    # ---- The end

    def settle(self) -> int:
        """All is caught up and the driver has ended; answers how many were published."""
        published = self.publishing.stop()
        with mqks.connect(self.url) as mq:

            def behind() -> int:
                return int(mq.stats()["queues"][QUEUE]["ready"])

            assert until(lambda: self.going() and behind() >= published), (
                f"only {behind():,} of {published:,} are in the queue\n{self.log[-5000:]}"
            )
            # A message is in its queue before it can be seen in the journal: what is confirmed is seen.
            mq.publish("end", confirm=True)
            latest = int(mq.request("history", "latest --to=earliest").split()[-1])
        assert until(lambda: self.going() and self.archived >= latest), (
            f"the archive is at {self.archived}, the journal ends at {latest}\n{self.log[-5000:]}"
        )
        self.driver.terminate()
        assert self.driver.wait(PATIENCE) == 0, self.log[-5000:]
        assert until(lambda: not marked(self.folder)), f"left behind: {marked(self.folder)}"
        return published

    def check(self, spark: SparkSession, published: int) -> None:
        forget(spark, self.place, f"event = '{DOOMED}'")
        assert lake.events(spark, self.place).where(f"event = '{DOOMED}'").count() == 0
        for event in (CAME, WENT):
            rows = lake.events(spark, self.place).where(f"event = '{event}'")
            figures = rows.selectExpr("count(*)", "count(DISTINCT id)", "sum(data:n::long)").collect()[0]
            assert tuple(figures) == (published, published, sum(range(published))), (
                f"{event} in the lake: {figures[0]:,} rows, {figures[1]:,} ids, published {published:,}"
            )
        with mqks.connect(self.url) as mq:
            ready = mq.stats()["queues"][QUEUE]["ready"]
            with mq.consume(QUEUE) as queue:
                ids = Counter(message.id for _, message in zip(range(ready), queue, strict=False))
        wrong = ids - Counter(f"m{n}" for n in range(published))
        assert not wrong and ids.total() == published, (
            f"in the queue: {ids.total():,} messages, {len(ids):,} ids, published {published:,}; {wrong}"
        )

    def close(self) -> None:
        kill_all(self.folder)
        self.driver.wait()
        try:
            self.publishing.stop()
        finally:
            kill_broker(self.broker)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.kill", description="kill -9 under Spark.")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mqks-kill-", ignore_cleanup_errors=True) as folder:
        run = Run(Path(folder), options.seed)
        try:
            run.run(options.kills, say=True)
            published = run.settle()
            run.check(session("local[2]"), published)
        except AssertionError as error:
            print(f"spark, seed {options.seed}, after {dict(run.kills)}: {error}")
            return 1
        finally:
            run.close()
        ways = ", ".join(f"{way} {count}" for way, count in sorted(run.kills.items()))
        print(
            f"spark: {run.kills.total()} kills ({ways}) in {time.monotonic() - started:.0f} s, seed {options.seed}; "
            f"queries started again {run.log.count('is started again')}; published {published:,}, "
            f"each once in the lake and once in the queue behind the sink"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
