"""Fixtures of several test files: brokers that run for the whole session, and those on a folder that outlives them."""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.crash.brokers import kill, start_broker
from tests.running import Connection, RunningBroker, running_broker

Brokers = Callable[..., RunningBroker]
Start = Callable[..., RunningBroker]
Connect = Callable[[RunningBroker], Connection]

# Background jobs of a shell inherit SIGINT as ignored, and would pass it on so to each process that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A slow machine is not a failure, and a failure says how to repeat it.
settings.register_profile("mqks", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("mqks")


@pytest.fixture(scope="session")
def shared_broker() -> Iterator[Brokers]:
    """As `running_broker`, but one that other tests use too; who uses it leaves no queue behind."""
    running: dict[tuple[str | None, ...], RunningBroker] = {}
    with ExitStack() as stack:

        def broker(*flags: str, fsync: str | None = None) -> RunningBroker:
            key = (fsync, *flags)
            known = running.get(key)
            if known is None or known.process.poll() is not None:
                running[key] = stack.enter_context(running_broker(*flags, fsync=fsync))
            return running[key]

        yield broker


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """Brokers on the folder, which are killed in the end if they still run."""
    with ExitStack() as stack:

        def started(*flags: str, wait: bool = True, prefix: tuple[str, ...] = ()) -> RunningBroker:
            broker = start_broker(folder, *flags, wait=wait, prefix=prefix)
            stack.callback(kill, broker)
            return broker

        yield started


@pytest.fixture
def connect() -> Iterator[Connect]:
    with ExitStack() as stack:
        yield lambda broker: stack.enter_context(closing(Connection(broker.port)))
