"""What a consumer of either client is, but for how its messages are waited for."""

from typing import Any, Generic

from mqks.client.stream import Answer, BaseStream
from mqks.client.wanted import WantedMessages
from mqks.client.wire import Message


class BaseMessage(Message, Generic[Answer]):
    __slots__ = ()

    def ack(self, confirm: bool = False) -> Answer:
        """True: sent, and with confirm safe. False: there is nothing to ack. It was acked or rejected before, it came
        without manual ack, or its connection is gone, and the broker gives it again."""
        answer: Answer = self.stream.settle(self, "ack", confirm)
        return answer

    def reject(self, confirm: bool = False) -> Answer:
        """Back to the queue's tail with retry + 1; answers as ack does."""
        answer: Answer = self.stream.settle(self, "reject", confirm)
        return answer


class BaseConsumer(Generic[Answer]):
    def __init__(self, driver: Any, wanted: WantedMessages, stream: BaseStream[Any, Answer]) -> None:
        self._driver = driver
        self._wanted = wanted
        self._manual_ack = wanted.manual_ack
        self._stream = stream

    @property
    def queue(self) -> str:
        return self._wanted.queue

    @property
    def events(self) -> list[str]:
        """Of the queue, as given or as last told by the broker; a receiver has a pattern instead."""
        return sorted({*self._wanted.events, *self._wanted.add_events})

    def __repr__(self) -> str:
        return f"<mqks.{type(self).__name__} of {self.queue}>"

    def ack_all(self, confirm: bool = False) -> Answer:
        """All messages that were taken from it and not settled."""
        return self._stream.settle_taken("ack", confirm)

    def reject_all(self, confirm: bool = False) -> Answer:
        return self._stream.settle_taken("reject", confirm)

    def delete(self) -> None:
        """No consumer any more: what was not acked goes back to the queue. Without manual ack, what has come can still
        be taken; then the iteration ends."""
        self._stream.leave()
