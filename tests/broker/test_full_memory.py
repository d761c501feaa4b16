"""When memory is full: who is heard, who is told later, and that all goes on when there is some again."""

import pytest

from mqks.broker import Broker
from mqks.broker.connections.client import Client

MANY = 64 << 10  # bytes of replies that need not be read, as core/output.pxd has it
TOLD_AT_ONCE = 8192  # consumers, when there is memory again
PEER = "127.0.0.1:1"

REQUESTS = 300
REQUESTS_A_TURN = 64  # of one connection


class Full:
    """A broker whose memory is full as long as a test likes, with one client."""

    def __init__(self) -> None:
        self.broker = Broker()
        self.client = self.broker.connect(PEER)

    def fill(self) -> None:
        self.broker.core.account.charge(self.broker.core.account.max_memory)

    def ease(self) -> None:
        self.broker.core.account.charge(-self.broker.core.account.max_memory)
        self.broker.turn()  # in which it is found that there is memory,
        for _ in range(REQUESTS // REQUESTS_A_TURN + 1):
            self.broker.turn()  # and those are heard who waited for it

    def feed(self, *lines: bytes) -> None:
        self.broker.feed(self.client, b"".join(line + b"\n" for line in lines))
        self.broker.turn()

    def read(self) -> list[bytes]:
        text = self.client.pending()
        self.broker.sent(self.client, len(text))
        return text.splitlines()


@pytest.fixture
def full() -> Full:
    return Full()


def pings(count: int) -> list[bytes]:
    return [b"p%d ping %s" % (number, b"x" * 1000) for number in range(count)]


def test_who_does_not_read_its_replies_is_not_heard(full: Full) -> None:
    full.fill()
    full.feed(*pings(300))
    assert MANY < full.client.pending_size < MANY + 2000
    told = full.read()
    while full.client.unheard:
        full.broker.turn()
        told += full.read()
    assert [line.split(b" ")[0] for line in told] == [b"p%d" % number for number in range(300)]


def test_it_is_heard_when_there_is_memory_though_it_still_does_not_read(full: Full) -> None:
    full.fill()
    full.feed(*pings(REQUESTS))
    assert full.client.unheard
    full.ease()
    assert full.client.pending_size > 300 * 1000 and not full.client.unheard


@pytest.mark.parametrize("event", ["e1", "a retry"])
def test_who_has_messages_to_read_is_heard(full: Full, event: str) -> None:
    """Its acks make room. They are asked for by what it has been given, and come while it still gets more."""
    full.feed(b"c1 consume q1 e1 --manual-ack")
    full.feed(*(b"m%d publish e1 %s" % (number, b"x" * 1000) for number in range(200)))
    if event == "a retry":
        full.read()
        full.feed(b"r reject c1 --all")
    assert full.client.pending_size > 2 * MANY
    full.fill()
    full.feed(*(b"a ack c1 m%d" % number for number in range(200)))
    assert full.broker.queues.by_name[b"q1"].unsettled == 0


def test_replies_that_were_read_do_not_count(full: Full) -> None:
    full.feed(b"c1 consume q1 e1")
    full.feed(*pings(100), *(b"m%d publish e1 %s" % (number, b"x" * 1000) for number in range(100)))
    full.broker.sent(full.client, full.client.pending_size - MANY)
    full.fill()
    full.feed(b"p ping")
    assert full.client.pending().endswith(b"p ok \n")


def consumer(full: Full) -> Client:
    other = full.broker.connect(PEER)
    full.broker.feed(other, b"c1 consume q1 e1 e2\n")
    return other


def test_who_could_not_be_told_of_a_change_is_told_later(full: Full) -> None:
    other = consumer(full)
    full.fill()
    full.feed(b"r rebind q1 --remove e2")
    assert other.pending() == b""
    full.ease()
    assert other.pending() == b"c1 ok --update q1 e1\n"
    full.ease()
    assert other.pending_size == len(b"c1 ok --update q1 e1\n"), "once"


@pytest.mark.parametrize(("request_line", "updates"), [(b"p ping", 0), (b"m publish --confirm e9 d", 1)])
def test_whether_an_early_client_is_told_is_decided_when_it_could_be(
    full: Full, request_line: bytes, updates: int
) -> None:
    """Of one whose requests are all early nothing is sent, though they were when the queue changed."""
    full.feed(b"r rebind q1 e1 e2")
    early = full.broker.connect(PEER)
    full.broker.feed(early, b"c1 consume q1\n")
    full.fill()
    full.feed(b"r rebind q1 --remove e2")
    full.broker.feed(early, request_line + b"\n")
    full.ease()
    assert early.pending().count(b"c1 ok --update q1 e1\n") == updates


def test_nothing_is_kept_of_one_who_goes_before_it_is_told(full: Full) -> None:
    other = consumer(full)
    full.fill()
    full.feed(b"r rebind q1 --remove e2")
    full.broker.disconnect(other)
    full.ease()
    assert full.broker.core.account.used < full.broker.core.account.max_memory


def test_very_many_that_could_not_be_told_are_told_in_several_turns(full: Full) -> None:
    clients = [full.broker.connect(PEER) for _ in range(20)]
    for client in clients:
        lines = (b"c%d consume q1\n" % number for number in range(TOLD_AT_ONCE // 10))
        full.broker.feed(client, b"p pause nobody\n" + b"".join(lines))
    full.fill()
    for consumer in full.broker.queues.by_name[b"q1"].consumers:
        full.broker.core.output.tell(consumer)
    full.broker.core.account.charge(-full.broker.core.account.max_memory)
    told = []
    for _ in range(3):
        full.broker.turn()
        told.append(sum(client.pending().count(b"\n") for client in clients))
    one = TOLD_AT_ONCE // 10
    assert told[0] <= TOLD_AT_ONCE + one
    assert told[0] < told[1] < 20 * one + 1
    assert told[2] == 20 * one


# ---- Above the ceiling


def ceil(full: Full) -> int:
    """Fill memory up to where nothing is delivered; answers by how much."""
    core = full.broker.core
    size = core.account.ceiling - core.account.used
    core.account.charge(size)
    return size


def test_above_the_ceiling_nothing_is_delivered_and_all_of_it_later(full: Full) -> None:
    full.feed(b"c1 consume q1 e1", b"r rebind q2 e1")
    full.feed(b"m1 publish e1 d1", b"m2 publish e1 d2")
    assert len(full.read()) == 2
    size = ceil(full)
    full.feed(b"c2 consume q2")
    full.feed(b"p ping")
    assert full.read() == [b"p ok "]
    full.broker.core.account.charge(-size)
    full.broker.turn()
    assert full.read() == [b"c2 ok m1 event=e1 d1", b"c2 ok m2 event=e1 d2"]


def test_messages_that_fill_the_memory_can_be_drained() -> None:
    """By who comes when it is full: connects, consumes and acks."""
    broker = Broker(max_memory=4 << 20)
    publisher = broker.connect(PEER)
    broker.feed(publisher, b"r rebind q1 e1\n")
    broker.feed(publisher, b"".join(b"m%d publish e1 %s\n" % (number, b"x" * 1000) for number in range(5000)))
    assert broker.core.account.full
    assert broker.connections.limit_error(PEER) is None
    there = broker.queues.by_name[b"q1"].ready_count
    consumer = broker.connect(PEER)
    broker.feed(consumer, b"c1 consume q1 --manual-ack\n")
    while broker.queues.by_name[b"q1"].length:
        broker.turn()
        came = [line.split(b" ")[2] for line in consumer.pending().splitlines()]
        broker.sent(consumer, consumer.pending_size)
        broker.feed(consumer, b"".join(b"a ack c1 %s\n" % id for id in came))
        there -= len(came)
    assert there == 0
    assert not broker.core.account.full


def test_above_the_ceiling_only_short_requests_are_heard(full: Full) -> None:
    ceil(full)
    full.feed(b"p1 ping " + b"x" * 4096)
    (refused,) = full.read()
    assert refused.startswith(b"p1 error ")
    full.feed(b"p2 ping " + b"x" * 4000)
    assert full.read() == [b"p2 ok " + b"x" * 4000]
    full.feed(b"p3 ping", b"p4 ping")
    assert full.read() == [b"p3 ok "], "one who has read nothing of it is not heard"


def test_who_does_not_read_is_cut_off_when_others_get_nothing_for_it() -> None:
    now = 0.0
    broker = Broker(clock=lambda: now)
    deaf, reader = broker.connect(PEER), broker.connect(PEER)
    broker.feed(deaf, b"p ping\n")
    broker.feed(reader, b"p ping\n")
    broker.core.account.charge(broker.core.account.max_memory)
    for second in range(20):
        now = float(second)
        broker.sent(reader, 1 if second < 5 else 0)
        assert broker.connections.overdue() == [], "there is memory for deliveries"
    broker.core.account.charge(broker.core.account.ceiling - broker.core.account.used)
    cut_off: dict[Client, int] = {}
    for second in range(20, 40):
        now = float(second)
        broker.feed(reader, b"p ping\n")
        broker.sent(reader, min(1, reader.pending_size))
        cut_off |= {client: second for client in broker.connections.overdue() if client not in cut_off}
    assert cut_off == {deaf: 30}
