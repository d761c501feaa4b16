"""The books of consumers who share a queue: nothing that one of them may get counts as doubled or lost."""

import asyncio
import random

from tests.crash.clients import data_of
from tests.soak.counted import QUEUES, Consumer
from tests.soak.link import Door, Stage
from tests.soak.watching import Watcher

SHARED = next(queue for queue in QUEUES if queue.consumers > 1 and not queue.sevx)
MESSAGE = b"p-0"


class Line(asyncio.Transport):
    """A connection of which nothing is known but that it is closed some time, and if it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads, self.closed = True, False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Nobody listens."""

    def abort(self) -> None:
        self.closed = True

    close = abort

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


def two() -> tuple[Stage, Consumer, Consumer]:
    """Consumers of one queue, to which one message was sent."""
    stage, rng = Stage(Door()), random.Random(1)
    stage.ledger.declare(SHARED.name, auto=False, alone=False)
    stage.ledger.connected(b"p")
    stage.ledger.sent(b"p", (SHARED.name,))
    stage.publishing = False  # so that nothing is rejected
    watcher = Watcher(stage, rng)
    first, second = (Consumer(stage, f"c{at}", rng, SHARED, watcher) for at in range(2))
    for consumer in first, second:
        consumer.connection_made(Line())
        consumer.begin()
    return stage, first, second


def deliver(consumer: Consumer) -> None:
    consumer.line(b"%s ok %s event=%s %s" % (consumer.name.encode(), MESSAGE, SHARED.event, data_of(b"p", 0)))


def test_what_one_held_who_hangs_up_may_come_to_another_at_once() -> None:
    """The broker may know of it before the loop tells the one who hung up that its connection is over."""
    stage, first, second = two()
    deliver(first)
    first.hang_up(at_once=True)
    deliver(second)
    second.took()
    second.line(b"ack ok ")
    first.ended()
    stage.ledger.close()
    assert not stage.findings.count, stage.findings.examples


def test_what_comes_again_after_a_confirmed_ack_is_doubled() -> None:
    stage, first, second = two()
    deliver(first)
    first.took()
    first.line(b"ack ok ")
    first.hang_up(at_once=True)
    deliver(second)
    assert stage.findings.count == {"duplicated": 1}


def test_nobody_comes_into_a_new_life_before_all_have_left_the_old_one() -> None:
    """One who reads nothing would not notice that the broker was killed, and its messages come to the others."""

    async def steps() -> None:
        stage, first, second = two()
        resting = asyncio.create_task(first.rest(3600))
        await asyncio.sleep(0)
        assert isinstance(first.transport, Line) and not first.transport.reads
        stage.door.close()
        await resting
        assert first.transport.reads
        second.ended()
        opening = asyncio.create_task(stage.door.let_in())
        await asyncio.sleep(0)
        assert not stage.door.open.is_set()
        first.ended()
        await opening
        assert stage.door.open.is_set()

    asyncio.run(steps())


def test_a_disk_that_is_full_by_itself_is_told_once() -> None:
    stage = Stage(Door())
    stage.excuse = float("inf")
    stage.disk_is("the disk is full")
    assert not stage.findings.count, "it was filled"
    stage.excuse = 0.0
    for _ in range(3):
        stage.disk_is("the disk is full")
        stage.error("m1", "publish", b"m1 error x")
    assert stage.findings.count == {"disk": 1}
    stage.disk_is(None)
    stage.error("m1", "publish", b"m1 error x")
    assert stage.findings.count == {"disk": 1, "error": 1}
