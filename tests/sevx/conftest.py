"""A broker of the test's own, and connections of SEVX to it that are ended with the test."""

import queue
from collections.abc import Iterator
from typing import Any

import pytest

import sevx
from mqks import testing
from sevx.connection import Connection
from tests.running import PATIENCE


class Seen(queue.Queue[Any]):
    """What handlers tell the test."""

    def next(self) -> Any:
        return self.get(timeout=PATIENCE)

    def take(self, count: int) -> list[Any]:
        return [self.next() for _ in range(count)]


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[testing.Broker]:
    """Where MQKS_URL points to."""
    with testing.broker() as broker:
        monkeypatch.setenv("MQKS_URL", broker.url)
        yield broker


@pytest.fixture
def here(broker: testing.Broker) -> Iterator[Connection]:
    """A connection of the test's own."""
    connection = Connection()
    connection.connect(broker.url)
    yield connection
    connection.disconnect()


@pytest.fixture
def default(broker: testing.Broker) -> Iterator[testing.Broker]:
    """The broker for the module's own functions."""
    yield broker
    sevx.disconnect()
    sevx.send_prefix({})
