"""A broker of its own for each test, and the clients to talk to it: each test that takes `open_mq` runs with both."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mqks.client.session import Session
from mqks.testing import Broker, broker
from tests.client.both import open_client

Open = Callable[..., Any]


@pytest.fixture
def running() -> Iterator[Broker]:
    with broker() as made:
        yield made


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[Broker]:
    with broker(data=tmp_path / "data") as made:
        yield made


@pytest.fixture(params=["blocking", "asyncio"])
def open_mq(request: pytest.FixtureRequest) -> Iterator[Open]:
    with ExitStack() as stack:
        yield lambda broker, **options: stack.enter_context(open_client(request.param, broker.url, **options))


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """One for each attempt to connect that failed; they follow each other without much delay."""
    failed = threading.Semaphore(0)

    def connect_failed(_: Session) -> float:
        failed.release()
        return 0.01

    monkeypatch.setattr(Session, "connect_failed", connect_failed)
    return failed
