"""A broker of its own for each test, and the clients to talk to it: each test that takes `open_mq` runs with both."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

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
