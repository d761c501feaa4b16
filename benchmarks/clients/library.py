"""What is asked of a client library. Each method is one loop, and returns when the last message has been dealt with."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

BATCH = 1000  # messages under way where a library asks for a number: unanswered, unacknowledged, in one pipeline


class Library(ABC):
    """Connected when it is made. The queue is q1, its event e1, as in the loads that these loops meet."""

    @abstractmethod
    def __init__(self, port: int) -> None: ...

    def item(self, data: bytes) -> Any:
        """Data in the form that the library takes and gives with the least work."""
        return data

    @abstractmethod
    def publish(self, items: Sequence[Any]) -> None:
        """One call per message, unconfirmed if that can be had; ends when the server has taken all."""

    @abstractmethod
    def confirm(self, items: Sequence[Any]) -> None:
        """The same with an answer for each, many of them unanswered at a time."""

    @abstractmethod
    def open_consumer(self) -> None: ...

    @abstractmethod
    def consume(self, count: int) -> list[Any]:
        """The data of the next so many messages."""

    @abstractmethod
    def open_acker(self) -> None: ...

    @abstractmethod
    def acknowledge(self, count: int) -> list[Any]:
        """The same, each message acknowledged by itself; ends when the server has taken the last ack."""
