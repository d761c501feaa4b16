"""What came out: the table on the terminal and the JSON file that holds every single measurement."""

import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.goals import GOALS, METRICS, Metric
from benchmarks.measure import Metrics
from benchmarks.scenarios import PARTS, Scenario

FAMILIES = [
    "MQKS",
    "MQKS memory",
    "MQKS plain",
    "MQKS blocking",
    "MQKS by url",
    "MQKS subscribe",
    "MQKS scan",
    "MQKS 1/50",
    "copy",
    "NATS",
    "Redis",
    "Redis everysec",
    "Spark text",
]


@dataclass
class Result:
    """All rounds of one contender in one scenario; `error` says why there is nothing to compare."""

    scenario: str
    family: str
    contender: str
    rounds: list[Metrics] = field(default_factory=list)
    error: str = ""

    def medians(self) -> Metrics:
        if self.error or not self.rounds:
            return {}
        return {key: statistics.median(r[key] for r in self.rounds) for key in self.rounds[0]}


Medians = dict[str, dict[str, Metrics]]  # scenario → family → metric → median


def medians(results: Sequence[Result]) -> Medians:
    table: Medians = {}
    for result in results:
        table.setdefault(result.scenario, {})[result.family] = result.medians()
    return table


def number(value: float, metric: Metric) -> str:
    if metric.unit == "/s":
        return f"{value / 1e6:.2f} M/s" if value >= 1e6 else f"{value / 1e3:.0f} k/s"
    return f"{value:,.2f}" if abs(value) < 10 else f"{value:,.0f}"


def cell(family: str, of: dict[str, Metrics], metric: Metric) -> str:
    """The number, and in brackets MQKS's number divided by it."""
    value = of.get(family, {}).get(metric.key)
    if value is None:
        return "-"
    ours = of.get("MQKS", {}).get(metric.key)
    if family == "MQKS" or not ours or value <= 0 or ours < 0:
        return number(value, metric)
    return f"{number(value, metric)} ({ours / value:.2f}x)"


def verdicts(scenario: str, metric: Metric, of: dict[str, Metrics]) -> str:
    words = {True: "met", False: "MISSED", None: "not measured"}
    goals = [g for g in GOALS if g.scenario == scenario and g.metric == metric.key]
    return ", ".join(f"{goal.text()}: {words[goal.met(of)]}" for goal in goals)


def table(scenarios: Sequence[Scenario], results: Sequence[Result]) -> str:
    """A table per part, since each has other columns."""
    parts = [part(name, [s for s in scenarios if s.part == name], results) for name in PARTS]
    return "\n".join([*parts, *footnotes(results)])


def part(name: str, scenarios: Sequence[Scenario], results: Sequence[Result]) -> str:
    if not scenarios:
        return ""
    found = medians(results)
    measured = {result.family for s in scenarios for result in results if result.scenario == s.name}
    families = [family for family in FAMILIES if family in measured]
    rows = [[name, "metric", *families, "goal"]]
    for scenario in scenarios:
        of, title = found.get(scenario.name, {}), f"{scenario.name}: {scenario.title}"
        for metric in METRICS:
            if any(metric.key in m for m in of.values()):
                unit = f"{metric.title}{'' if metric.unit == '/s' else ', ' + metric.unit}"
                cells = [cell(family, of, metric) for family in families]
                rows.append([title, unit, *cells, verdicts(scenario.name, metric, of)])
                title = ""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(word.ljust(w) for word, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * w for w in widths))
    return "\n".join(["", *lines, ""])


def footnotes(results: Sequence[Result]) -> list[str]:
    """How to read the numbers, which variant of a peer was measured where, and what failed."""
    variants: dict[str, list[str]] = {}
    for result in results:
        if result.contender != result.family and result.rounds:
            variants.setdefault(result.contender, []).append(result.scenario)
    return [
        "In brackets: MQKS's number divided by this one. Medians. Server CPU is that of all its processes.",
        "A message that goes to ten consumers is delivered ten times, and CPU is per delivery.",
        "Spark CPU is that of the JVM and of all Python workers.",
        *[f"{variant}: {', '.join(names)}." for variant, names in variants.items()],
        *[f"FAILED  {r.scenario}, {r.contender}: {r.error}" for r in results if r.error],
    ]


def machine() -> dict[str, object]:
    info = Path("/proc/cpuinfo").read_text()
    models = [line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "disk": file_system(Path(tempfile.gettempdir())),
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
    }


def file_system(folder: Path) -> str:
    """The kind of file system that the folder is on."""
    mounts = [line.split()[1:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
    kinds = {Path(place): kind for place, kind in mounts}  # a later mount hides an earlier one
    return next(kinds[place] for place in [folder.resolve(), *folder.resolve().parents] if place in kinds)


def save(folder: Path, results: Sequence[Result], settings: dict[str, object]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / time.strftime("bench-%Y%m%d-%H%M%S.json")
    content = {
        "settings": settings,
        "results": [asdict(result) | {"medians": result.medians()} for result in results],
        "goals": [asdict(g) | {"met": g.met(medians(results).get(g.scenario, {}))} for g in GOALS],
    }
    path.write_text(json.dumps(content, indent=1))
    return path
