"""The rows of a DataFrame as a picture, of the kind that their columns suggest. It writes one file.

    a time and numbers             lines, broken where rows are missing
    a time, a name and a number    a line for each name
    a name and numbers             bars, the longest on top
    one number                     a histogram

Matplotlib is an extra: nothing here imports it before it is wanted.
"""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import gcd
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqks.pipeline.errors import PipelineError
from mqks.pipeline.tables import NUMBERS, visible

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

INSTALL = "plots need matplotlib: pip install 'mqks[plot]'"
MOST_ROWS = 200_000
MOST_BARS = 40
MOST_LINES = 10
MOST_MARKED = 60  # points of a line, each with a dot
BINS = 60
MICROSECOND = timedelta(microseconds=1)
ALMOST_A_DAY = timedelta(hours=20)  # a day in which clocks are changed is shorter
AROUND_ONE = timedelta(minutes=30)
SIZE = (11.0, 6.0)  # inches, of 120 dots
DOTS = 120
INK, FAINT = "#22272e", "#d5dae1"
COLOURS = (
    "#2f6fde", "#e8743b", "#19a979", "#945ecf", "#d1435b",
    "#13a4b4", "#a67c00", "#6c8893", "#ee6868", "#2f6497",
)  # fmt: skip
Point = tuple[datetime, float]
KINDS = {"timestamp": "time", "timestamp_ntz": "time", "date": "time", "string": "name", "boolean": "name"}


class PlotError(PipelineError):
    """Why there is no plot, and what to do, in one line."""


@dataclass(frozen=True)
class Rows:
    """What is plotted: times as datetimes in UTC, numbers as floats, names as texts. None where there is nothing."""

    columns: Sequence[str]
    kinds: Sequence[str]  # time, number or name; else the type that cannot be plotted
    values: Sequence[Sequence[Any]]

    def of(self, kind: str) -> list[int]:
        return [index for index, one in enumerate(self.kinds) if one == kind]

    def column(self, index: int) -> list[Any]:
        return [row[index] for row in self.values]


def plot(frame: DataFrame, path: str | Path, title: str) -> None:
    """Write the picture; the title is best the query."""
    require(path)
    kinds = [kind_of(field.dataType) for field in frame.schema]
    shape_of(Rows(frame.columns, kinds, []))  # before any row is read
    draw(collect(frame, kinds), path, title)


def require(path: str | Path) -> None:
    """Raises what would be in the way, so that nobody waits for a query first."""
    try:
        from matplotlib.backends import backend_agg  # noqa: F401
    except ImportError:
        raise PlotError(INSTALL) from None
    if Path(path).suffix.lower() != ".png":
        raise PlotError(f"a plot is a PNG: call the file {Path(path).with_suffix('.png')}")
    if not Path(path).absolute().parent.is_dir():
        raise PlotError(f"there is no folder {Path(path).absolute().parent} for the plot")


def kind_of(type: DataType) -> str:
    name = type.typeName()
    return "number" if name in NUMBERS else KINDS.get(name, name)


def collect(frame: DataFrame, kinds: Sequence[str]) -> Rows:
    from pyspark.sql import functions as F

    numbered = frame.toDF(*map(str, range(len(kinds))))
    plain: dict[str, Callable[[Column], Column]] = {
        "time": lambda column: F.unix_micros(column.cast("timestamp")) / 1e6,
        "number": lambda column: column.cast("double"),
        "name": lambda column: column.cast("string"),
    }
    found = numbered.select(*(plain[kind](F.col(str(index))) for index, kind in enumerate(kinds)))
    values = [list(row) for row in found.limit(MOST_ROWS + 1).collect()]
    if len(values) > MOST_ROWS:
        raise PlotError(f"more than {MOST_ROWS:,} rows are no plot: group them, or give a LIMIT")
    for row in values:
        for index in (index for index, kind in enumerate(kinds) if kind == "time" and row[index] is not None):
            row[index] = datetime.fromtimestamp(row[index], UTC)
    return Rows(frame.columns, kinds, values)


def shape_of(rows: Rows) -> str:
    times, names, numbers = (len(rows.of(kind)) for kind in ("time", "name", "number"))
    if times + names + numbers == len(rows.columns):
        if times == 1 and numbers and (not names or (names == 1 and numbers == 1)):
            return "lines"
        if not times and names == 1 and numbers:
            return "bars"
        if not times and not names and numbers == 1:
            return "histogram"
    there = ", ".join(f"{name} ({kind})" for name, kind in zip(rows.columns, rows.kinds, strict=True))
    raise PlotError(
        f"no plot fits the columns {there}: select a time and numbers, a time, a name and a number, "
        "a name and numbers, or one number"
    )


def draw(rows: Rows, path: str | Path, title: str) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if not rows.values:
        raise PlotError("there are no rows, so there is nothing to plot")
    shape = shape_of(rows)
    width, height = SIZE
    if shape == "bars":  # so that each has room for its name
        height = max(height, 0.22 * min(len(rows.values), MOST_BARS) * len(rows.of("number")))
    figure = Figure(figsize=(width, height), dpi=DOTS, layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    axes.set_prop_cycle(color=COLOURS)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(colors=INK, length=0)
    axes.set_axisbelow(True)
    note = SHAPES[shape](axes, rows)
    one_line = " ".join(title.split())
    shown = textwrap.shorten(one_line, 180, placeholder=" …")
    axes.set_title(mathless("\n".join(textwrap.wrap(shown, 105))), loc="left", color=INK, fontsize=12, pad=14)
    if note:
        figure.supxlabel(note, x=0.99, ha="right", fontsize=8, color="#6b7280")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a name may be in any script: a box stands for it
        FigureCanvasAgg(figure).print_png(str(path))  # type: ignore[no-untyped-call]  # matplotlib types only some


def mathless(text: str) -> str:
    """Matplotlib reads what is between two $ as mathematics, and a name may hold anything."""
    return visible(text).replace("\\n", "\n").replace("$", r"\$")


# ── lines ──


def draw_lines(axes: Any, rows: Rows) -> str:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    (time,), numbers, names = rows.of("time"), rows.of("number"), rows.of("name")
    note = ""
    if names:
        series, note = by_name(rows, time, names[0], numbers[0])
    else:
        series = {rows.columns[one]: [(row[time], row[one]) for row in rows.values] for one in numbers}
    longest = longest_step({row[time] for row in rows.values if row[time] is not None})
    for name, points in series.items():
        known = sorted((at, value) for at, value in points if at is not None and value is not None)
        line: list[Point] = []
        marked: list[int] = []
        for piece in unbroken(known, longest):
            if line:
                line.append((line[-1][0], float("nan")))  # which ends it
            if len(piece) == 1 or len(known) <= MOST_MARKED:
                marked += range(len(line), len(line) + len(piece))
            line += piece
        xs, ys = ([point[side] for point in line] for side in (0, 1))
        axes.plot(xs, ys, label=mathless(shorten(name)), linewidth=1.8, marker="o", markevery=marked, markersize=3.5)
    if len({at for points in series.values() for at, _ in points}) == 1:
        (at, _), *_ = next(iter(series.values()))
        axes.set_xlim(at - AROUND_ONE, at + AROUND_ONE)  # else years
    locator = AutoDateLocator(tz=UTC, maxticks=10)  # type: ignore[no-untyped-call]  # as above
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]  # as above
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.margins(x=0.02)
    from_zero(axes.get_ylim, axes.set_ylim)
    thousands(axes.yaxis)
    if len(series) > 1:
        axes.legend(frameon=False, labelcolor=INK, loc="center left", bbox_to_anchor=(1.0, 0.5))
    else:
        axes.set_ylabel(mathless(shorten(rows.columns[numbers[0]])), color=INK)
    return f"{note}times in UTC"


def longest_step(times: Iterable[datetime]) -> timedelta | None:
    """How far two neighbours of a line may be apart; None for times that have no step, such as those of messages.

    Seconds, minutes and hours have the step that divides all distances. Days and longer units vary in length, so the
    smallest distance counts.
    """
    steps = {(after - before) // MICROSECOND for before, after in pairwise(sorted(times))}
    if not steps:
        return None
    step = (min(steps) if min(steps) * MICROSECOND >= ALMOST_A_DAY else gcd(*steps)) * MICROSECOND
    return step * 1.5 if step >= timedelta(seconds=1) else None


def unbroken(points: Sequence[Point], longest: timedelta | None) -> list[list[Point]]:
    """The points in pieces: a piece ends where the next one is too far away."""
    pieces: list[list[Point]] = []
    for point in points:
        if pieces and (longest is None or point[0] - pieces[-1][-1][0] <= longest):
            pieces[-1].append(point)
        else:
            pieces.append([point])
    return pieces


def by_name(rows: Rows, time: int, name: int, number: int) -> tuple[dict[str, list[tuple[Any, Any]]], str]:
    """A line for each name, the largest first."""
    series: dict[str, list[tuple[Any, Any]]] = {}
    for row in rows.values:
        series.setdefault("NULL" if row[name] is None else row[name], []).append((row[time], row[number]))
    largest = sorted(series, key=lambda one: (-sum(value or 0 for _, value in series[one]), one))
    note = f"the {MOST_LINES} largest of {len(series):,} · " if len(series) > MOST_LINES else ""
    return {one: series[one] for one in largest[:MOST_LINES]}, note


# ── bars ──


def draw_bars(axes: Any, rows: Rows) -> str:
    (name,), numbers = rows.of("name"), rows.of("number")
    ordered = sorted(rows.values, key=lambda row: -(row[numbers[0]] or 0))
    shown = ordered[:MOST_BARS]
    height = 0.8 / len(numbers)
    for place, number in enumerate(numbers):
        middles = [at + height * (place - (len(numbers) - 1) / 2) for at in range(len(shown))]
        lengths = [row[number] or 0 for row in shown]
        bars = axes.barh(middles, lengths, height * 0.92, label=mathless(shorten(rows.columns[number])))
        if len(shown) * len(numbers) <= MOST_BARS:
            labels = ["NULL" if row[number] is None else figure_of(row[number]) for row in shown]
            axes.bar_label(bars, labels, padding=4, color=INK, fontsize=9)
    labels = [mathless(shorten("NULL" if row[name] is None else row[name])) for row in shown]
    axes.set_yticks(range(len(shown)), labels, fontsize=10 if len(shown) <= 20 else 8)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.margins(x=0.1)
    from_zero(axes.get_xlim, axes.set_xlim)
    axes.grid(axis="x", color=FAINT, linewidth=0.8)
    thousands(axes.xaxis)
    if len(numbers) > 1:
        axes.legend(frameon=False, labelcolor=INK)
    else:
        axes.set_xlabel(mathless(shorten(rows.columns[numbers[0]])), color=INK)
    return f"the {MOST_BARS} largest of {len(ordered):,}" if len(ordered) > MOST_BARS else ""


# ── histogram ──


def draw_histogram(axes: Any, rows: Rows) -> str:
    known = [value for value in rows.column(0) if value is not None and abs(value) < float("inf")]
    if not known:
        raise PlotError(f"the column {rows.columns[0]} has no value, so there is nothing to plot")
    axes.hist(known, bins=min(BINS, max(len(set(known)), 1)), edgecolor="white", linewidth=0.6)
    axes.set_xlabel(mathless(shorten(rows.columns[0])), color=INK)
    axes.set_ylabel("rows", color=INK)
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    thousands(axes.xaxis)
    thousands(axes.yaxis)
    missing = len(rows.values) - len(known)
    return f"without {missing:,} that are NULL or no number" if missing else ""


SHAPES = {"lines": draw_lines, "bars": draw_bars, "histogram": draw_histogram}


# ── what they share ──


def from_zero(limits: Any, set_limits: Any) -> None:
    """Lengths are compared from zero; where something is below it, the axis goes there too."""
    low, high = limits()
    if low > 0 or (low < 0 < high and -low < 0.1 * high):  # the latter is only the margin
        set_limits(0, high)


def thousands(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: figure_of(value)))


def figure_of(value: float) -> str:
    """12,000 · 1.5 · 3e-07"""
    if value == 0 or 0.001 <= abs(value) < 1e12:
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return f"{value:.3g}"


def shorten(name: str, most: int = 48) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
