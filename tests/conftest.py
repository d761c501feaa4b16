"""Fixtures that several test files share: brokers that run for the whole session, one per set of flags."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.running import RunningBroker, running_broker

Brokers = Callable[..., RunningBroker]


@pytest.fixture(scope="session")
def shared_broker() -> Iterator[Brokers]:
    """`shared_broker(*flags)`: a broker that other tests use too; who uses it leaves no queue behind."""
    running: dict[tuple[str, ...], RunningBroker] = {}
    with ExitStack() as stack:

        def broker(*flags: str) -> RunningBroker:
            known = running.get(flags)
            if known is None or known.process.poll() is not None:
                running[flags] = stack.enter_context(running_broker(*flags))
            return running[flags]

        yield broker
