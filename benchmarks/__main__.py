"""`python -m benchmarks`: runs the scenarios, contenders interleaved, and shows what came out."""

import argparse
import fnmatch
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.contenders.base import BenchError, Contender
from benchmarks.contenders.mqks import DEFAULT, Mqks
from benchmarks.goals import METRICS
from benchmarks.report import Result, machine, medians, number, save, table
from benchmarks.scenarios import SCENARIOS, Scenario
from benchmarks.server import Server

RESULTS = Path(__file__).parent / "results"
QUICK = 0.1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="MQKS beside its peers.")
    parser.add_argument("--only", action="append", metavar="SCENARIO", help="a name or mask of --list; repeatable")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each measurement (%(default)s)")
    parser.add_argument("--scale", type=float, default=1.0, help="times the usual number of messages")
    parser.add_argument("--quick", action="store_true", help=f"one round at --scale={QUICK}: is all in order?")
    parser.add_argument("--list", action="store_true", help="show the scenarios and stop")
    parser.add_argument(
        "--mqksd", default=DEFAULT, metavar="COMMAND", help="the server; {mode}, {port}, {folder} are filled in"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="where JSON and PNG go")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.scale = 1, QUICK
    return options


def chosen(only: Sequence[str] | None) -> list[Scenario]:
    found = [s for s in SCENARIOS if not only or any(fnmatch.fnmatch(s.name, mask) for mask in only)]
    if not found:
        sys.exit(f"no scenario is called {' or '.join(only or [])}; --list shows them")
    return found


def make(kind: type[Contender], mqksd: str) -> Contender:
    return kind(mqksd) if issubclass(kind, Mqks) else kind()


def missing(scenarios: Sequence[Scenario], mqksd: str) -> set[type[Contender]]:
    """Finds who cannot start, and says what to install, once for each program."""
    absent: set[type[Contender]] = set()
    said: set[str] = set()
    for kind in {kind: None for scenario in scenarios for kind in scenario.messages}:
        contender = make(kind, mqksd)
        try:
            Server(contender).remove()
        except FileNotFoundError as error:
            absent.add(kind)
            if str(error) not in said:
                print(f"{kind.name} is left out, {error} was not found. To have it: {contender.install}", flush=True)
            said.add(str(error))
    return absent


def run(scenarios: Sequence[Scenario], options: argparse.Namespace, results: list[Result]) -> None:
    """Scenario by scenario; within one, the contenders take turns, so that a slow minute hits all of them."""
    absent = missing(scenarios, options.mqksd)
    steps = options.rounds * sum(len(s.messages.keys() - absent) for s in scenarios)
    step = 0
    for scenario in scenarios:
        present = [kind for kind in scenario.messages if kind not in absent]
        of = {kind: Result(scenario.name, kind.family, kind.name) for kind in present}
        results += of.values()
        for turn in range(options.rounds):
            for kind in present:
                step += 1
                print(
                    f"[{step:3}/{steps}] {scenario.name:16} round {turn + 1}  {kind.name:24}",
                    end="",
                    flush=True,
                )
                print(measured(scenario, make(kind, options.mqksd), of[kind], options.scale), flush=True)


def measured(scenario: Scenario, contender: Contender, result: Result, scale: float) -> str:
    count = scenario.messages[type(contender)]
    try:
        metrics = scenario.measure(
            contender, scenario.load, max(1000, int(count * scale)) if scenario.scaled else count
        )
    except (BenchError, OSError) as error:
        result.error = str(error) or type(error).__name__
        return f"FAILED: {result.error}"
    result.rounds.append(metrics)
    shown = [
        f"{m.title} {number(metrics[m.key], m)}{'' if m.unit == '/s' else ' ' + m.unit}"
        for m in METRICS
        if m.key in metrics
    ]
    return ", ".join(shown)


def main() -> int:
    options = arguments()
    scenarios = chosen(options.only)
    if options.list:
        for scenario in scenarios:
            print(f"{scenario.name:16}{scenario.title}: {', '.join(kind.name for kind in scenario.messages)}")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stops the servers, as Ctrl-C does
    results: list[Result] = []
    settings: dict[str, object] = {
        "rounds": options.rounds,
        "scale": options.scale,
        "mqksd": options.mqksd,
        **machine(),
    }
    if settings["disk"] == "tmpfs":
        print(
            "Temporary files are in memory here: the journal's numbers mean little. Set TMPDIR to a folder on a disk."
        )
    stopped = False
    try:
        run(scenarios, options, results)
    except KeyboardInterrupt:
        print("\nstopped; what was measured so far:", flush=True)
        stopped = True
    print(table(scenarios, results))
    if not any(result.rounds for result in results):
        return 1
    saved = save(options.results, results, settings)
    from benchmarks.plots import draw  # here, so that a run without matplotlib still has its table and JSON

    print("\nsaved", saved)
    for plot in draw(options.results, saved.stem, medians(results)):
        print("drawn", plot)
    return 1 if stopped or any(result.error for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
