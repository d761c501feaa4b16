"""The command. It first goes into a namespace of mounts of its own, if that is allowed: see `process.py`."""

import argparse
import asyncio
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.soak.faults import FAULTS
from tests.soak.process import MODES, NAMESPACE
from tests.soak.report import begin, text, write
from tests.soak.run import Plan, Run


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        prog="python -m tests.soak", description="Load the broker and let things go wrong"
    )
    options.add_argument("--minutes", type=float, default=30.0, help="of storm and calm together (%(default)s)")
    options.add_argument("--seed", type=int, default=None, help="to repeat a run, nearly; else a new one")
    options.add_argument("--connections", type=int, default=300, help="about how many (%(default)s)")
    options.add_argument("--rate", type=float, default=1000.0, help="counted messages in a second (%(default)s)")
    options.add_argument(
        "--modes",
        default=",".join(MODES),
        help="how the broker may be spoken to, from life to life; the last in the calm",
    )
    options.add_argument("--faults", default=",".join(FAULTS), help="which may come, each at least once (%(default)s)")
    options.add_argument("--report", type=Path, default=Path("build/soak"), help="folder for the report (%(default)s)")
    return options


def into_a_namespace() -> None:
    """Start this command anew where mounts are our own; root keeps its rights, others are root in there."""
    if NAMESPACE in os.environ:
        return
    unshare = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
    allowed = (
        shutil.which("unshare")
        and not subprocess.run(
            [*unshare, "mount", "-t", "tmpfs", "soak", "/mnt"], stderr=subprocess.DEVNULL, check=False
        ).returncode
    )
    os.environ[NAMESPACE] = "yes" if allowed else "no"
    if allowed:
        os.execvp(unshare[0], [*unshare, sys.executable, "-m", "tests.soak", *sys.argv[1:]])


def main() -> int:
    given = parser().parse_args()
    into_a_namespace()
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # that a broker which was killed takes no more is no news
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    begin(given.report)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        modes, faults = tuple(given.modes.split(",")), tuple(given.faults.split(","))
        plan = Plan(given.minutes, given.connections, seed, given.rate, modes, faults, Path(folder), given.report)
        print(f"soak: {given.minutes:g} minutes, seed {seed}, report in {given.report}", flush=True)
        run = Run(plan)
        for what in run.ground.left_out:
            print(f"soak: LEFT OUT: {what}", file=sys.stderr, flush=True)
        try:
            outcome = asyncio.run(run.go())
        finally:
            run.ground.close()
    path = write(outcome)
    print(text(outcome).partition("## What was done")[0])
    print(f"soak: {path}; " + (outcome.verdict if outcome.clean else f"BROKEN, seed {seed}"))
    return 0 if outcome.clean else 1


if __name__ == "__main__":
    sys.exit(main())
