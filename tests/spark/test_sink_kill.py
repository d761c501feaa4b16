"""kill -9 of a driver in the middle of a micro-batch: its replay adds what is missing, and nothing twice."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import mqks
import mqks.testing
from tests.spark.peers import taken

FILES, LINES = 6, 2000
LONG = "x" * 1000  # more than what is on the way between processes, so that rows of a task that fails get through
START = 250.0  # seconds that Spark may take, on a machine that is busy with other things
REPO = Path(__file__).parents[2]


def start(url: str, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark.stream_to_sink", url, str(folder / "texts"), str(folder / "checkpoint")],
        cwd=REPO,
        env={**os.environ, "TMPDIR": str(folder)},
        start_new_session=True,
    )


def kill(process: subprocess.Popen[bytes]) -> None:
    """The driver, which is Python and Java; workers find out by themselves, and may go on for a moment."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_killed_driver_and_failed_tasks_lose_and_double_nothing(tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    expected: Counter[str] = Counter()
    for number in range(FILES):
        lines = [f"row {at % (LINES // 2)} of {number % 2} {LONG}" for at in range(LINES)]  # each is there 6 times
        (texts / f"{number}.txt").write_text("".join(f"{line}\n" for line in lines))
        expected.update(lines)
    with mqks.testing.broker(data=tmp_path / "data") as broker, mqks.connect(broker.url) as mq:
        mq.rebind("seen", ["e1"])
        process = start(broker.url, tmp_path)
        try:
            with mq.consume("seen") as seen:  # until some rows of the second micro-batch are there
                for _ in range(2 * LINES + LINES // 2):
                    assert seen.get(timeout=START)
        finally:
            kill(process)
        assert len(taken(broker.url)) < FILES * LINES
        process = start(broker.url, tmp_path)
        try:
            assert process.wait(START) == 0
        finally:
            kill(process)
        messages = taken(broker.url)
        assert mq.stats()["duplicates"] > 0
    assert len({message.id for message in messages}) == len(messages) == FILES * LINES
    assert Counter(message.data for message in messages) == expected
