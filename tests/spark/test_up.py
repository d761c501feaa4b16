"""`mqks up` as a whole: a broker, its archive and its stats, one Ctrl-C, and a second start that goes on."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import mqks
from mqks.pipeline import lake
from mqks.pipeline.place import STATS_EVENT, Place
from tests.cli.running import COMMAND
from tests.cli.test_up import free_port
from tests.running import RunningBroker
from tests.spark.processes import PATIENCE, environment, kill_all, marked, until
from tests.spark.test_ctrl_c import NOT_FOR_PEOPLE

EVENT = "order.7.paid"
MASK = "order.{id}.paid"


class Up:
    """`mqks up` in a folder, and what it publishes about itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"mqks://127.0.0.1:{self.port}"
        self.place = Place(self.url, str(folder / "mqks-data"), str(folder / "mqks-lake"))
        self.counts: dict[tuple[str, str], int] = {}  # name, minute → what was told last

    def start(self) -> None:
        process = subprocess.Popen(
            [*COMMAND, "up", f"--port={self.port}", "--http-port=0", "--master=local[2]"],
            cwd=self.folder,
            env=environment(self.folder),
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            encoding="utf-8",
        )
        self.running = RunningBroker(process)
        self.running.wait_until_it_listens(PATIENCE)

    def interrupt(self) -> int:
        self.running.process.send_signal(signal.SIGINT)
        return self.running.process.wait(PATIENCE)

    def publish(self, first: int, stop: int) -> None:
        with mqks.connect(self.url) as mq:
            mq.publish_many((EVENT, json.dumps({"n": n}), f"m{n}") for n in range(first, stop))

    def await_count(self, count: int) -> None:
        """Reads what the stats tell until they count so many."""
        with mqks.connect(self.url) as mq, mq.consume("told", [STATS_EVENT]) as told:
            while min(self.total(EVENT), self.total(MASK)) < count:
                message = told.get(timeout=PATIENCE)
                assert message, (self.counts, self.running.log)
                row: dict[str, Any] = json.loads(message.data)
                if row["kind"] != "queue":
                    self.counts[row["name"], row["minute"]] = row["count"]

    def total(self, name: str) -> int:
        return sum(count for (told, _), count in self.counts.items() if told == name)

    def await_archive(self, spark: SparkSession, count: int) -> None:
        assert until(lambda: lake.events(spark, self.place).count() >= count), self.running.log


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    yield Up(tmp_path)
    kill_all(tmp_path)


def test_all_of_it_twice(up: Up, spark: SparkSession) -> None:
    up.start()
    with mqks.connect(up.url) as mq:
        mq.rebind("told", [STATS_EVENT])
    up.publish(0, 100)
    up.await_count(100)
    asked = "SELECT event, count(*) AS n, sum(data:n::int) AS total FROM events GROUP BY event"
    answer = subprocess.run(
        [*COMMAND, "pipeline", "sql", asked, "--json", f"--url={up.url}", f"--lake={up.place.lake}"],
        env=environment(up.folder),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert [json.loads(line) for line in answer.stdout.splitlines()] == [
        {"event": EVENT, "n": 100, "total": sum(range(100))}
    ], answer.stderr
    up.await_archive(spark, 100)
    assert "mqks: Spark is starting" in up.running.log
    assert "runs archive, stats" in up.running.log.partition("mqks: Spark is ready after ")[2]
    assert up.interrupt() == 0
    assert until(lambda: not marked(up.folder)), marked(up.folder)

    up.start()
    up.publish(100, 150)
    up.await_count(150)
    assert up.total(EVENT) == up.total(MASK) == 150
    up.await_archive(spark, 150)
    assert up.interrupt() == 0
    assert until(lambda: not marked(up.folder)), marked(up.folder)
    rows = lake.events(spark, up.place).selectExpr("event", "id", "data:n::int").collect()
    assert sorted(map(tuple, rows), key=lambda row: row[2]) == [(EVENT, f"m{n}", n) for n in range(150)]
    assert "info stopped" in up.running.log
    assert not NOT_FOR_PEOPLE.search(up.running.log), up.running.log
