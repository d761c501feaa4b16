"""What a client wants to go on receiving, whatever happens to its connection: consumers, receivers and histories.

Each can put itself as a request line, reads its answers, and learns from them how to put itself the next time. Nothing
here does I/O; the session decides when something is said.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Required, TypedDict, Unpack

from mqks.client import limits as of_queue
from mqks.client import protocol
from mqks.client.errors import MqksError
from mqks.client.limits import QueueLimits
from mqks.client.message import Record
from mqks.client.protocol import parse_history, settle
from mqks.client.wire import Message

Deliver = Callable[[list[Any], int], None]  # what came in one piece from the socket, and how many bytes that was
Ended = Callable[[MqksError | None], None]  # why nothing more will come; None: it was asked to end

PREFETCH = 100  # with manual ack, unless told otherwise: so that a slow worker leaves messages to the others
PAGE = 1000  # records of a history asked for at a time


class Wanted(ABC):
    """One of them, and its life on the present connection."""

    def __init__(self, deliver: Deliver, ended: Ended) -> None:
        self.deliver = deliver
        self.ended = ended
        self.ready: Callable[[], None] = _nothing  # told when the broker has said ok
        self.id = ""  # on this connection; empty: not asked for there
        self.accepted = False  # was it ever? Then it is asked for again when refused
        self.refused = False
        self.batch: list[Any] = []  # what came and is not delivered yet
        self.waiting = 0  # bytes that were delivered and that nobody has taken
        self.paused = False
        self.leaving = False  # wanted no more

    @abstractmethod
    def request(self) -> str:
        """Action and data that ask for it."""

    @abstractmethod
    def read(self, answer: str) -> Any:
        """What came with an answer; None where it was not for the user. Sets `restate` when there is reason to."""

    @abstractmethod
    def leave(self) -> str:
        """Action and data that end it on this connection."""

    def go_on(self) -> str:
        """Action and data that end a pause."""
        return protocol.resume(self.id)

    def lost(self) -> None:
        """The connection is gone."""
        self.id = ""
        self.paused = self.refused = False

    def is_stale(self, message: Message) -> bool:
        """It came over a connection that is gone, and the broker gives it again."""
        return self.manual_ack and message.consumer_id != self.id

    kind: type[Message] | None = None  # the class of its messages, where the compiled part reads them
    queue = ""
    events: Sequence[str] = ()
    add_events: Sequence[str] = ()
    manual_ack = False
    can_pause = True
    restate = False  # the last answer gave reason to ask again, under the same id
    finished = False  # the last answer was the last one


class MessageOptions(TypedDict, total=False):
    """The keywords that consumers and receivers share."""

    manual_ack: bool
    prefetch: int | None
    limits: QueueLimits | None
    message: type[Message]
    deliver: Required[Deliver]
    ended: Required[Ended]


class WantedMessages(Wanted):
    """What takes messages from a queue, and settles them."""

    def __init__(
        self,
        queue: str,
        *,
        manual_ack: bool = False,
        prefetch: int | None = None,
        limits: QueueLimits | None = None,
        message: type[Message] = Message,
        deliver: Deliver,
        ended: Ended,
    ) -> None:
        super().__init__(deliver, ended)
        self.queue = queue
        self.message = message
        self.limits = of_queue.flags(limits or {})
        self.manual_ack = manual_ack
        self.prefetch = (PREFETCH if manual_ack else 0) if prefetch is None else prefetch

    @abstractmethod
    def settle(self, action: str, message_id: str | None, confirm: bool) -> str:
        """Action and data that settle one message, or with None all of them."""

    @abstractmethod
    def delete_queue(self) -> str:
        """Action and data that delete its queue."""


class WantedConsumer(WantedMessages):
    """A consumer as MQKS knows it."""

    def __init__(
        self,
        queue: str,
        events: Iterable[str] = (),
        *,
        add_events: Iterable[str] = (),
        delete_queue_when_unused: bool | float = False,
        **options: Unpack[MessageOptions],
    ) -> None:
        super().__init__(queue, **options)
        if options.get("prefetch") and not self.manual_ack:
            raise ValueError("prefetch is a limit of unacked messages: it goes with manual_ack=True")
        self.events = tuple(events)
        self.add_events = tuple(add_events)
        self._deletion = protocol.deletion_flags(delete_queue_when_unused)
        self.kind = self.message

    def request(self) -> str:
        flags = [*self._deletion, *protocol.delivery_flags(self.manual_ack, self.prefetch), *self.limits]
        return protocol.consume(self.queue, self.events, self.add_events, flags)

    def read(self, answer: str) -> None:
        """Messages are read in the compiled part: this is an --update."""
        self._learn(*protocol.parse_update(answer))

    def settle(self, action: str, message_id: str | None, confirm: bool) -> str:
        return settle(action, self.id, message_id, confirm=confirm)

    def leave(self) -> str:
        return protocol.delete_consumer(self.id)

    def delete_queue(self) -> str:
        return protocol.delete_queue(self.queue)

    def _learn(self, events: list[str], flags: list[str]) -> None:
        """A queue without events was emptied or deleted, and with it the consumer: both say the same, so it is asked
        for once more. What else is told stays true for the next connection; older brokers say nothing else of a
        deleted queue, and nothing of limits."""
        self.restate = not events
        self.events, self.add_events = events, ()
        if events or flags:
            self._deletion = [word for word in flags if protocol.is_deletion_flag(word)]
        self.limits = [word for word in flags if of_queue.is_flag(word)] or self.limits


class WantedReceiver(WantedMessages):
    """A receiver as SEVX knows it: its messages have JSON as data, and no event beside it."""

    def __init__(
        self,
        queue: str,
        pattern: Mapping[str, Any],
        *,
        delete_queue_when_unused: bool | float = True,
        **options: Unpack[MessageOptions],
    ) -> None:
        super().__init__(queue, **options)
        self.pattern = json.loads(json.dumps(pattern, allow_nan=False))  # a copy, which nobody changes
        seconds = delete_queue_when_unused
        self.unused = seconds if isinstance(seconds, bool) else float(seconds)

    def request(self) -> str:
        asked: dict[str, Any] = {"pattern": self.pattern, "queue": self.queue}
        if self.unused is not True:  # the default of the protocol, as the others left out here
            asked["delete_queue_when_unused"] = self.unused
        if self.manual_ack:
            asked["manual_ack"] = True
        return protocol.recv(asked, [*protocol.delivery_flags(False, self.prefetch), *self.limits])

    def read(self, answer: str) -> Message | None:
        if protocol.is_pattern_update(answer):
            pattern = protocol.parse_pattern_update(answer)
            if pattern is None:
                self.finished = True  # the queue was deleted, and asking again would bring it back
            else:
                self.pattern = pattern
            return None
        id, data, retry = protocol.parse_event(answer)
        return self.message(id, "", data, retry, self.id)

    def settle(self, action: str, message_id: str | None, confirm: bool) -> str:  # noqa: ARG002 - always confirmed
        return protocol.settle_event(action, self.id, message_id)

    def leave(self) -> str:
        return protocol.delete_receiver(self.id)

    def delete_queue(self) -> str:
        return protocol.delete_receivers_queue(self.queue)


class WantedHistory(Wanted):
    """The journal read again, page by page: the next one is asked for when this one is taken, so a slow reader holds
    no more than one. A page that a lost connection cut short goes on after the last record that came; so that there is
    always such a place, `latest` is asked for its position first."""

    can_pause = False

    def __init__(
        self,
        start: str,
        *,
        to: str | None,
        events: Sequence[str],
        limit: int | None,
        follow: bool,
        deliver: Deliver,
        ended: Ended,
    ) -> None:
        super().__init__(deliver, ended)
        self._start = start
        self._seen = -1
        self._left = limit
        self._page = 0
        self._to = to
        self._asked_again = False
        self._follow = follow
        self._events = tuple(events)

    def request(self) -> str:
        if self._start == protocol.LATEST:  # only its place, though more may come meanwhile
            return protocol.history(protocol.LATEST, to=protocol.LATEST)
        self._page = PAGE if self._left is None else min(PAGE, self._left)
        extra = str(self._seen) == self._start  # the record that is asked for again, to find the place after it
        limit = self._page + extra
        return protocol.history(self._start, to=self._to, events=self._events, limit=limit, follow=self._follow)

    def read(self, answer: str) -> Record | None:
        found = parse_history(answer)
        if isinstance(found, str):
            self._end(found)
            return None
        place, id, event, data = found
        position = int(place)
        if position == self._seen:
            return None
        self._seen = position
        self._start = place
        self._asked_again = False
        self._page -= 1
        if self._left is not None:
            self._left -= 1
        return Record(position, id, event, data)

    def leave(self) -> str:
        return protocol.delete_consumer(self.id)

    def go_on(self) -> str:
        return self.request()

    def _end(self, place: str) -> None:
        """Of a page, of all, or of a broker that stops: with follow it is asked again, which one that stops no longer
        answers, and which is answered so once more if it is the end."""
        where, self._start = self._start, place
        if where == protocol.LATEST:
            self.restate = True
        elif self._left == 0 or (self._page and not self._follow):
            self.finished = True
        elif not self._page:
            self.paused = True
        elif not self._asked_again:
            self.restate = self._asked_again = True
        else:
            self.finished = self._to is not None

    def lost(self) -> None:
        super().lost()
        self._asked_again = False


def _nothing() -> None:
    pass
