"""`python -m benchmarks.versions --before PATH/mqksd`: another version of the broker beside this one, round by round.

Every round measures both, in alternating order. A ratio compares the two measurements of one round, so a slow minute of
the machine hits both.
"""

import argparse
import shutil
import statistics
import sys
from dataclasses import dataclass

from benchmarks.__main__ import chosen, make
from benchmarks.contenders.base import BenchError, Contender
from benchmarks.contenders.mqks import DEFAULT, Mqks
from benchmarks.goals import METRICS
from benchmarks.measure import Metrics
from benchmarks.scenarios import Scenario

HOT = ["auto-128", "manual", "mixed", "fan-100", "shared", "latency", "journal-128"]  # the usual paths
OPTIONS = DEFAULT.partition(" ")[2]


@dataclass(frozen=True)
class Pair:
    before: Metrics
    after: Metrics

    def ratio(self, metric: str) -> float:
        return self.after[metric] / self.before[metric]


def own_kind(scenario: Scenario) -> type[Contender] | None:
    return next((kind for kind in scenario.messages if issubclass(kind, Mqks)), None)


def run(
    scenario: Scenario, kind: type[Contender], commands: tuple[str, str], options: argparse.Namespace
) -> list[Pair]:
    count = scenario.messages[kind]
    if scenario.scaled:
        count = int(count * options.scale)
    pairs = []
    for turn in range(options.rounds):
        order = commands if turn % 2 == 0 else commands[::-1]
        measured = {command: scenario.measure(make(kind, command), scenario.load, count) for command in order}
        pairs.append(Pair(*(measured[command] for command in commands)))
    return pairs


def report(pairs: list[Pair]) -> str:
    shown = []
    for metric in METRICS:
        if all(pair.before.get(metric.key, 0) > 0 and metric.key in pair.after for pair in pairs):
            ratios = sorted(pair.ratio(metric.key) for pair in pairs)
            shown.append(f"{metric.title} {statistics.median(ratios):.3f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    return ", ".join(shown)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versions", description="Two versions of the broker.")
    parser.add_argument("--before", required=True, metavar="MQKSD", help="the mqksd of the other version's .venv")
    parser.add_argument("--only", action="append", metavar="SCENARIO", help=f"default: {', '.join(HOT)}")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each scenario (%(default)s)")
    parser.add_argument("--scale", type=float, default=1.0, help="times the usual number of messages")
    options = parser.parse_args()
    if shutil.which(options.before) is None:
        parser.error(f"{options.before} is not a program")
    print(f"this version divided by {options.before}: median of {options.rounds} rounds (lowest to highest)")
    commands = (f"{options.before} {OPTIONS}", DEFAULT)
    failed = False
    for scenario in chosen(options.only or HOT):
        kind = own_kind(scenario)
        if kind is None:
            continue
        print(f"{scenario.name:16}", end="", flush=True)
        try:
            print(report(run(scenario, kind, commands, options)), flush=True)
        except (BenchError, OSError) as error:
            failed = True
            print(f"FAILED: {error}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
