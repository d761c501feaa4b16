"""The books of a run: what was sent, what must come, what may come again, and what should never have happened.

It knows messages only as (publisher, number), numbered from 0 by each publisher in the order of sending, and has no
I/O, so that its own judgement is tested (test_ledger.py). A byte for each copy of a message: a run of millions fits.

A message is *safe* when its publish was confirmed, or when a later turn of the broker was seen after the one that
took it: `kill -9` must not lose it. Whatever is safe or not, of one connection a prefix survives, never with a hole.
"""

from collections import Counter, deque
from dataclasses import dataclass, field

Message = tuple[bytes, int]

DUE, DELIVERED, MAYBE = 1, 2, 4  # the bits of a copy
KINDS = ("lost", "duplicated", "unexpected", "out of order")
EXAMPLES = 5  # of each kind are shown

# A delivery is of a turn that is over when three more pings were answered, one after the other: the first may have
# been on its way already, and the second may still be answered in the same turn.
PULSES = 3


class Faults:
    """How often each kind of fault was seen, and the first few of each."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self.examples: list[str] = []

    def add(self, kind: str, text: str) -> None:
        assert kind in KINDS
        self.count[kind] += 1
        if self.count[kind] <= EXAMPLES:
            self.examples.append(f"{kind}: {text}")


@dataclass(eq=False)
class Session:
    """One connection's time as a consumer of a queue."""

    queue: "QueueBook"
    held: set[Message] = field(default_factory=set)  # manual: neither acked nor rejected
    acking: set[Message] = field(default_factory=set)  # manual: the ack is under way
    recent: deque[tuple[int, Message]] = field(default_factory=deque)  # auto: the turn may not be over
    departures: int = 0  # of the queue, when this began

    def __post_init__(self) -> None:
        self.departures = self.queue.departures


class QueueBook:
    """One queue's copies."""

    def __init__(self, name: str, auto: bool, alone: bool) -> None:
        self.name, self.auto, self.alone = name, auto, alone
        self.consumers = 0  # now
        self.departures = 0  # consumers that have gone
        self.copies: dict[bytes, bytearray] = {}
        self.newest: dict[bytes, int] = {}  # per publisher, of those delivered
        self.order: dict[tuple[Session | None, bytes], int] = {}
        self.owed: set[Message] = set()  # delivered, not settled, and the consumer has gone: must come again
        self.doubtful: set[Message] = set()  # may come again or not

    def bits(self, publisher: bytes, number: int) -> int:
        copies = self.copies.get(publisher, b"")
        return copies[number] if number < len(copies) else 0


class Ledger:
    def __init__(self) -> None:
        self.queues: dict[str, QueueBook] = {}
        self.faults = Faults()
        self.safe: dict[bytes, bytearray] = {}  # a byte per message of the publisher
        self.connections: dict[bytes, list[int]] = {}  # the first number of each of the publisher's connections
        self.pulses = 0
        self.delivered_count = self.again_count = self.acked_count = 0

    def declare(self, queue: str, *, auto: bool, alone: bool = True) -> QueueBook:
        """A queue, its way of acking, and if it has one consumer at a time."""
        self.queues[queue] = QueueBook(queue, auto, alone)
        return self.queues[queue]

    # ---- Publishing

    def connected(self, publisher: bytes) -> None:
        """A new connection of the publisher."""
        self.connections.setdefault(publisher, []).append(len(self.safe.setdefault(publisher, bytearray())))

    def sent(self, publisher: bytes, queues: tuple[str, ...]) -> int:
        """The publisher's next message goes out, with a copy for each of the queues; answers its number."""
        number = len(self.safe[publisher])
        self.safe[publisher].append(0)
        for queue in queues:
            copies = self.queues[queue].copies.setdefault(publisher, bytearray())
            copies.extend(bytes(number - len(copies)))
            copies.append(DUE)
        return number

    def is_safe(self, publisher: bytes, number: int) -> None:
        self.safe[publisher][number] = 1

    def refused(self, publisher: bytes, number: int, *, surely: bool = True) -> None:
        """The broker has answered with an error: the message must not come, unless it was sent before that too."""
        for queue in self.queues.values():
            if queue.bits(publisher, number) == DUE:
                queue.copies[publisher][number] = 0 if surely else MAYBE

    # ---- Consuming

    def delivered(self, session: Session, message: Message) -> None:
        queue = session.queue
        bits = queue.bits(*message)
        self.delivered_count += 1
        if not bits & (DUE | MAYBE):
            self.faults.add("unexpected", f"{show(message)} on {queue.name}, which was never sent there")
            return
        if not bits & DELIVERED:
            self._first(session, message)
        elif message in queue.owed or message in queue.doubtful:
            queue.owed.discard(message)
            queue.doubtful.discard(message)
            self.again_count += 1
        else:
            self.faults.add("duplicated", f"{show(message)} on {queue.name}")
        if queue.auto:
            session.recent.append((self.pulses, message))
        else:
            session.held.add(message)

    def _first(self, session: Session, message: Message) -> None:
        """First deliveries keep the order of sending; where consumers share, to each of them, until one of the others
        goes: what was on its way to that one and was never seen comes to them late."""
        publisher, number = message
        queue = session.queue
        queue.copies[publisher][number] |= DELIVERED
        queue.newest[publisher] = max(number, queue.newest.get(publisher, 0))
        scope = (None if queue.alone else session, publisher)
        if number < queue.order.get(scope, -1) and (queue.alone or session.departures == queue.departures):
            self.faults.add("out of order", f"{show(message)} on {queue.name} after number {queue.order[scope]}")
        queue.order[scope] = number

    def acking(self, session: Session, message: Message) -> None:
        session.held.remove(message)
        session.acking.add(message)

    def acked(self, session: Session, message: Message) -> None:
        """The ack is confirmed, or surely of a turn that is over: the message must not come back."""
        session.acking.remove(message)
        self.acked_count += 1

    def rejecting(self, session: Session, message: Message) -> None:
        """Taken or not, the message must come again."""
        session.held.remove(message)
        session.queue.owed.add(message)

    def gone(self, session: Session, *, killed: bool) -> None:
        """The connection is over, all that it had received was read."""
        queue = session.queue
        queue.departures += 1
        queue.owed |= session.held
        queue.doubtful |= session.acking
        if killed:
            queue.doubtful.update(message for _, message in session.recent)
        session.held, session.acking, session.recent = set(), set(), deque()

    def pulse(self, sessions: list[Session]) -> None:
        """One more ping was answered, and only then the next one was sent."""
        self.pulses += 1
        for session in sessions:
            while session.recent and session.recent[0][0] + PULSES <= self.pulses:
                session.recent.popleft()

    # ---- The end

    def close(self) -> None:
        """After everything was drained: what has not come by now is lost."""
        for queue in self.queues.values():
            for message in sorted(queue.owed):
                self.faults.add("lost", f"{show(message)} on {queue.name}: delivered, not acked, never came again")
            for publisher, copies in queue.copies.items():
                self._find_lost(queue, publisher, copies)

    def _find_lost(self, queue: QueueBook, publisher: bytes, copies: bytearray) -> None:
        safe = self.safe[publisher]
        starts = self.connections[publisher]
        for start, end in zip(starts, [*starts[1:], len(copies)], strict=True):
            # Whoever is due and was not delivered, up to the last that was: a hole. Beyond it: lost if it was safe.
            last = copies.rfind(DUE | DELIVERED, start, end)
            at = copies.find(DUE, start, end)
            while at >= 0:
                if at < last or safe[at]:
                    why = "it was safe" if safe[at] else f"number {last} of the same connection came"
                    self.faults.add("lost", f"{show((publisher, at))} on {queue.name}: {why}")
                at = copies.find(DUE, at + 1, end)

    def in_doubt(self) -> tuple[int, int]:
        """Copies of messages that were not safe when their connection ended: kept by the broker, gone."""
        kept = gone = 0
        for queue in self.queues.values():
            for publisher, copies in queue.copies.items():
                for bits, safe in zip(copies, self.safe[publisher], strict=False):
                    if not safe and bits & DUE:
                        kept, gone = (kept + 1, gone) if bits & DELIVERED else (kept, gone + 1)
        return kept, gone


def show(message: Message) -> str:
    return f"{message[0].decode()}-{message[1]}"
