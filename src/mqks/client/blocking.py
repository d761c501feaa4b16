"""The blocking client: the same verbs as plain calls, from any number of threads.

with mqks.connect() as mq:
    mq.publish("hello", "world", confirm=True)
    for message in mq.consume("greetings", ["hello"]):
        ...
"""

import atexit
import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, Unpack

from mqks.client import protocol, verbs
from mqks.client.base_client import BaseClient
from mqks.client.blocking_driver import NEVER, BlockingDriver
from mqks.client.blocking_stream import Answers, Stream, ask
from mqks.client.consumer import BaseConsumer, BaseMessage
from mqks.client.errors import ConnectionLost, MqksError, Refused
from mqks.client.message import Record
from mqks.client.options import OptionWords
from mqks.client.verbs import WINDOW, Outgoing
from mqks.client.wanted import WantedHistory, WantedMessages
from mqks.client.wire import Message as AnyMessage


class Message(BaseMessage[bool]):
    __slots__ = ()
    stream: "Stream[Message]"


class Consumer(BaseConsumer[bool]):
    """Iterate over it for messages, from one thread or many. It is a consumer until it is deleted, or until nobody
    holds it any more."""

    _driver: BlockingDriver
    _stream: Stream[Message]

    def ready(self) -> Self:
        """Waits until the broker has said ok."""
        self._stream.ready()
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        message = self._take(None)
        if message is None:
            raise StopIteration
        return message

    def get(self, timeout: float | None = None) -> Message | None:
        """The next message; None: there was none in this time. ConnectionLost: there will be none any more."""
        try:
            message = self._take(timeout)
        except TimeoutError:
            return None
        if message is None:
            raise ConnectionLost(f"the consumer of {self.queue} has ended")
        return message

    def _take(self, timeout: float | None) -> Message | None:
        items = self._stream.items
        while items or self._stream.more(timeout):
            try:
                message = items.popleft()
            except IndexError:  # by now: other threads may take from it too
                continue
            if self._manual_ack:
                if self._wanted.is_stale(message):
                    continue
                self._stream.taken[message] = None
            message.stream = self._stream
            return message
        return None

    def delete_queue(self) -> None:
        """Delete the queue, and with it this consumer; what was delivered can still be taken."""
        request = self._wanted.delete_queue()
        with self._driver.lock:
            self._driver.session.delete_queue(self.queue)
        ask(self._driver, request)

    def __enter__(self) -> Self:
        return self.ready()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.delete()

    def __del__(self) -> None:
        self._stream.abandon()
        if self._driver.closed is None:
            self._driver.release(self._wanted)
        else:
            self._driver.session.write_notes()


class Client(BaseClient[BlockingDriver, str, None, Consumer, Iterator[Record]]):
    """Connected when it is made; use it as a context manager, or `close` it in the end."""

    def __init__(self, url: str | None = None, **options: Unpack[OptionWords]) -> None:
        super().__init__(url, options, BlockingDriver)
        atexit.register(self.close)

    def close(self, timeout: float | None = None) -> None:
        """Sends what is buffered, and waits until the broker has read it, no longer than `timeout` seconds."""
        atexit.unregister(self.close)
        if self._driver.closed is None:
            if (seconds := self._seconds_to_close(timeout)) is not None:
                with contextlib.suppress(TimeoutError, MqksError):
                    ask(self._driver, verbs.CLOSING, seconds)
            self._driver.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(0 if kind and not self.connected else None)  # who is interrupted does not want to wait

    def publish(
        self, event: str, data: object = "", *, confirm: bool = False, once: bool | str = False, id: str | None = None
    ) -> str:
        """Answers the message's id. Without confirm it is buffered; with it, it is safe when this returns."""
        out, driver = self._out, self._driver
        if not (confirm or once or id) and (sent := out.publish(event, data)):
            if driver.due == NEVER:
                driver.nudge()
            return sent
        if confirm or once:
            return self.publish_many([(event, data) if id is None else (event, data, id)], once=once)[0]
        driver.room()
        with driver.lock:
            sent = self._session.publish(event, data, id)
            driver.flush_soon()
        return sent

    def publish_many(
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
        if not (confirm or once):
            return [self.publish(event, data, id=next(iter(id), None)) for event, data, *id in messages]
        answers.refused = [] if on_refused else None
        try:
            for event, data, *given in messages:
                id = given[0] if given else None
                flag = verbs.once_flag(once, id is not None, session.scope) if once else ""
                if driver.closed or session.out.size >= self._piece:
                    driver.room(self._options.timeout)
                if answers.missing >= WINDOW:
                    answers.wait(WINDOW // 2)
                with driver.lock:
                    answers.add(session.publish(event, data, id, answers.done, flag))
            answers.wait()
        except BaseException:  # nobody waits for the others any more
            answers.forget()
            raise
        if on_refused:
            for refused in answers.refused or ():
                on_refused(refused)
        return answers.asked

    def send(
        self, event: Mapping[str, Any], *, confirm: bool = False, once: bool | str = False, id: str | None = None
    ) -> str:
        """The SEVX way to publish: an event is a JSON object. Answers its id, as publish does."""
        text, driver, session = json.dumps(event, allow_nan=False), self._driver, self._session
        flag = verbs.once_flag(once, id is not None, session.scope)
        answers = Answers(driver) if confirm or once else None
        driver.room()
        with driver.lock:
            id = session.send(text, id, answers.done if answers else None, flag)
            driver.flush_soon()
            if answers:
                answers.add(id)
        if answers:
            answers.wait()
        return id

    def stats(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(ask(self._driver, protocol.STATS))
        return answer

    def _read(self, want: Callable[[verbs.Sink], WantedHistory]) -> Iterator[Record]:
        stream: Stream[Record] = Stream(self._driver)
        wanted = want(stream)
        stream.open(wanted)
        try:
            while stream.items or stream.more():
                yield stream.items.popleft()
        finally:
            self._driver.release(wanted)  # which may be when Python finds that nobody reads it any more

    def _ask(self, request: str) -> str:
        return ask(self._driver, request)

    def _do(self, request: str, deletes: str = "") -> None:
        if deletes:
            with self._driver.lock:
                self._session.delete_queue(deletes)
        ask(self._driver, request)

    def _consume(self, want: Callable[[verbs.Sink, type[AnyMessage]], WantedMessages]) -> Consumer:
        stream: Stream[Message] = Stream(self._driver)
        wanted = want(stream, Message)
        stream.open(wanted)
        return Consumer(self._driver, wanted, stream)
