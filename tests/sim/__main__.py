"""Runs seeds: `python -m tests.sim 17 --trace` replays one, `python -m tests.sim --seeds 0:1000 --jobs 2` runs many."""

import sys

from tests.seeds import main
from tests.sim.simulation import Simulation

if __name__ == "__main__":
    sys.exit(main(Simulation, "python -m tests.sim", __doc__))
