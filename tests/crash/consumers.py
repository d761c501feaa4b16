"""Who consumes: with auto ack, and with manual acks that are confirmed or not; and the pulse that tells turns apart."""

import random
from collections import deque
from collections.abc import Mapping, Sequence

from tests.crash.clients import WINDOWS, Client, event_of
from tests.crash.ledger import Ledger, Message, Session
from tests.crash.publishers import Publisher


class Consumer(Client):
    """Auto ack: it only reads. So the kernel hands over every byte that the broker gave it, dead or alive."""

    def __init__(
        self, name: str, ledger: Ledger, rng: random.Random, queue: str, publishers: Mapping[bytes, Publisher]
    ) -> None:
        super().__init__(name, ledger, rng)
        self.session = Session(ledger.queues[queue])
        self.publishers = publishers
        self.syncs = 0  # pings answered, for the drain at the end
        self.options = b""
        self._prefix = self.name + b" ok "

    def begin(self) -> None:
        self.session = Session(self.session.queue)
        self.session.queue.consumers += 1
        self.out += b"%s consume --confirm %s%s\n" % (self.name, self.session.queue.name.encode(), self.options)

    def line(self, line: bytes) -> None:
        if line.startswith(self._prefix):
            if line != self._prefix and not line.startswith(self._prefix + b"--update "):
                self._delivered(line)
        elif line == b"sync ok ":
            self.syncs += 1
        else:
            self.answer(line)

    def answer(self, line: bytes) -> None:
        self.unexpected(line)

    def sync(self) -> None:
        self.out += b"sync ping\n"

    def _delivered(self, line: bytes) -> None:
        try:
            _, _, msg_id, props, data = line.split(b" ", 4)
            name, _, digits = msg_id.rpartition(b"-")
            publisher, number = self.publishers[name], int(digits)
            event = event_of(publisher.events, number)
            as_sent = props.partition(b",retry=")[0] == b"event=" + event and data == publisher.content(event, number)
        except (ValueError, KeyError):
            as_sent = False
        if not as_sent:
            self.unexpected(line)
            return
        self.ledger.delivered(self.session, (name, number))
        self.got((name, number))

    def got(self, message: Message) -> None:
        """One more was delivered."""

    def ended(self, killed: bool) -> None:
        self.ledger.gone(self.session, killed=killed)
        self.session.queue.consumers -= 1

    @property
    def settled(self) -> bool:
        return True


class Acker(Consumer):
    """Manual ack, confirmed, in windows and in any order; it rejects some and now and then goes without a word."""

    form = b"ack ack --confirm %s %s-%d\n"
    rejects, leaves = 0.01, 0.003

    def __init__(
        self, name: str, ledger: Ledger, rng: random.Random, queue: str, publishers: Mapping[bytes, Publisher]
    ) -> None:
        super().__init__(name, ledger, rng, queue, publishers)
        self.waiting: list[Message] = []
        self.awaited: deque[Message] = deque()
        self.draining = False

    def begin(self) -> None:
        self.waiting.clear()
        self.awaited.clear()
        self.window = 1000 if self.draining else self.rng.choice(WINDOWS)
        # What is unacked is in memory, of which the broker may have little.
        self.options = b" --manual-ack --prefetch=%d" % self.rng.choice([5000, 2 * self.window])
        super().begin()

    def got(self, message: Message) -> None:
        if not self.draining and self.rng.random() < self.rejects:
            self.ledger.rejecting(self.session, message)
            self.out += b"rej reject %s %s-%d\n" % (self.name, *message)
        else:
            self.waiting.append(message)

    def act(self) -> None:
        if self.waiting and len(self.awaited) <= self.window // 2:
            self.ack(self.window - len(self.awaited))

    def ack(self, most: int) -> None:
        chosen, self.waiting = self.waiting[:most], self.waiting[most:]
        self.rng.shuffle(chosen)
        for message in chosen:
            self.ledger.acking(self.session, message)
            self.out += self.form % (self.name, *message)
        self.awaited += chosen

    def answer(self, line: bytes) -> None:
        if line != b"ack ok " or not self.awaited:
            self.unexpected(line)
            return
        self.ledger.acked(self.session, self.awaited.popleft())

    def wants_to_leave(self) -> bool:
        return not self.draining and self.rng.random() < self.leaves

    @property
    def settled(self) -> bool:
        return not self.session.held and not self.session.acking


class UnconfirmedAcker(Acker):
    """Acks without `--confirm`, and pings after each window: acks of a turn that is over are never undone."""

    form = b"ack ack %s %s-%d\n"

    def begin(self) -> None:
        super().begin()
        self.taken: list[Message] = []  # the window before the ping that was answered last
        self.pinging = False

    def act(self) -> None:
        # An empty window drives the last full one home: its messages are settled by the second answer.
        if not self.pinging and (self.waiting or self.session.acking):
            self.ack(self.window)
            self.out += b"ack ping\n"
            self.pinging = True

    def answer(self, line: bytes) -> None:
        if line != b"ack ok " or not self.pinging:
            self.unexpected(line)
            return
        for message in self.taken:
            self.ledger.acked(self.session, message)
        self.taken = list(self.awaited)
        self.awaited.clear()
        self.pinging = False


class Pulse(Client):
    """Pings without end, one at a time: an answer to a ping sent later shows that an earlier turn is over."""

    def __init__(self, ledger: Ledger, rng: random.Random, consumers: Sequence[Consumer]) -> None:
        super().__init__("pulse", ledger, rng)
        self._auto = [consumer for consumer in consumers if consumer.session.queue.auto]

    def begin(self) -> None:
        self.out += b"pulse ping\n"

    def line(self, line: bytes) -> None:
        if line != b"pulse ok ":
            self.unexpected(line)
        self.ledger.pulse([consumer.session for consumer in self._auto])
        self.out += b"pulse ping\n"
