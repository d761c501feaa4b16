"""Queues with very many consumers: the work of one turn is bounded, counted in consumers and messages."""

import json
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqks.broker import Broker, slices
from mqks.broker.connections.client import Client
from mqks.broker.eval import inspection
from mqks.broker.queues.consumer_manager import LEAVING, RETURNED, RETURNED_AT_ONCE
from mqks.broker.queues.updates import TELLING
from mqks.core.parts import Queue
from mqks.journal import progress
from tests.broker.on_disk import OnDisk

QUOTA = 1000  # units of long work in one turn: fewer than there are, so that these tests are quick
MANY = 5 * QUOTA // TELLING // 2  # consumers
DELIVERIES = 131072  # of one turn, or as much other work
PEER = "127.0.0.1:1"


@pytest.fixture(scope="module", autouse=True)
def _quota() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "QUOTA", QUOTA)
        patch.setattr(progress, "PIECE", 1 << 13)
        yield


class Crowd:
    """A broker with a client that has very many consumers, and one that does something."""

    def __init__(self, consumers: int = MANY, flags: bytes = b"", queue: bytes = b"q") -> None:
        self.broker = Broker(high_water=1 << 30)
        self.crowd, self.other = self.broker.connect(PEER), self.broker.connect(PEER)
        lines = (b"c%d consume %s%s\n" % (number, queue, flags) for number in range(consumers))
        self.broker.feed(
            self.crowd, b"p pause nobody\n" + b"".join(lines)
        )  # it speaks today's language: it gets updates
        self.read(self.crowd)

    @property
    def queue(self) -> Queue:
        return self.broker.queues.by_name[b"q"]

    def ask(self, *lines: bytes) -> list[bytes]:
        self.broker.feed(self.other, b"".join(line + b"\n" for line in lines))
        return self.read(self.other)

    def read(self, client: Client) -> list[bytes]:
        text = client.pending()
        self.broker.sent(client, len(text))
        return text.splitlines()

    def turns(self, seen: Callable[[], int]) -> list[int]:
        """What is seen before the next turn and after each, until nothing is left to do."""
        figures = [seen()]
        while len(self.broker.slices):
            before = self.broker.slices.done
            self.broker.turn()
            assert self.broker.slices.done - before <= QUOTA + RETURNED_AT_ONCE // RETURNED
            figures.append(seen())
        return figures


def test_consumers_of_a_closed_connection_leave_in_several_turns() -> None:
    crowd = Crowd()
    crowd.broker.disconnect(crowd.crowd)
    left = crowd.turns(lambda: len(crowd.queue.consumers))
    assert len(left) > 3
    assert left[-1] == crowd.broker.core.acks.consumers == 0
    assert all(before - after <= QUOTA // LEAVING + 1 for before, after in zip([MANY, *left], left, strict=False))
    assert crowd.crowd not in crowd.broker.connections.clients


def test_so_they_do_when_it_has_closed_for_sending_only() -> None:
    crowd = Crowd()
    crowd.broker.input_ended(crowd.crowd)
    left = crowd.turns(lambda: len(crowd.queue.consumers))
    assert len(left) > 3
    assert left[-1] == 0
    assert crowd.crowd in crowd.broker.connections.clients


def test_many_connections_that_close_at_once_share_a_turn() -> None:
    crowd = Crowd(consumers=0)
    clients = [crowd.broker.connect(PEER) for _ in range(20)]
    for client in clients:
        crowd.broker.feed(client, b"".join(b"c%d consume q\n" % number for number in range(50)))
    for client in clients:
        crowd.broker.disconnect(client)
    left = crowd.turns(lambda: len(crowd.queue.consumers))
    assert len(left) > 2
    assert left[0] >= 1000 - QUOTA // LEAVING - 1


def test_all_have_left_when_the_broker_has_stopped() -> None:
    crowd = Crowd()
    crowd.broker.disconnect(crowd.crowd)
    crowd.broker.close()
    assert not crowd.queue.consumers


def test_many_unacked_messages_return_in_steps_before_a_successor_is_served() -> None:
    crowd = Crowd(consumers=1, flags=b" e --manual-ack")
    count = 10 * RETURNED_AT_ONCE
    crowd.ask(*(b"m%d publish e d" % number for number in range(count)))
    crowd.broker.turn()
    assert len(crowd.read(crowd.crowd)) == count
    crowd.broker.disconnect(crowd.crowd)
    crowd.ask(b"c consume q")
    told: list[bytes] = []
    returned = crowd.turns(lambda: told.extend(crowd.read(crowd.other)) or crowd.queue.returned_count)  # type: ignore[func-returns-value]
    assert len(returned) > 3
    crowd.broker.turn()
    told += crowd.read(crowd.other)
    assert [line.split(b" ")[2] for line in told] == [b"m%d" % number for number in range(count)]


def test_consumers_without_room_are_looked_at_once_and_not_for_each_message() -> None:
    crowd = Crowd(consumers=5000, flags=b" e --manual-ack --prefetch=1")
    core = crowd.broker.core
    crowd.ask(*[b"m publish e d"] * 5001)
    crowd.broker.turn()
    assert core.delivery.delivered == 5000
    before = core.work.effort
    for _ in range(100):
        crowd.ask(b"m publish e d")
        crowd.broker.turn()
    assert core.work.effort - before <= 100 * 3, "a put, a look at the queue, and nobody to give it to"
    crowd.broker.feed(crowd.crowd, b"a ack c4321 m\n")
    before = core.work.effort
    crowd.broker.turn()
    assert core.delivery.delivered == 5001
    assert core.work.effort - before <= 3


def test_a_turn_delivers_so_many_messages_and_the_next_one_goes_on() -> None:
    crowd = Crowd(consumers=4, flags=b" e")
    core, count = crowd.broker.core, DELIVERIES + 1000
    crowd.ask(*(b"m%d publish e d" % number for number in range(count)))
    before = core.work.effort
    crowd.broker.turn()
    assert core.work.effort - before <= DELIVERIES + 1
    assert 0 < count - core.delivery.delivered < 1100
    crowd.broker.turn()
    told = [line.split(b" ") for line in crowd.read(crowd.crowd)]
    assert [(words[0], words[2]) for words in told] == [(b"c%d" % (n % 4), b"m%d" % n) for n in range(count)]


def test_large_messages_are_more_work() -> None:
    """Also where they are those of many queues: the round goes on in the next turn."""
    broker = Broker(high_water=1 << 30)
    consumers, publisher = broker.connect(PEER), broker.connect(PEER)
    broker.feed(consumers, b"".join(b"c%d consume q%d e\n" % (number, number) for number in range(100)))
    broker.feed(publisher, b"m publish e %s\n" % (b"x" * (1 << 19)))
    turns = 0
    while broker.core.delivery.delivered < 100:
        before = broker.core.delivery.delivered
        broker.turn()
        assert 0 < broker.core.delivery.delivered - before <= DELIVERIES * 256 // (1 << 19) + 1
        turns += 1
    assert turns == 2


# ── updates ──


def test_very_many_consumers_are_told_of_a_change_in_several_turns() -> None:
    crowd = Crowd()
    told: list[bytes] = []
    assert crowd.ask(b"r rebind --confirm q e1") == [b"r ok "]
    counts = crowd.turns(lambda: told.extend(crowd.read(crowd.crowd)) or len(told))  # type: ignore[func-returns-value]
    assert len(counts) > 2
    assert counts[0] <= QUOTA // TELLING + 1
    assert told == [b"c%d ok --update q e1" % number for number in range(MANY)]


def test_no_message_comes_before_the_update() -> None:
    crowd = Crowd()
    crowd.ask(b"r rebind q e1", *[b"m publish e1 d"] * MANY)
    assert len(crowd.broker.slices)
    lines: dict[bytes, list[bytes]] = {}
    told: list[bytes] = []
    crowd.turns(lambda: told.extend(crowd.read(crowd.crowd)) or 0)  # type: ignore[func-returns-value]
    crowd.broker.turn()
    for line in told + crowd.read(crowd.crowd):
        lines.setdefault(line.split(b" ")[0], []).append(line.split(b" ")[2])
    assert list(lines.values()) == [[b"--update", b"m"]] * MANY


def test_no_message_comes_before_the_update_while_other_work_is_under_way() -> None:
    crowd = Crowd(1, b" e1")
    crowd.broker.slices.start(iter([QUOTA] * 3))
    crowd.ask(b"rb1 rebind q --add e2", b"m1 publish e2 d1")
    lines = []
    while len(crowd.broker.slices):
        crowd.broker.turn()
        lines += crowd.read(crowd.crowd)
    crowd.broker.turn()
    lines += crowd.read(crowd.crowd)
    assert lines == [b"c0 ok --update q e1 e2", b"c0 ok m1 event=e2 d1"]


def test_a_queue_is_served_though_its_consumers_could_not_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(1, b" e1")

    def fail(_: object) -> bytes:
        raise ValueError("on purpose")

    monkeypatch.setattr(crowd.broker.updates, "text", fail)
    crowd.ask(b"rb1 rebind q --add e2")
    monkeypatch.undo()
    crowd.ask(b"m1 publish e2 d1", b"rb2 rebind q --add e3")
    crowd.broker.turn()
    assert crowd.read(crowd.crowd) == [b"c0 ok --update q e1 e2 e3", b"c0 ok m1 event=e2 d1"]


def test_a_queue_that_is_deleted_gives_back_what_its_consumers_took() -> None:
    crowd = Crowd(0)
    crowd.ask(b"rb1 rebind q e1", b"dq1 delete_queue q")
    used = []
    for _ in range(3):
        lines = (b"c%d consume q e1\n" % number for number in range(MANY))
        crowd.broker.feed(crowd.crowd, b"".join(lines))
        crowd.ask(b"dq1 delete_queue q")
        crowd.turns(lambda: 0)
        crowd.read(crowd.crowd)
        used.append(crowd.broker.core.account.used)
    assert used == used[:1] * 3


def test_a_consumer_of_a_deleted_queue_is_nobodys_at_once() -> None:
    crowd = Crowd(MANY)
    crowd.ask(b"dq1 delete_queue q")
    assert len(crowd.broker.slices)
    last = b"c%d" % (MANY - 1)
    crowd.broker.feed(crowd.crowd, b"a1 ack --confirm %s m1\n" % last)
    assert b"a1 ok " in crowd.read(crowd.crowd)


def test_its_own_consumers_are_told_before_a_request_is_answered() -> None:
    crowd = Crowd()
    crowd.ask(b"mine consume q", b"r rebind q e1")  # which takes what this turn may do
    assert crowd.ask(b"r2 rebind --confirm q e2") == [b"mine ok --update q e2", b"r2 ok "]
    assert len(crowd.broker.slices)


def test_changes_while_all_are_told_are_told_once_more() -> None:
    """However many they are: nobody can pile up work, and the queue is served between two rounds."""
    crowd = Crowd()
    for number in range(10):
        crowd.ask(b"r rebind q e%d" % number)
    crowd.ask(b"m publish e9 d")
    told: list[bytes] = []
    delivered = crowd.turns(lambda: told.extend(crowd.read(crowd.crowd)) or crowd.broker.core.delivery.delivered)  # type: ignore[func-returns-value]
    assert 1 in delivered[:-2], "before the second round ended"
    updates = [line for line in told if b"--update" in line]
    assert MANY < len(updates) <= 2 * MANY
    assert {line for line in told if line.endswith(b" e9")} == {b"c%d ok --update q e9" % n for n in range(MANY)}


def test_consumers_that_left_meanwhile_are_not_told() -> None:
    crowd = Crowd()
    crowd.ask(b"r rebind q e1")
    last = MANY - 1
    crowd.broker.feed(crowd.crowd, b"d delete_consumer c%d\n" % last)
    told: list[bytes] = []
    crowd.turns(lambda: told.extend(crowd.read(crowd.crowd)) or 0)  # type: ignore[func-returns-value]
    assert told == [b"c%d ok --update q e1" % number for number in range(last)]


def test_very_many_consumers_are_told_in_several_turns_that_their_queue_is_gone() -> None:
    crowd = Crowd()
    used = crowd.broker.core.account.used
    assert crowd.ask(b"d delete_queue --confirm q") == [b"d ok "]
    assert crowd.broker.core.acks.consumers == 0
    crowd.broker.feed(crowd.crowd, b"c%d consume --confirm q2\n" % (MANY - 1))
    told: list[bytes] = []
    counts = crowd.turns(lambda: told.extend(crowd.read(crowd.crowd)) or len(told))  # type: ignore[func-returns-value]
    assert len(counts) > 2
    late = b"c%d ok " % (MANY - 1)
    assert late in told, "the id is in use again: what was told of it is of the new consumer"
    assert [line for line in told if line != late] == [b"c%d ok --update q" % number for number in range(MANY - 1)]
    assert crowd.broker.core.account.used < used - 100 * MANY


# ── whose turn it is ──


class Reference:
    """Consumers of a queue as a list: what the core has to do in constant time."""

    def __init__(self) -> None:
        self.consumers: list[bytes] = []
        self.turn = 0

    def leave(self, consumer: bytes) -> None:
        at = self.consumers.index(consumer)
        del self.consumers[at]
        self.turn -= at < self.turn

    def next(self, paused: set[bytes]) -> bytes | None:
        count = len(self.consumers)
        for step in range(count):
            at = (self.turn if self.turn < count else 0) + step
            if self.consumers[at % count] not in paused:
                self.turn = at % count + 1
                return self.consumers[at % count]
        return None


@given(
    st.lists(st.tuples(st.sampled_from("jjjjllllppprmmmm"), st.integers(0, 1 << 16)), max_size=300), st.integers(0, 150)
)
def test_consumers_take_turns_as_in_a_list(steps: list[tuple[str, int]], at_first: int) -> None:
    """They join, leave, pause and resume; gaps are closed now and then."""
    crowd = Crowd(at_first)
    broker, reference = crowd.broker, Reference()
    reference.consumers = [b"c%d" % number for number in range(at_first)]
    paused: set[bytes] = set()
    joined = at_first
    broker.feed(crowd.other, b"s subscribe q e\n")
    crowd.read(crowd.crowd)
    for kind, number in steps:
        there = reference.consumers
        one = there[number % len(there)] if there else b"nobody"
        if kind == "j":
            broker.feed(crowd.crowd, b"c%d consume q\n" % joined)
            there.append(b"c%d" % joined)
            joined += 1
        elif kind == "m":
            broker.feed(crowd.other, b"m publish e d\n")
            broker.turn()
            expected = reference.next(paused)
            if expected is None:
                broker.core.limits.purge(broker.queues.by_name[b"q"], 1)
            assert [line.split(b" ")[0] for line in crowd.read(crowd.crowd)] == ([expected] if expected else [])
        elif there and kind == "l":
            broker.feed(crowd.crowd, b"d delete_consumer %s\n" % one)
            reference.leave(one)
            paused.discard(one)
        elif there:
            broker.feed(crowd.crowd, b"p %s %s\n" % (b"pause" if kind == "p" else b"resume", one))
            paused.add(one) if kind == "p" else paused.discard(one)
    assert [consumer.id for consumer in broker.queues.by_name[b"q"].consumers] == reference.consumers


# ── events with very many queues ──


class Compared(Queue):
    """A queue that counts how often it is compared."""

    times = 0
    __hash__ = Queue.__hash__

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return self is other


def test_to_unbind_a_queue_does_not_take_a_look_at_all_of_its_event() -> None:
    events, queues = Broker().core.events, [Compared() for _ in range(1000)]
    for queue in queues:
        events.bind(b"e", queue)
    Compared.times = 0
    for queue in reversed(queues[1:]):
        events.unbind(b"e", queue)
    assert Compared.times < 1000
    assert events.queues(b"e") == queues[:1]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=400))
def test_a_queue_may_be_bound_for_two_reasons(steps: list[tuple[bool, int]]) -> None:
    events, queues, reasons = Broker().core.events, [Queue() for _ in range(61)], [0] * 61
    for binds, number in steps:
        if binds and reasons[number] < 2:
            events.bind(b"e", queues[number])
            reasons[number] += 1
        elif not binds and reasons[number]:
            events.unbind(b"e", queues[number])
            reasons[number] -= 1
    bound: list[Queue] = events.queues(b"e")
    assert len(bound) == len(set(bound))
    assert set(bound) == {queue for queue, count in zip(queues, reasons, strict=True) if count}
    assert (b"e" in events) == any(reasons)


# ── what is asked about them ──


def test_to_count_consumers_and_events_none_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(1000, b" e1 e2")

    def looked_at(*_: object) -> None:
        raise AssertionError("it was looked at")

    monkeypatch.setattr(inspection.ConsumerView, "__init__", looked_at)
    assert crowd.ask(b"e _eval len(state.consumers), len(state.events)") == [b"e ok (1000, 2)"]


def test_consumers_are_a_list_to_expressions() -> None:
    crowd = Crowd(3)
    assert crowd.ask(b"e _eval state.consumers[1].id") == [b"e ok c1"]
    assert crowd.ask(b"e _eval [c.id for c in state.consumers[1:]]") == [b"e ok ['c1', 'c2']"]
    assert crowd.ask(b"e _eval 1 if state.consumers else 0") == [b"e ok 1"]
    assert crowd.ask(b"e _eval state.consumers")[0].count(b"<consumer c") == 3


@pytest.mark.parametrize("name", [b"e1", b"caf\xe9", b"a\\b", b"a\\x41", "ключ".encode(), b"\\\\x\xff"])
def test_an_event_is_found_by_the_name_that_is_shown(name: bytes) -> None:
    crowd = Crowd(1)
    crowd.ask(b"r rebind q " + name)
    assert crowd.ask(b"e _eval [len(state.events[e]) for e in state.events]") == [b"e ok [1]"]
    assert crowd.ask(b"e _eval 'x' in state.events or 1 in state.events") == [b"e ok False"]


def test_names_of_very_many_queues_are_not_made_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "MOST_NAMES", 100)
    crowd = Crowd(1)
    crowd.ask(*(b"s subscribe q%d a b c" % number for number in range(40)))
    assert crowd.ask(b"e _eval len(state.events['a']) + len(state.events['b'])") == [b"e ok 80"]
    [refused] = crowd.ask(b"e _eval [len(state.events[e]) for e in state.events]")
    assert refused.startswith(b"e error ")


def test_stats_of_very_many_queues_are_made_in_several_turns() -> None:
    """The reply is one complete line, before those to later requests; deliveries come before it, not inside of it."""
    crowd = Crowd(1, b" e0")
    queues = 5 * QUOTA // inspection.STATS
    crowd.ask(*(b"s subscribe q%d e%d" % (number, number) for number in range(1, queues)), b"c consume mine e")
    crowd.ask(b"t stats", b"p ping", b"m publish e d")
    told: list[bytes] = []
    asker = crowd.broker.connect(PEER)

    def seen() -> int:
        crowd.broker.feed(asker, b"m publish e d\np ping\n")
        assert crowd.read(asker) == [b"p ok "]
        told.extend(crowd.read(crowd.other))
        return len(told)

    assert len(crowd.turns(seen)) > 3
    crowd.broker.turn()
    told += crowd.read(crowd.other)
    replies = [line for line in told if not line.startswith(b"c ok m ")]
    assert [line.split(b" ")[0] for line in replies] == [b"t", b"p"]
    assert len(told) > 4
    assert len(json.loads(replies[0].removeprefix(b"t ok "))["queues"]) == queues + 1


def test_stats_that_find_no_memory_are_an_error() -> None:
    broker = Broker(max_memory=4 << 20)
    client = broker.connect(PEER)
    broker.feed(client, b"".join(b"rb rebind q%d e\n" % number for number in range(1500)))
    broker.turn()
    free = broker.core.account.max_memory - broker.core.account.used
    assert free > 0
    broker.core.account.charge(free - (128 << 10))
    used = broker.core.account.used
    broker.sent(client, len(client.pending()))
    broker.feed(client, b"st stats\n")
    while len(broker.slices):
        broker.turn()
    assert client.pending().startswith(b"st error ")
    broker.sent(client, len(client.pending()))
    broker.turn()
    assert broker.core.account.used - used < 1 << 10  # the log's timer


def test_a_client_that_goes_gets_no_stats() -> None:
    crowd = Crowd(1)
    used = crowd.broker.core.account.used
    crowd.ask(*(b"s subscribe q%d e%d" % (number, number) for number in range(1, 2 * QUOTA // inspection.STATS)))
    crowd.ask(b"t stats")
    crowd.broker.disconnect(crowd.other)
    crowd.turns(lambda: 0)
    for queue in list(crowd.broker.queues.by_name.values())[1:]:
        crowd.broker.queues.delete(queue)
    assert crowd.broker.core.account.used <= used


# ── checkpoints ──


@pytest.mark.parametrize("power_loss", [False, True])
@pytest.mark.parametrize("turns", range(6))
def test_a_checkpoint_of_very_many_queues_is_of_the_moment_when_it_began(turns: int, power_loss: bool) -> None:
    """It is written in several turns. What happens meanwhile is in the journal and the log that began with it."""
    on_disk = OnDisk()
    client = on_disk.connect()
    on_disk.say(client, *(b"s subscribe q%d e%d" % (number, number) for number in range(1500)))
    on_disk.say(client, *(b"m%d publish e%d before" % (number, number) for number in range(1500)))
    on_disk.work()
    assert on_disk.broker.persistence.journal is not None
    on_disk.broker.persistence.journal.checkpoint()
    on_disk.say(client, b"s subscribe late e1", b"s subscribe q2 other", b"d delete_queue q3")
    on_disk.say(client, b"n publish --confirm e1 meanwhile")
    while on_disk.disk.complete(urgent=True):
        on_disk.broker.poll_disk()
    for _ in range(turns):
        on_disk.broker.turn()
    assert bool(len(on_disk.broker.slices)) == (turns < 1)
    if turns == 5:
        on_disk.work()
    on_disk.crash(power_loss=power_loss)
    assert len(on_disk.broker.queues.by_name) == 1500
    assert on_disk.drain(b"q1") == [b"m1 event=e1 before", b"n event=e1 meanwhile"]
    assert (on_disk.queue(b"late").events, on_disk.queue(b"q2").events) == ({b"e1"}, {b"other"})
    assert on_disk.drain(b"q1499") == [b"m1499 event=e1499 before"]
