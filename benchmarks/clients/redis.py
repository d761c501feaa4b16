"""redis-py: a list pushed to in pipelines and popped from in batches; a stream with a group where messages are acked.

Its blocking client, which is faster than its asyncio one. Each message is a command of its own, and is always answered.
"""

from collections.abc import Sequence
from typing import Any

import redis

from benchmarks.clients.library import BATCH, Library


class Redis(Library):
    def __init__(self, port: int) -> None:
        self.client: Any = redis.Redis(port=port)  # its types give each answer as awaitable too
        self.client.ping()

    def publish(self, items: Sequence[bytes]) -> None:
        for first in range(0, len(items), BATCH):
            pipeline = self.client.pipeline(transaction=False)
            for item in items[first : first + BATCH]:
                pipeline.rpush("e1", item)
            pipeline.execute()

    def confirm(self, items: Sequence[bytes]) -> None:
        self.publish(items)

    def open_consumer(self) -> None:
        """A list is read by whoever asks."""

    def consume(self, count: int) -> list[bytes]:
        got: list[bytes] = []
        while len(got) < count:
            batch = self.client.lpop("e1", min(BATCH, count - len(got)))
            got += batch or self.client.blpop(["e1"])[1:]
        return got

    def open_acker(self) -> None:
        """A group is read by whoever asks."""

    def acknowledge(self, count: int) -> list[bytes]:
        got: list[bytes] = []
        while len(got) < count:
            ((_, entries),) = self.client.xreadgroup("q1", "c1", {"e1": ">"}, count=BATCH, block=0)
            pipeline = self.client.pipeline(transaction=False)
            for entry, fields in entries:
                got.append(fields[b"d"])
                pipeline.xack("e1", "q1", entry)
            pipeline.execute()
        return got
