"""The planted bugs of `make verify-mutations`: each still applies to the source, and each promise has one."""

import ast
import re
import shutil
from pathlib import Path

import pytest

from verification.mutations import CHECKERS, ROOT, SOURCE, plant
from verification.planted_bugs import BUGS, Bug

PROMISES = {str(number) for number in range(1, 9)}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_each_applies_once_and_leaves_valid_python(bug: Bug, tmp_path: Path) -> None:
    copy = tmp_path / "mqks" / bug.file
    copy.parent.mkdir(parents=True)
    shutil.copy2(SOURCE / "mqks" / bug.file, copy)
    before = copy.read_text()
    plant(bug, tmp_path)
    assert copy.read_text() != before
    if copy.suffix == ".py":
        ast.parse(copy.read_text())


def test_a_text_that_is_gone_is_told(tmp_path: Path) -> None:
    (tmp_path / "mqks").mkdir()
    (tmp_path / "mqks/a.py").write_text("one\none\n")
    for old, times in (("two", 0), ("one", 2)):
        with pytest.raises(ValueError, match=f"its text stands {times} times in a.py"):
            plant(Bug("a bug", "1", "a.py", old, "", "sim"), tmp_path)


def test_each_promise_has_a_bug_and_each_bug_a_tool() -> None:
    text = (ROOT / "docs/GUARANTEES.md").read_text()
    assert set(re.findall(r"^\| (\d) \|", text, re.M)) == PROMISES
    assert {bug.promise.partition(":")[0] for bug in BUGS} == PROMISES
    assert {bug.tool for bug in BUGS} <= CHECKERS.keys()
    assert len({bug.name for bug in BUGS}) == len(BUGS)
