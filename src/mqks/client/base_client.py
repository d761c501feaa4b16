"""What both clients offer alike: each verb once. How its answer is waited for is theirs."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, Unpack

from mqks.client import verbs
from mqks.client.address import Address, find_address
from mqks.client.limits import QueueLimits
from mqks.client.options import Options, OptionWords
from mqks.client.session import Session, log
from mqks.client.verbs import Place, Sink
from mqks.client.wanted import WantedHistory, WantedMessages
from mqks.client.wire import Message

Text = TypeVar("Text")  # a text, or a coroutine that answers it
Done = TypeVar("Done")  # nothing, or a coroutine that answers it
Consumer = TypeVar("Consumer")
Records = TypeVar("Records")  # an iterator over them


class HasSession(Protocol):
    session: Session


Driver = TypeVar("Driver", bound=HasSession)


class BaseClient(ABC, Generic[Driver, Text, Done, Consumer, Records]):
    def __init__(self, url: str | None, options: OptionWords, driver: Callable[[Address, Options], Driver]) -> None:
        self.address = find_address(url)
        self._options = Options(**options)
        self._driver = driver(self.address, self._options)
        self._session = self._driver.session
        self._out = self._session.out
        self._piece = self._out.most = min(verbs.PIECE, self._options.max_buffer)

    @abstractmethod
    def _ask(self, request: str) -> Text:
        """The answer to this request."""

    @abstractmethod
    def _do(self, request: str, deletes: str = "") -> Done:
        """Waits for the answer. `deletes`: the queue whose consumers end with it."""

    @abstractmethod
    def _consume(self, want: Callable[[Sink, type[Message]], WantedMessages]) -> Consumer:
        """A consumer, which `want` describes."""

    @abstractmethod
    def _read(self, want: Callable[[Sink], WantedHistory]) -> Records:
        """The records of a history, which `want` describes."""

    def _seconds_to_close(self, timeout: float | None) -> float | None:
        """So long the broker may take to read what is buffered; None: there is nothing to wait for."""
        seconds = self._options.timeout if timeout is None else timeout
        if not self.connected and self._session.size and seconds:
            log.warning("%s is away: waiting %g s for it, to send what is buffered", self.address, seconds)
        return seconds if self.connected or self._session.size else None

    @property
    def connected(self) -> bool:
        return self._session.connected

    def __repr__(self) -> str:
        return f"<mqks.{type(self).__name__} of {self.address}, {'connected' if self.connected else 'not connected'}>"

    def consume(
        self,
        queue: str,
        events: Iterable[str] = (),
        *,
        add_events: Iterable[str] = (),
        manual_ack: bool = False,
        prefetch: int | None = None,
        delete_queue_when_unused: bool | float = False,
        **limits: Unpack[QueueLimits],
    ) -> Consumer:
        """A consumer to iterate over. With events, the queue's are replaced; with add_events, some are added."""
        want = partial(
            verbs.consumer,
            queue=queue,
            events=events,
            add_events=add_events,
            manual_ack=manual_ack,
            prefetch=prefetch,
            delete_queue_when_unused=delete_queue_when_unused,
            limits=limits,
        )
        return self._consume(want)

    def recv(
        self,
        queue: str,
        pattern: Mapping[str, Any],
        *,
        manual_ack: bool = False,
        prefetch: int | None = None,
        delete_queue_when_unused: bool | float = True,
        **limits: Unpack[QueueLimits],
    ) -> Consumer:
        """The SEVX way to consume: events that have all that the pattern has. Their JSON is the message's data."""
        want = partial(
            verbs.receiver,
            queue=queue,
            pattern=pattern,
            manual_ack=manual_ack,
            prefetch=prefetch,
            delete_queue_when_unused=delete_queue_when_unused,
            limits=limits,
        )
        return self._consume(want)

    def rebind(
        self,
        queue: str,
        events: Iterable[str] | None = None,
        *,
        remove: Iterable[str] = (),
        remove_mask: Iterable[str] = (),
        add: Iterable[str] = (),
        **limits: Unpack[QueueLimits],
    ) -> Done:
        """Replace the queue's events ([] removes all), or remove and add some; limit how long it may be."""
        return self._do(verbs.rebind(queue, events, remove, remove_mask, add, limits))

    def delete_queue(self, queue: str, *, when_unused: bool | float = False) -> Done:
        """At once, which ends this client's own consumers of it, or when it is unused (for so many seconds)."""
        return self._do(verbs.delete_queue(queue, when_unused), deletes=queue if when_unused is False else "")

    def history(
        self,
        start: Place = "earliest",
        *,
        to: Place | None = None,
        events: Iterable[str] = (),
        limit: int | None = None,
        follow: bool = False,
    ) -> Records:
        """The journal read again, which queues do not notice. With follow it goes on with what comes."""
        return self._read(partial(verbs.history, start=start, to=to, events=events, limit=limit, follow=follow))

    def ping(self, data: object = "") -> Text:
        return self._ask(verbs.ping(data))

    def eval(self, code: str) -> Text:
        """What the broker says of itself: see `_eval` in the protocol."""
        return self._ask(verbs.evaluate(code))

    def hold(self, name: str, position: int | str, seconds: float) -> Done:
        """Keep the journal from this position on from being removed, for so long."""
        return self._do(verbs.hold(name, position, seconds))

    def request(self, action: str, data: str = "") -> Text:
        """Any action that answers once, and that may be asked again if the connection goes before its answer."""
        return self._ask(f"{verbs.name(action)} {data}".rstrip(" "))
