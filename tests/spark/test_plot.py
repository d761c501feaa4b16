"""Plots: which columns make which picture, and what is in it. No Spark."""

import sys
from datetime import UTC, datetime, timedelta
from math import isnan
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from mqks.pipeline.plot import SHAPES, PlotError, Rows, draw, figure_of, require, shape_of

TIME = datetime(2026, 11, 16, tzinfo=UTC)
PNG = b"\x89PNG\r\n\x1a\n"


def times(count: int) -> list[datetime]:
    return [TIME + timedelta(minutes=one) for one in range(count)]


LINES = Rows(["minute", "n", "errors"], ["time", "number", "number"], [[at, 5.0, None] for at in times(100)])
SERIES = Rows(
    ["minute", "event", "n"],
    ["time", "name", "number"],
    [[at, f"e{one}", float(one)] for at in times(3) for one in range(14)],
)
BARS = Rows(["event", "n"], ["name", "number"], [["few", 1.0], ["$most$", 1200.0], [None, None]])
HISTOGRAM = Rows(["bytes"], ["number"], [[float(one % 7)] for one in range(100)] + [[None]])


def drawn(rows: Rows) -> tuple[Any, str]:
    axes = Figure().add_subplot()
    note = SHAPES[shape_of(rows)](axes, rows)
    return axes, note


@pytest.mark.parametrize("rows", [LINES, SERIES, BARS, HISTOGRAM], ids=["lines", "series", "bars", "histogram"])
def test_each_shape_becomes_a_png(rows: Rows, tmp_path: Path) -> None:
    path = tmp_path / "plot.png"
    draw(rows, path, "SELECT $x$, '例' FROM events\nWHERE " + "long " * 200)
    assert path.read_bytes().startswith(PNG)


def test_a_time_and_numbers_are_lines_with_a_legend() -> None:
    axes, note = drawn(LINES)
    assert [line.get_label() for line in axes.lines] == ["n", "errors"]
    assert [len(line.get_xdata()) for line in axes.lines] == [100, 0]
    assert axes.get_legend() is not None
    assert note == "times in UTC"


def test_one_line_needs_no_legend_and_begins_at_zero() -> None:
    axes, _ = drawn(Rows(["t", "n"], ["time", "number"], [[at, 100.0] for at in reversed(times(5))]))
    assert axes.get_legend() is None
    assert axes.get_ylabel() == "n"
    assert axes.get_ylim()[0] == 0
    assert list(axes.lines[0].get_xdata()) == times(5)


def pieces(line: Any) -> list[list[float]]:
    """The values of a line, in the pieces that it is drawn in."""
    found: list[list[float]] = [[]]
    for value in line.get_ydata():
        if isnan(value):
            found.append([])
        else:
            found[-1].append(value)
    return found


MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


@pytest.mark.parametrize(
    ("steps", "drawn_as"),
    [
        ([0 * MINUTE, 1 * MINUTE, 2 * MINUTE, 9 * MINUTE, 10 * MINUTE], [3, 2]),
        ([0 * MINUTE, 2 * MINUTE, 4 * MINUTE, 5 * MINUTE], [1, 1, 2]),
        ([0 * MINUTE, 7 * MINUTE, 9 * MINUTE], [1, 1, 1]),
        ([0 * MINUTE, 10 * MINUTE, 20 * MINUTE, 40 * MINUTE], [3, 1]),
        ([0 * DAY, 1 * DAY, 2 * DAY - HOUR, 3 * DAY - HOUR, 5 * DAY - HOUR], [4, 1]),
        ([0 * DAY, 31 * DAY, 59 * DAY, 90 * DAY, 151 * DAY], [4, 1]),
        ([0 * MINUTE, 1.234567 * MINUTE, 1.234568 * MINUTE, 99 * MINUTE], [4]),
        ([0 * MINUTE], [1]),
    ],
    ids=["minutes", "every other minute", "few minutes", "windows", "days", "months", "messages", "one"],
)
def test_a_line_ends_where_rows_are_missing(steps: list[timedelta], drawn_as: list[int]) -> None:
    axes, _ = drawn(Rows(["t", "n"], ["time", "number"], [[TIME + step, 1.0] for step in steps]))
    assert [len(piece) for piece in pieces(axes.lines[0])] == drawn_as


def test_a_line_ends_also_where_only_its_own_rows_are_missing_or_null() -> None:
    values = [[at, "all", 1.0] for at in times(100)]
    values += [[at, "some", value] for at, value in zip(times(4), [2.0, None, 3.0, 4.0], strict=True)]
    values += [[times(100)[70], "all", None]]
    values = [row for row in values if row != [times(100)[50], "all", 1.0] and row != [times(100)[52], "all", 1.0]]
    axes, _ = drawn(Rows(["t", "name", "n"], ["time", "name", "number"], values))
    every, some = axes.lines
    assert [len(piece) for piece in pieces(every)] == [50, 1, 47]
    assert [every.get_xdata()[at] for at in every.get_markevery()] == [times(100)[51]], "a point alone has a dot"
    assert pieces(some) == [[2.0], [3.0, 4.0]]


def test_a_name_makes_a_line_for_each_of_the_largest() -> None:
    axes, note = drawn(SERIES)
    assert [line.get_label() for line in axes.lines] == [f"e{one}" for one in range(13, 3, -1)]
    assert note == "the 10 largest of 14 · times in UTC"


def test_bars_are_sorted_and_say_their_value() -> None:
    axes, note = drawn(BARS)
    assert [label.get_text() for label in axes.get_yticklabels()] == [r"\$most\$", "few", "NULL"]
    assert [text.get_text() for text in axes.texts] == ["1,200", "1", "NULL"]
    assert note == ""


def test_too_many_bars_are_cut_and_it_is_said() -> None:
    axes, note = drawn(Rows(["e", "n"], ["name", "number"], [[f"e{one}", float(one)] for one in range(100)]))
    assert len(axes.patches) == 40
    assert note == "the 40 largest of 100"


def test_a_histogram_counts_rows_and_says_what_is_missing() -> None:
    axes, note = drawn(HISTOGRAM)
    assert sum(bar.get_height() for bar in axes.patches) == 100
    assert len(axes.patches) == 7
    assert note == "without 1 that are NULL or no number"


@pytest.mark.parametrize(
    "kinds", [["name"], ["time"], ["number", "number"], ["time", "time", "number"], ["name", "variant"], []]
)
def test_what_fits_no_plot_is_an_error_that_names_the_columns(kinds: list[str]) -> None:
    with pytest.raises(PlotError, match="no plot fits the columns") as error:
        shape_of(Rows([f"c{one}" for one in range(len(kinds))], kinds, []))
    assert all(f"c{one} ({kind})" in str(error.value) for one, kind in enumerate(kinds))


def test_no_rows_are_no_plot(tmp_path: Path) -> None:
    with pytest.raises(PlotError, match="no rows"):
        draw(Rows(["n"], ["number"], []), tmp_path / "plot.png", "")


@pytest.mark.parametrize(("name", "error"), [("plot.svg", "call the file"), ("nowhere/plot.png", "there is no folder")])
def test_where_no_plot_can_be_written_it_is_said_at_once(name: str, error: str, tmp_path: Path) -> None:
    with pytest.raises(PlotError, match=error):
        require(tmp_path / name)


def test_without_matplotlib_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.backends", None)
    with pytest.raises(PlotError, match="pip install"):
        require(tmp_path / "plot.png")


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0"), (1200, "1,200"), (0.25, "0.25"), (-3.5, "-3.5"), (3e-7, "3e-07"), (2e15, "2e+15")]
)
def test_figures_are_readable(value: float, shown: str) -> None:
    assert figure_of(value) == shown
