"""Rows as text, without Spark: what is aligned, cut, escaped and quoted."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqks.pipeline.sql import plain
from mqks.pipeline.tables import MORE, aligned, csv_line, cut, fitted, room, visible


def lines(heads: list[str], rows: list[list[str | None]], right: list[bool], width: int | None = None) -> list[str]:
    return list(aligned(heads, rows, right, width))


def test_columns_stand_below_each_other_and_numbers_to_the_right() -> None:
    assert lines(["event", "n"], [["order.new", "7"], [None, "1234"]], [False, True]) == [
        "event         n",
        "─────────  ────",
        "order.new     7",
        "NULL       1234",
    ]


def test_the_widest_column_is_cut_to_the_terminal() -> None:
    shown = lines(["event", "text"], [["e1", "x" * 100]], [False, False], 30)
    assert shown[-1] == "e1     " + "x" * 22 + MORE
    assert {room(line) for line in shown[1:]} == {30}


def test_without_a_terminal_nothing_is_cut() -> None:
    assert lines(["text"], [["x" * 1000]], [False])[-1] == "x" * 1000


@pytest.mark.parametrize(
    ("widths", "width", "fit"),
    [
        ([5, 5], 80, [5, 5]),
        ([5, 100], 40, [5, 33]),
        ([100, 100], 42, [20, 20]),
        ([100] * 10, 30, [6] * 10),  # too many: lines are cut then
        ([], 80, []),
    ],
)
def test_short_columns_stay_whole(widths: list[int], width: int, fit: list[int]) -> None:
    assert fitted(widths, width) == fit


@given(st.lists(st.lists(st.none() | st.text(max_size=60), min_size=3, max_size=3), max_size=5), st.integers(1, 100))
def test_no_line_is_wider_than_the_terminal_and_none_drives_it(rows: list[list[str | None]], width: int) -> None:
    shown = lines(["a", "b", "c"], rows, [False, True, False], width)
    assert len(shown) == len(rows) + 2
    assert all(room(line) <= width and line.isprintable() for line in shown)


def test_what_a_terminal_would_act_on_is_escaped() -> None:
    assert visible("a\x1b[31m\n\t\u202eb é 例") == r"a\x1b[31m\n\t\u202eb é 例"


def test_wide_characters_take_two_places() -> None:
    assert room("例え") == 4
    assert room("e\u0301") == 1
    assert cut("例え例え", 5) == "例え" + MORE
    assert lines(["a", "b"], [["例", "x"], ["ab", "y"]], [False, False])[2:] == ["例  x", "ab  y"]


def test_csv_quotes_what_must_be_and_tells_null_from_nothing() -> None:
    assert csv_line(["a", None, "", "x,y", 'say "hi"', "two\nlines", " a"]) == (
        'a,,"","x,y","say ""hi""","two\nlines"," a"'
    )


@given(st.lists(st.lists(st.text(st.characters(codec="utf-8")), min_size=2, max_size=4), max_size=4))
def test_csv_is_read_as_it_was_written(rows: list[list[str]]) -> None:
    text = "".join(f"{csv_line(row)}\r\n" for row in rows)
    assert list(csv.reader(io.StringIO(text, newline=""))) == rows


NO_TABLE = """\
[TABLE_OR_VIEW_NOT_FOUND] The table or view `nope` cannot be found. Verify the spelling.
Search path: [`x`].
To tolerate it, drop it. SQLSTATE: 42P01; line 1 pos 14;
'Project [*]
+- 'UnresolvedRelation [nope]
"""
SYNTAX = """
[PARSE_SYNTAX_ERROR] Syntax error at or near 'x': extra input 'x'. SQLSTATE: 42601 (line 1, pos 13)

== SQL ==
select * fro x
-------------^^^
"""
WORKER = """\
[PYTHON_DATA_SOURCE_ERROR] Failed to plan Python data source mqks in Python runtime: Traceback (most recent call last):
  File "source.py", line 98, in partitions
    raise first
pyspark_mqks.loss.DataLoss: position 5 is gone: the journal starts at 900; read from there
 SQLSTATE: 38000"""
TASK = """\
Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in stage 1.0 \
(TID 1) (localhost executor driver): java.io.IOException: no space
\tat java.lang.Thread"""
JAVA = """\
An error occurred while calling o43.sql.
: java.lang.Error: bad
\tat x"""


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        (NO_TABLE, "The table or view `nope` cannot be found. Verify the spelling (line 1, position 15)"),
        (SYNTAX, "Syntax error at or near 'x': extra input 'x' (line 1, position 14)"),
        ("[USER_RAISED_EXCEPTION] boo SQLSTATE: P0001", "boo"),
        (WORKER, "position 5 is gone: the journal starts at 900; read from there"),
        (TASK, "java.io.IOException: no space"),
        (JAVA, "java.lang.Error: bad"),
    ],
    ids=["no table", "syntax", "raised", "worker", "task", "java"],
)
def test_errors_are_told_in_a_line(told: str, shown: str) -> None:
    assert plain(told) == shown
