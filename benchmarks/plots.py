"""Draws what was measured: bars per scenario and contender, one PNG per question."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from benchmarks.goals import METRICS, Metric
from benchmarks.measure import Metrics
from benchmarks.report import FAMILIES, Medians, number
from benchmarks.scenarios import SCENARIOS

COLOURS = {
    "MQKS": "#d1495b",
    "MQKS memory": "#e9a6b0",
    "MQKS plain": "#e9a6b0",
    "MQKS blocking": "#e07a5f",
    "MQKS by url": "#e07a5f",
    "MQKS subscribe": "#d98594",
    "MQKS scan": "#e9a6b0",
    "MQKS 1/50": "#e9a6b0",
    "copy": "#b8b8b8",
    "NATS": "#2e86ab",
    "Redis": "#6a994e",
    "Redis everysec": "#b5ce9b",
    "Spark text": "#e8a33d",
}
TITLES = {scenario.name: scenario.title for scenario in SCENARIOS}
NAMES = {(s.name, kind.family): kind.name for s in SCENARIOS for kind in s.messages}
BY_KEY = {metric.key: metric for metric in METRICS}

# file, heading, bars: (scenario, metric)
Bars = list[tuple[str, str]]
SPEED = ["auto-16", "auto-128", "auto-1024", "auto-16384", "mixed", "manual", "fan-10", "fan-100", "shared"]
PLOTS: list[tuple[str, str, Bars]] = [
    ("rate", "Deliveries per second (more is better)", [(s, "rate") for s in SPEED]),
    ("cpu", "Server CPU per delivery, µs (less is better)", [(s, "cpu_us") for s in SPEED]),
    (
        "latency",
        "Publish to receive, one at a time, µs (less is better)",
        [("latency", "p50_us"), ("latency", "p99_us")],
    ),
    (
        "memory",
        "Memory, bytes (less is better)",
        [("idle", "connection_bytes"), ("queues", "queue_bytes"), ("backlog", "beyond_bytes")],
    ),
    (
        "kept",
        "Messages kept in queues, per second (more is better)",
        [("backlog", "taken_rate"), ("backlog", "drain_rate"), ("queues", "taken_rate")],
    ),
    (
        "journal",
        "With the journal, per second (more is better)",
        [
            ("journal-128", "rate"),
            ("journal-manual", "rate"),
            ("confirmed", "confirmed_rate"),
            ("drain", "drain_rate"),
            ("history", "history_rate"),
        ],
    ),
    (
        "clients",
        "Python clients, messages per second (more is better)",
        [
            ("client-publish", "taken_rate"),
            ("client-consume", "rate"),
            ("client-confirmed", "confirmed_rate"),
            ("client-manual", "rate"),
        ],
    ),
    (
        "http",
        "Server CPU at 10,000 messages a second, µs per message (less is better)",
        [("http-cost", "cpu_us"), ("http-cost", "plain_cpu_us")],
    ),
    (
        "spark",
        "With Spark, rows per second (more is better)",
        [
            (scenario, "row_rate")
            for scenario in ("spark-scan", "spark-filter", "spark-stream", "spark-archive", "spark-sink")
        ],
    ),
    (
        "spark-time",
        "With Spark, time (less is better)",
        [("spark-flat", "row_us"), ("spark-stats", "first_p50_s")],
    ),
]
LABELS = {
    ("latency", "p50_us"): "p50",
    ("latency", "p99_us"): "p99",
    ("idle", "connection_bytes"): "per idle connection",
    ("queues", "queue_bytes"): "per queue",
    ("backlog", "beyond_bytes"): "per waiting message,\nbeyond its own bytes",
    ("backlog", "taken_rate"): "backlog of 1,000,000:\ntaken",
    ("backlog", "drain_rate"): "backlog of 1,000,000:\ndrained",
    ("queues", "taken_rate"): "into 10,000 queues",
    ("http-cost", "cpu_us"): "with HTTP, watched",
    ("http-cost", "plain_cpu_us"): "--no-http",
    ("spark-flat", "row_us"): "µs per row of 50,000,000\nand of 1,000,000",
    ("spark-stats", "first_p50_s"): "s, publish → first update",
}


def label(scenario: str, metric: str) -> str:
    return LABELS.get((scenario, metric)) or TITLES[scenario]


def draw(folder: Path, stem: str, found: Medians) -> list[Path]:
    """One PNG per plot that has anything to show, named after the run."""
    drawn = []
    for name, heading, bars in PLOTS:
        groups = [(s, m) for s, m in bars if any(m in values for values in found.get(s, {}).values())]
        if groups:
            drawn.append(draw_one(folder / f"{stem}-{name}.png", heading, groups, found))
    return drawn


def draw_one(path: Path, heading: str, groups: Bars, found: Medians) -> Path:
    """A panel per scenario, each with its own linear scale from zero: lengths can be compared by eye."""
    columns = min(len(groups), 3)
    rows = -(-len(groups) // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(3.4 * columns + 0.6, 2.7 * rows + 0.7), dpi=110, squeeze=False)
    for axes, (scenario, key) in zip(grid.flat, groups, strict=False):
        panel(axes, scenario, BY_KEY[key], {f: m[key] for f, m in found[scenario].items() if key in m})
    for axes in list(grid.flat)[len(groups) :]:
        axes.remove()
    figure.suptitle(heading, fontsize=13)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
    return path


def panel(axes: Axes, scenario: str, metric: Metric, values: Metrics) -> None:
    families = [family for family in FAMILIES if family in values]
    heights = [values[family] for family in families]
    names = [NAMES[scenario, family].replace(" ", "\n") for family in families]
    bars = axes.bar(names, heights, width=0.65, color=[COLOURS[family] for family in families])
    axes.bar_label(bars, [number(height, metric) for height in heights], padding=2, fontsize=8)
    axes.set_title(label(scenario, metric.key), fontsize=9)
    axes.set_yticks([])
    axes.margins(y=0.18)
    axes.tick_params(axis="x", length=0, labelsize=8)
    middle = (len(families) - 1) / 2
    axes.set_xlim(middle - 2, middle + 2)  # bars of one width in every panel
    axes.axhline(0, color="#444444", linewidth=0.8)
    for side in ("top", "left", "right", "bottom"):
        axes.spines[side].set_visible(False)
