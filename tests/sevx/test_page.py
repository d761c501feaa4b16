"""docs/SEVX.md says what is true: its Python is run and prints what the page shows, and nothing is left out of it."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import sevx
from mqks import testing
from sevx import receiver
from tests.sevx.conftest import Seen
from tests.sevx.spec import FILE

PAGE = (Path(__file__).parents[2] / "docs" / "SEVX.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```python\n(.*?)^```$(?:[^`#]*^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(PAGE)


def test_all_of_the_page_is_run() -> None:
    assert len(BLOCKS) == PAGE.count("```python") >= 6
    assert len([printed for _, printed in BLOCKS if printed]) == PAGE.count("```text") >= 4


@pytest.mark.parametrize(("code", "printed"), BLOCKS, ids=range(len(BLOCKS)))
def test_a_piece_of_the_page(default: testing.Broker, seen: Seen, code: str, printed: str) -> None:
    names: dict[str, Any] = {"__name__": "page", "print": lambda *words: seen.put(" ".join(map(str, words)))}
    exec(compile(code, FILE, "exec"), names)
    for name in [name for name in names if name.startswith("test_")]:
        names[name](default)
    lines = printed.splitlines()
    assert seen.take(len(lines)) == lines


def test_all_that_there_is_stands_on_the_page() -> None:
    options = [name for name in inspect.signature(sevx.on).parameters if name != "pattern"]
    event = sevx.Event("s1", "{}")
    parts = [name for name in dir(event) if not name.startswith("_") and name != "settled"]
    for name in [*options, "send_prefix(keys)", "on_event.delete()", "on_event.delete_queue()", "on_event.queue"]:
        assert f"`{name}`" in PAGE, name
    for name in parts:
        assert f"`event.{name}" in PAGE, name
    for name in sevx.__all__:
        assert re.search(rf"\b{name}\b", PAGE) or name in ("Content", "Receiver"), name


def test_the_numbers_on_the_page() -> None:
    assert f"pause of {receiver.FIRST_PAUSE:g} s, doubled with each retry up to {receiver.LONGEST_PAUSE:g} s" in PAGE
    assert f"Only when {receiver.MOST_HELD} of them wait" in PAGE
