"""What a client does when its connection does not live as long as it does: with both clients, and a real broker."""

import asyncio
import contextlib
import logging
import os
import re
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest

import mqks
from mqks.client import aio_driver, blocking_driver, session
from mqks.client.aio_driver import AsyncDriver
from mqks.client.blocking_driver import BlockingDriver
from mqks.client.blocking_stream import Stream
from mqks.client.liveness import is_held_back
from mqks.testing import Broker, broker
from tests.client.both import until
from tests.client.conftest import Open
from tests.running import PATIENCE

QUICK = {"keep_alive": 0.05}


class Ups:
    """Counts how often a client lost its connection and had it again, and waits for that."""

    def __init__(self) -> None:
        self.down = threading.Event()
        self.up = threading.Event()
        self.options = {"on_disconnect": self.down.set, "on_reconnect": self.up.set}

    def wait(self) -> None:
        assert self.down.wait(PATIENCE)
        assert self.up.wait(PATIENCE)
        self.down.clear()
        self.up.clear()


def test_consumers_come_back(durable: Broker, open_mq: Open) -> None:
    ups = Ups()
    mq = open_mq(durable, **ups.options)
    consumers = [mq.consume(f"q{number}", ["e"]) for number in range(3)]
    receiver = mq.recv("r", {"n": 1})
    for consumer in (*consumers, receiver):
        consumer.ready()
    for turn in range(3):
        durable.restart()
        ups.wait()
        mq.publish("e", str(turn), confirm=True)
        mq.send({"n": 1, "turn": turn}, confirm=True)
        assert [consumer.get().data for consumer in consumers] == [str(turn)] * 3
        assert receiver.get().json["turn"] == turn


def test_a_consumer_comes_back_with_the_events_it_was_told_last(durable: Broker, open_mq: Open) -> None:
    ups = Ups()
    mq = open_mq(durable, **ups.options)
    consumer = mq.consume("q", ["old"])
    consumer.ready()
    mq.rebind("q", ["new"])
    durable.drop_connections()
    ups.wait()
    mq.publish("old", "1", confirm=True)
    mq.publish("new", "2", confirm=True)
    assert consumer.get().data == "2"
    assert mq.stats()["queues"]["q"]["events"] == ["new"]


def test_publishes_wait_while_the_broker_is_away(durable: Broker, open_mq: Open) -> None:
    ups = Ups()
    mq = open_mq(durable, **ups.options)
    consumer = mq.consume("q", ["e"])
    consumer.ready()
    durable.stop()
    assert ups.down.wait(PATIENCE)
    assert not mq.connected
    for number in range(5):
        mq.publish("e", str(number))
    confirmed = threading.Thread(target=lambda: mq.publish("e", "confirmed", confirm=True))
    confirmed.start()
    durable.start()
    confirmed.join(PATIENCE)
    data = [consumer.get().data for _ in range(6)]
    assert [text for text in data if text != "confirmed"] == ["0", "1", "2", "3", "4"]
    assert "confirmed" in data


def test_a_message_of_a_lost_connection_comes_again(running: Broker, open_mq: Open) -> None:
    ups = Ups()
    mq = open_mq(running, **ups.options)
    consumer = mq.consume("q", ["e"], manual_ack=True, prefetch=0)
    mq.publish_many([("e", "1"), ("e", "2")])
    first = consumer.get()
    running.drop_connections()
    ups.wait()
    assert not first.ack()
    assert not first.ack(confirm=True)
    # "2" had come too, and was not taken: it is not given from the old connection
    again = [consumer.get() for _ in range(2)]
    assert [(message.data, message.retry) for message in again] == [("1", 1), ("2", 1)]
    assert all(message.ack(confirm=True) for message in again)


def test_what_was_settled_on_arrival_is_not_lost_with_the_connection(running: Broker, open_mq: Open) -> None:
    ups = Ups()
    mq = open_mq(running, **ups.options)
    consumer = mq.consume("q", ["e"])
    consumer.ready()
    mq.publish_many(("e", str(number)) for number in range(100))
    mq.ping()
    running.drop_connections()
    ups.wait()
    assert [consumer.get().data for _ in range(100)] == [str(number) for number in range(100)]


def test_history_goes_on(durable: Broker, open_mq: Open) -> None:
    ups = Ups()
    mq = open_mq(durable, **ups.options)
    mq.publish("e", "0", confirm=True)
    records = iter(mq.history(follow=True))
    seen = [next(records).data]
    for turn, interrupt in enumerate((durable.restart, durable.drop_connections, durable.restart), 1):
        interrupt()
        ups.wait()
        mq.publish("e", str(turn), confirm=True)
        seen.append(next(records).data)
    assert seen == ["0", "1", "2", "3"]


def test_full_buffer_is_an_error_if_wanted(running: Broker, open_mq: Open) -> None:
    ups = Ups()
    mq = open_mq(running, max_buffer=1000, when_full="error", **ups.options)
    running.stop()
    assert ups.down.wait(PATIENCE)
    with pytest.raises(mqks.BufferFull, match="1000 bytes"):
        for _ in range(100):
            mq.publish("e", "x" * 50)
    mq.close(timeout=0)


def test_full_buffer_waits_otherwise(durable: Broker, open_mq: Open) -> None:
    ups = Ups()
    mq = open_mq(durable, max_buffer=1000, **ups.options)
    mq.rebind("q", ["e"])
    durable.stop()
    assert ups.down.wait(PATIENCE)
    sent: list[str] = []

    def publish() -> None:
        for _ in range(100):
            sent.append(mq.publish("e", "x" * 50))

    publisher = threading.Thread(target=publish)
    publisher.start()
    until(lambda: mq._session.size >= 1000)
    assert publisher.is_alive()
    assert len(sent) < 20
    durable.start()
    publisher.join(PATIENCE)
    mq.ping()
    assert mq.stats()["queues"]["q"]["ready"] == len(sent) == 100


def test_closing_without_a_broker_says_what_was_not_sent(
    running: Broker, open_mq: Open, caplog: pytest.LogCaptureFixture
) -> None:
    ups = Ups()
    mq = open_mq(running, **ups.options)
    running.stop()
    assert ups.down.wait(PATIENCE)
    mq.publish("e", "1")
    mq.publish("e", "2")
    with caplog.at_level(logging.WARNING, "mqks.client"):
        mq.close(timeout=0.1)
    assert "never sent, since the broker was away: 2" in caplog.text


class Mute:
    """Accepts connections, answers the first request of each with what it was given, where {id} is that of the request,
    and then nothing, as a machine that has gone does."""

    def __init__(self, answer: bytes = b"") -> None:
        self.answer = answer
        self.first_requests: list[bytes] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.url = f"mqks://127.0.0.1:{self.port}"
        self.accepted: list[socket.socket] = []
        self.twice = threading.Event()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                self.accepted.append(self.listener.accept()[0])
            except OSError:
                return
            with contextlib.suppress(OSError):  # it has gone already
                self.first_requests.append(self.accepted[-1].recv(1000))
                id, *_ = self.first_requests[-1].split() or [b""]
                self.accepted[-1].sendall(self.answer.replace(b"{id}", id))
            if len(self.accepted) > 1:
                self.twice.set()

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE)
        self.listener.close()
        for connection in self.accepted:
            connection.close()


def test_a_connection_without_answers_is_given_up(open_mq: Open, caplog: pytest.LogCaptureFixture) -> None:
    mute = Mute(b"{id} ok hello\n")
    try:
        with caplog.at_level(logging.WARNING, "mqks.client"):
            mq = open_mq(mute, **QUICK)
            assert mute.twice.wait(PATIENCE)
        assert "does not answer" in caplog.text
        mq.close(timeout=0)
    finally:
        mute.close()


def test_what_is_no_broker(open_mq: Open, caplog: pytest.LogCaptureFixture) -> None:
    mute = Mute(b"{id} ok hello\nHTTP/1.1 400 Bad Request\r\n\r\n\xff\n")
    try:
        with caplog.at_level(logging.WARNING, "mqks.client"):
            mq = open_mq(mute)
            assert mute.twice.wait(PATIENCE)
        mq.close(timeout=0)
    finally:
        mute.close()


def test_who_is_turned_away_is_told_why_and_has_said_nothing(open_mq: Open) -> None:
    """As by a broker that wants TLS, or is full."""
    mute = Mute(b"- error e1\n")
    try:
        with pytest.raises(mqks.ConnectionLost, match=r"the broker turns us away \(no TLS.*error e1"):
            open_mq(mute, connect_timeout=0)
        assert [request.split()[1:] for request in mute.first_requests] == [[b"ping", b"hello"]]
    finally:
        mute.close()


def test_who_is_turned_away_when_it_comes_back_waits_longer_each_time(
    open_mq: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in the log once, and what was published waits."""
    delays: list[float] = []
    often = threading.Event()
    connect_failed = session.Session.connect_failed

    def note(one: session.Session) -> float:
        delays.append(connect_failed(one))
        if len(delays) == 8:
            often.set()
        return 0.0

    monkeypatch.setattr(session.Session, "connect_failed", note)
    mute = Mute(b"{id} ok hello\n")
    try:
        mq = open_mq(mute)
        mute.answer = b"- error e1\n"
        mute.accepted[0].shutdown(socket.SHUT_RDWR)
        assert often.wait(PATIENCE)
        mq.publish("e", "1")
        assert delays[:5] == sorted(delays[:5])
        assert delays[7] >= session.LONGEST_DELAY / 2
        mq.close(timeout=0)
    finally:
        mute.close()
    assert caplog.text.count("turns us away") == 1
    assert "publishes that were never sent" in caplog.text


SILENT = {
    "one try": {"connect_timeout": 0, "timeout": 0.1},
    "many tries": {"connect_timeout": 0.1, "timeout": PATIENCE},
}


def test_a_try_has_no_more_time_than_is_left_for_all(open_mq: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of connect_timeout, whatever the timeout of requests is; 0 means one try, with the time of a request."""
    given: list[float] = []

    def times_out(*_: object, within: float, **__: object) -> Any:
        given.append(within)
        raise TimeoutError

    monkeypatch.setattr(blocking_driver, "connected", times_out)
    monkeypatch.setattr(aio_driver, "connected", times_out)
    nobody = Mute()
    try:
        with pytest.raises(mqks.ConnectionLost, match="no answer"):
            open_mq(nobody, connect_timeout=0.2, timeout=100)
        assert given == sorted(given, reverse=True)
        assert 0 < given[-1] <= given[0] <= 0.2
        given.clear()
        with pytest.raises(mqks.ConnectionLost, match="no answer"):
            open_mq(nobody, connect_timeout=0, timeout=100)
        assert given == [100]
    finally:
        nobody.close()


@pytest.mark.parametrize("token", [None, "a.token"])
@pytest.mark.parametrize("answer", [b"", b"{id} "], ids=["silent", "half an answer"])
@pytest.mark.parametrize("options", SILENT.values(), ids=SILENT)
def test_a_peer_that_does_not_answer_in_time(
    open_mq: Open, options: dict[str, float], answer: bytes, token: str | None
) -> None:
    """The time is for all of it, the first answer included; and who has a wrong port is told so."""
    mute = Mute(answer)
    try:
        with pytest.raises(mqks.ConnectionLost, match=r"no answer; is mqksd running there, and is this its port"):
            open_mq(mute, token=token, **options)
    finally:
        mute.close()


def test_a_peer_that_speaks_http(open_mq: Open) -> None:
    mute = Mute(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    try:
        with pytest.raises(mqks.ConnectionLost, match=r"it speaks HTTP and answers 'HTTP/1.1 400 .*broker's port"):
            open_mq(mute, connect_timeout=0)
    finally:
        mute.close()


def test_who_takes_no_more_is_told_from_who_is_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as near:
        far, _ = listener.accept()
        with far:
            assert not is_held_back(near), "nothing waits"
            near.setblocking(False)
            with pytest.raises(BlockingIOError):
                while True:
                    near.send(bytes(1 << 20))
            assert is_held_back(near)


def beat(mq: Any) -> None:
    """What happens each keep_alive seconds."""
    driver = mq._driver
    if isinstance(driver, BlockingDriver):
        with driver.lock:
            assert driver._socket is not None
            driver._beat(driver._socket)
    else:
        asyncio.run_coroutine_threadsafe(_beat(driver), driver.loop).result(PATIENCE)


async def _beat(driver: AsyncDriver) -> None:
    driver._beat()


def test_a_full_broker_loses_no_publisher_and_no_publish(open_mq: Open) -> None:
    ups = Ups()
    with broker(max_memory=16 << 20) as full:
        mq = open_mq(full, max_buffer=1 << 20, keep_alive=10 * PATIENCE, **ups.options)
        other = open_mq(full)
        other.rebind("q", ["e"])
        count = 1_000  # of 40 KB: much more than the broker and the kernel take

        def publish() -> None:
            for number in range(count):
                mq.publish("e", f"{number} {'x' * 40_000}")

        publisher = threading.Thread(target=publish)
        publisher.start()
        used: list[int] = []

        def takes_no_more() -> bool:
            """For many turns, though more waits to be read."""
            used.append(int(other.eval("state.memory")))
            return len(used) > 20 and len(set(used[-20:])) == 1 and is_held_back(mq._driver._socket)

        until(takes_no_more)
        for _ in range(3):  # the first one pings, and nobody answers
            beat(mq)
        assert not ups.down.is_set()
        consumer = other.consume("q")
        assert [int(consumer.get().data.split()[0]) for _ in range(count)] == list(range(count))
        publisher.join(PATIENCE)
        mq.close()
        other.close()


def test_a_slow_reader_is_paused_and_nothing_stands_still(
    running: Broker, open_mq: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "MOST_WAITING", 10_000)
    mq = open_mq(running)
    slow = mq.consume("slow", ["e"])
    slow.ready()
    count = 4_000
    mq.publish_many(("e", f"{number:04000}") for number in range(count))
    assert mq.ping("alive") == "alive"
    assert mq.stats()["queues"]["slow"]["ready"] > 0
    assert mq.eval("[consumer.paused for consumer in state.consumers]") == "[True]"
    assert [int(slow.get().data) for _ in range(count)] == list(range(count))
    mq.publish("e", "1")
    assert slow.get().data == "1"


def test_a_consumer_that_nobody_holds_is_deleted(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    consumer = mq.consume("q", ["e"], manual_ack=True)
    mq.publish_many([("e", "1"), ("e", "2")])
    message = consumer.get()
    del consumer
    until(lambda: mq.eval("len(state.consumers)") == "0")
    assert not message.ack()
    assert mq.stats()["queues"]["q"]["ready"] == 2


def test_a_loop_that_is_left_leaves_no_consumer_behind(running: Broker) -> None:
    with mqks.connect(running.url) as mq:
        mq.rebind("q", ["e"])
        for turn in range(3):
            mq.publish_many([("e", str(turn)), ("e", str(turn))])
            for message in mq.consume("q", manual_ack=True):
                assert message.data == str(turn)
                assert message.ack()
                break
            for message in mq.consume("q", manual_ack=True):
                assert message.data == str(turn)
                assert message.ack(confirm=True)
                break


@pytest.mark.parametrize("first", ["ack", "reject"])
@pytest.mark.parametrize("confirm", [False, True])
def test_a_message_is_settled_once(running: Broker, open_mq: Open, first: str, confirm: bool) -> None:
    mq = open_mq(running)
    consumer = mq.consume("q", ["e"], manual_ack=True)
    mq.publish("e", "1")
    message = consumer.get()
    assert bool(getattr(message, first)(confirm=confirm)) is True
    for action in ("ack", "reject"):
        assert bool(getattr(message, action)()) is False
        assert getattr(message, action)(confirm=True) is False
    if first == "reject":
        message = consumer.get()
        assert message.retry == 1, "the others were not sent"
        assert consumer.ack_all(confirm=True)
        assert message.ack(confirm=True) is False
    assert mq.eval("[(queue.ready, queue.unacked) for queue in state.queues.values()]") == "[(0, 0)]"


def test_a_message_that_settled_itself_is_not_settled_again(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    consumer = mq.consume("q", ["e"])
    mq.publish("e", "1")
    message = consumer.get()
    assert not message.ack()
    assert message.ack(confirm=True) is False
    assert message.reject(confirm=True) is False


def test_two_messages_with_one_id_are_settled_one_by_one(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    consumer = mq.consume("q", ["e"], manual_ack=True)
    for data in "1234":
        mq.publish("e", data, id="m")
    messages = [consumer.get() for _ in range(4)]
    assert messages[1].ack(confirm=True) is True
    assert messages[0].ack(confirm=True) is True
    assert messages[0].ack(confirm=True) is False
    assert mq.eval("state.queues['q'].unacked") == "2"
    assert consumer.ack_all(confirm=True)
    assert mq.eval("state.queues['q'].unacked") == "0"


def test_an_ack_that_was_refused_may_be_tried_again(
    running: Broker, open_mq: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: session.Session, __: object, ___: object, ____: str, done: session.Done) -> str:
        done(mqks.Refused("a1 ack", "e1"))
        return "a1"

    mq = open_mq(running)
    consumer = mq.consume("q", ["e"], manual_ack=True)
    mq.publish("e", "1")
    message = consumer.get()
    with monkeypatch.context() as refusing:
        refusing.setattr(session.Session, "settle", refuse)
        with pytest.raises(mqks.Refused):
            message.ack(confirm=True)
    assert message.ack(confirm=True) is True
    assert message.ack(confirm=True) is False


def test_ctrl_c_while_a_loop_waits_is_shown_alone(running: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A traceback has nothing before it, of a list that was empty."""

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    with mqks.connect(running.url) as mq, mq.consume("q") as consumer:
        monkeypatch.setattr(Stream, "more", interrupted)
        with pytest.raises(KeyboardInterrupt) as caught:
            next(consumer)
    assert caught.value.__context__ is None


def test_dropped_messages_are_said(running: Broker, open_mq: Open, caplog: pytest.LogCaptureFixture) -> None:
    mq = open_mq(running)
    consumer = mq.consume("q", ["e"])
    consumer.ready()
    mq.publish_many([("e", "1"), ("e", "2")])
    mq.ping()
    with caplog.at_level(logging.WARNING, "mqks.client"):
        del consumer
        until(lambda: "that came and that nobody took: 2" in caplog.text)


def test_what_came_can_be_taken_after_the_consumer_is_deleted(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    consumer = mq.consume("q", ["e"])
    consumer.ready()
    mq.publish_many([("e", "1"), ("e", "2")])
    mq.ping()
    consumer.delete()
    assert [message.data for message in consumer] == ["1", "2"]
    acking = mq.consume("q", manual_ack=True)
    mq.publish_many([("e", "3"), ("e", "4")])
    mq.ping()
    assert acking.get().data == "3"
    acking.delete()
    assert list(acking) == []
    assert mq.stats()["queues"]["q"]["ready"] == 2


def test_ack_all_leaves_alone_what_was_not_taken(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    consumer = mq.consume("q", ["e"], manual_ack=True)
    mq.publish_many(("e", str(number)) for number in range(5))
    mq.ping()
    assert consumer.ack_all(confirm=True)
    assert [consumer.get().data for _ in range(2)] == ["0", "1"]
    assert consumer.ack_all(confirm=True)
    assert mq.stats()["queues"]["q"]["unacked"] == 3
    assert [consumer.get().data for _ in range(2)] == ["2", "3"]
    assert consumer.reject_all(confirm=True)
    assert [consumer.get().data for _ in range(3)] == ["4", "2", "3"]


def test_publishes_at_risk_are_said(running: Broker, open_mq: Open, caplog: pytest.LogCaptureFixture) -> None:
    ups = Ups()
    mq = open_mq(running, **ups.options)
    mq.publish("e", "safe")
    mq.ping()
    with caplog.at_level(logging.WARNING, "mqks.client"):
        running.drop_connections()
        ups.wait()
    assert "may be lost with it" not in caplog.text


# The blocking client only


def test_many_threads(running: Broker) -> None:
    with mqks.connect(running.url) as mq:
        consumer = mq.consume("q", ["e"], manual_ack=True).ready()
        seen: list[str] = []

        def publish(name: int) -> None:
            for number in range(200):
                mq.publish("e", f"{name} {number}", confirm=number % 20 == 0)

        def take() -> None:
            for message in consumer:
                seen.append(message.data)
                message.ack()
                if len(seen) >= 1000:
                    consumer.delete()

        publishers = [threading.Thread(target=publish, args=(name,)) for name in range(5)]
        takers = [threading.Thread(target=take) for _ in range(4)]
        for thread in (*publishers, *takers):
            thread.start()
        for thread in (*publishers, *takers):
            thread.join(PATIENCE)
            assert not thread.is_alive()
    assert sorted(seen) == sorted(f"{name} {number}" for name in range(5) for number in range(200))


def test_a_forked_child_is_told(running: Broker) -> None:
    with mqks.connect(running.url) as mq:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                mq.publish("e", "1")
            except BaseException as error:
                os.write(writing, str(error).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(writing)
        with os.fdopen(reading) as said:
            assert "before the process forked" in said.read()
        assert mq.ping("x") == "x"


def run_script(url: str, script: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MQKS_URL": url}
    return subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60)


def test_a_script_that_just_ends_loses_nothing(running: Broker) -> None:
    script = "import mqks\nmq = mqks.Client()\nfor n in range(5000): mq.publish('e', str(n))"
    with mqks.connect(running.url) as mq:
        mq.rebind("q", ["e"])
        done = run_script(running.url, script)
        assert (done.returncode, done.stderr) == (0, "")
        assert mq.stats()["queues"]["q"]["ready"] == 5000


def test_a_request_does_not_wait_for_ever(running: Broker) -> None:
    ups: Any = Ups()
    with mqks.connect(running.url, timeout=0.1, **ups.options) as mq:
        running.stop()
        assert ups.down.wait(PATIENCE)
        with pytest.raises(TimeoutError, match=re.escape("no answer from mqks://127.0.0.1")):
            mq.publish("e", "1", confirm=True)
        with pytest.raises(TimeoutError):
            mq.consume("q").ready()
