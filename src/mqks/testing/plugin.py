"""The pytest plugin: a broker as a fixture. It touches MQKS_URL during a test, and nothing else of the process."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from mqks import testing

if TYPE_CHECKING:
    from mqks import Client


@pytest.fixture
def mqks_broker() -> Iterator["testing.Broker"]:
    """A broker of the test's own, in memory; `mqks.connect()` finds it by MQKS_URL."""
    with testing.broker() as broker, pytest.MonkeyPatch.context() as patch:
        patch.setenv("MQKS_URL", broker.url)
        yield broker


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
