"""Each thing that a client can create is charged while it exists, and leaves nothing charged behind."""

from collections.abc import Callable

import pytest

from mqks.broker.connections.client import Client
from mqks.broker.connections.mistakes import LOGGED_LINES
from mqks.broker.queues.queue_manager import QUEUE_COST
from mqks.broker.timers import TIMER_COST, Timers
from mqks.web.sampling import BUSY_COST, TRACK_COST
from tests.broker.on_disk import OnDisk
from tests.web.stage import Stage

Step = Callable[[OnDisk, Client], object]


def say(*requests: bytes) -> Step:
    return lambda on_disk, client: on_disk.say(client, *requests)


def hold_for(seconds: int) -> Step:
    return say(b"h hold n1 earliest --for=%d" % seconds)


def expire(on_disk: OnDisk, _: Client) -> None:
    on_disk.wait(61.0)
    assert on_disk.broker.persistence.journal
    on_disk.broker.persistence.journal.retention.held_from()


def retry_often(on_disk: OnDisk, client: Client) -> None:
    on_disk.say(client, b"c1 consume q1 --manual-ack", b"m1 publish e1 d1")
    for _ in range(300):
        on_disk.say(client, b"r reject c1 --all")


def connect_others(on_disk: OnDisk, client: Client) -> None:
    assert client in on_disk.broker.connections.clients
    for _ in range(10):
        on_disk.connect()


def disconnect_others(on_disk: OnDisk, client: Client) -> None:
    for each in [each for each in on_disk.broker.connections.clients if each is not client]:
        on_disk.broker.disconnect(each)
    on_disk.work()


def wait_for_the_disk(on_disk: OnDisk, client: Client) -> None:
    assert on_disk.say(client, *(b"m%d publish --confirm e0 d" % number for number in range(100))) == []


def go_on(on_disk: OnDisk, client: Client) -> None:
    on_disk.work()
    on_disk.said(client)


QUEUE = b"r rebind q2 e2"
KINDS: dict[str, tuple[Step, Step, Step]] = {  # what is there before, what creates something, and what releases it
    "a queue": (say(), say(b"r rebind q2"), say(b"d delete_queue q2")),
    "a queue with limits": (say(), say(b"r rebind q2 --max-length=5"), say(b"d delete_queue q2")),
    "a queue that goes when unused": (
        say(),
        say(b"c2 consume q2 --delete-queue-when-unused=10", b"d delete_consumer c2"),
        lambda on_disk, _: on_disk.wait(11.0),
    ),
    "an event": (say(QUEUE), say(b"r rebind q2 --add e3"), say(b"r rebind q2 --remove e3")),
    "a pattern": (
        say(),
        say(b'v recv {"queue": "q2", "pattern": {"a": [1, {"b": "c"}]}}'),
        say(b'd delete_queue {"queue": "q2"}', b"d delete_consumer v"),
    ),
    "a consumer": (say(QUEUE), say(b"c2 consume q2"), say(b"d delete_consumer c2")),
    "a consumer, whose queue goes": (say(), say(QUEUE, b"c2 consume q2"), say(b"d delete_queue q2")),
    "a history": (say(), say(b"h history latest --follow --events=a,b.*"), say(b"d delete_consumer h")),
    "a hold": (say(), hold_for(60), expire),
    "connections": (say(), connect_others, disconnect_others),
    "many retries": (say(), retry_often, say(b"a ack c1 --all")),
    "many retries, whose queue goes": (say(), retry_often, say(b"d delete_queue q1")),
    "replies that wait for the disk": (say(), wait_for_the_disk, go_on),
}


def settled(on_disk: OnDisk, client: Client) -> int:
    """What is charged when all is written and read, without what rests for the next time."""
    for _ in range(3):
        on_disk.wait(2.0)
        on_disk.said(client)
    return on_disk.broker.core.account.used


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_created_is_charged_until_it_is_released(kind: str) -> None:
    before, create, release = KINDS[kind]
    on_disk = OnDisk()
    client = on_disk.connect()
    on_disk.say(client, b"r rebind q1 e1", b"m0 publish e0 d0")
    before(on_disk, client)
    charged = []
    for _ in range(3):
        start = settled(on_disk, client)
        create(on_disk, client)
        created = on_disk.broker.core.account.used
        assert created > start
        release(on_disk, client)
        charged.append(settled(on_disk, client))
        on_disk.say(client, b"r rebind q1 e1")  # which may have been deleted
    assert charged[1] == charged[2], "the first time leaves buffers for the next"


def test_a_timer_is_charged_until_it_is_cancelled_or_runs() -> None:
    charged: list[int] = []
    timers = Timers(lambda: 0.0, charged.append)
    timers.set("a", 1.0, lambda: None)
    timers.set("a", 2.0, lambda: None)
    timers.set("b", 0.0, lambda: None)
    assert charged == [TIMER_COST] * 2
    timers.cancel("a")
    timers.cancel("a")
    timers.run_due()
    assert sum(charged) == 0


def test_what_is_known_of_mistakes_goes_after_a_second() -> None:
    on_disk = OnDisk()
    client = on_disk.connect()
    on_disk.say(client, b"x", b"x nope", b"x ack", b"x consume", b"x publish")
    assert client.floods
    assert len(client.floods) == 5 <= LOGGED_LINES
    on_disk.wait(1.0)
    on_disk.wait(1.0)
    assert not client.floods


# ---- Figures of queues and events


def test_figures_of_queues_are_charged_and_not_begun_when_memory_is_full() -> None:
    stage = Stage()
    client, core = stage.connect(), stage.broker.core
    stage.say(client, b"r rebind q1 e1", b"r rebind q2 e2")
    before = core.account.used
    stage.wait()
    quiet = core.account.used
    assert quiet - before >= 2 * TRACK_COST
    stage.say(client, b"c1 consume q1", b"m1 publish e1 d1")
    busy = core.account.used
    stage.wait()
    assert core.account.used - busy >= BUSY_COST, "more while something happens"
    stage.say(client, b"r rebind q3")
    core.account.charge(core.account.max_memory)
    full = core.account.used
    stage.wait(10)
    assert core.account.used <= full, "nothing is begun of another queue"
    core.account.charge(-core.account.max_memory)
    stage.wait()
    there = core.account.used
    stage.say(client, b"d delete_queue q1", b"d delete_queue q2", b"d delete_queue q3")
    stage.wait(10)
    assert there - core.account.used >= 3 * (TRACK_COST + QUEUE_COST)


def test_rates_of_very_many_events_are_not_taken_when_memory_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqks.web.counters.EVENTS_AT_ONCE", 2)
    stage = Stage()
    stage.say(stage.connect(), b"r rebind q1 e1 e2 e3")
    stage.wait(10)
    assert stage.figures.event_count() == 3
    charged = stage.broker.core.account.used
    stage.broker.core.account.charge(stage.broker.core.account.max_memory)
    stage.wait(10)
    assert stage.figures.event_count() == 0
    assert stage.broker.core.account.used < charged + stage.broker.core.account.max_memory
