"""docs/TESTING.md says what is true: every piece of Python on it is run, as a file of tests of its own."""

import re
from pathlib import Path

import pytest

from mqks.testing import plugin
from mqks.testing.thread import Broker
from tests.testing.test_plugin import BY_NAME

pytest_plugins = ["pytester"]

PAGE = (Path(__file__).parents[2] / "docs" / "TESTING.md").read_text(encoding="utf-8")
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_what_the_page_shows_works(pytester: pytest.Pytester) -> None:
    blocks = PYTHON.findall(PAGE)
    tests = sum(len(re.findall(r"^ *def test_", block, re.MULTILINE)) for block in blocks)
    assert tests >= len(blocks) >= 5
    pytester.makepyfile(**{f"test_block_{number}": block for number, block in enumerate(blocks)})
    pytester.runpytest_subprocess(*BY_NAME).assert_outcomes(passed=tests)


def test_every_fixture_and_every_part_of_a_broker_is_on_the_page() -> None:
    fixtures = [name for name in vars(plugin) if name.startswith("mqks_")]
    parts = [name for name in vars(Broker) if not name.startswith("_")]
    assert len(fixtures) >= 3 and len(parts) >= 4
    for name in [*fixtures, *(f"broker.{name}()" for name in parts)]:
        assert f"`{name}`" in PAGE, name
