"""When memory is full: who is heard, who is told later, and that all goes on when there is some again."""

import pytest

from mqks.broker import Broker
from mqks.broker.client import Client

MANY = 64 << 10  # bytes of replies that need not be read, as core/output.pxd has it
TOLD_AT_ONCE = 8192  # consumers, when there is memory again
PEER = "127.0.0.1:1"


class Full:
    """A broker whose memory is full as long as a test likes, with one client."""

    def __init__(self) -> None:
        self.broker = Broker()
        self.client = self.broker.connect(PEER)

    def fill(self) -> None:
        self.broker.core.charge(self.broker.core.max_memory)

    def ease(self) -> None:
        self.broker.core.charge(-self.broker.core.max_memory)
        self.broker.turn()  # in which it is found that there is memory,
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
    full.feed(*pings(300))
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
    assert full.broker.queues[b"q1"].unsettled == 0


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
    assert full.broker.core.used < full.broker.core.max_memory


def test_very_many_that_could_not_be_told_are_told_in_several_turns(full: Full) -> None:
    clients = [full.broker.connect(PEER) for _ in range(20)]
    for client in clients:
        lines = (b"c%d consume q1\n" % number for number in range(TOLD_AT_ONCE // 10))
        full.broker.feed(client, b"p pause nobody\n" + b"".join(lines))
    full.fill()
    for consumer in full.broker.queues[b"q1"].consumers:
        full.broker.core.tell(consumer)
    full.broker.core.charge(-full.broker.core.max_memory)
    told = []
    for _ in range(3):
        full.broker.turn()
        told.append(sum(client.pending().count(b"\n") for client in clients))
    one = TOLD_AT_ONCE // 10
    assert told[0] <= TOLD_AT_ONCE + one
    assert told[0] < told[1] < 20 * one + 1
    assert told[2] == 20 * one
