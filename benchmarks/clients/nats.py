"""nats-py: core, and JetStream where messages are confirmed or acknowledged.

Subscriptions call back, which is several times faster here than the iterator, fetch and next_msg; limits on what may
wait are off, so that nothing is dropped.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig

from benchmarks.clients.library import BATCH, Library


class Nats(Library):
    def __init__(self, port: int) -> None:
        self.runner = asyncio.Runner()
        self.client = self.runner.run(self._connect(port))
        self.stream = self.client.jetstream(publish_async_max_pending=BATCH)
        self.got: list[bytes] = []
        self.count = 0
        self.done = asyncio.Event()

    async def _connect(self, port: int) -> Client:
        return await nats.connect(f"nats://127.0.0.1:{port}")

    def publish(self, items: Sequence[bytes]) -> None:
        self.runner.run(self._publish(items))

    async def _publish(self, items: Sequence[bytes]) -> None:
        for item in items:
            await self.client.publish("e1", item)
        await self.client.flush()

    def confirm(self, items: Sequence[bytes]) -> None:
        self.runner.run(self._confirm(items))

    async def _confirm(self, items: Sequence[bytes]) -> None:
        for item in items:
            await self.stream.publish_async("e1", item)
        await self.stream.publish_async_completed()

    def open_consumer(self) -> None:
        self.runner.run(self._subscribe(self._take))

    async def _subscribe(self, take: Callable[[Msg], Awaitable[None]]) -> None:
        await self.client.subscribe("e1", cb=take, pending_msgs_limit=0, pending_bytes_limit=0)
        await self.client.flush()

    async def _take(self, message: Msg) -> None:
        self.got.append(message.data)
        if len(self.got) == self.count:
            self.done.set()

    def consume(self, count: int) -> list[bytes]:
        return self.runner.run(self._await(count))

    async def _await(self, count: int) -> list[bytes]:
        self.count = count
        if len(self.got) < count:
            self.done.clear()
            await self.done.wait()
        got, self.got = self.got, []
        await self.client.flush()
        return got

    def open_acker(self) -> None:
        self.runner.run(self._subscribe_stream())

    async def _subscribe_stream(self) -> None:
        await self.stream.subscribe(
            "e1",
            durable="c1",
            cb=self._acknowledge,
            manual_ack=True,
            config=ConsumerConfig(max_ack_pending=BATCH),
            pending_msgs_limit=0,
            pending_bytes_limit=0,
        )
        await self.client.flush()

    async def _acknowledge(self, message: Msg) -> None:
        await message.ack()
        await self._take(message)

    def acknowledge(self, count: int) -> list[bytes]:
        return self.consume(count)
