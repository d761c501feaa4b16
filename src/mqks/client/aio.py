"""The asyncio client: the verbs as coroutines, messages as an async iterator.

async with mqks.connect() as mq:
    await mq.publish("hello", "world", confirm=True)
    async for message in mq.consume("greetings", ["hello"]):
        ...
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, Unpack

from mqks.client import protocol, verbs
from mqks.client.aio_driver import AsyncDriver, resolve
from mqks.client.aio_stream import Answers, Stream
from mqks.client.base_client import BaseClient
from mqks.client.consumer import BaseConsumer, BaseMessage
from mqks.client.errors import ConnectionLost, MqksError, Refused
from mqks.client.message import Record
from mqks.client.options import OptionWords
from mqks.client.session import Done
from mqks.client.verbs import WINDOW, Outgoing
from mqks.client.wanted import WantedHistory, WantedMessages
from mqks.client.wire import Message


class AsyncMessage(BaseMessage[Awaitable[bool]]):
    """A message that is settled by `message.ack()`; with confirm that is to be awaited."""

    __slots__ = ()
    stream: "Stream[AsyncMessage]"


class AsyncConsumer(BaseConsumer[Awaitable[bool]]):
    """Iterate over it for messages. It is a consumer until it is deleted, or until nobody holds it any more."""

    _driver: AsyncDriver
    _stream: Stream[AsyncMessage]

    async def ready(self) -> Self:
        """Waits until the broker has said ok."""
        await self._stream.ready()
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncMessage:
        items = self._stream.items
        while items or await self._stream.more():
            message = items.popleft()
            if self._manual_ack:
                if self._wanted.is_stale(message):
                    continue
                self._stream.taken[message] = None
            message.stream = self._stream
            return message
        raise StopAsyncIteration

    async def get(self, timeout: float | None = None) -> AsyncMessage | None:
        """The next message; None: there was none in this time. ConnectionLost: there will be none any more."""
        try:
            async with asyncio.timeout(timeout):
                return await anext(self)
        except TimeoutError:
            return None
        except StopAsyncIteration:
            raise ConnectionLost(f"the consumer of {self.queue} has ended") from None

    async def delete_queue(self) -> None:
        """Delete the queue, and with it this consumer; what was delivered can still be taken."""
        request = self._wanted.delete_queue()
        self._driver.session.delete_queue(self.queue)
        await self._driver.ask(request)

    async def __aenter__(self) -> Self:
        return await self.ready()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.delete()

    def __del__(self) -> None:
        self._stream.abandon()
        if self._driver.is_here() and not self._driver.session.out.held:
            self._stream.leave()
        elif self._driver.closed is None:  # found by another thread, or in the middle of something
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the connection with it
                self._driver.loop.call_soon_threadsafe(self._stream.leave)
        else:
            self._driver.session.write_notes()


class AsyncClient(
    BaseClient[AsyncDriver, Coroutine[Any, Any, str], Coroutine[Any, Any, None], AsyncConsumer, AsyncIterator[Record]]
):
    """Use it as an async context manager, or call `start` and, in the end, `close`."""

    def __init__(self, url: str | None = None, **options: Unpack[OptionWords]) -> None:
        super().__init__(url, options, AsyncDriver)

    async def start(self) -> Self:
        """Returns when the connection stands."""
        await self._driver.start()
        return self

    async def close(self, timeout: float | None = None) -> None:
        """Sends what is buffered, and waits until the broker has read it, no longer than `timeout` seconds."""
        if self._driver.closed is None:
            if (seconds := self._seconds_to_close(timeout)) is not None:
                with contextlib.suppress(TimeoutError, MqksError):
                    async with asyncio.timeout(seconds):
                        await self._driver.ask(verbs.CLOSING)
            await self._driver.stop()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(0 if kind and not self.connected else None)  # who is interrupted does not want to wait

    async def publish(
        self, event: str, data: object = "", *, confirm: bool = False, once: bool | str = False, id: str | None = None
    ) -> str:
        """Answers the message's id. Without confirm it is buffered; with it, it is safe when this returns."""
        out = self._out
        if not (confirm or once or id) and (sent := out.publish(event, data)):
            if not self._driver.flushing:
                self._driver.flush_soon()
            return sent
        if out.size >= self._piece:
            await asyncio.sleep(0)  # so that a busy publisher lets the others have their turn
        await self._driver.room()
        if confirm or once:
            return await self._publish(event, data, id, once)
        sent = self._session.publish(event, data, id)
        self._driver.flush_soon()
        return sent

    async def publish_many(
        self,
        messages: Iterable[Outgoing],
        *,
        confirm: bool = True,
        once: bool | str = False,
        on_refused: Callable[[Refused], object] | None = None,
    ) -> list[str]:
        """Publish them all and answer their ids. With confirm, all are safe when this returns, except those that the
        broker refused: `on_refused` is told of each at the end; without it, the first one is raised."""
        driver, session, answers = self._driver, self._session, Answers(self._driver)
        done = answers.done if confirm or once else None
        sent = []
        try:
            for event, data, *given in messages:
                if driver.closed or session.size >= self._piece:
                    await asyncio.sleep(0)
                    await driver.room()
                id = given[0] if given else None
                flag = verbs.once_flag(once, id is not None, session.scope) if once else ""
                sent.append(session.publish(event, data, id, done, flag))
                if done:
                    answers.missing += 1
                    if answers.missing >= WINDOW:
                        await answers.wait(WINDOW // 2)
            await answers.wait()
        except BaseException:  # nobody waits for the others any more
            session.forget(*sent)
            raise
        for error in answers.errors:
            if not (on_refused and isinstance(error, Refused)):
                raise error
            on_refused(error)
        return sent

    async def send(
        self, event: Mapping[str, Any], *, confirm: bool = False, once: bool | str = False, id: str | None = None
    ) -> str:
        """The SEVX way to publish: an event is a JSON object. Answers its id, as publish does."""
        text, session = json.dumps(event, allow_nan=False), self._session
        await self._driver.room()
        if confirm or once:
            flag = verbs.once_flag(once, id is not None, session.scope)
            return await self._answer(lambda done: session.send(text, id, done, flag))
        id = session.send(text, id)
        self._driver.flush_soon()
        return id

    async def stats(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(await self._driver.ask(protocol.STATS))
        return answer

    async def _read(self, want: Callable[[verbs.Sink], WantedHistory]) -> AsyncIterator[Record]:
        stream: Stream[Record] = Stream(self._driver)
        wanted = want(stream)
        stream.open(wanted)
        try:
            while stream.items or await stream.more():
                yield stream.items.popleft()
        finally:
            stream.leave()

    def _ask(self, request: str) -> Coroutine[Any, Any, str]:
        return self._driver.ask(request)

    async def _do(self, request: str, deletes: str = "") -> None:
        if deletes:
            self._session.delete_queue(deletes)
        await self._driver.ask(request)

    def _consume(self, want: Callable[[verbs.Sink, type[Message]], WantedMessages]) -> AsyncConsumer:
        stream: Stream[AsyncMessage] = Stream(self._driver)
        wanted = want(stream, AsyncMessage)
        stream.open(wanted)
        return AsyncConsumer(self._driver, wanted, stream)

    def _publish(self, event: str, data: object, id: str | None, once: bool | str) -> "asyncio.Future[str]":
        session = self._session
        flag = verbs.once_flag(once, id is not None, session.scope)
        return self._answer(lambda done: session.publish(event, data, id, done, flag))

    def _answer(self, put: Callable[[Done], str]) -> "asyncio.Future[str]":
        """The future of the message's id. Whoever gives up waiting for it keeps it from being sent again."""
        answer: asyncio.Future[str] = self._driver.loop.create_future()

        def done(result: str | MqksError) -> None:
            resolve(answer)(sent if isinstance(result, str) else result)

        sent = put(done)
        answer.add_done_callback(lambda future: self._session.forget(sent) if future.cancelled() else None)
        self._driver.flush_soon()
        return answer
