"""What must be in the broker: a log of what it took, and the queues that follow from it.

The journal is such a log too. So after a crash the truth is a prefix of this one, and `rebuild` makes it so. What is
known of a message in a queue (seen, settled, how safely) is kept beside the log, since progress survives by itself.
It knows no disk and no bytes of connections.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

UNSAFE, KILL, POWER = range(3)  # a fact survives: nothing; the end of the process; the end of the power


@dataclass(eq=False)
class Message:
    id: bytes
    line: bytes  # as the journal has it
    content: dict[str, Any]  # as patterns see it
    mqks: tuple[bytes, bytes]  # event and data, as told to MQKS consumers
    sevx: bytes  # as told to SEVX receivers
    once: bool = False


def published(id: bytes, event: bytes, data: bytes, once: bytes | None = None) -> Message:
    try:
        value, text = json.loads(data), data
    except ValueError:
        value = data.decode()
        text = json.dumps(value).encode()
    sevx = b'{"event": %s, "data": %s}' % (json.dumps(event.decode()).encode(), text)
    content = {"event": event.decode(), "data": value}
    line = b"%s publish %s%s %s" % (id, _flag(once), event, data)
    return Message(id, line, content, (event, data), sevx, once is not None)


def sent(id: bytes, text: bytes, once: bytes | None = None) -> Message:
    content = json.loads(text)
    line = b"%s send %s%s" % (id, _flag(once), text)
    return Message(id, line, content, (content.get("event", "").encode(), text), text, once is not None)


def _flag(once: bytes | None) -> bytes:
    return b"" if once is None else b"--once=%s " % once if once else b"--once "


class Bounds(NamedTuple):
    """How long a queue may be; 0 and none: as the broker says."""

    max_length: int = 0
    max_bytes: int = 0
    overflow: str = ""

    def over(self, other: "Bounds") -> "Bounds":
        """With what the other has where this one has nothing."""
        return Bounds(
            self.max_length or other.max_length, self.max_bytes or other.max_bytes, self.overflow or other.overflow
        )


NO_BOUNDS = Bounds()


@dataclass(frozen=True)
class Definition:
    queue: bytes
    events: frozenset[bytes] = frozenset()
    pattern: tuple[tuple[str, Any], ...] | None = None  # the items of a flat one
    unused: float | None = None
    sticky: bool = False
    bounds: Bounds = NO_BOUNDS

    def wants(self, message: Message) -> bool:
        if self.pattern is not None and all(message.content.get(key) == value for key, value in self.pattern):
            return True
        return message.mqks[0] in self.events

    def shown(self, defaults: Bounds) -> tuple[object, ...]:
        """What a client can find out about it, where the broker has these limits."""
        return sorted(event.decode() for event in self.events), self.pattern, self.unused, self.bounds.over(defaults)


@dataclass(eq=False)
class Op:
    """A message that was taken, or the definition of a queue that was changed, or (None) removed."""

    number: int
    queue: bytes = b""
    definition: Definition | None = None
    message: Message | None = None
    confirmed: bool = False
    lost: bool = False  # a salvage gave its message up


@dataclass(eq=False)
class Copy:
    """A message in a queue."""

    message: Message
    seen: bool = False  # was in some consumer's buffer
    holder: object = None  # the consumer that has it and did not settle it
    settled: bool = False
    safety: int = UNSAFE  # of `settled`
    doubtful: bool = False  # was settled, but a crash may have undone it
    recorded: bool = False  # it was delivered, and the broker has that in its files
    repeats: bool = False  # it was so when the broker was killed
    needs: int = 0  # number of the last op when it was settled: a crash that undoes that op undoes this too

    def settle(self, needs: int) -> None:
        self.needs = self.needs if self.doubtful else needs  # it may have been settled then
        self.settled, self.safety, self.holder, self.doubtful = True, UNSAFE, None, False

    def crash(self, safety: int) -> None:
        self.repeats = safety == KILL and (self.repeats or self.recorded) and not self.settled
        self.recorded, self.holder = False, None
        if self.settled and self.safety < safety:
            self.settled, self.doubtful = False, True


@dataclass(eq=False)
class Queue:
    definition: Definition
    birth: int  # number of the op that made it: tells it from others of its name
    copies: dict[bytes, Copy] = field(default_factory=dict)  # by message id, in order
    consumers: list[object] = field(default_factory=list)
    due: float | None = None  # when it goes, if nobody comes
    lost: int = 0  # messages that a salvage gave up: the broker counts them until it comes to them
    unseen: int = 0  # index of the first copy that nobody has seen
    fresh: dict[object, list[Copy]] = field(default_factory=dict)  # consumer → what it saw first, in this turn

    @property
    def name(self) -> bytes:
        return self.definition.queue


class Truth:
    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.queues: dict[bytes, Queue] = {}
        self.messages: dict[bytes, Message] = {}  # all that clients ever sent
        self.copies: dict[tuple[int, bytes], Copy] = {}  # by birth of the queue and message id
        self._numbers = 0

    # ── what happens ──

    def take(self, message: Message) -> Op:
        """What is to be taken once, and was, is not taken again: its publisher relies on the op of the first."""
        if message.once:
            for op in self.ops:
                if op.message is not None and op.message.line == message.line and not op.lost:
                    return op
        self.messages[message.id] = message
        return self._happened(message=message)

    def define(self, definition: Definition) -> Op:
        """Answers the op that a client relies on who is told that the queue is so."""
        queue = self.queues.get(definition.queue)
        if queue is not None and queue.definition == definition:
            return next(op for op in reversed(self.ops) if op.queue == definition.queue)
        return self._happened(queue=definition.queue, definition=definition)

    def delete(self, name: bytes) -> Op | None:
        if name in self.queues:
            return self._happened(queue=name)
        return next((op for op in reversed(self.ops) if op.queue == name), None)

    def purge(self, name: bytes) -> list[Copy]:
        """What nobody has, of a queue, will never be seen: answers which messages these are."""
        queue = self.queues[name]
        ready = [copy for copy in queue.copies.values() if not copy.settled and copy.holder is None]
        queue.unseen = len(queue.copies)
        for copy in ready:
            copy.seen = True
        return ready

    def definition(self, name: bytes) -> Definition:
        """As it is, or as it begins."""
        queue = self.queues.get(name)
        return queue.definition if queue else Definition(name)

    def _happened(self, **what: Any) -> Op:
        self._numbers += 1
        op = Op(self._numbers, **what)
        self.ops.append(op)
        self._apply(op)
        return op

    def _apply(self, op: Op) -> None:
        if op.message is not None:
            for queue in self.queues.values():
                if queue.definition.wants(op.message) and op.lost:
                    queue.lost += 1
                elif queue.definition.wants(op.message):
                    key = queue.birth, op.message.id
                    queue.copies[op.message.id] = self.copies.setdefault(key, Copy(op.message))
        elif op.definition is None:
            del self.queues[op.queue]
        elif op.queue in self.queues:
            self.queues[op.queue].definition = op.definition
        else:
            self.queues[op.queue] = Queue(op.definition, op.number)

    # ── crashes ──

    def rebuild(self, count: int) -> None:
        """Only the first ops happened."""
        gone = {op.message.id for op in self.ops[count:] if op.message is not None}  # may be published again
        del self.ops[count:]
        self.copies = {key: copy for key, copy in self.copies.items() if key[1] not in gone}
        self.queues = {}
        for op in self.ops:
            self._apply(op)
        last = self.last
        for copy in self.copies.values():
            copy.doubtful = copy.doubtful and copy.needs <= last
        for queue in self.queues.values():
            seen = [copy.seen for copy in queue.copies.values()]
            queue.unseen = seen.index(False) if False in seen else len(seen)

    def give_up(self, messages: set[bytes]) -> None:
        """A salvage could not save these."""
        for op in self.ops:
            op.lost |= op.message is not None and op.message.id in messages
        self.copies = {key: copy for key, copy in self.copies.items() if key[1] not in messages}

    def confirmed(self) -> int:
        """So many ops are certain, since one was confirmed and the log has no holes."""
        return max((index + 1 for index, op in enumerate(self.ops) if op.confirmed), default=0)

    @property
    def last(self) -> int:
        """The number of the last op; 0: there is none."""
        return self.ops[-1].number if self.ops else 0

    def lines(self) -> list[bytes]:
        return [op.message.line for op in self.ops if op.message is not None and not op.lost]

    def prefixes(self, messages: int, deletes: int) -> Iterator[tuple[int, dict[bytes, Definition]]]:
        """Each prefix of the log with so many messages and deletes in it, and the definitions of its queues."""
        definitions: dict[bytes, Definition] = {}
        seen = deleted = 0
        for index, op in enumerate(self.ops):
            if (seen, deleted) == (messages, deletes):
                yield index, dict(definitions)
            if op.message is not None:
                seen += not op.lost
            elif op.definition is None:
                deleted += 1
                del definitions[op.queue]
            else:
                definitions[op.queue] = op.definition
        if (seen, deleted) == (messages, deletes):
            yield len(self.ops), definitions


def changed(
    definition: Definition, events: Iterable[bytes] | None, add: Iterable[bytes] = (), remove: Iterable[bytes] = ()
) -> Definition:
    """The definition with other events (None: the same), without some, with others."""
    base = definition.events if events is None else frozenset(events)
    return replace(definition, events=(base - frozenset(remove)) | frozenset(add))
