"""Ctrl-C at any moment of a command on Spark: it ends, says nothing of Java or py4j, and leaves no process behind.

The moments are those that can be seen from outside: a process that is there, a folder that Spark makes.
"""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.running import COMMAND
from tests.cli.test_up import free_port
from tests.journal.making import Making
from tests.spark.processes import environment, kill_all, marked, until

AWAY = "mqks://127.0.0.1:1"
ENDLESS = "SELECT sum(length(text) * n) FROM events CROSS JOIN range(1000000000000) AS numbers(n)"
NOT_FOR_PEOPLE = re.compile("Traceback|Exception|py4j|ERROR")


def runs(words: str) -> Callable[[Path], bool]:
    return lambda folder: any(re.search(words, process.words) for process in marked(folder))


def has_a_context(folder: Path) -> bool:
    return any(folder.glob("blockmgr-*"))


MOMENTS: dict[str, Callable[[Path], bool]] = {
    "before Java": runs(r"spark-submit|spark-class"),
    "Java starts": runs(r"java .*SparkSubmit"),
    "Spark starts": has_a_context,
    "a query is planned": runs(r"-m pyspark\.(daemon|sql\.worker)"),
    "it runs": lambda folder: "rows/s" in said(folder),
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    made = Making(tmp_path / "mqks-data")
    made.batch(b"m1 publish e1 d1", b"m2 publish e1 d2")
    made.sync()
    yield tmp_path
    kill_all(tmp_path)


def said(folder: Path) -> str:
    return (folder / "said").read_text()


def interrupted(folder: Path, moment: str, *words: str) -> int:
    """The command's exit code, when Ctrl-C came at this moment and all of its processes have ended."""
    with (folder / "said").open("w") as out:
        process = subprocess.Popen(
            [*COMMAND, *words, "--master=local[2]"],
            cwd=folder,
            env=environment(folder),
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    assert until(lambda: process.poll() is not None or MOMENTS[moment](folder)), said(folder)
    assert process.poll() is None, said(folder)
    os.killpg(process.pid, signal.SIGINT)
    assert until(lambda: process.poll() is not None and not marked(folder)), marked(folder)
    return process.wait()


@pytest.mark.parametrize("moment", ["before Java", "Java starts", "Spark starts", "a query is planned"])
def test_a_question(folder: Path, moment: str) -> None:
    assert interrupted(folder, moment, "pipeline", "sql", ENDLESS, "--data=mqks-data", f"--url={AWAY}") == 130
    assert not NOT_FOR_PEOPLE.search(said(folder)), said(folder)
    assert not list(folder.glob("mqks-spark-*"))


def test_a_job(folder: Path) -> None:
    """Until Spark has started, it is as with a question."""
    assert interrupted(folder, "it runs", "pipeline", "archive", "--data=mqks-data", f"--url={AWAY}") == 0
    assert not NOT_FOR_PEOPLE.search(said(folder)), said(folder)


@pytest.mark.parametrize("moment", ["Java starts", "Spark starts"])
def test_all_of_it(tmp_path: Path, moment: str) -> None:
    """When it runs: `test_up`."""
    try:
        assert interrupted(tmp_path, moment, "up", f"--port={free_port()}", "--no-http") == 0
        assert not NOT_FOR_PEOPLE.search(said(tmp_path)), said(tmp_path)
        assert "info stopped" in said(tmp_path)
    finally:
        kill_all(tmp_path)
