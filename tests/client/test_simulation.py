"""Sessions against the simulated broker: seeds of bad weather, and one connection that breaks at each byte it carries.

A run that fails names its seed and the command that replays it.
"""

import pytest

from tests.client.simulation import Simulation
from tests.seeds import failure
from tests.sim.links import Violation

SEEDS = 1500
PARTS = 6
SMALL_SEED = 28  # a publisher, consumers of both kinds and two histories, in some hundred bytes each way


@pytest.mark.parametrize("part", range(PARTS))
def test_seeds(part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        _, reason = failure(Simulation, seed)
        assert not reason, f"{reason}\nreplay: python -m tests.client.simulation {seed} --trace"


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_connection_that_breaks_at_each_of_its_bytes(direction: str) -> None:
    """First to last: what the session says when it connects, publishes and acks, and what the broker answers."""
    at, simulation = 0, None
    while simulation is None or not simulation.uncut:
        at += 1
        simulation = Simulation(SMALL_SEED, cut=(direction, at))
        try:
            simulation.run()
        except Violation as violation:
            raise AssertionError(f"cut {direction} after {at} bytes: {violation}") from violation
    assert at > 400
