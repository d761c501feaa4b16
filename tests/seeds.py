"""Runs seeds of a simulation: one to look at it, or many on several processes. The exit code tells whether any fails.

A seed that fails is named with the one command that replays it.
"""

import argparse
import multiprocessing
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

CHUNK = 50  # seeds that a process takes at once


class Simulated(Protocol):
    def run(self) -> object: ...


Simulation = Callable[[int, Callable[[str], None] | None], Simulated]


def failure(simulation: Simulation, seed: int) -> tuple[int, str]:
    """The seed, and why it fails: empty if it does not."""
    try:
        simulation(seed, None).run()
    except Exception as error:
        return seed, f"{type(error).__name__}: {error}"
    return seed, ""


def replay(simulation: Simulation, seed: int, *, trace: bool) -> bool:
    """Does this seed hold?"""
    try:
        simulation(seed, print if trace else None).run()
    except Exception:
        traceback.print_exc(file=sys.stdout)
        return False
    print(f"seed {seed} holds")
    return True


def results(simulation: Simulation, seeds: range, jobs: int) -> Iterator[tuple[int, str]]:
    if jobs == 1:
        yield from map(partial(failure, simulation), seeds)
    else:
        with multiprocessing.Pool(jobs) as pool:
            yield from pool.imap(partial(failure, simulation), seeds, CHUNK)


def run(simulation: Simulation, command: str, seeds: range, jobs: int, most: int) -> bool:
    """Do all of these hold? Gives up after so many that do not."""
    failed = 0
    started = shown = time.monotonic()
    for done, (seed, reason) in enumerate(results(simulation, seeds, jobs), 1):
        if reason:
            failed += 1
            print(f"\r{reason[:500]}\n  {command} {seed} --trace")
        now = time.monotonic()
        if now - shown > 1 or done == len(seeds) or failed == most:
            shown = now
            print(f"\r{done:,} of {len(seeds):,} seeds, {failed} failed, {done / (now - started):.0f}/s", end="")
        if failed == most:
            break
    print()
    return not failed


def main(simulation: Simulation, command: str, description: str | None) -> int:
    parser = argparse.ArgumentParser(prog=command, description=description)
    parser.add_argument("seed", type=int, nargs="?", help="replay this one")
    parser.add_argument("--trace", action="store_true", help="print every step")
    parser.add_argument("--seeds", default="0:1000", metavar="FIRST:END", help="run these (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes to share them (default: 1)")
    parser.add_argument("--most", type=int, default=10, metavar="N", help="give up after N failures (default: 10)")
    options = parser.parse_args()
    if options.seed is not None:
        return 0 if replay(simulation, options.seed, trace=options.trace) else 1
    first, end = map(int, options.seeds.split(":"))
    return 0 if run(simulation, command, range(first, end), options.jobs, options.most) else 1
