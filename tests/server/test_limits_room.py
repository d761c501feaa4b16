"""What is refused and what goes on when memory, or the disk, or both are full.

Each change of a queue writes all that it is, so it needs room as a publish does. But one may always consume, and what
frees something is taken.
"""

from collections.abc import Callable

import pytest

from mqks.broker.limits import REASONS
from mqks.broker.queues.queue_manager import LONGEST_DEFINITION
from tests.broker.on_disk import OnDisk
from tests.web.stage import Stage

MUCH = 1 << 40
RECV = b'v1 recv {"queue": "q2", "pattern": %s, "delete_queue_when_unused": %s}'
THERE = (
    b"c0 consume q1 e1 e2 --delete-queue-when-unused=60 --max-length=9 --overflow=drop-oldest",
    RECV % (b'{"a": 1}', b"60"),
    b"h0 hold n1 earliest --for=60",
)
RESTATED = (
    b"c1 consume q1",  # which says nothing of when it goes: that is written once
    b"c1 consume q1",
    b"c2 consume q1 e1 e2",
    b"c3 consume q1 e1 --add e2 --prefetch=5 --manual-ack",
    b"c4 consume q1 --max-length=9 --overflow=drop-oldest",
    b"r1 rebind q1 e2 e1",
    b"r1 rebind q1 --max-length=9",
    b"s1 subscribe q1 e1 e2",
    RECV % (b'{"a": 1.0}', b"60"),
    RECV % (b'{"a": 1}', b"false"),
    b"a1 ack c3 --all",
    b"d1 delete_consumer c1",
)
FREEING = (
    b"r1 rebind q1 --remove e1",
    b"h1 hold n1 latest --for=60",
    b"h1 hold n1 latest --for=0",
    b"c1 consume q1",
)
DELETING = (
    b"d1 delete_queue q1 --when-unused",
    b"d1 delete_consumer c0",
    b"d1 delete_consumer c1",
    b'd2 delete_queue {"queue": "q2"}',
)
GROWING = {
    "another event": b"r1 rebind q1 --add e3",
    "another event in place of those": b"s1 subscribe q1 e3",
    "a new queue": b"c1 consume q3",
    "another pattern": RECV % (b'{"a": 2}', b"60"),
    "a new hold": b"h1 hold n2 earliest --for=60",
}
WRITING = {
    "rebind with a limit": b"r1 rebind q1 --max-length=10",
    "rebind with less events and a limit": b"r1 rebind q1 e1 --max-length=10",
    "subscribe with a limit": b"s1 subscribe q1 e1 e2 --overflow=reject",
    "consume with a limit": b"c1 consume q1 --max-bytes=1000",
    "consume that says when the queue goes": b"c1 consume q1 --delete-queue-when-unused=61",
    "recv with a limit": RECV.replace(b"recv", b"recv --max-length=10") % (b'{"a": 1}', b"60"),
    "recv that says when the queue goes": RECV % (b'{"a": 1}', b"61"),
    "recv that lets the queue go at once": RECV % (b'{"a": 1}', b"true"),
    "delete_queue that waits": b"d1 delete_queue q1 --when-unused=60",
}


class Room:
    """A broker that has some queues and a hold; then there is no room for more."""

    def __init__(self, memory: bool, disk: bool) -> None:
        self.on_disk = OnDisk()
        self.client = self.on_disk.connect()
        assert not self.refused(*THERE)
        self.on_disk.work()
        self.on_disk.said(self.client)
        self.on_disk.broker.core.account.charge(MUCH if memory else 0)
        self.on_disk.broker.core.log.refusing = disk

    def refused(self, *requests: bytes) -> list[bytes]:
        """The ids of those that were."""
        answers = [self.on_disk.say(self.client, request) for request in requests]
        return [line.split(b" ")[0] for lines in answers for line in lines if line.split(b" ")[1] == b"error"]

    def state(self) -> tuple[int, list[bytes], list[bytes]]:
        broker = self.on_disk.broker
        return (
            broker.core.log.end,
            [queue.definition() for queue in broker.queues.by_name.values()],
            [*self.client.consumers],
        )


FULL = {"memory": (True, False), "disk": (False, True), "both": (True, True)}
IN_ALL_CASES = pytest.mark.parametrize("full", FULL.values(), ids=FULL)
UNWRITTEN = {**GROWING, **WRITING}


@IN_ALL_CASES
@pytest.mark.parametrize("request_line", UNWRITTEN.values(), ids=UNWRITTEN)
def test_what_would_be_written_is_refused(
    request_line: bytes, full: tuple[bool, bool], caplog: pytest.LogCaptureFixture
) -> None:
    assert not Room(memory=False, disk=False).refused(request_line)
    room = Room(*full)
    before = room.state()
    assert room.refused(request_line) == [request_line.split(b" ")[0]]
    assert room.state() == before
    assert REASONS["min_free_disk" if full[1] else "max_memory"] in caplog.text


@IN_ALL_CASES
def test_who_consumed_can_come_back(full: tuple[bool, bool]) -> None:
    room = Room(*full)
    assert not room.refused(*RESTATED[:1])
    position = room.on_disk.broker.core.log.end
    assert not room.refused(*RESTATED[1:8])
    assert room.on_disk.broker.core.log.end == position, "nothing is written of what holds already"
    assert not room.refused(*RESTATED[8:])


@IN_ALL_CASES
def test_what_frees_something_is_taken_as_long_as_there_is_a_place_for_it(full: tuple[bool, bool]) -> None:
    room = Room(*full)
    assert room.refused(*FREEING) == ([b"r1", b"h1", b"h1"] if all(full) else [])
    assert not room.refused(*DELETING)
    assert not room.on_disk.broker.queues.by_name


@pytest.mark.parametrize("request_line", WRITING.values(), ids=WRITING)
def test_without_a_journal_nothing_is_written(request_line: bytes) -> None:
    stage = Stage()
    client = stage.connect()
    stage.ask(client, *THERE[:2])
    stage.broker.core.account.charge(MUCH)
    assert not any(b" error " in line for line in stage.ask(client, request_line))


# ---- How long all of it may be


@pytest.mark.parametrize(
    ("max_line", "most"), [(1 << 16, LONGEST_DEFINITION), (LONGEST_DEFINITION * 2, LONGEST_DEFINITION * 2)]
)
def test_a_queue_is_as_long_as_a_line_may_be(max_line: int, most: int, caplog: pytest.LogCaptureFixture) -> None:
    on_disk = OnDisk(max_line=max_line)
    client = on_disk.connect()
    name = 1 << 15
    adds = [b"r rebind q --add %04d%s" % (number, b"x" * (name - 5)) for number in range(most // name)]
    assert [on_disk.say(client, add) for add in adds[:-1]] == [[]] * (len(adds) - 1)
    size = most - len(on_disk.queue(b"q").definition())
    [refused] = on_disk.say(client, b"r1 rebind q --add " + b"x" * size)
    assert refused.startswith(b"r1 error ")
    assert "the events and the pattern of a queue are longer than --max-line: 'q'" in caplog.text
    pattern = b'v1 recv {"queue": "q", "pattern": {"a": "%s"}}' % (b"x" * size)
    assert b" error " in on_disk.say(client, pattern)[-1]
    assert on_disk.say(client, b"r2 rebind q --add " + b"x" * (size - 1)) == []
    assert len(on_disk.queue(b"q").definition()) == most


def longer(on_disk: OnDisk, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """An older broker took a definition that is longer than one may be now."""
    events = [b"%d%s" % (number, b"x" * (LONGEST_DEFINITION // 2)) for number in range(4)]
    with monkeypatch.context() as older:
        older.setattr("mqks.broker.queues.queue_manager.LONGEST_DEFINITION", MUCH)
        client = on_disk.connect()
        assert [on_disk.say(client, b"r rebind q --add " + event) for event in events] == [[]] * 4
    on_disk.work()
    definition = on_disk.queue(b"q").definition()
    assert len(definition) > 2 * LONGEST_DEFINITION
    return definition


@pytest.mark.parametrize("begin_again", [OnDisk.crash, OnDisk.stop], ids=["crash", "stop"])
def test_a_start_keeps_a_queue_that_is_longer(
    begin_again: Callable[[OnDisk], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk = OnDisk()
    definition = longer(on_disk, monkeypatch)
    begin_again(on_disk)
    assert on_disk.queue(b"q").definition() == definition
    client = on_disk.connect()
    assert on_disk.say(client, b"c1 consume q") == []
    assert on_disk.say(client, b"r1 rebind q --max-length=5") == []
    [refused] = on_disk.say(client, b"r2 rebind q --add e1")
    assert refused.startswith(b"r2 error ")
    assert b" error " not in on_disk.say(client, b"r3 rebind q e1")[0]
