"""`kill -9` of a real broker under load, 20 times; `make test-crash` does 200 in one long run."""

import random
from pathlib import Path

import pytest

from tests.crash.harness import Harness

KILLS = 5
SETTINGS = {
    "as it comes": (),
    "small segments": ("--segment-size=1M", "--retain-bytes=4M"),
    "little memory": ("--max-memory=8M", "--segment-size=1M"),
    "fsync now and then": ("--fsync=interval=50",),
}


@pytest.mark.parametrize("flags", SETTINGS.values(), ids=SETTINGS.keys())
def test_kill_9_under_load_loses_nothing_and_invents_nothing(tmp_path: Path, flags: tuple[str, ...]) -> None:
    seed = random.SystemRandom().getrandbits(32)
    report = Harness(tmp_path / "data", seed, flags).run(KILLS)
    assert report.clean, f"python -m tests.crash.harness --seed={seed} -- {' '.join(flags)}\n{report.text}"


def test_the_harness_sees_what_a_broker_in_memory_loses(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "data", 1, ("--memory",))
    harness.patience = 1.0
    report = harness.run(1)
    assert not report.drained
    assert report.ledger.faults.count["lost"] > 0
