"""When something goes wrong inside: nothing is lost or doubled, the others are served, and memory is counted right."""

from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

import pytest

from mqks.broker import Broker
from mqks.broker.connections.client import Client
from tests.broker.driver import PEER

P = ParamSpec("P")
T = TypeVar("T")


class Fault(Exception):
    pass


class Faulty(Broker):
    """A broker whose Python parts fail while told to."""

    failing = False

    def __init__(self) -> None:
        super().__init__()
        self.callbacks.render = self._failing(self.callbacks.render)  # type: ignore[method-assign]
        self.callbacks.inspect = self._failing(self.callbacks.inspect)  # type: ignore[method-assign]

    def _failing(self, call: Callable[P, T]) -> Callable[P, T]:
        def fail_or_call(*args: P.args, **kwargs: P.kwargs) -> T:
            if self.failing:
                raise Fault
            return call(*args, **kwargs)

        return fail_or_call


@pytest.fixture
def broker() -> Iterator[Faulty]:
    broker = Faulty()
    yield broker
    for client in list(broker.connections.clients):
        broker.disconnect(client)


def said(broker: Broker, client: Client) -> list[bytes]:
    lines = client.pending().splitlines()
    broker.sent(client, client.pending_size)
    return lines


def test_a_delivery_that_fails_is_made_later_and_the_other_queues_are_served(broker: Faulty) -> None:
    client = broker.connect(PEER)
    broker.feed(client, b'r1 recv {"pattern": {}, "queue": "q0"}\nc1 consume q1 e1\nc2 consume q2 e1\n')
    said(broker, client)
    broker.feed(client, b"m1 publish e1 a\nm2 publish e1 b\n")
    broker.failing = True
    with pytest.raises(Fault):
        broker.turn()
    broker.failing = False
    broker.turn()
    lines = said(broker, client)
    assert [line for line in lines if line.startswith(b"r1")] == [
        b'r1 ok m1 {"event": "e1", "data": "a"}',
        b'r1 ok m2 {"event": "e1", "data": "b"}',
    ]
    for consumer in (b"c1", b"c2"):
        assert [line for line in lines if line.startswith(consumer)] == [
            consumer + b" ok m1 event=e1 a",
            consumer + b" ok m2 event=e1 b",
        ]


def test_a_message_that_could_not_be_looked_into_is_held_by_those_who_have_it(broker: Faulty) -> None:
    client = broker.connect(PEER)
    broker.feed(client, b'r1 recv {"pattern": {"data": 1}, "queue": "q0"}\nr2 rebind q1 e1\n')
    said(broker, client)
    broker.failing = True
    with pytest.raises(Fault):
        broker.feed(client, b"m1 publish e1 " + b"x" * 1000 + b"\n")
    broker.failing = False
    for n in range(1000):  # segments come and go meanwhile
        broker.feed(client, b"n%d publish e2 %s\n" % (n, b"y" * 1000))
    broker.feed(client, b"c1 consume q1\n")
    broker.turn()
    assert said(broker, client) == [b"c1 ok m1 event=e1 " + b"x" * 1000]


@pytest.mark.parametrize("messages", [1, 16, 17])
@pytest.mark.parametrize("end", ["disconnect", "delete_consumer", "delete_queue"])
@pytest.mark.parametrize("ack", [b"", b" --manual-ack"])
@pytest.mark.parametrize("sent", [True, False])
def test_short_lives_leave_nothing_in_the_count(messages: int, end: str, ack: bytes, sent: bool) -> None:
    broker = Broker()
    publisher = broker.connect(PEER)

    def live() -> None:
        client = broker.connect(PEER)
        broker.feed(client, b"c1 consume q1 e1%s\n" % ack)
        broker.feed(publisher, b"m publish e1 d\n" * messages)
        broker.turn()
        if sent:
            said(broker, client)
        if end == "delete_consumer":
            broker.feed(client, b"d delete_consumer c1\n")
        elif end == "delete_queue":
            broker.feed(client, b"d delete_queue q1\n")
        broker.turn()
        said(broker, client)
        broker.disconnect(client)
        broker.feed(publisher, b"d delete_queue q1\n")

    live()
    used = broker.core.account.used
    for _ in range(50):
        live()
    assert broker.core.account.used == used


def test_one_who_was_busy_once_costs_little_later() -> None:
    broker = Broker()
    clients = [broker.connect(PEER) for _ in range(50)]
    for client in clients:
        broker.feed(client, b"p ping %s\n" % (b"x" * 300_000))
        said(broker, client)
        broker.feed(client, b"p ping\n")
        said(broker, client)
    used = broker.core.account.used
    for client in clients:
        broker.feed(client, b"p ping\n")
    assert broker.core.account.used - used < 50 * 1024


def test_queues_and_subscriptions_count_as_memory_and_are_refused_when_it_is_full() -> None:
    broker = Broker(max_memory=1 << 20)
    client = broker.connect(PEER)
    broker.feed(client, b"r rebind q0 e0\n")
    for n in range(10_000):
        broker.feed(client, b"r rebind q%d e%d\n" % (n, n))
        if client.pending():
            break
    else:
        pytest.fail("nothing was refused")
    assert client.pending().startswith(b"r error ")
    queues = len(broker.queues.by_name)
    said(broker, client)
    broker.feed(client, b"c1 consume --confirm q0 e0\n")
    assert said(broker, client) == [b"c1 ok "], "one may still take what is there"
    for n in range(queues):
        broker.feed(client, b"d delete_queue q%d\n" % n)
    said(broker, client)
    assert broker.core.account.used < 1 << 17


def test_an_update_made_for_many_is_made_once() -> None:
    broker = Broker()
    clients = [broker.connect(PEER) for _ in range(200)]
    broker.feed(clients[0], b"r rebind q1 " + b" ".join(b"event%d" % n for n in range(9000)) + b"\n")
    for client in clients:
        broker.feed(client, b"c1 consume q1 --add event0\n")
    queue = broker.queues.by_name[b"q1"]
    broker.feed(clients[0], b"r rebind q1 --add zz\n")
    first, second, *_ = queue.consumers
    assert queue.update_text(first) is queue.update_text(second)
    assert all(client.pending().endswith(b" zz\n") for client in clients)


@pytest.mark.parametrize(
    ("request_line", "reply"),
    [
        (b"a1 ack c1 {x", b"a1 error"),
        (b'e1 _eval --confirm {"code": "1 + 1"}', b'e1 ok {"result": 2}'),
    ],
)
def test_small_things(request_line: bytes, reply: bytes) -> None:
    broker = Broker()
    client = broker.connect(PEER)
    broker.feed(client, b"c1 consume q1 e1 --manual-ack\n" + request_line + b"\n")
    assert client.pending().startswith(reply)
