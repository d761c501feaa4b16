"""Fixtures that several test files share: brokers that run for the whole session, one per set of flags."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, settings

from tests.running import RunningBroker, running_broker

Brokers = Callable[..., RunningBroker]

# A slow machine is not a failure, and a failure says how to repeat it.
settings.register_profile("mqks", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("mqks")


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
