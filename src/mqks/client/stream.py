"""What comes for one consumer or history until the user takes it: what both clients' streams have in common.

How is waited, and what an ack answers, is each client's own.
"""

from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Generic, TypeVar

from mqks.client.errors import MqksError
from mqks.client.session import Done
from mqks.client.wanted import Wanted, WantedMessages
from mqks.client.wire import Message

T = TypeVar("T")
Answer = TypeVar("Answer")  # of an ack: whether it was sent, or something to await for that


class BaseStream(ABC, Generic[T, Answer]):
    sent: Answer  # what an ack of nothing answers

    def __init__(self, driver: Any) -> None:
        self.items: deque[T] = deque()
        self.taken: dict[Message, None] = {}  # with manual ack: those that the user has and did not settle, in order
        self._driver = driver
        self._wanted: Wanted | None = None
        self._size = 0
        self._over = False
        self._error: MqksError | None = None
        self._abandoned = False

    @abstractmethod
    def settle(self, message: Message | None, action: str, confirm: bool) -> Answer:
        """Ack or reject a message that is in `taken`, or with None all that the broker has sent, taken or not. What
        fails stays there: it can be tried again."""

    @abstractmethod
    def leave(self) -> None:
        """Nobody takes from it any more."""

    def settle_all(self, action: str, confirm: bool) -> Answer:
        """The same in one request, where it means the same: not while others wait here that the user has not seen."""
        if self.items:
            return self.settle_taken(action, confirm)
        self.taken.clear()
        return self.settle(None, action, confirm)

    def settle_taken(self, action: str, confirm: bool) -> Answer:
        """Ack or reject all that the user has."""
        if not (taken := list(self.taken)):
            return self.sent
        for message in taken[:-1]:
            self.settle(message, action, False)
        return self.settle(taken[-1], action, confirm)  # answers keep their order, so this one is for all of them

    def _settle(self, message: Message | None, action: str, done: Done | None) -> str:
        """Answers the id of the request; empty: there is nothing to settle."""
        assert isinstance(self._wanted, WantedMessages)
        if message is not None and self.taken.pop(message, False) is False:
            return ""
        request_id: str = self._driver.session.settle(self._wanted, message, action, done)
        return request_id

    def _unsettle(self, message: Message | None) -> None:
        """It was not settled, or that is not known: the user may try again, while its connection is there."""
        if message is not None and self._wanted is not None and not self._wanted.is_stale(message):
            self.taken[message] = None

    def abandon(self) -> None:
        """Nobody can take from it any more: what settled itself on arrival is lost, and that is said."""
        self._abandoned = True
        if self._over and self.items and self._wanted is not None and not self._wanted.manual_ack:
            text = "messages of queue %s that came and that nobody took: %d"
            self._driver.session.note(text, self._wanted.queue, len(self.items))
            self.items.clear()

    def _forget_stale(self) -> None:
        """What was taken over a connection that is gone, and comes again."""
        for message in list(self.taken):
            if self._wanted is None or not self._wanted.is_stale(message):
                return
            self.taken.pop(message, None)
