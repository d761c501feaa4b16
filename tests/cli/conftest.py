"""A broker for the commands, at $MQKS_URL."""

import socket
from collections.abc import Callable, Iterator

import pytest

from mqks.cli.mqks import main
from tests.cli.running import Said
from tests.conftest import Brokers, Connect
from tests.running import Connection, RunningBroker, SocketWire

Cli = Callable[..., Said]


@pytest.fixture
def broker(shared_broker: Brokers, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningBroker]:
    found = shared_broker()
    monkeypatch.setenv("MQKS_URL", f"mqks://127.0.0.1:{found.port}")
    with SocketWire(found):  # which deletes all queues in the end
        yield found


@pytest.fixture
def wire(broker: RunningBroker, connect: Connect) -> Connection:
    """A plain connection to that broker."""
    return connect(broker)


@pytest.fixture
def unused_port() -> Iterator[int]:
    """One that nobody listens on: it is taken, without listening, for as long as the test runs."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Cli:
    def run(*arguments: str) -> Said:
        return Said(main(arguments), *capfd.readouterr())

    return run
