"""What both clients offer alike: each verb once. How its answer is waited for is theirs."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar, Unpack

from mqks.client import verbs
from mqks.client.address import Address
from mqks.client.limits import QueueLimits
from mqks.client.session import Session
from mqks.client.verbs import Sink
from mqks.client.wanted import WantedMessages
from mqks.client.wire import Message

Text = TypeVar("Text")  # a text, or a coroutine that answers it
Done = TypeVar("Done")  # nothing, or a coroutine that answers it
Consumer = TypeVar("Consumer")


class BaseClient(ABC, Generic[Text, Done, Consumer]):
    address: Address
    _session: Session

    @abstractmethod
    def _ask(self, request: str) -> Text:
        """The answer to this request."""

    @abstractmethod
    def _do(self, request: str, deletes: str = "") -> Done:
        """Waits for the answer. `deletes`: the queue whose consumers end with it."""

    @abstractmethod
    def _consume(self, want: Callable[[Sink, type[Message]], WantedMessages]) -> Consumer:
        """A consumer, which `want` describes."""

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
