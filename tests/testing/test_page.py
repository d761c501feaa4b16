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

# What a plugin for asyncio does: one loop, in which async fixtures and tests run.
LOOP = """
import asyncio, inspect
import pytest

LOOP = asyncio.new_event_loop()


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef):
    made = fixturedef.func

    def run(**needed):
        steps = made(**needed)
        yield LOOP.run_until_complete(anext(steps))
        LOOP.run_until_complete(anext(steps, None))

    if inspect.isasyncgenfunction(made):
        fixturedef.func = run


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        needed = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
        LOOP.run_until_complete(pyfuncitem.obj(**needed))
        return True


def pytest_unconfigure():
    LOOP.close()
"""


def test_what_the_page_shows_works(pytester: pytest.Pytester) -> None:
    blocks = PYTHON.findall(PAGE)
    tests = sum(len(re.findall(r"^ *(?:async )?def test_", block, re.MULTILINE)) for block in blocks)
    assert tests >= len(blocks) >= 5
    pytester.makeconftest(LOOP)
    pytester.makepyfile(**{f"test_block_{number}": block for number, block in enumerate(blocks)})
    pytester.runpytest_subprocess(*BY_NAME).assert_outcomes(passed=tests)


def test_every_fixture_and_every_part_of_a_broker_is_on_the_page() -> None:
    fixtures = [name for name in vars(plugin) if name.startswith("mqks_")]
    parts = {name: "" if isinstance(part, property) else "()" for name, part in vars(Broker).items() if name[0] != "_"}
    assert len(fixtures) >= 3 and len(parts) >= 4
    for name in [*fixtures, *(f"broker.{name}{call}" for name, call in parts.items())]:
        assert f"`{name}`" in PAGE, name
