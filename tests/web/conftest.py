"""Brokers with HTTP, and what talks to them."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import mqks.testing
from tests.running import Connection


@pytest.fixture
def web() -> Iterator[mqks.testing.Broker]:
    """A broker of the test's own, in memory, with HTTP."""
    with mqks.testing.broker(http=True) as broker:
        yield broker


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[mqks.testing.Broker]:
    """The same, with a journal."""
    with mqks.testing.broker(http=True, data=tmp_path / "data", max_line="64K") as broker:
        yield broker


@pytest.fixture
def wire(web: mqks.testing.Broker) -> Iterator[Connection]:
    """A connection to `web` on which the protocol is spoken."""
    with closing(Connection(web.port)) as connection:
        yield connection
