"""Parts of this process that listen to events: they hear MQKS messages without a queue."""

import logging
from collections.abc import Callable, Iterator

from mqks.core.events import Events

log = logging.getLogger(__name__)


class Listeners:
    def __init__(self, events: Events) -> None:
        self._events = events
        self._listeners: dict[bytes, Callable[[bytes], None]] = {}  # by event

    def __iter__(self) -> Iterator[bytes]:
        """The events."""
        return iter(self._listeners)

    def listen(self, event: bytes, take: Callable[[bytes], None]) -> None:
        """From now on `take` gets the data of each MQKS message of this event, in the turn that it comes in, and other
        messages cost nothing. There is one listener to an event, and it asks nothing of the broker meanwhile."""
        if event not in self._listeners:
            self._events.inspect(event, 1)
        self._listeners[event] = take

    def hear(self, event: bytes, data: bytes) -> None:
        """A message came. A listener that fails fails alone: whoever published has no part in it."""
        take = self._listeners.get(event)
        if take is not None:
            try:
                take(data)
            except Exception:
                log.exception("a message of an event that the broker itself listens to could not be taken")
