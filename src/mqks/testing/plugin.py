"""The pytest plugin: a broker as a fixture. During a test it touches MQKS_URL, and around it the connections that a
process has one of, made at the first MQKS_URL that they met; nothing else of the process.
"""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from mqks import testing

if TYPE_CHECKING:
    from mqks import Client

ONE_PER_PROCESS = ("sevx", "mqks.client.functions")


def disconnect() -> None:
    """Whatever was used of them connects anew, to the MQKS_URL of then."""
    for name in ONE_PER_PROCESS:
        if module := sys.modules.get(name):
            module.disconnect()


@pytest.fixture
def mqks_broker() -> Iterator["testing.Broker"]:
    """A broker of the test's own, in memory; `mqks.connect()` and sevx find it by MQKS_URL."""
    with testing.broker() as broker, pytest.MonkeyPatch.context() as patch:
        disconnect()
        patch.setenv("MQKS_URL", broker.url)
        yield broker
        disconnect()


@pytest.fixture(scope="session")
def mqks_broker_session() -> Iterator["testing.Broker"]:
    """A broker in memory for all tests of the session; MQKS_URL stays as it is."""
    with testing.broker() as broker:
        yield broker


@pytest.fixture
def mqks_client(mqks_broker: "testing.Broker") -> Iterator["Client"]:
    """A blocking client, connected to mqks_broker."""
    import mqks

    with mqks.connect(mqks_broker.url) as client:
        yield client
