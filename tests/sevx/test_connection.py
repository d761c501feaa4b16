"""When a connection is made and ended, what survives what, and that the broker may come and go."""

import os
import subprocess
import sys
import threading
import time

import pytest

import sevx
from mqks import testing
from mqks.client.errors import ConnectionLost
from sevx.connection import Connection
from tests.conftest import Start
from tests.crash.brokers import kill
from tests.running import PATIENCE
from tests.sevx.conftest import Seen


def script(code: str) -> None:
    """Runs it as a program, which must end by itself and say nothing."""
    done = subprocess.run(
        [sys.executable, "-c", code], env=dict(os.environ), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.usefixtures("default")
def test_it_connects_when_it_is_needed_and_only_once(here: Connection) -> None:
    assert here.eval("len(state.clients)") == 1
    threads = [threading.Thread(target=sevx.send, args=({"n": n},)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert here.eval("len(state.clients)") == 2


def test_connect_chooses_and_does_not_choose_twice(broker: testing.Broker) -> None:
    with testing.broker() as other:
        connection = Connection()
        connection.connect(other.url)
        connection.on({}, queue="q1", wait=True)(print)
        assert connection.eval("len(state.queues)") == 1
        with pytest.raises(RuntimeError, match=rf"connected to {other.url}: call sevx\.disconnect\(\) first"):
            connection.connect(broker.url)
        connection.disconnect()
        connection.connect(broker.url)
        assert connection.eval("len(state.queues)") == 0
        connection.disconnect()


def test_after_disconnect_the_next_use_connects_again(here: Connection, seen: Seen) -> None:
    here.disconnect()
    here.disconnect()

    @here.on({}, wait=True)
    def on_event(event: sevx.Event) -> None:
        seen.put(event.content.n)

    here.send({"n": 1})
    assert seen.next() == 1


def test_without_a_broker_nothing_is_lost_silently(broker: testing.Broker) -> None:
    broker.stop()
    connection = Connection()
    with pytest.raises(ConnectionLost, match="is mqksd running there"):
        connection.connect(broker.url, connect_timeout=0)
    with pytest.raises(ConnectionLost, match="is mqksd running there"):
        connection.send({"n": 1})
    with pytest.raises(ConnectionLost, match="is mqksd running there"):
        connection.on({})(print)
    broker.start()
    connection.send({"n": 1}, wait=True)
    connection.disconnect()


def test_disconnect_sends_what_is_buffered(here: Connection, seen: Seen) -> None:
    @here.on({}, wait=True)
    def on_event(event: sevx.Event) -> None:
        seen.put(event.content.n)

    other = Connection()
    for n in range(1000):
        other.send({"n": n})
    other.disconnect()
    assert seen.take(1000) == list(range(1000))


def test_disconnect_waits_for_the_event_in_hand(here: Connection, seen: Seen) -> None:
    """What its handler sends and acks still arrives; the next event is left to others."""
    goes_on = threading.Event()
    other = Connection()

    @other.on({"kind": 1}, queue="q1", delete_queue_when_unused=False, manual_ack=True, wait=True)
    def on_event(event: sevx.Event) -> None:
        seen.put("begun")
        assert goes_on.wait(PATIENCE)
        other.send({"kind": 2, "n": event.content.n})
        event.ack()
        other.disconnect()  # which is under way already

    idle = other.on({"kind": 3}, queue="q3", wait=True)(print)
    here.on({"kind": 2}, queue="q2", wait=True)(lambda event: seen.put(event.content.n))
    here.send({"kind": 1, "n": 1})
    here.send({"kind": 1, "n": 2})
    assert seen.next() == "begun"
    ending = threading.Thread(target=other.disconnect)
    ending.start()
    idle.thread.join(PATIENCE)  # so on_event is being waited for
    goes_on.set()
    assert seen.next() == 1
    ending.join(PATIENCE)
    assert not ending.is_alive() and not on_event.thread.is_alive()
    assert here.eval("(state.queues['q1'].ready, state.queues['q1'].acked)") == [1, 1]
    assert seen.empty()


def test_a_receiver_that_is_done_gets_nothing_while_others_are_waited_for(here: Connection, seen: Seen) -> None:
    slow_goes_on, quick_goes_on = threading.Event(), threading.Event()
    other = Connection()

    @other.on({"slow": True}, wait=True)
    def slow(_: sevx.Event) -> None:
        seen.put("begun")
        slow_goes_on.wait(PATIENCE)

    @other.on({"slow": False}, queue="q1", delete_queue_when_unused=False, wait=True)
    def quick(_: sevx.Event) -> None:
        seen.put("begun")
        quick_goes_on.wait(PATIENCE)

    idle = other.on({"n": 1}, queue="q2", wait=True)(print)
    here.send({"slow": True})
    here.send({"slow": False})
    assert seen.take(2) == ["begun", "begun"]
    ending = threading.Thread(target=other.disconnect)
    ending.start()
    idle.thread.join(PATIENCE)
    quick_goes_on.set()
    quick.thread.join(PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while here.eval("state.queues['q1'].consumers"):
        assert time.monotonic() < deadline, "it is still a receiver"
    assert ending.is_alive()
    slow_goes_on.set()
    ending.join(PATIENCE)


def test_disconnect_does_not_wait_for_ever(
    broker: testing.Broker, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    connection = Connection()
    connection.connect(broker.url, timeout=0.1)
    goes_on = threading.Event()

    @connection.on({})  # not waited for, since the broker may take longer than that to answer
    def on_event(_: sevx.Event) -> None:
        seen.put("begun")
        goes_on.wait(PATIENCE)

    connection.send({"n": 1})
    assert seen.next() == "begun"
    connection.disconnect()
    assert "on_event is still busy with an event; not waiting for it any more" in caplog.text
    goes_on.set()
    on_event.thread.join(PATIENCE)


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_handler_may_disconnect(seen: Seen, kind: str) -> None:
    connection = Connection()

    def sync(_: sevx.Event) -> None:
        connection.disconnect()
        seen.put("disconnected")

    async def coroutine(event: sevx.Event) -> None:
        sync(event)

    receiver = connection.on({}, queue="q1", wait=True)(sync if kind == "sync" else coroutine)
    connection.send({"n": 1})
    assert seen.next() == "disconnected"
    receiver.thread.join(PATIENCE)
    assert not receiver.thread.is_alive()


def test_a_program_that_ends_sends_what_is_buffered(here: Connection, seen: Seen) -> None:
    here.on({}, queue="q1", wait=True)(lambda event: seen.put(event.content.n))
    script("import sevx\nfor n in range(100): sevx.send({'n': n})")
    assert seen.take(100) == list(range(100))


def test_a_program_that_ends_finishes_the_event_in_hand(here: Connection, seen: Seen) -> None:
    here.on({"done": True}, queue="q1", wait=True)(lambda event: seen.put(event.content.n))
    script(
        "import atexit, threading, sevx\n"
        "begun, ending = threading.Event(), threading.Event()\n"
        "@sevx.on({'n': 1}, queue='q2', manual_ack=True, delete_queue_when_unused=False, wait=True)\n"
        "async def on_event(event):\n"
        "    begun.set()\n"
        "    ending.wait()\n"
        "    sevx.send({'n': 2, 'done': True})\n"
        "    event.ack()\n"
        "atexit.register(ending.set)\n"  # after sevx's own, and so called before it
        "sevx.send({'n': 1})\n"
        "begun.wait()\n"
    )
    assert seen.next() == 2
    assert here.eval("(state.queues['q2'].ready, state.queues['q2'].acked)") == [0, 1]


def test_a_child_process_has_a_connection_of_its_own(here: Connection, seen: Seen) -> None:
    here.on({}, queue="q1", wait=True)(lambda event: seen.put((event.content.src, event.content.who)))
    script(
        "import os, sevx\n"
        "sevx.send_prefix({'src': 'it'})\n"
        "sevx.send({'who': 'parent'}, wait=True)\n"
        "if child := os.fork():\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "    sevx.send({'who': 'parent again'})\n"
        "else:\n"
        "    sevx.send({'who': 'child'})\n"
    )
    assert seen.take(3) == [("it", "parent"), ("it", "child"), ("it", "parent again")]


def test_receivers_live_on_when_the_broker_is_killed_and_comes_back(start: Start, seen: Seen) -> None:
    """Events may come twice then, as the broker promises no more."""
    broker = start()
    connection = Connection()
    connection.connect(f"mqks://127.0.0.1:{broker.port}")

    @connection.on({"kind": "sync"}, wait=True)
    def on_event(event: sevx.Event) -> None:
        seen.put(event.content.n)

    @connection.on({"kind": "async"}, manual_ack=True, wait=True)
    async def on_async_event(event: sevx.Event) -> None:
        seen.put(-event.content.n)
        event.ack()

    deleted = connection.on({}, queue="deleted", wait=True)(lambda _: seen.put("deleted"))
    deleted.delete()
    for n in range(1, 5):
        connection.send({"kind": "sync", "n": n}, wait=True)
        connection.send({"kind": "async", "n": n}, wait=True)
        missing = {n, -n}
        while missing:
            missing.discard(seen.next())
        kill(broker)
        broker = start(f"--port={broker.port}")
    alive = connection.eval("[c.queue for c in state.consumers]")
    assert sorted(alive) == sorted([on_event.queue, on_async_event.queue])
    connection.disconnect()
    assert "deleted" not in seen.queue


def test_what_is_sent_while_the_broker_is_away_arrives(broker: testing.Broker, seen: Seen) -> None:
    away = threading.Event()
    connection = Connection()
    connection.connect(broker.url, on_disconnect=away.set)
    connection.on({}, queue="q1", wait=True)(lambda event: seen.put(event.content.n))
    broker.stop()
    assert away.wait(PATIENCE)
    for n in range(10):
        connection.send({"n": n})
    broker.start()
    assert seen.take(10) == list(range(10))
    connection.disconnect()
