"""docs/SEVX.md says what is true: its Python, saved and run, prints what it shows, and nothing is left out of it."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sevx
from sevx import receiver
from tests.sevx.spec import FILE

TIMEOUT = 60.0

PAGE = (Path(__file__).parents[2] / "docs" / "SEVX.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```python\n(.*?)^```$(?:[^`#]*^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(PAGE)


def test_all_of_the_page_is_run() -> None:
    assert len(BLOCKS) == PAGE.count("```python") >= 6
    assert len([printed for _, printed in BLOCKS if printed]) == PAGE.count("```text") >= 4


@pytest.mark.parametrize(("code", "printed"), BLOCKS, ids=range(len(BLOCKS)))
@pytest.mark.usefixtures("broker")
def test_a_piece_of_the_page(tmp_path: Path, code: str, printed: str) -> None:
    """As users would: each is a file that is run, or is given to pytest if it has a test."""
    file = tmp_path / FILE.lstrip("/")
    file.parent.mkdir(parents=True)
    file.write_text(code, encoding="utf-8")
    is_test = "\ndef test_" in code
    pytest_alone = ("-m", "pytest", "--disable-plugin-autoload", "-p", "mqks.testing.plugin", "-p", "no:cacheprovider")
    command = [sys.executable, "-W", "error", *(pytest_alone if is_test else ()), str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, cwd=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout + ran.stderr
    where = ".".join(tmp_path.parts[1:]) + "."  # the page has its file in /opt
    assert is_test or ran.stdout.replace(where, "") == printed


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
