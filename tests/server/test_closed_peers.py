"""A consumer that closes its connection and comes back at once: its successor gets the messages in order.

The broker is in process, and the test takes its turns; the sockets are real. What the closed connection has sent is
processed before its messages return, 64 requests in a turn. The last tests do the same to a running broker.
"""

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mqks.broker.connections.client import Client
from mqks.broker.limits import Limits
from mqks.core.sockets import Poller
from tests.broker.fake_sockets import FakeSockets
from tests.certificates import Authority
from tests.running import PATIENCE, Connection, running_broker
from tests.server.test_connections import reset
from tests.server.test_turns import EFFORT, SHARE, Turns, fail

MANUAL = b"c1 consume q1 e1 --manual-ack\n"
PINGS = b"p ping\n" * (10 * SHARE)
MESSAGES = 10
DELIVERY = re.compile(rb"c[12] ok (\d+) event=e1")
WAYS = {"closes": socket.socket.close, "resets": reset}
HIGH_WATER = 256 << 10
CLOSES = 8  # that the broker learns of at a time
CHOKED = 2 * HIGH_WATER + (1 << 20)  # bytes of replies, and its input is not processed


def half_close(near: socket.socket) -> None:
    near.shutdown(socket.SHUT_WR)


class Stage(Turns):
    """A consumer with unacked messages, which is about to close, and a publisher."""

    def __init__(self, consume: bytes = MANUAL, limits: Limits | None = None) -> None:
        super().__init__(limits)
        self.broker.connections.attach(FakeSockets(notice_closes=self.poller.notice_closes))
        self.published = 0
        self.publisher, _ = self.by_tcp()
        self.old, self.old_client = self.by_tcp()
        self.say(self.old, consume)
        self.publish()

    def say(self, near: socket.socket, data: bytes) -> None:
        """Send it, and let it be processed in the next turns, as far as that is their share."""
        near.sendall(data)
        self.turn()
        self.turn()

    def publish(self, data: bytes = b"d") -> None:
        numbers = range(self.published, self.published + MESSAGES)
        self.published += MESSAGES
        self.say(self.publisher, b"".join(b"%d publish e1 %s\n" % (number, data) for number in numbers))

    def consumer(self, rest: bytes = b"") -> tuple[socket.socket, Client]:
        near, client = self.by_tcp()
        self.say(near, b"c2 consume q1 e1%s\n" % rest)
        return near, client

    def until_gone(self) -> None:
        self.until(lambda: self.old_client.gone)
        self.turn()


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.close()


def read(near: socket.socket) -> bytes:
    try:
        return near.recv(1 << 20)
    except BlockingIOError:
        return b""


def numbers_in(data: bytes) -> list[int]:
    """Of the messages that were delivered."""
    return [int(number) for number in DELIVERY.findall(data)]


def got(near: socket.socket) -> list[int]:
    """The numbers of the messages that have come."""
    return numbers_in(read(near))


# ---- The order


@pytest.mark.parametrize("close", WAYS.values(), ids=WAYS)
def test_a_successor_waits_for_what_returns(stage: Stage, close: Callable[[socket.socket], None]) -> None:
    """Acks that were sent before the close count, however late they are processed."""
    stage.old.sendall(PINGS + b"a ack c1 1\na ack c1 3\n")
    close(stage.old)
    new, _ = stage.consumer()
    stage.publish()
    assert stage.old_client.peer_closed and not stage.old_client.gone
    assert len(stage.broker.queues.by_name[b"q1"].consumers) == 2
    assert got(new) == []
    assert stage.broker.queues.by_name[b"q1"].delivered == MESSAGES, "a closed connection gets no more"
    stage.until_gone()
    assert got(new) == [number for number in range(stage.published) if number not in (1, 3)]


@pytest.mark.parametrize("close", WAYS.values(), ids=WAYS)
def test_a_close_that_comes_after_the_look_at_sockets_counts(
    stage: Stage, close: Callable[[socket.socket], None]
) -> None:
    """In one turn: the broker has seen which sockets are ready, then a peer closes, then its successor is read."""
    new, _ = stage.by_tcp()
    stage.old.sendall(PINGS)
    stage.broker.listeners.listen(b"close", lambda _: close(stage.old))
    new.sendall(b"m publish close now\nc2 consume q1 e1\n")
    stage.publish()
    assert stage.old_client.peer_closed and not stage.old_client.gone
    assert got(new) == []
    stage.until_gone()
    assert got(new) == list(range(stage.published))


@pytest.mark.parametrize("manual", [b"", b" --manual-ack"], ids=["auto", "manual"])
def test_a_successor_in_the_turn_of_the_close_of_one_that_got_nothing(stage: Stage, manual: bytes) -> None:
    """All of it is read in one turn. A close looks like one for sending only: its consumers may be served once more."""
    first, _ = stage.by_tcp()
    stage.say(first, b"c1 consume q2 e1%s\n" % manual)
    new, _ = stage.by_tcp()
    first.sendall(PINGS)
    first.close()
    new.sendall(b"c2 consume q2%s\n" % manual)
    stage.publish()
    stage.until(lambda: len(stage.broker.queues.by_name[b"q2"].consumers) == 1)
    stage.turn()
    assert got(new) == list(range(MESSAGES, 2 * MESSAGES))


def test_a_close_is_known_however_many_sockets_are_ready(stage: Stage) -> None:
    """More of them than one look at sockets reports."""
    others = [stage.pair()[0] for _ in range(300)]
    stage.old.sendall(PINGS)
    for other in others:
        other.sendall(b"p ping\n" * (2 * SHARE))
    new, _ = stage.by_tcp()
    new.sendall(b"p ping\n" * SHARE + b"c2 consume q1 e1\n")
    stage.turn()
    stage.old.close()
    stage.until(lambda: len(stage.broker.queues.by_name[b"q1"].consumers) == 2)
    stage.publish()
    stage.until_gone()
    assert got(new) == list(range(stage.published))


def test_the_last_request_may_be_to_delete_the_consumer(stage: Stage) -> None:
    stage.old.sendall(PINGS + b"d delete_consumer c1\n" + PINGS)
    stage.old.close()
    new, _ = stage.consumer()
    stage.publish()
    assert got(new) == []
    stage.until(lambda: len(stage.broker.queues.by_name[b"q1"].consumers) == 1)
    stage.turn()
    assert not stage.old_client.gone
    assert got(new) == list(range(stage.published))


def test_deliveries_with_auto_ack_that_never_left_return_in_order() -> None:
    """Also when the closed connection has asked to delete its consumer: they would have been settled when they left."""
    stage = Stage(b"c1 consume q1 e1\n")
    received = got(stage.old)
    while not stage.old_client.pending_size:
        stage.publish(b"x" * 10_000)
    stage.old.sendall(PINGS + b"d delete_consumer c1\n" + PINGS)
    reset(stage.old)
    left = stage.published - stage.broker.queues.by_name[b"q1"].unsettled
    assert len(received) <= left < stage.published
    new, _ = stage.consumer()
    stage.publish()
    assert got(new) == []
    stage.until(lambda: len(stage.broker.queues.by_name[b"q1"].consumers) == 1)
    assert not stage.old_client.gone
    said = b""
    while len(numbers := numbers_in(said)) < stage.published - left:
        stage.turn()
        said += read(new)
    assert numbers == list(range(left, stage.published))
    stage.close()


def test_acks_count_though_replies_were_left_unread(stage: Stage) -> None:
    """Its input is not processed while too many of its replies wait. After a reset nobody will read them."""
    stage.broker.core.output.say(stage.old_client, b"x" * (8 * CHOKED) + b"\n")
    stage.old.sendall(PINGS + b"a ack c1 1\n")
    stage.turn()
    assert stage.old_client.pending_size > CHOKED and stage.old_client.lines == 1
    reset(stage.old)
    new, _ = stage.consumer()
    assert got(new) == []
    stage.until_gone()
    assert got(new) == [number for number in range(MESSAGES) if number != 1]


# ---- Others go on


def test_consumers_that_were_there_before_go_on(stage: Stage) -> None:
    other, _ = stage.consumer()
    stage.old.sendall(PINGS)
    stage.old.close()
    new, _ = stage.consumer()
    stage.publish()
    assert not stage.old_client.gone
    assert got(other) == list(range(MESSAGES, 2 * MESSAGES))
    assert got(new) == []


def test_a_successor_waits_only_for_what_closed_before_it_joined(stage: Stage) -> None:
    other, other_client = stage.consumer(b" --manual-ack")
    stage.publish()
    stage.old.sendall(PINGS)
    stage.old.close()
    new, _ = stage.consumer()
    other.sendall(PINGS * 3)
    other.close()
    newest, _ = stage.consumer()
    stage.until_gone()
    assert other_client.peer_closed and not other_client.gone
    assert got(new) == [*range(MESSAGES), *range(MESSAGES + 1, 2 * MESSAGES, 2)]
    stage.publish()
    assert got(newest) == []
    stage.until(lambda: other_client.gone)
    stage.turn()
    assert sorted(got(new) + got(newest)) == [*range(MESSAGES, 2 * MESSAGES, 2), *range(2 * MESSAGES, 3 * MESSAGES)]


@pytest.mark.parametrize("leave", [b"d delete_consumer c2\n", b"d delete_queue q1\n"], ids=["consumer", "queue"])
def test_a_successor_may_leave_while_it_waits(stage: Stage, leave: bytes) -> None:
    stage.old.sendall(PINGS)
    stage.old.close()
    new, _ = stage.consumer()
    stage.say(new, leave)
    assert not stage.old_client.gone
    stage.until_gone()
    stage.say(new, b"c3 consume q1 e1 --manual-ack\n")
    stage.publish()
    assert stage.broker.queues.by_name[b"q1"].unsettled == stage.broker.queues.by_name[b"q1"].length >= MESSAGES


def test_other_queues_go_on(stage: Stage) -> None:
    stage.old.sendall(PINGS)
    stage.old.close()
    new, _ = stage.by_tcp()
    stage.say(new, b"c2 consume q2 e1\n")
    stage.publish()
    assert not stage.old_client.gone
    assert got(new) == list(range(MESSAGES, 2 * MESSAGES))


def test_nobody_waits_when_nothing_returns(stage: Stage) -> None:
    stage.say(stage.old, b"a ack c1 --all\n")
    stage.old.sendall(PINGS)
    stage.old.close()
    new, _ = stage.consumer()
    stage.publish()
    assert not stage.old_client.gone
    assert got(new) == list(range(MESSAGES, 2 * MESSAGES))


def test_nobody_waits_for_one_that_stalls_after_its_close(stage: Stage) -> None:
    stage.old.sendall(PINGS)
    half_close(stage.old)
    new, _ = stage.consumer()
    stage.publish()
    assert got(new) == []
    stage.broker.core.output.say(stage.old_client, b"x" * (8 * CHOKED) + b"\n")
    stage.until(lambda: got(new) != [])
    assert not stage.old_client.gone and len(stage.broker.queues.by_name[b"q1"].consumers) == 2
    assert stage.old_client.unheard


def test_the_rate_limit_does_not_delay_what_returns() -> None:
    stage = Stage(limits=Limits(max_rate=20))
    stage.old.sendall(PINGS + b"a ack c1 1\n")
    half_close(stage.old)
    stage.turn()
    assert stage.old_client.blocked and stage.old_client.peer_closed
    new, _ = stage.consumer()
    while stage.old_client.blocked:
        stage.broker.tick()
    stage.until_gone()
    assert got(new) == [number for number in range(MESSAGES) if number != 1]
    stage.close()


@pytest.mark.parametrize("settle", [b"ack", b"reject"])
def test_nobody_waits_longer_than_until_all_is_settled(stage: Stage, settle: bytes) -> None:
    stage.old.sendall(PINGS + b"a %s c1 --all\n" % settle + PINGS)
    stage.old.close()
    new, _ = stage.consumer()
    stage.publish()
    assert got(new) == []
    stage.until(lambda: stage.broker.queues.by_name[b"q1"].unsettled == 0)
    stage.turn()
    assert not stage.old_client.gone
    expected = [] if settle == b"ack" else list(range(MESSAGES))
    assert sorted(got(new)) == expected + list(range(MESSAGES, 2 * MESSAGES))


# ---- Work


def test_the_consumers_of_a_closed_connection_are_looked_at_once() -> None:
    """However many turns its input takes."""
    count = SHARE
    stage = Stage(b"".join(b"c%d consume q1 e1 --manual-ack\n" % number for number in range(count)))
    before = stage.broker.core.work.effort
    stage.old.sendall(PINGS)
    stage.old.close()
    for _ in range(5):
        stage.turn()
    assert stage.old_client.peer_closed and not stage.old_client.gone
    assert stage.broker.core.work.effort - before in (count, count + 1), "one may be looked at before the others"
    stage.close()


def test_a_turn_learns_of_closes_up_to_its_share_of_work() -> None:
    """Closed for sending, with consumers that were given nothing: it takes a look at each to see that. A turn later
    they get no more messages. Their input is blocked: the end of it would be read in the same turn."""
    turns = Turns()
    core, queue = turns.broker.core, turns.broker.queues.make(b"q2")
    # The broker itself knows of no consumers here.
    turns.poller = Poller(core, core.detach, core.detach, fail, lambda: None)
    closed = [turns.pair() for _ in range(2 * CLOSES + 1)]
    for near, client in closed:
        for number in range(EFFORT // CLOSES // 2):
            core.acks.join(client, b"%d" % number, queue, 0, False, 0)
        core.parser.block(client)
        half_close(near)
    known = []
    for _ in range(3):
        turns.turn()
        known.append(sum(client.peer_closed for _, client in closed))
    turns.close()
    assert known == [0, 2 * CLOSES, 2 * CLOSES + 1]


# ---- Replies


def test_a_half_closed_consumer_leaves_though_replies_are_to_come(stage: Stage) -> None:
    stage.broker.core.output.expect(stage.old_client, 1)
    stage.say(stage.old, b"p ping last\n")
    half_close(stage.old)
    new, _ = stage.consumer()
    stage.turn()
    assert not stage.old_client.gone
    assert got(new) == list(range(MESSAGES))
    stage.broker.core.output.say(stage.old_client, b"the reply\n")
    stage.broker.core.output.expect(stage.old_client, -1)
    stage.until_gone()
    assert stage.old.recv(1 << 20).endswith(b"p ok last\nthe reply\n")


# ---- A running broker


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_over_sockets(tls: bool, tmp_path: Path) -> None:
    authority = Authority(tmp_path) if tls else None
    flags = [f"--tls-cert={authority.issue()}"] if authority else []
    context = authority.context() if authority else None
    with running_broker(*flags) as broker, closing(Connection(broker.port, context)) as publisher:

        def publish(numbers: range) -> None:
            publisher.send(b"".join(b"%d publish e1 d\n" % number for number in numbers))
            assert publisher.ask("p ping") == "p ok "

        with closing(Connection(broker.port, context)) as old:
            assert old.ask("c1 consume --confirm q1 e1 --manual-ack") == "c1 ok "
            publish(range(1000))
            new = Connection(broker.port, context)
            old.send(b"p ping\n" * 20_000)
        with closing(new):
            assert new.ask("c2 consume --confirm q1 e1") == "c2 ok "
            for start in range(1000, 3000, 100):
                publish(range(start, start + 100))
            assert [int(new.line().split()[2]) for _ in range(3000)] == list(range(3000))


@pytest.mark.parametrize("fsync", [None, "always"], ids=["memory", "journal"])
def test_a_client_that_asks_and_closes_for_sending_sees_what_is_ready(fsync: str | None) -> None:
    """As `printf … | nc -q1` does."""
    requests = b"Alice consume q hello\nBob consume q hello\nCharlie consume q2 hello\nDave publish hello world\n"
    with running_broker(fsync=fsync) as broker, socket.create_connection(("127.0.0.1", broker.port)) as client:
        client.settimeout(PATIENCE)
        client.sendall(requests)
        client.shutdown(socket.SHUT_WR)
        lines = client.makefile("rb").read().splitlines()
    assert sorted(line for line in lines if b" ok Dave " in line) == [
        b"Alice ok Dave event=hello world",
        b"Charlie ok Dave event=hello world",
    ]
