"""What came out of a run, for people: `report.md` with figures and findings, and a plot beside it."""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from tests.soak.run import Outcome
from tests.soak.verdict import Sample

COLOURS = {"kill": "tab:red", "restart": "tab:orange", "full disk": "tab:purple", "clock jump": "tab:green"}


def begin(folder: Path) -> None:
    """Clear away an older report, and nothing else: any folder may be named."""
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in ("report.md", "soak.png", "life-*.log"):
        for path in folder.glob(pattern):
            path.unlink()


def write(outcome: Outcome) -> Path:
    folder = outcome.plan.report
    plot(outcome, folder / "soak.png")
    path = folder / "report.md"
    path.write_text(text(outcome), encoding="utf-8")
    return path


def text(outcome: Outcome) -> str:
    plan, findings = outcome.plan, outcome.stage.findings
    verdict = f"{outcome.verdict.capitalize()}." if outcome.clean else "**Broken:** " + _counts(findings.count)
    faults = _counts(Counter(name for _, _, name in outcome.marks))
    lines = [
        "# Soak",
        "",
        verdict,
        "",
        f"Seed {plan.seed}, {plan.minutes:g} minutes, {plan.connections} connections, modes: {', '.join(plan.modes)}.",
        "",
        *(f"- **Left out:** {what}" for what in outcome.left_out),
        f"- Faults: {faults}",
        *(f"- {name[0].upper()}{name[1:]}: {value}" for name, value in outcome.figures.items()),
        "",
        "![plots](soak.png)",
        "",
        *(["## Findings", "", *(f"- {example}" for example in findings.examples), ""] if findings.count else []),
        "## What was done",
        "",
        "| | times |",
        "|---|---|",
        *(f"| {name} | {count:,} |" for name, count in sorted(outcome.stage.done.items())),
    ]
    return "\n".join(lines) + "\n"


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.most_common())


def plot(outcome: Outcome, path: Path) -> None:
    samples = outcome.samples
    panels: list[tuple[str, dict[str, Callable[[Sample], float]]]] = [
        ("memory, MiB", {"its own": lambda s: s.memory / 2**20, "for messages": lambda s: s.figures["memory"] / 2**20}),
        ("open", {"files": lambda s: s.files, "connections": lambda s: s.connections}),
        ("waiting in queues", {"counted": lambda s: s.figures["counted"], "others": lambda s: s.figures["others"]}),
        ("disk, MiB", {"journal": lambda s: s.figures["journal"] / 2**20, "used": lambda s: s.figures["disk"] / 2**20}),
    ]
    figure, axes = pyplot.subplots(len(panels) + 1, 1, figsize=(12, 14), sharex=True)
    for name in ("published", "delivered", "acked"):
        axes[0].plot(*rate(samples, name), label=name, linewidth=1)
    axes[0].set_ylabel("messages in a second")
    for axis, (title, curves) in zip(axes[1:], panels, strict=True):
        axis.set_ylabel(title)
        for label, value in curves.items():
            axis.plot([s.at for s in samples], [value(s) for s in samples], label=label, linewidth=1)
    for axis in axes:
        axis.legend(loc="upper left", fontsize="small")
        axis.set_ylim(bottom=0)
        axis.axvspan(*outcome.calm, color="tab:blue", alpha=0.05)
        for begin, end, name in outcome.marks:
            axis.axvspan(begin, max(end, begin + 0.1), color=COLOURS.get(name, "grey"), alpha=0.25)
    axes[0].set_title(
        f"seed {outcome.plan.seed}: red kill, orange restart, purple full disk, green clock jump, grey other faults, "
        "blue the calm"
    )
    axes[-1].set_xlabel("seconds")
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    pyplot.close(figure)


def rate(samples: Sequence[Sample], name: str) -> tuple[list[float], list[float]]:
    """By how much a counter rose in a second; a new life begins anew."""
    pairs = [(a, b) for a, b in itertools.pairwise(samples) if a.life == b.life and b.at > a.at]
    return [b.at for _, b in pairs], [(b.figures[name] - a.figures[name]) / (b.at - a.at) for a, b in pairs]
