"""Clients in rough hands: interrupts, forks, cancelled tasks, handlers that publish, odd types. With a real broker."""

import asyncio
import gc
import logging
import os
import random
import signal
import threading
from collections.abc import Iterator
from enum import Enum, StrEnum
from types import FrameType

import pytest

import mqks
from mqks.testing import Broker
from tests.client.conftest import Open
from tests.client.test_life import Ups
from tests.running import PATIENCE


class Interrupt(Exception):
    pass


@pytest.fixture
def interrupted() -> Iterator[None]:
    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("interrupted")
def test_interrupts_neither_lose_nor_repeat_nor_tear(running: Broker) -> None:
    rng = random.Random(7)
    with mqks.connect(running.url) as mq, mqks.connect(running.url) as other:
        consumer = other.consume("q", ["e"]).ready()
        sure, tried, number = 0, 0, 0
        for _ in range(200):
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0005, 0.002))
                while True:
                    number += 1
                    mq.publish("e", f"{number} {'x' * 500}")
                    sure += 1
            except Interrupt:
                tried += 1
        mq.ping()
        seen: list[int] = []
        while len(seen) < sure or (message := consumer.get(timeout=0.1)):
            message = message if len(seen) >= sure else next(consumer)
            assert message is not None
            head, tail = message.data.split(" ")
            assert tail == "x" * 500
            seen.append(int(head))
        assert seen == sorted(set(seen))
        assert sure <= len(seen) <= sure + tried


def test_a_forked_child_is_told_and_holds_nothing(running: Broker) -> None:
    with mqks.connect(running.url) as watcher:
        mq = mqks.Client(running.url)
        consumer = mq.consume("q", ["e"]).ready()
        mq.publish("e", "1")
        assert next(consumer).data == "1"
        reading, writing = os.pipe()
        ending, end = os.pipe()
        child = os.fork()
        if child == 0:
            told = []
            for attempt in (lambda: mq.publish("e", "2"), lambda: next(consumer), mq.ping):
                try:
                    attempt()
                except mqks.ConnectionLost as error:
                    told.append(str(error))
            os.write(writing, f"{len([text for text in told if 'forked' in text])}".encode())
            os.read(ending, 1)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as said:
            assert said.read(1) == "3"
        mq.close()
        assert watcher.stats()["queues"]["q"]["consumers"] == 0, "though the child lives"
        os.write(end, b"!")
        os.waitpid(child, 0)


def test_a_handler_of_the_log_may_publish(running: Broker) -> None:
    ups = Ups()
    with mqks.connect(running.url, on_disconnect=ups.down.set, on_reconnect=ups.up.set) as mq:

        class Shipper(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                mq.publish("log", record.getMessage())

        logs = mq.consume("logs", ["log"]).ready()
        shipper = Shipper(logging.WARNING)
        logging.getLogger("mqks.client").addHandler(shipper)
        try:
            mq.publish("e", "x", id="m1")
            mq.request("ping")
            running.drop_connections()
            ups.wait()
            assert "lost, reconnecting" in next(logs).data
        finally:
            logging.getLogger("mqks.client").removeHandler(shipper)


def test_a_history_that_nobody_reads_any_more(durable: Broker) -> None:
    with mqks.connect(durable.url) as mq:
        mq.publish_many([("e", "1"), ("e", "2")])
        for _ in range(10):
            records = mq.history(follow=True)
            assert next(records).data == "1"
            cycle: list[object] = [records]
            cycle.append(cycle)
            del records, cycle
        gc.collect()
        assert mq.ping("alive") == "alive"


def test_a_pattern_that_is_no_json_harms_nobody(durable: Broker, open_mq: Open) -> None:
    ups = Ups()
    mq = open_mq(durable, **ups.options)
    pattern: dict[str, object] = {"n": 1}
    receiver = mq.recv("r", pattern)
    receiver.ready()
    with pytest.raises(TypeError):
        mq.recv("bad", {"n": object()})
    pattern["n"] = object()
    durable.drop_connections()
    ups.wait()
    mq.send({"n": 1}, confirm=True)
    assert receiver.get().json == {"n": 1}


def test_a_pause_leaves_the_events_of_others_alone(
    running: Broker, open_mq: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqks.client.session.MOST_WAITING", 1000)
    mq, other = open_mq(running), open_mq(running)
    consumer = mq.consume("q", ["e0"])
    consumer.ready()
    for number in range(1, 20):
        other.publish_many([("e0", "x" * 2000)] * 3)
        other.rebind("q", add=[f"e{number}"])
        for _ in range(3):
            consumer.get()
    assert len(other.stats()["queues"]["q"]["events"]) == 20


class Events(StrEnum):
    CREATED = "order.created"


class Colour(str, Enum):  # noqa: UP042 - as many write it
    RED = "red"


def test_enums_are_their_values(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    consumer = mq.consume("q", [Events.CREATED])
    for _ in range(2):
        mq.publish(Events.CREATED, Colour.RED)
        message = consumer.get()
        assert (message.event, message.data) == ("order.created", "red")


def test_an_event_with_an_odd_space(running: Broker, open_mq: Open) -> None:
    mq, other = open_mq(running), open_mq(running)
    consumer = mq.consume("q", ["a"])
    consumer.ready()
    other.rebind("q", ["b\u00a0c"])
    mq.ping()
    assert consumer.events == ["b\u00a0c"]


def test_an_ended_consumer_gives_no_none(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    consumer = mq.consume("q", ["e"])
    consumer.ready()
    assert consumer.get(timeout=0) is None
    mq.delete_queue("q")
    with pytest.raises(mqks.ConnectionLost, match="has ended"):
        consumer.get(timeout=0)


def test_retries_of_sevx_are_counted(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    receiver = mq.recv("q", {}, manual_ack=True)
    mq.send({"n": 1}, confirm=True)
    for retry in range(3):
        message = receiver.get()
        assert message.retry == retry
        message.reject(confirm=True)


def test_reject_all_gives_each_message_once_more(running: Broker, open_mq: Open) -> None:
    mq = open_mq(running)
    receiver = mq.recv("q", {}, manual_ack=True, prefetch=0)
    receiver.ready()
    for number in range(10):
        mq.send({"n": number}, confirm=True)
    mq.ping()
    assert receiver.get().json["n"] == 0
    assert receiver.reject_all(confirm=True)
    assert [receiver.get().json["n"] for _ in range(10)] == [*range(1, 10), 0]


def test_a_cancelled_publish_many_ends(running: Broker) -> None:
    async def main() -> None:
        down = asyncio.Event()
        async with mqks.connect(running.url, on_disconnect=down.set) as mq:
            running.stop()
            await down.wait()
            for count in (10, 3000):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await mq.publish_many(("e", str(number)) for number in range(count))
            await mq.close(0)

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_a_busy_publisher_lets_others_have_their_turn(running: Broker) -> None:
    async def main() -> None:
        async with mqks.connect(running.url) as mq:
            answered = asyncio.create_task(mq.ping("x"))
            for _ in range(1_000_000):
                await mq.publish("e", "x" * 100)
                if answered.done():
                    return
            raise AssertionError("nobody else had a turn")

    asyncio.run(main())


def test_full_buffers_of_those_who_wait_for_an_answer(running: Broker, open_mq: Open) -> None:
    ups = Ups()
    mq = open_mq(running, max_buffer=1000, when_full="error", timeout=0.1, **ups.options)
    running.stop()
    assert ups.down.wait(PATIENCE)
    with pytest.raises(mqks.BufferFull):
        while True:
            mq.publish("e", "x" * 100)
    with pytest.raises(mqks.BufferFull):
        mq.publish_many([("e", "x" * 100)] * 100)
    mq.close(0)


def test_started_twice(running: Broker) -> None:
    async def main() -> None:
        async with mqks.connect(running.url) as mq:
            with pytest.raises(RuntimeError, match="started already"):
                await mq.start()

    asyncio.run(main())


def test_an_async_hook_is_awaited(running: Broker) -> None:
    async def main() -> None:
        told = asyncio.Event()

        async def hook() -> None:
            told.set()

        async with mqks.connect(running.url, on_reconnect=hook) as mq:
            running.drop_connections()
            await asyncio.wait_for(told.wait(), PATIENCE)
            assert mq.connected

    asyncio.run(main())


def test_waiting_in_vain_costs_nothing(running: Broker) -> None:
    with mqks.connect(running.url) as mq:
        consumer = mq.consume("q", ["e"]).ready()
        for _ in range(100):
            assert consumer.get(timeout=0.0001) is None
        assert len(consumer._stream._bell._waiting) == 0
        taker = threading.Thread(target=consumer.get)
        taker.start()
        mq.publish("e", "1")
        taker.join(PATIENCE)
        assert not taker.is_alive()
