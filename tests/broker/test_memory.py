"""Memory comes back: whatever is settled, deleted, disconnected or given up leaves nothing behind.

`core.log.held` counts the bytes of messages that are kept, `core.account.used` all that the core has taken. Some of it
stays for the next time: the segment being written, some segments and out-buffers at rest. A test begins with all of
these in place; then whatever it does, each time must end where it began, give or take a page (SLACK).
"""

import gc
import json
import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from mqks.broker import Broker, capacity
from mqks.broker.connections.client import Client
from mqks.broker.queues.consumer_ids import CONSUMER_COST
from tests.broker.driver import PEER

SEGMENT = 256 << 10
MOST_AT_REST = 6 << 20
SLACK = 4 << 10
DATA = b"x" * 100


class Driven:
    """A broker, and one client that reads at once all that it is sent."""

    def __init__(self) -> None:
        self.broker = Broker()
        self.client = self.broker.connect(PEER)
        self._fill_what_rests()
        self.at_rest = self.used

    def _fill_what_rests(self) -> None:
        """Several large buffers in use at a time, and several segments: as many as may, stay."""
        clients = [self.broker.connect(PEER) for _ in range(20)]
        for client in clients:
            self.broker.feed(client, b"p ping " + b"x" * 300_000 + b"\n")
        for client in clients:
            self.broker.sent(client, client.pending_size)
            self.broker.disconnect(client)
        self.feed(b"s subscribe q1 e1", *publishes([b"m"] * 50_000), b"d delete_queue q1")

    @property
    def held(self) -> int:
        return self.broker.core.log.held

    @property
    def used(self) -> int:
        return self.broker.core.account.used

    def feed(self, *lines: bytes) -> None:
        self.broker.feed(self.client, b"".join(line + b"\n" for line in lines))

    def read(self) -> list[bytes]:
        """Turns and reads until there is nothing more."""
        data = []
        self.broker.turn()
        while self.client.pending_size:
            data.append(self.client.pending())
            self.broker.sent(self.client, self.client.pending_size)
            self.broker.turn()
        return b"".join(data).splitlines()

    def talk(self, *lines: bytes) -> list[bytes]:
        self.feed(*lines)
        return self.read()

    def reconnect(self) -> None:
        self.broker.disconnect(self.client)
        self.client = self.broker.connect(PEER)


def publishes(ids: list[bytes]) -> list[bytes]:
    return [b"%s publish e1 %s" % (id, DATA) for id in ids]


def ids_of(lines: list[bytes]) -> list[bytes]:
    """The message ids of deliveries."""
    assert all(line.split(b" ")[1] == b"ok" for line in lines)
    return [line.split(b" ")[2] for line in lines]


def assert_comes_back(driven: Driven, act: Callable[[], None], times: int = 3) -> None:
    for _ in range(times):
        act()
        assert driven.held <= SEGMENT
        assert driven.used - driven.at_rest <= SLACK


# ---- Messages


def test_little_rests() -> None:
    assert Driven().at_rest <= MOST_AT_REST


@pytest.mark.parametrize("count", [1_000, 100_000])
def test_drained_backlog(count: int) -> None:
    driven = Driven()
    messages = publishes([b"m%d" % n for n in range(count)])

    def backlog() -> None:
        assert driven.talk(b"s subscribe q1 e1", *messages) == []
        assert driven.held >= count * len(DATA)
        assert len(driven.talk(b"c1 consume q1")) == count
        driven.feed(b"d delete_consumer c1")

    assert_comes_back(driven, backlog)


def test_messages_that_nobody_wants() -> None:
    driven = Driven()
    assert_comes_back(driven, lambda: driven.feed(*publishes([b"m"] * 20_000)))


@pytest.mark.parametrize("unacked", [False, True])
def test_forgotten_message_pins_only_its_segment(unacked: bool) -> None:
    """It waits in a queue, or at a consumer, while a hundred thousand others pass; and it is still itself."""
    driven = Driven()
    driven.feed(b"s subscribe kept e0", b"m0 publish e0 forgotten")
    if unacked:
        assert driven.talk(b"c0 consume kept --manual-ack") == [b"c0 ok m0 event=e0 forgotten"]
    driven.feed(b"c1 consume q1 e1")
    for _ in range(100):
        assert len(driven.talk(*publishes([b"m"] * 1000))) == 1000
        assert driven.held <= 2 * SEGMENT
    assert driven.used - driven.at_rest <= SEGMENT + SLACK
    driven.reconnect()
    retry = b",retry=1" if unacked else b""
    assert driven.talk(b"c0 consume kept") == [b"c0 ok m0 event=e0" + retry + b" forgotten"]
    driven.feed(b"d delete_queue q1", *publishes([b"m"] * 5000))
    assert driven.held <= SEGMENT


def test_message_in_many_queues_is_kept_once() -> None:
    driven = Driven()
    queues = [b"q%d" % n for n in range(100)]
    messages = publishes([b"m%d" % n for n in range(2000)])

    def fan_out() -> None:
        driven.feed(*(b"s subscribe %s e1" % queue for queue in queues), *messages)
        assert driven.held <= sum(len(line) + 1 for line in messages) + SEGMENT
        for queue in queues:
            assert driven.held >= 2000 * len(DATA)
            driven.feed(b"d delete_queue " + queue)

    assert_comes_back(driven, fan_out)


# ---- Unacked, settled in every order


FIFTY_THOUSAND = 50_000
UNIQUE = [b"m%d" % n for n in range(FIFTY_THOUSAND)]
REPEATED = [b"m%d" % (n % 1000) for n in range(FIFTY_THOUSAND)]
ORDERS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "forward": list,
    "backward": lambda ids: ids[::-1],
    "random": lambda ids: random.Random(1).sample(ids, len(ids)),
    "inside out": lambda ids: ids[len(ids) // 2 :] + ids[len(ids) // 2 - 1 :: -1],
    "every third": lambda ids: ids[::3] + ids[1::3] + ids[2::3],
}


@pytest.mark.parametrize("ids", [UNIQUE, REPEATED], ids=["unique ids", "repeated ids"])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_acks_in_any_order(order: Callable[[list[bytes]], list[bytes]], ids: list[bytes]) -> None:
    driven = Driven()
    acks = [b"a ack c1 " + id for id in order(ids)]
    driven.feed(b"c1 consume q1 e1 --manual-ack")

    def unsettled() -> tuple[int, int]:
        queue = driven.broker.queues.by_name[b"q1"]
        return queue.ready_count, queue.unsettled

    def settle_all() -> None:
        assert ids_of(driven.talk(*publishes(ids))) == ids
        assert driven.talk(*acks[:-1]) == []
        assert unsettled() == (0, 1)
        assert driven.talk(*acks[-1:], *acks[:100]) == []
        assert unsettled() == (0, 0)

    assert_comes_back(driven, settle_all)


def test_ack_of_a_repeated_id_settles_the_one_delivered_first() -> None:
    """Most of each id are acked, in random order; what comes back is the rest, in the old order."""
    driven = Driven()
    driven.feed(b"c1 consume q1 e1 --manual-ack")
    driven.talk(*(b"m%d publish e1 %d" % (n % 10, n) for n in range(1000)))
    acked = random.Random(1).sample([n % 10 for n in range(1000)], 900)
    left = [n for n in range(1000) if n // 10 >= acked.count(n % 10)]
    driven.feed(*(b"a ack c1 m%d" % n for n in acked))
    driven.reconnect()
    came = driven.talk(b"c1 consume q1")
    assert came == [b"c1 ok m%d event=e1,retry=1 %d" % (n % 10, n) for n in left]
    assert driven.held <= SEGMENT


def ack_all(driven: Driven) -> None:
    driven.feed(b"a ack c1 --all")


def reject_all(driven: Driven) -> None:
    assert len(driven.talk(b"r reject c1 --all")) == FIFTY_THOUSAND
    driven.feed(b"a ack c1 --all")


def reject_each(driven: Driven) -> None:
    assert len(driven.talk(*(b"r reject c1 " + id for id in UNIQUE[::-1]))) == FIFTY_THOUSAND
    driven.feed(b"a ack c1 --all")


def delete_consumer(driven: Driven) -> None:
    driven.feed(b"d delete_consumer c1", b"d delete_queue q1")


def delete_queue(driven: Driven) -> None:
    driven.feed(b"d delete_queue q1")


def delete_queue_when_some_came_back(driven: Driven) -> None:
    """Some are acked in the middle, some rejected, the others returned to their old place."""
    driven.feed(*(b"a ack c1 " + id for id in UNIQUE[10_000:20_000]), *(b"r reject c1 " + id for id in UNIQUE[::4]))
    driven.feed(b"d delete_consumer c1", b"d delete_queue q1")


def delete_queue_without_reading(driven: Driven) -> None:
    """Its messages are also in the buffer of a connection that goes on."""
    driven.feed(b"c2 consume q1", b"d delete_consumer c1")
    driven.broker.turn()
    assert driven.client.pending_size > 0
    driven.feed(b"d delete_queue q1")
    driven.read()


def disconnect(driven: Driven) -> None:
    driven.reconnect()
    driven.feed(b"d delete_queue q1")


def disconnect_without_reading(driven: Driven) -> None:
    driven.feed(b"c2 consume q1", b"d delete_consumer c1")
    driven.broker.turn()
    assert driven.client.pending_size > 0
    driven.reconnect()
    assert len(driven.talk(b"c1 consume q1")) == FIFTY_THOUSAND


def from_manual_to_auto(driven: Driven) -> None:
    assert len(driven.talk(b"c1 consume q1")) == FIFTY_THOUSAND


WAYS = [
    ack_all,
    reject_all,
    reject_each,
    delete_consumer,
    delete_queue,
    delete_queue_when_some_came_back,
    delete_queue_without_reading,
    disconnect,
    disconnect_without_reading,
    from_manual_to_auto,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_fifty_thousand_unacked_end_in_any_way(way: Callable[[Driven], None]) -> None:
    driven = Driven()

    def unacked() -> None:
        driven.feed(b"c1 consume q1 e1 --manual-ack")
        assert len(driven.talk(*publishes(UNIQUE))) == FIFTY_THOUSAND
        way(driven)
        driven.reconnect()
        driven.feed(b"d delete_queue q1")

    assert_comes_back(driven, unacked)


# ---- Retries


@pytest.mark.parametrize("back", [b"reject", b"disconnect", b"delete_consumer"])
def test_retry_is_exact_beyond_255(back: bytes) -> None:
    """A thousand times, among others that are fresh; then it is acked, and the next message starts at nothing."""
    driven = Driven()
    lines = driven.talk(b"c1 consume q1 e1 --manual-ack", b"m1 publish e1 d1", b"m2 publish e1 d2")
    assert lines == [b"c1 ok m1 event=e1 d1", b"c1 ok m2 event=e1 d2"]
    for retry in range(1, 1001):
        if back == b"disconnect":
            driven.feed(b"a ack c1 m2")
            driven.reconnect()
            lines = driven.talk(b"c1 consume q1 --manual-ack", b"m2 publish e1 d2")
        elif back == b"delete_consumer":
            driven.feed(b"a ack c1 m2", b"d delete_consumer c1")
            lines = driven.talk(b"c1 consume q1 --manual-ack", b"m2 publish e1 d2")
        else:
            lines = driven.talk(b"r reject c1 m1", b"a ack c1 m2", b"m2 publish e1 d2")
        assert lines == [b"c1 ok m1 event=e1,retry=%d d1" % retry, b"c1 ok m2 event=e1 d2"]
    driven.feed(b"a ack c1 --all")
    assert driven.talk(b"m1 publish e1 d1") == [b"c1 ok m1 event=e1 d1"]


def test_retry_of_many_messages_each_its_own() -> None:
    """Message n is rejected n times, so that counts on both sides of 255 live side by side, in two queues."""
    driven = Driven()
    driven.feed(b"s subscribe q2 e1")
    driven.talk(b"c1 consume q1 e1 --manual-ack", *(b"%d publish e1 d" % n for n in range(300)))
    for round in range(300):
        lines = driven.talk(*(b"r reject c1 %d" % n for n in range(round + 1, 300)))
        assert lines == [b"c1 ok %d event=e1,retry=%d d" % (n, round + 1) for n in range(round + 1, 300)]
    driven.reconnect()
    lines = driven.talk(b"c1 consume q1")
    assert lines == [b"c1 ok %d event=e1,retry=%d d" % (n, n + 1) for n in range(300)]
    assert driven.talk(b"c2 consume q2") == [b"c2 ok %d event=e1 d" % n for n in range(300)]


def test_retry_of_a_sevx_event_beyond_255() -> None:
    driven = Driven()
    recv = b'r1 recv {"queue": "q1", "pattern": {}, "manual_ack": true, "delete_queue_when_unused": false}'
    driven.talk(recv, b'm1 send {"a": 1}')
    for _ in range(300):
        lines = driven.talk(b'x reject {"receiver_id": "r1", "event_id": "m1"}')
    assert lines == [b"x ok ", b'r1 ok m1 {"retry": 300, "a": 1}']


# ---- Patterns


def recv(content: Any, queue: str = "q1", request_id: str = "r1") -> bytes:
    return f"{request_id} recv {json.dumps({'pattern': content, 'queue': queue}, ensure_ascii=False)}".encode()


HUNDRED = range(100)
LONG = "x" * 100_000
PATTERNS: dict[str, Callable[[int], Any]] = {
    "everything": lambda _: {},
    "an event": lambda n: {"event": f"e{n}"},
    "data of an event": lambda n: {"event": f"e{n}", "data": n},
    "data": lambda n: {"data": {"id": n}},
    "usual": lambda n: {"obj": "user", "act": f"updated{n}"},
    "keys": lambda n: {f"{n}.{k}": k for k in HUNDRED},
    "strings": lambda n: {f"{k}": f"{n}.{k}" for k in HUNDRED},
    "objects": lambda n: {f"{n}.{k}": {} for k in HUNDRED},
    "numbers": lambda n: {"list": [n * 1000.5 + k for k in range(99)]},
    "lists": lambda n: {"list": [n, *([] for _ in range(98))]},
    "objects in a list": lambda n: {"list": [n, *({"a": k} for k in range(49))]},
    "nested": lambda n: json.loads('{"a":' * 100 + str(n) + "}" * 100),
    "nested lists": lambda n: json.loads('{"a":' + "[" * 99 + str(n) + "]" * 99 + "}"),
    "a long key": lambda n: {f"{n}{LONG}": 1},
    "a long string": lambda n: {"a": f"{n}{LONG}"},
    "a long string with a character that widens all": lambda n: {"a": f"{n}{LONG}\U0001f600"},
    "a long string in another script": lambda n: {"a": f"{n}" + "é" * 100_000},
}


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_patterns_come_back_when_they_change_and_when_their_queue_goes(pattern: Callable[[int], Any]) -> None:
    driven = Driven()

    def change() -> None:
        changes = [recv(pattern(n)) for n in range(5)]
        assert driven.talk(*changes) == [b"r1 ok "] * 5
        changed = driven.used
        assert driven.talk(recv(pattern(4)), recv(pattern(4), request_id="r2")) == [b"r1 ok ", b"r2 ok "]
        assert changed < driven.used < changed + 1000, "the same pattern again costs nothing, but another receiver does"
        driven.reconnect()
        assert not driven.broker.queues.by_name

    assert_comes_back(driven, change)


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_patterns_are_counted_with_all_that_they_take(pattern: Callable[[int], Any]) -> None:
    """With the queues and the receivers that have them."""
    driven = Driven()
    requests = [recv(pattern(n), f"q{n}", f"r{n}") for n in range(20)]
    counted = driven.used
    tracemalloc.start()
    try:
        assert all(driven.talk(request)[0].endswith(b" ok ") for request in requests)
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken <= driven.used - counted


def test_with_full_memory_no_queue_has_another_pattern() -> None:
    """Also one that names the same event, or none. What it had may be asked for as before, to make room."""
    driven = Driven()
    driven.talk(recv({"event": "e1", "data": 1}), recv({"a": 1}, "q2", "r2"))
    driven.broker.core.account.charge(1 << 40)
    assert driven.broker.core.account.full
    for refused in (recv({"event": "e1", "data": 2}), recv({"a": 2}, "q2", "r2")):
        (answer,) = driven.talk(refused)
        assert b" error " in answer
    assert driven.talk(recv({"event": "e1", "data": 1.0}), recv({"a": 1}, "q2", "r2")) == [b"r1 ok ", b"r2 ok "]


# ---- Consumers


CONSUMES: dict[str, Callable[[bytes], bytes]] = {
    "consume": lambda consumer_id: consumer_id + b" consume q1",
    "recv": lambda consumer_id: (
        consumer_id + b' recv {"queue": "q1", "pattern": {}, "delete_queue_when_unused": false}'
    ),
}
CONSUMING = pytest.mark.parametrize("consume", CONSUMES.values(), ids=CONSUMES)


@CONSUMING
@pytest.mark.parametrize("size", [1, 200, 10_000])
def test_consumers_are_counted_with_all_that_they_take(consume: Callable[[bytes], bytes], size: int) -> None:
    driven = Driven()
    driven.talk(consume(b"r1"))
    requests = [consume(b"%d" % n + b"c" * size) for n in range(100)]
    counted = driven.used
    tracemalloc.start()
    try:
        driven.talk(*requests)
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(driven.client.consumers) == 101
    assert taken <= driven.used - counted


@CONSUMING
def test_full_memory_leaves_a_reserve_for_consumers(
    consume: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the rest of memory is used for, and however much too much. Beyond it they are refused, short ids too."""
    driven = Driven()
    there = b"t" * 1000
    driven.talk(consume(there))
    cost = CONSUMER_COST + 4
    monkeypatch.setattr(capacity, "RESERVE", driven.broker.capacity.readers.used + 3 * cost)
    driven.broker.core.account.charge(1 << 40)
    before = driven.used
    assert not any(b" error " in line for line in driven.talk(consume(there), *map(consume, (b"c1", b"c2", b"c3"))))
    assert driven.used == before + 3 * cost
    (refused,) = driven.talk(consume(b"c4"))
    assert refused.startswith(b"c4 error ")
    driven.talk(b"d delete_consumer c2")
    assert not any(b" error " in line for line in driven.talk(consume(b"c4")))
    assert list(driven.client.consumers) == [there, b"c1", b"c3", b"c4"]
    driven.reconnect()
    assert driven.used < before, "when the connection ends, its consumers go"


def test_consumers_of_a_deleted_queue_leave_the_reserve() -> None:
    driven = Driven()
    before = driven.broker.capacity.readers.used
    driven.talk(*(b"c%d consume q1" % number for number in range(10)))
    assert driven.broker.capacity.readers.used > before
    driven.talk(b"d delete_queue q1")
    assert driven.broker.capacity.readers.used == before


# ---- Lines


MIB = b"y" * (1 << 20)


def feed_in_pieces(driven: Driven, data: bytes, size: int = 10_007) -> None:
    for start in range(0, len(data), size):
        driven.broker.feed(driven.client, data[start : start + size])


def long_publish(driven: Driven) -> None:
    feed_in_pieces(driven, b"m1 publish e1 " + MIB[:-14] + b"\r\n")
    assert driven.read() == [b"c1 ok m1 event=e1 " + MIB[:-14]]


def long_ping(driven: Driven) -> None:
    feed_in_pieces(driven, b"p1 ping " + MIB[:-8] + b"\n")
    assert driven.read() == [b"p1 ok " + MIB[:-8]]


def too_long(driven: Driven) -> None:
    feed_in_pieces(driven, b"p1 ping " + MIB * 3 + b"\n")
    (error,) = driven.read()
    assert error.startswith(b"p1 error ")


def gone_in_the_middle(driven: Driven) -> None:
    other = driven.broker.connect(PEER)
    driven.broker.feed(other, b"m1 publish e1 " + MIB[:-100])
    driven.broker.disconnect(other)


def gone_before_it_read(driven: Driven) -> None:
    other = driven.broker.connect(PEER)
    driven.broker.feed(other, b"p1 ping " + MIB[:-8] + b"\n")
    driven.broker.disconnect(other)


@pytest.mark.parametrize(
    "act", [long_publish, long_ping, too_long, gone_in_the_middle, gone_before_it_read], ids=lambda act: act.__name__
)
def test_long_lines(act: Callable[[Driven], None]) -> None:
    driven = Driven()
    driven.feed(b"c1 consume q1 e1")

    def lines() -> None:
        act(driven)
        driven.talk(*publishes([b"m"] * 5000))  # the segment made for a long line goes when the next one begins

    assert_comes_back(driven, lines, times=5)


def test_clients_come_and_go() -> None:
    driven = Driven()

    def visit() -> None:
        clients: list[Client] = [driven.broker.connect(PEER) for _ in range(100)]
        for n, client in enumerate(clients):
            driven.broker.feed(client, b"c1 consume q%d e1 --delete-queue-when-unused\nnope\nhalf a li" % n)
        driven.feed(*publishes(UNIQUE[:100]))
        driven.broker.turn()
        for client in clients:
            driven.broker.disconnect(client)
        assert (
            len(driven.broker.queues.by_name),
            len(driven.broker.connections.clients),
            len(driven.broker.core.events),
        ) == (0, 1, 0)

    assert_comes_back(driven, visit, times=5)


def clients_alive() -> int:
    gc.collect()
    return sum(isinstance(one, Client) for one in gc.get_objects())


def test_clients_that_went_while_their_lines_waited_are_forgotten() -> None:
    """Though nobody else's lines wait, and so none are resumed."""
    driven = Driven()
    before = clients_alive()
    for _ in range(10):
        client = driven.broker.connect(PEER)
        driven.broker.core.parser.block(client)
        driven.broker.feed(client, b"p ping\n")
        assert client.unheard
        driven.broker.disconnect(client)
    del client
    assert clients_alive() == before
