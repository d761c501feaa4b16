"""Source, sink and archive on a real standalone cluster: a master and two workers on loopback, from the pip package."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest

import mqks
import mqks.testing
from mqks.pipeline.session import find_java, java_home
from tests.running import RunningBroker
from tests.spark.clustered import CAME, EXECUTORS, WENT
from tests.spark.peers import taken
from tests.spark.processes import PATIENCE, environment, kill_all, marked, until

COUNT = 20_000
REPO = Path(__file__).parents[2]
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
SAID = "Starting Spark master at (spark://127.0.0.1:[0-9]+)"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "java").mkdir()
    java = java_home(find_java(), tmp_path / "java", local=False)
    return environment(tmp_path, JAVA_HOME=java, PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")


@pytest.fixture
def master(tmp_path: Path, environ: dict[str, str]) -> Iterator[str]:
    """The address of a cluster; in the end nothing of it is left."""
    with ExitStack() as stack:
        stack.callback(kill_all, tmp_path)

        def start(kind: str, *arguments: str) -> RunningBroker:
            words = [str(SPARK_CLASS), f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1", "--port", "0"]
            process = subprocess.Popen(
                [*words, "--webui-port", "0", *arguments],
                cwd=tmp_path,
                env=environ,
                stderr=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                encoding="utf-8",
            )
            return RunningBroker(process)

        head = start("master.Master")
        listening = head.wait_for_log(re.compile(SAID), PATIENCE)
        assert listening, head.log
        folder = ["--work-dir", str(tmp_path / "work")]
        hands = [start("worker.Worker", "--cores", "1", "--memory", "1g", *folder, listening[1]) for _ in range(2)]
        for hand in hands:
            assert hand.wait_for_log("Successfully registered with master", PATIENCE), hand.log
        yield listening[1]
        for one in [*hands, head]:
            one.process.terminate()
            one.process.wait(PATIENCE)
        assert until(lambda: not marked(tmp_path)), marked(tmp_path)


def said_by_executors(folder: Path) -> str:
    return "\n".join(f"{path}:\n{path.read_text()[-2000:]}" for path in sorted(folder.glob("work/app-*/*/stderr")))


def test_source_sink_and_archive(tmp_path: Path, environ: dict[str, str], master: str) -> None:
    with mqks.testing.broker(data=tmp_path / "data") as broker:
        with mqks.connect(broker.url) as mq:
            mq.publish_many((CAME, json.dumps({"n": n}), f"m{n}") for n in range(COUNT))
        words = [sys.executable, "-m", "tests.spark.clustered", master, broker.url, str(tmp_path / "lake")]
        driver = subprocess.run(words, cwd=REPO, env=environ, capture_output=True, text=True, timeout=2 * PATIENCE)
        assert driver.returncode == 0, f"{driver.stderr}\n{said_by_executors(tmp_path)}"
        found = json.loads(driver.stdout)
        assert len(found["read"]) == EXECUTORS
        assert sum(found["read"]) == COUNT
        assert found["kept"] == {CAME: COUNT, WENT: COUNT}
        came, went = (Counter(one.id for one in taken(broker.url) if one.event == event) for event in (CAME, WENT))
        assert came == went == Counter(f"m{n}" for n in range(COUNT))
