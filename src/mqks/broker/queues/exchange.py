"""Which queues a message reaches: the subscriptions of all queues, by event and by pattern.

The core holds what it needs for the hot path. For that, each pattern is sorted by what it could want of MQKS
messages, which look to it like {"event": …, "data": …}: all of them, one event, something in their data, or nothing.
"""

from typing import Any

from mqks.broker.protocol import jsons
from mqks.broker.protocol.bridge import as_content, event_name
from mqks.broker.queues.patterns import Pattern, PatternIndex
from mqks.broker.queues.queue import Queue
from mqks.core.hub import Core

# Bytes of memory; measured, and rounded up.
EVENT_COST = 500  # for a subscription, beside its name
NAME_COPIES = (
    3  # of a queue and of its events: the name itself, in the text of an --update, in the journal's definition
)
PATTERN_COST = 600  # for a pattern, beside its values and its text
VALUE_COST = 1500  # for each value; an empty object takes most
LETTER_COST = 5  # for each character: one that is rare has all of a string take 4 bytes each; and the journal's text

LOOKING = 16  # the core's effort for each place in the tree of patterns that is looked at


def _cost(pattern: Pattern) -> int:
    return PATTERN_COST + VALUE_COST * pattern.size + LETTER_COST * len(jsons.dumps(pattern.content))


def _event_cost(event: bytes) -> int:
    return EVENT_COST + NAME_COPIES * len(event)


def named(pattern: Pattern | None) -> set[bytes]:
    """The event that a pattern names, if it does."""
    name = event_name(pattern.content) if pattern else b""
    return {name} if name else set()


class Exchange:
    def __init__(self, core: Core) -> None:
        self._core = core
        # Many patterns may begin as an event does: then a look takes a while, though few or none match in the end.
        self._patterns: PatternIndex[Queue] = PatternIndex(lambda places: core.work.exert(LOOKING * places))

    def set_events(self, queue: Queue, events: set[bytes]) -> bool:
        """Subscribe the queue to exactly these events; answers whether that changed anything."""
        if events == queue.events:
            return False
        for event in sorted(queue.events - events):
            self._core.events.unbind(event, queue)
            self._core.account.charge(-_event_cost(event))
        for event in sorted(events - queue.events):
            self._core.events.bind(event, queue)
            self._core.account.charge(_event_cost(event))
        queue.events = events
        return True

    def set_pattern(self, queue: Queue, pattern: Pattern | None) -> None:
        if queue.pattern is not None:
            self._patterns.remove(queue.pattern, queue)
            self._core.account.charge(-_cost(queue.pattern))
            self._want_of_mqks(queue, queue.pattern, wanted=False)
        if pattern is not None:
            self._patterns.add(pattern, queue)
            self._core.account.charge(_cost(pattern))
            self._want_of_mqks(queue, pattern, wanted=True)
        queue.pattern = pattern

    def _want_of_mqks(self, queue: Queue, pattern: Pattern, *, wanted: bool) -> None:
        content = pattern.content
        if not content.keys() <= {"event", "data"} or not isinstance(content.get("event", ""), str):
            return
        change = 1 if wanted else -1
        if "event" in content:
            event = event_name(content)
            if not event:
                return
            if "data" in content:
                self._core.events.inspect(event, change)
            elif wanted:
                self._core.events.bind(event, queue)
            else:
                self._core.events.unbind(event, queue)
        elif "data" in content:
            self._core.events.inspect_everything(change)
        else:
            self._core.events.take_everything(queue, wanted)

    def queues_for(self, content: dict[str, Any]) -> list[Queue]:
        """The queues that a SEVX event reaches. One may be named twice; the core puts a message once."""
        queues = self._patterns.wanting(content)
        name = event_name(content)
        return queues + self._core.events.queues(name) if name else queues

    def count(self, content: dict[str, Any]) -> None:
        """A SEVX event was taken."""
        self._core.events.count(event_name(content))

    def inspect(self, event: bytes, data: bytes) -> list[Queue]:
        """The queues whose patterns match an MQKS message, for events where one looks into the data."""
        return self._patterns.wanting(as_content(event, data))
