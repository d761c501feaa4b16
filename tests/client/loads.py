"""What the clients do while the broker is killed under them: the same work for the blocking and the asyncio client.

Publishers with and without confirm, a consumer that acks by hand, one that does not, and a history that is followed.
Each writes down what it was told, and what it could not do at all.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import mqks
from mqks.client.message import Record

PATIENCE = 60.0  # seconds without any news, after which what must happen counts as not happening
SOME = 20  # messages that are confirmed together


class Account:
    """What was published, came, and was acked, in one order of moments."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.moment = 0
        self.published: set[str] = set()  # data that was handed over
        self.done: set[str] = set()  # and that was reported as safe
        self.came: dict[str, int] = {}  # data → when the consumer that acks had it last
        self.confirmed: dict[str, list[int]] = {}  # data → when its acks were confirmed
        self.taken: Counter[str] = Counter()  # data, by the consumer that does not ack
        self.records: list[Record] = []
        self.failures: list[str] = []

    def note(self, put: Callable[[int], object]) -> None:
        with self.changed:
            self.moment += 1
            put(self.moment)
            self.changed.notify_all()

    def publish(self, data: list[str]) -> None:
        self.note(lambda _: self.published.update(data))

    def did(self, data: list[str]) -> None:
        self.note(lambda _: self.done.update(data))

    def give(self, data: str) -> None:
        self.note(lambda now: self.came.update({data: now}))

    def ack(self, data: str) -> None:
        self.note(lambda now: self.confirmed.setdefault(data, []).append(now))

    def take(self, data: str) -> None:
        self.note(lambda _: self.taken.update([data]))

    def read(self, record: Record) -> None:
        self.note(lambda _: self.records.append(record))

    def fail(self, what: str) -> None:
        self.note(lambda _: self.failures.append(what))

    def wait(self, done: Callable[[], bool]) -> bool:
        """Whether it comes true, however long that takes: a busy machine has much to catch up with."""
        with self.changed:
            while not done() and not self.failures:
                if not self.changed.wait(PATIENCE):
                    return False
            return not self.failures


class BlockingLoad:
    def __init__(self, url: str, account: Account) -> None:
        self.account = account
        self.client = mqks.Client(url, timeout=PATIENCE)
        self._quiet = threading.Event()
        self._worker = self.client.consume("manual", ["e1", "e2"], manual_ack=True).ready()
        self._taker = self.client.consume("auto", ["e1"]).ready()
        self._publishers = [self._start(self._confirmed), self._start(self._unconfirmed)]
        self._others = [self._start(self._work), self._start(self._take), self._start(self._read)]

    def _start(self, target: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                target()
            except Exception as error:
                self.account.fail(f"{target.__name__}: {error!r}")

        thread = threading.Thread(target=run, name=target.__name__)
        thread.start()
        return thread

    def _confirmed(self) -> None:
        number = 0
        while not self._quiet.is_set():
            number += SOME
            data = [f"confirmed {n}" for n in range(number, number + SOME)]
            self.account.publish(data)
            self.client.publish_many(("e1", one) for one in data)
            self.account.did(data)

    def _unconfirmed(self) -> None:
        number = 0
        while not self._quiet.wait(0.002):
            number += 1
            self.account.publish([f"unconfirmed {number}"])
            self.client.publish("e2", f"unconfirmed {number}")

    def _work(self) -> None:
        for number, message in enumerate(self._worker):
            self.account.give(message.data)
            try:
                if message.ack(confirm=number % 2 == 0) and number % 2 == 0:
                    self.account.ack(message.data)
            except mqks.ConnectionLost:
                pass  # it comes again

    def _take(self) -> None:
        for message in self._taker:
            self.account.take(message.data)

    def _read(self) -> None:
        for record in self.client.history("earliest", follow=True):
            self.account.read(record)

    def probe(self, data: str) -> None:
        self.account.publish([data])
        self.client.publish("e1", data, confirm=True)
        self.account.did([data])

    def quiet(self) -> None:
        """No more is published; what was handed over is done."""
        self._quiet.set()
        for thread in self._publishers:
            thread.join()

    def close(self) -> None:
        self.quiet()
        self.client.close()
        for thread in self._others:
            thread.join()


class AsyncLoad:
    """On an event loop in a thread of its own, so that the kills are told from outside, as for the other one."""

    def __init__(self, url: str, account: Account) -> None:
        self.account = account
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="load")
        self._thread.start()
        self._run(self._open(url))

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(2 * PATIENCE)

    async def _open(self, url: str) -> None:
        self.client = await mqks.AsyncClient(url, timeout=PATIENCE).start()
        self._worker = await self.client.consume("manual", ["e1", "e2"], manual_ack=True).ready()
        self._taker = await self.client.consume("auto", ["e1"]).ready()
        for work in (self._confirmed, self._unconfirmed, self._work, self._take, self._read):
            self._tasks.append(asyncio.create_task(self._guard(work)))

    async def _guard(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except Exception as error:
            self.account.fail(f"{work.__name__}: {error!r}")

    async def _confirmed(self) -> None:
        number = 0
        while not self._stopping:
            number += SOME
            data = [f"confirmed {n}" for n in range(number, number + SOME)]
            self.account.publish(data)
            await self.client.publish_many(("e1", one) for one in data)
            self.account.did(data)

    async def _unconfirmed(self) -> None:
        number = 0
        while not self._stopping:
            number += 1
            self.account.publish([f"unconfirmed {number}"])
            await self.client.publish("e2", f"unconfirmed {number}")
            await asyncio.sleep(0.002)

    async def _work(self) -> None:
        number = 0
        async for message in self._worker:
            number += 1
            self.account.give(message.data)
            try:
                if await message.ack(confirm=number % 2 == 0) and number % 2 == 0:
                    self.account.ack(message.data)
            except mqks.ConnectionLost:
                pass  # it comes again

    async def _take(self) -> None:
        async for message in self._taker:
            self.account.take(message.data)

    async def _read(self) -> None:
        async for record in self.client.history("earliest", follow=True):
            self.account.read(record)

    def probe(self, data: str) -> None:
        async def publish() -> None:
            await self.client.publish("e1", data, confirm=True)

        self.account.publish([data])
        self._run(publish())
        self.account.did([data])

    def quiet(self) -> None:
        async def stop() -> None:
            self._stopping = True
            await asyncio.wait(self._tasks[:2])

        self._run(stop())

    def close(self) -> None:
        async def end() -> None:
            await self.client.close()
            await asyncio.wait(self._tasks)

        self.quiet()
        self._run(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


LOADS: dict[str, type[BlockingLoad | AsyncLoad]] = {"blocking": BlockingLoad, "asyncio": AsyncLoad}
