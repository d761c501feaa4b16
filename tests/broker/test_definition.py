"""What a queue is, as the journal and checkpoints have it: what was taken once is taken again at every start."""

import json
from collections.abc import Callable, Iterator

import pytest

from mqks.broker.protocol.words import DROP_OLDEST
from mqks.broker.queues.patterns import Pattern
from mqks.broker.queues.queue import Bounds, Definition, Queue
from tests.broker.on_disk import OnDisk

SECONDS = {  # as they are asked for, and as they are taken
    1 / 3: 0.333,
    2 / 3: 0.667,
    0.1 + 0.2: 0.3,
    1.0000000000000002: 1.0,
    0.0006: 0.001,
    0.0004: 0.0,
    1e-5: 0.0,
    1e-20: 0.0,
    5e-324: 0.0,
    999_999_999_999_999.9: 999_999_999_999_999.0,
}


def restarts(on_disk: OnDisk) -> Iterator[str]:
    """Two starts: the first finds what happened in the journal, and makes a checkpoint, which the second one finds."""
    for found_in in ("journal", "checkpoint"):
        on_disk.crash()
        yield found_in


def recv(seconds: float) -> bytes:
    asked = {"pattern": {}, "queue": "q1", "delete_queue_when_unused": seconds}
    return b"v1 recv " + json.dumps(asked).encode()


def consume(seconds: float) -> bytes:
    return b"v1 consume --confirm q1 e1 --delete-queue-when-unused=%.20f" % seconds


@pytest.mark.parametrize(("asked", "taken"), SECONDS.items())
@pytest.mark.parametrize("request_line", [recv, consume])
def test_seconds_with_any_decimals_come_back(
    request_line: Callable[[float], bytes], asked: float, taken: float
) -> None:
    on_disk = OnDisk()
    on_disk.say(on_disk.connect(), request_line(asked))
    assert on_disk.queue().unused == taken
    for found_in in restarts(on_disk):
        assert on_disk.queue().unused == taken, found_in


@pytest.mark.parametrize("asked", SECONDS)
def test_seconds_are_told_as_consume_takes_them(asked: float) -> None:
    on_disk = OnDisk()
    first, second = on_disk.connect(), on_disk.connect()
    on_disk.say(first, b"c1 consume q1 e1")
    on_disk.say(second, recv(asked))
    [update] = on_disk.said(first)
    flag = update.split()[-1]
    unused = on_disk.queue().unused
    on_disk.say(second, b"c2 consume q1")
    assert on_disk.queue().unused is None
    on_disk.say(second, b"c2 consume q1 " + flag)
    assert on_disk.queue().unused == unused


@pytest.mark.parametrize(
    ("written", "taken"),
    [(b"0.3333333333333333", 0.333), (b"0.30000000000000004", 0.3), (b"0.", 0.0), (b"1000000000000000.0", 1e15 - 1)],
)
def test_a_journal_with_seconds_as_they_were_written_before(written: bytes, taken: float) -> None:
    on_disk = OnDisk()
    on_disk.say(on_disk.connect(), b"r1 rebind q1 e1", b"m1 publish e1 d1")
    on_disk.broker.core.router.record(
        b"%s rebind q1 e1 --delete-queue-when-unused=%s\n" % (on_disk.broker.new_dtid(), written)
    )
    on_disk.broker.turn()
    for found_in in restarts(on_disk):
        assert (on_disk.queue().unused, on_disk.queue().ready_count) == (taken, 1), found_in


def test_a_checkpoint_with_seconds_as_they_were_written_before() -> None:
    on_disk = OnDisk()
    on_disk.say(on_disk.connect(), b"r1 rebind q1 e1", b"m1 publish e1 d1")
    on_disk.queue().kept = b"q1 e1 --delete-queue-when-unused=0.3333333333333333"
    on_disk.stop()
    assert (on_disk.queue().unused, on_disk.queue().ready_count) == (0.333, 1)


@pytest.mark.parametrize(
    "definition",
    [
        Definition(b"q1", set(), None, None, False, Bounds()),
        Definition(b"q=1", {b"e1", b"e=2", b"pattern"}, None, 0.0, False, Bounds()),
        Definition(b"q1", {b"e1"}, Pattern({"event": " --pattern --sticky"}), 0.001, True, Bounds(1, 2, DROP_OLDEST)),
        Definition(b"q1", set(), Pattern({}), 1e15 - 1, False, Bounds(10**15 - 1, 10**15 - 1)),
    ],
)
def test_what_is_written_is_read(definition: Definition) -> None:
    queue = Queue(definition.name)
    queue.events, queue.pattern, queue.bounds = definition.events, definition.pattern, definition.bounds
    queue.unused, queue.unused_is_sticky = definition.unused, definition.unused_is_sticky
    read = Definition.read(queue.definition())
    assert read._replace(pattern=None) == definition._replace(pattern=None)
    assert (read.pattern and read.pattern.content) == (definition.pattern and definition.pattern.content)
