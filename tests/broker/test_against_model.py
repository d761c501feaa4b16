"""The broker and its specification, side by side: random requests, cuts, turns, full buffers and time.

After every step, all that waits on every connection is the same in both, byte for byte (error ids aside). The
buffers are so small (HIGH_WATER) that consumers run out of room all the time. What `Pair` leaves open is said
there. MQKS_EXAMPLES=10000 makes a long run; a failure prints its steps and a blob to repeat it.
"""

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.broker.driver import Pair, cut
from tests.broker.requests import EARLY, JOINS, MESSAGES, REQUESTS

MAX_LINE = 300
HIGH_WATER = 200
MOST_CONNECTIONS = 4

INDEX = st.integers(0, MOST_CONNECTIONS - 1)
THEN = st.sampled_from(["stay", "turn", "flow"])
FIRST_JOINS = st.sampled_from([b"c1", b"c2"]).flatmap(
    lambda consumer_id: st.sampled_from(
        [
            consumer_id + b" consume q1",
            consumer_id + b" consume q1 e1 --manual-ack",
            consumer_id + b" consume q1 e1 --manual-ack --prefetch=2",
            consumer_id + b" consume q1 e1 --delete-queue-when-unused=1",
            consumer_id + b" consume q2 e1 a.x",
            consumer_id + b" consume q2 e1 --manual-ack --prefetch=1 --max-length=3",
            consumer_id + b" consume q2 e1 --manual-ack --prefetch=1 --max-bytes=100 --overflow=drop-oldest",
            consumer_id + b' recv {"queue": "q1", "pattern": {}, "manual_ack": true}',
        ]
    )
)
ENDS = st.sampled_from([b"\n", b"\n", b"\r\n"])


def lines(requests: st.SearchStrategy[bytes], at_most: int) -> st.SearchStrategy[bytes]:
    return st.lists(st.tuples(requests, ENDS).map(b"".join), min_size=1, max_size=at_most).map(b"".join)


class BrokerAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(max_line=MAX_LINE, high_water=HIGH_WATER)

    def one(self, index: int) -> int:
        return index % len(self.pair.cores)

    @initialize(joins=st.lists(st.tuples(INDEX, FIRST_JOINS), min_size=1, max_size=4))
    def start(self, joins: list[tuple[int, bytes]]) -> None:
        """So that there is some traffic from the start."""
        for _ in range(MOST_CONNECTIONS - 1):
            self.pair.connect()
        for index, join in joins:
            self.pair.feed(self.one(index), join + b"\n")

    @precondition(lambda self: len(self.pair.cores) < MOST_CONNECTIONS)
    @rule()
    def connect(self) -> None:
        self.pair.connect()

    @precondition(lambda self: len(self.pair.cores) > 1)
    @rule(index=INDEX)
    def disconnect(self, index: int) -> None:
        self.pair.disconnect(self.one(index))

    @rule(index=INDEX, data=lines(MESSAGES, at_most=6), then=THEN)
    def publish(self, index: int, data: bytes, then: str) -> None:
        self.pair.feed(self.one(index), data)
        self.go_on(then)

    @rule(index=INDEX, data=lines(JOINS, at_most=2), then=THEN)
    def join(self, index: int, data: bytes, then: str) -> None:
        self.pair.feed(self.one(index), data)
        self.go_on(then)

    @precondition(lambda self: self.pair.unsettled())
    @rule(pick=st.integers(0, 20), action=st.sampled_from([b"ack", b"reject"]), every=st.booleans(), then=THEN)
    def settle(self, pick: int, action: bytes, every: bool, then: str) -> None:
        """One of the messages that are waiting for it, or all of its consumer's."""
        unsettled = self.pair.unsettled()
        index, consumer_id, msg_id = unsettled[pick % len(unsettled)]
        which = b"--all" if every else msg_id
        self.pair.feed(index, b"s1 %s %s %s\n" % (action, consumer_id, which))
        self.go_on(then)

    @precondition(lambda self: self.pair.consumers())
    @rule(pick=st.integers(0, 20), then=THEN)
    def leave(self, pick: int, then: str) -> None:
        consumers = self.pair.consumers()
        index, consumer_id = consumers[pick % len(consumers)]
        self.pair.feed(index, b"d1 delete_consumer %s\n" % consumer_id)
        self.go_on(then)

    @rule(index=INDEX, data=lines(EARLY, at_most=3), then=THEN)
    def say_early(self, index: int, data: bytes, then: str) -> None:
        self.pair.feed(self.one(index), data)
        self.go_on(then)

    @rule(index=INDEX, data=lines(REQUESTS, at_most=3))
    def say(self, index: int, data: bytes) -> None:
        self.pair.feed(self.one(index), data)

    @rule(
        index=INDEX,
        data=lines(REQUESTS, at_most=3),
        places=st.lists(st.integers(0, 1000), min_size=1, max_size=4),
        rest=st.booleans(),
    )
    def say_in_pieces(self, index: int, data: bytes, places: list[int], rest: bool) -> None:
        """Perhaps without the rest, which the next lines of this connection then continue."""
        pieces = cut(data, places)
        for piece in pieces if rest else pieces[:-1]:
            self.pair.feed(self.one(index), piece)
            self.pair.compare()

    @rule(then=THEN)
    def go_on(self, then: str) -> None:
        """Nothing, or the end of the turn, or that and then all that waits is sent."""
        if then != "stay":
            self.pair.turn()
            self.pair.compare()
        if then == "flow":
            self.send_all()

    @rule(index=INDEX, count=st.integers(1, 2 * HIGH_WATER))
    def send_some(self, index: int, count: int) -> None:
        self.pair.sent(self.one(index), count)

    def send_all(self) -> None:
        for index, core in enumerate(self.pair.cores):
            self.pair.sent(index, len(core.pending()))

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.0]))
    def advance(self, seconds: float) -> None:
        self.pair.advance(seconds)

    @invariant()
    def same(self) -> None:
        self.pair.compare()

    def teardown(self) -> None:
        """What is left flows out, and it too is the same."""
        if self.pair.differs:
            return
        self.pair.turn()
        while any(core.pending() for core in self.pair.cores):
            self.pair.compare()
            self.send_all()
            self.pair.turn()
        self.pair.compare()


TestBrokerAgainstModel = BrokerAgainstModel.TestCase
TestBrokerAgainstModel.settings = settings(
    max_examples=int(os.environ.get("MQKS_EXAMPLES", "500")),
    stateful_step_count=40,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
