"""Our own two clients."""

import asyncio
from collections.abc import Sequence

from benchmarks.clients.library import BATCH, Library
from mqks import AsyncClient, Client


class Asyncio(Library):
    def __init__(self, port: int) -> None:
        self.runner = asyncio.Runner()
        self.client = self.runner.run(self._connect(port))

    async def _connect(self, port: int) -> AsyncClient:
        return await AsyncClient(f"mqks://127.0.0.1:{port}").start()

    def item(self, data: bytes) -> str:
        return data.decode()

    def publish(self, items: Sequence[str]) -> None:
        self.runner.run(self._publish(items))

    async def _publish(self, items: Sequence[str]) -> None:
        for item in items:
            await self.client.publish("e1", item)
        await self.client.ping()

    def confirm(self, items: Sequence[str]) -> None:
        self.runner.run(self.client.publish_many(("e1", item) for item in items))

    def open_consumer(self) -> None:
        self.runner.run(self._open(manual_ack=False))

    def open_acker(self) -> None:
        self.runner.run(self._open(manual_ack=True))

    async def _open(self, manual_ack: bool) -> None:
        consumer = self.client.consume("q1", ["e1"], manual_ack=manual_ack, prefetch=BATCH if manual_ack else None)
        self.consumer = await consumer.ready()

    def consume(self, count: int) -> list[str]:
        return self.runner.run(self._consume(count))

    async def _consume(self, count: int) -> list[str]:
        got: list[str] = []
        async for message in self.consumer:
            got.append(message.data)
            if len(got) == count:
                break
        return got

    def acknowledge(self, count: int) -> list[str]:
        return self.runner.run(self._acknowledge(count))

    async def _acknowledge(self, count: int) -> list[str]:
        got: list[str] = []
        async for message in self.consumer:
            got.append(message.data)
            message.ack()
            if len(got) == count:
                break
        await self.client.ping()
        return got


class Blocking(Library):
    def __init__(self, port: int) -> None:
        self.client = Client(f"mqks://127.0.0.1:{port}")

    def item(self, data: bytes) -> str:
        return data.decode()

    def publish(self, items: Sequence[str]) -> None:
        for item in items:
            self.client.publish("e1", item)
        self.client.ping()

    def confirm(self, items: Sequence[str]) -> None:
        self.client.publish_many(("e1", item) for item in items)

    def open_consumer(self) -> None:
        self.consumer = self.client.consume("q1", ["e1"]).ready()

    def consume(self, count: int) -> list[str]:
        got: list[str] = []
        for message in self.consumer:
            got.append(message.data)
            if len(got) == count:
                break
        return got

    def open_acker(self) -> None:
        self.consumer = self.client.consume("q1", ["e1"], manual_ack=True, prefetch=BATCH).ready()

    def acknowledge(self, count: int) -> list[str]:
        got: list[str] = []
        for message in self.consumer:
            got.append(message.data)
            message.ack()
            if len(got) == count:
                break
        self.client.ping()
        return got
