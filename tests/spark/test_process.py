"""The process that pyspark launches, as it is known and ended; here it is a shell. With Spark: test_ctrl_c.py."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext, java_gateway

from mqks.pipeline import process as tested
from tests.spark.processes import until

launching: Any = java_gateway
SPEAKS = ["sh", "-c", 'echo here >&2; sleep 600 & echo and there >&2; test "$0" = sh || touch "$0"; wait']


@pytest.fixture(autouse=True)
def nothing_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever other tests have launched is not to be ended by these."""
    monkeypatch.setattr(tested.Launched, "all", [])
    monkeypatch.setattr(SparkContext, "_gateway", None)


def test_what_is_launched_is_ended_and_what_it_said_is_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = launching.Popen
    all_said = tmp_path / "all said"
    with tested.known():
        launched = launching.Popen([*SPEAKS, str(all_said)])
    assert launching.Popen is before
    assert until(all_said.exists)
    tested.kill()
    assert launched.returncode == -9
    assert capfd.readouterr().err == "here\nand there\n"  # read once: what comes while it is read would be lost
    assert tested.Launched.all == []


@pytest.mark.parametrize(("error", "shown"), [(KeyboardInterrupt, ""), (OSError, "why\n")])
def test_one_that_is_not_there_yet_is_ended_by_what_went_wrong(
    error: type[BaseException], shown: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """With its reason, unless that is Ctrl-C: then it has none of its own."""
    with pytest.raises(error), tested.known():
        launched = launching.Popen(["sh", "-c", "read begin; echo why >&2"], stdin=subprocess.PIPE)
        if error is OSError:
            launched.stdin.close()
            launched.wait()
        raise error
    assert launched.returncode is not None
    assert capfd.readouterr().err == shown


def test_one_that_is_there_is_left_to_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="later"), tested.known():
        launched = launching.Popen(SPEAKS)
        monkeypatch.setattr(SparkContext, "_gateway", "there")
        raise OSError("later")
    assert launched.poll() is None
    tested.kill()
    assert launched.returncode == -9


def test_one_that_could_not_be_begun_is_nothing_to_end() -> None:
    with pytest.raises(FileNotFoundError), tested.known():
        launching.Popen(["/no/such/spark-submit"])
    assert tested.Launched.all == []
