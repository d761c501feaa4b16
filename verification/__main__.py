"""Run the tools: one of them for a number of cases, or all of them for some minutes.

python -m verification power --count=200 --seed=1
python -m verification hostile --count=36
python -m verification all --minutes=30
python -m verification replay FOLDER
python -m verification mutations --only=hold
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from verification import mutations
from verification.case import replay
from verification.damage import Damage
from verification.history import History
from verification.hostile import Hostile
from verification.power import PowerLoss
from verification.process import build_preload

Tool = type[History] | type[PowerLoss] | type[Damage] | type[Hostile]
TOOLS: dict[str, Tool] = {"history": History, "power": PowerLoss, "damage": Damage, "hostile": Hostile}
SLICE = 25  # cases of one tool before the next one has its turn
SHOWN = 30  # lines of a failure


def run(name: str, count: int, seed: int) -> bool:
    """One tool; a summary line tells what it did. False: it found a violation."""
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix=f"mqks-{name}-"))
    tool = TOOLS[name](folder, build_preload(Path("build/verification")), seed)
    try:
        tool.run(count)
    finally:
        for failure in tool.failures[:SHOWN]:
            print(f"FAILED {failure}" if not failure.startswith(("  ", "replay")) else failure)
        if not tool.failures:
            shutil.rmtree(folder)
        print(
            f"{name}: {tool.count} {tool.unit} ({tool.details}), "
            f"{len(tool.failures)} violations, seed {seed}, {time.monotonic() - begun:.0f} s",
            flush=True,
        )
    return not tool.failures


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m verification", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tool", choices=(*TOOLS, "all", "replay", "mutations"))
    parser.add_argument("folder", nargs="?", type=Path, help="what a failure has kept, for replay")
    parser.add_argument("--count", type=int, default=100, help="cases of one tool [%(default)s]")
    parser.add_argument("--minutes", type=float, default=30.0, help="time for all tools [%(default)s]")
    parser.add_argument("--seed", type=int, default=None, help="the choices of a run [random, and printed]")
    parser.add_argument("--only", help="planted bugs with this in their names, for mutations [all]")
    arguments = parser.parse_args()
    if arguments.tool == "replay":
        with tempfile.TemporaryDirectory(prefix="mqks-replay-") as scratch:
            found = replay(arguments.folder, Path(scratch))
        print("\n".join(found) or "no violation")
        return 1 if found else 0
    seed = random.SystemRandom().randrange(1 << 30) if arguments.seed is None else arguments.seed
    if arguments.tool == "mutations":
        return mutations.main(arguments.only, seed)
    if arguments.tool != "all":
        return 0 if run(arguments.tool, arguments.count, seed) else 1
    end = time.monotonic() + arguments.minutes * 60
    good = True
    while time.monotonic() < end:
        for name in TOOLS:
            good = run(name, SLICE, seed) and good
        seed += 1
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
