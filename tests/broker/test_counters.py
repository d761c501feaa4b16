"""What the broker counts beside its queues: events, bytes, retries, clients; and who counts for nothing."""

import json
import socket

import pytest

from mqks.broker import Broker
from mqks.broker.connections.client import Client
from mqks.testing import broker as running_broker
from tests.broker.on_disk import OnDisk


def said(broker: Broker, client: Client, *requests: bytes) -> bytes:
    broker.feed(client, b"".join(request + b"\n" for request in requests))
    broker.turn()
    text = client.pending()
    broker.sent(client, len(text))
    return text


# ── events ──


def test_each_subscribed_event_counts_the_messages_of_its_name_in_both_dialects() -> None:
    broker = Broker()
    client = broker.connect("127.0.0.1:1")
    said(
        broker,
        client,
        b"s subscribe q1 e1 e2",
        b"s subscribe q2 e1",
        b'p recv {"queue": "q3", "pattern": {"event": "e3", "data": 1}}',
    )
    said(
        broker,
        client,
        b"m1 publish e1 x",
        b"m2 publish --confirm e1 x",
        b"m3 publish --once e1 x",
        b"m3 publish --once e1 x",
        b'm4 send {"event": "e1", "data": 2}',
        b"m5 publish e3 1",
        b"m6 publish e3 2",
        b"m7 publish e9 x",
        b'm8 send {"event": "e9"}',
        b'm9 send {"no": "name"}',
    )
    assert sorted(broker.core.events.counts()) == [(b"e1", 4), (b"e2", 0), (b"e3", 2)]
    assert broker.core.router.published == 9, "also those that no event counts"


def test_an_event_counts_from_when_it_is_subscribed() -> None:
    broker = Broker()
    client = broker.connect("127.0.0.1:1")
    said(broker, client, b"s subscribe q1 e1", b"m1 publish e1 x", b"r rebind q1", b"m2 publish e1 x")
    assert broker.core.events.counts() == []
    said(broker, client, b"r rebind q1 e1", b"m3 publish e1 x")
    assert broker.core.events.counts() == [(b"e1", 1)]


def test_looking_at_an_event_counts_nothing() -> None:
    broker = Broker()
    client = broker.connect("127.0.0.1:1")
    assert said(broker, client, b"s subscribe q1 e1", b"v _eval state.events['e1']") == b"v ok ['q1']\n"
    assert broker.core.events.counts() == [(b"e1", 0)]


def test_a_start_counts_anew() -> None:
    on_disk = OnDisk()
    on_disk.say(on_disk.connect(), b"s subscribe q1 e1", b"m1 publish e1 x", b'm2 send {"event": "e1"}')
    assert on_disk.broker.core.events.counts() == [(b"e1", 2)]
    on_disk.crash()
    assert on_disk.broker.core.events.counts() == [(b"e1", 0)]
    assert (on_disk.queue().ready_count, on_disk.queue().retried) == (2, 0)


def test_who_listens_gets_the_data_of_each_publish_to_that_event_and_of_no_other() -> None:
    broker = Broker()
    client = broker.connect("127.0.0.1:1")
    heard: list[bytes] = []
    broker.listeners.listen(b"e1", heard.append)
    said(broker, client, b"m1 publish e1 d1", b"m2 publish e2 d2", b"m3 publish --confirm e1 d3 and more")
    assert heard == [b"d1", b"d3 and more"]
    assert said(broker, client, b"v _eval len(state.events)") == b"v ok 0\n", "no queue has it"
    again: list[bytes] = []
    broker.listeners.listen(b"e1", again.append)
    assert said(broker, client, b"c consume q1 e1", b"m4 publish e1 d4") == b"c ok m4 event=e1 d4\n"
    assert (len(heard), again) == (2, [b"d4"])
    assert said(broker, client, b"v _eval [event for event in state.events]") == b"v ok ['e1']\n"
    said(broker, client, b"d delete_queue q1", b"m5 publish e1 d5")
    assert again == [b"d4", b"d5"]


def test_a_listener_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    client = broker.connect("127.0.0.1:1")

    def fail(data: bytes) -> None:
        raise ValueError(data)

    broker.listeners.listen(b"e1", fail)
    assert said(broker, client, b"c consume q1 e1", b"m1 publish e1 d1") == b"c ok m1 event=e1 d1\n"
    assert "could not be taken" in caplog.text


# ── retries ──


def test_rejected_and_returned_messages_are_retried_and_those_that_nobody_saw_are_not() -> None:
    broker = Broker(high_water=1)
    client = broker.connect("127.0.0.1:1")
    said(broker, client, b"c consume --manual-ack q1 e1", b"m1 publish e1 x")
    queue = broker.queues.by_name[b"q1"]
    assert (queue.retried, queue.retrying) == (0, 0)
    said(broker, client, b"r reject c m1")
    said(broker, client, b"r reject c m1")
    assert (queue.retried, queue.retrying) == (2, 2)
    said(broker, client, b"m2 publish e1 x")
    broker.feed(client, b"m3 publish e1 x\n")
    broker.turn()
    assert client.pending() == b"c ok m3 event=e1 x\n", "it has not left"
    broker.disconnect(client)
    assert (queue.retried, queue.retrying) == (4, 3), "m1 was the third time, and m2 the first"
    assert (queue.rejected, queue.returned_count) == (2, 3)
    stats = json.loads(said(broker, broker.connect("127.0.0.1:1"), b"s stats").split(b" ", 2)[2])
    assert stats["queues"]["q1"]["retries"] == 4


def test_the_message_retried_most_is_seen_among_others_until_all_is_calm() -> None:
    broker = Broker()
    client = broker.connect("127.0.0.1:1")
    said(broker, client, b"c consume --manual-ack q1 e1", b"m1 publish e1 x", b"m2 publish e1 x")
    queue = broker.queues.by_name[b"q1"]
    for _ in range(300):  # beyond what fits beside a position, too
        said(broker, client, b"r reject c m1")
    said(broker, client, b"r reject c m2")
    assert queue.retrying == 300
    queue.calm()
    assert (queue.retrying, queue.retried) == (0, 301)
    said(broker, client, b"r reject c m2")
    assert queue.retrying == 2
    said(broker, client, b"r reject c m1")
    said(broker, client, b"r reject c m2")
    assert queue.retrying == 301


def test_a_queue_knows_since_when_nobody_consumes_it() -> None:
    on_disk = OnDisk()
    client, other = on_disk.connect(), on_disk.connect()
    now = on_disk.broker.timers.clock
    on_disk.say(client, b"s subscribe q1 e1")
    queue = on_disk.queue()
    made = now()
    on_disk.wait(5.0)
    assert (queue.deserted, now()) == (made, made + 5.0)
    on_disk.say(client, b"c consume q1 e1")
    on_disk.say(other, b"c consume q1 e1")
    on_disk.wait(5.0)
    assert queue.deserted is None
    on_disk.say(client, b"u delete_consumer c")
    assert queue.deserted is None, "the other is still here"
    on_disk.broker.disconnect(other)
    left = now()
    on_disk.wait(5.0)
    assert queue.deserted == left
    on_disk.crash()
    assert on_disk.queue().deserted == on_disk.broker.started, "nobody has come since the start"


# ── clients ──


def test_bytes_are_not_added_up_when_asked_for() -> None:
    """Each second somebody asks, however many clients there are."""
    broker = Broker()
    client = broker.connect("127.0.0.1:1")
    said(broker, client, b"a ping 1")
    broker.connections.clients.clear()
    assert (broker.core.parser.bytes_in, broker.core.delivery.bytes_out) == (9, 7)


def test_bytes_of_clients_that_are_gone_still_count() -> None:
    broker = Broker()
    first, second = broker.connect("127.0.0.1:1"), broker.connect("127.0.0.1:2")
    said(broker, first, b"a ping 1")
    said(broker, second, b"b ping 22")
    assert (broker.core.parser.bytes_in, broker.core.delivery.bytes_out) == (9 + 10, len("a ok 1\n") + len("b ok 22\n"))
    broker.disconnect(first)
    assert (broker.core.parser.bytes_in, broker.core.delivery.bytes_out) == (19, 15)
    said(broker, second, b"c ping")
    assert broker.core.parser.bytes_in == 19 + 7


def test_a_client_knows_since_when_it_is_here() -> None:
    now = 5.0
    broker = Broker(clock=lambda: now)
    first = broker.connect("127.0.0.1:1")
    now = 7.5
    assert (first.since, broker.connect("127.0.0.1:2").since) == (5.0, 7.5)


def test_one_from_inside_is_served_and_is_in_no_figures() -> None:
    broker = Broker()
    client, inside = broker.connect("127.0.0.1:1"), broker.connect("127.0.0.1:0", inside=True)
    assert (client.inside, inside.inside) == (False, True)
    assert said(broker, inside, b"p ping 1") == b"p ok 1\n"
    assert (broker.connections.count, broker.core.parser.bytes_in, broker.core.delivery.bytes_out) == (1, 0, 0)
    expression = b"v _eval (state.connections, [address for address in state.clients])"
    assert said(broker, client, expression) == b"v ok (1, ['127.0.0.1:1'])\n"
    broker.disconnect(inside)
    assert broker.connections.count == 1
    broker.disconnect(client)
    assert broker.connections.count == 0
    assert broker.core.parser.bytes_in == len(expression) + 1


def test_clients_that_are_turned_away_are_counted() -> None:
    with running_broker(max_connections=1) as running:
        with socket.create_connection((running.host, running.port)) as first:
            first.sendall(b"p ping\n")
            assert first.recv(100).startswith(b"p ok")
            for _ in range(3):
                with socket.create_connection((running.host, running.port)) as refused:
                    assert refused.recv(100).startswith(b"- error ")
        assert running._running
        assert running._running.server._broker.connections.refused == 3
