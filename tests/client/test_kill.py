"""A real broker, killed with -9 and started again under each client. `python -m tests.client.kill` does it longer."""

import random
from pathlib import Path

import pytest

from tests.client.kill import kill_in_a_loop
from tests.client.loads import LOADS

KILLS = 4


@pytest.mark.parametrize("client", LOADS)
def test_kill_9_under_a_client(tmp_path: Path, client: str) -> None:
    seed = random.SystemRandom().getrandbits(32)
    account = kill_in_a_loop(tmp_path / "data", client, KILLS, seed)
    assert len(account.done) > KILLS, f"it did not work between kills: --seed={seed}"
    assert account.confirmed
