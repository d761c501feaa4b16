"""Histories take turns: however much they look at and however many they are, others are served meanwhile.

What is counted here is what is looked at in each turn, not how long it takes.
"""

from collections.abc import Callable
from itertools import count

import pytest

from mqks.broker import Broker
from mqks.broker.auth.access import EVERYTHING, Rights
from mqks.broker.connections.client import Client
from mqks.broker.persistence import history
from mqks.core.history import answers
from tests.broker.on_disk import OnDisk

READER = Rights("reader", history=("nothing.*",))
PEER = "127.0.0.1:1"
STREAMS = 16


class Looks:
    """How many bytes were looked at, of all histories, and by whom."""

    def __init__(self) -> None:
        self.bytes = 0
        self.streams: list[bytes] = []

    def answers(self, data: bytes, position: int, prefix: bytes, *rest: object) -> object:
        self.bytes += len(data)
        self.streams.append(prefix.split(b" ")[0])
        return answers(data, position, prefix, *rest)  # type: ignore[arg-type]

    def took(self) -> int:
        taken, self.bytes = self.bytes, 0
        return taken


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    found = Looks()
    monkeypatch.setattr(history, "MOST_LOOKED", 1 << 18)
    monkeypatch.setattr(history, "answers", found.answers)
    return found


def said(broker: Broker, client: Client) -> list[bytes]:
    text = client.pending()
    broker.sent(client, len(text))
    return text.splitlines()


def fill(feed: Callable[[bytes], None]) -> None:
    """Short lines, which somebody keeps."""
    feed(b"s subscribe q e.1\n")
    for _ in range(10):
        feed(b"m publish e.1 x\n" * 2000)


def ask(broker: Broker, rights: Rights, words: bytes = b"earliest") -> Client:
    client = broker.connect(PEER, inside=True, rights=rights)
    broker.feed(client, b"".join(b"h%d history %s\n" % (number, words) for number in range(STREAMS)))
    return client


def in_memory(**options: object) -> Broker:
    broker = Broker(**{"clock": lambda: 0.0, **options})  # type: ignore[arg-type]
    publisher = broker.connect(PEER)
    fill(lambda data: broker.feed(publisher, data))
    broker.turn()
    broker.sent(publisher, publisher.pending_size)
    return broker


@pytest.mark.parametrize("words", [b"earliest", b"earliest --events=none,no.*"])
def test_in_memory_a_turn_looks_at_so_much_of_all_histories(looks: Looks, words: bytes) -> None:
    broker = in_memory()
    size = broker.histories.visible
    asking = [ask(broker, READER if words == b"earliest" else EVERYTHING, words) for _ in range(2)]
    other = broker.connect(PEER)
    total, ended = 0, 0
    for turn in count():
        broker.feed(other, b"p%d ping\n" % turn)
        broker.turn()
        assert said(broker, other) == [b"p%d ok " % turn]
        looked = looks.took()
        assert looked <= history.MOST_LOOKED + history.SLICE + 100
        total += looked
        ended += sum(len(said(broker, client)) for client in asking)
        if ended == 2 * STREAMS:
            break
        assert broker.timers.next is not None, "nobody may send anything, and it goes on"
        broker.tick()
    assert total == 2 * STREAMS * size
    assert broker.timers.next is None


def test_each_history_has_its_turn(looks: Looks) -> None:
    broker = in_memory()
    client = ask(broker, READER)
    broker.turn()
    assert looks.streams[:STREAMS] == [b"h%d" % number for number in range(STREAMS)]
    assert looks.streams[STREAMS : 2 * STREAMS] == looks.streams[:STREAMS]
    broker.disconnect(client)
    looks.took()
    broker.turn()
    assert looks.took() == 0


def test_a_turn_takes_so_long_where_looking_is_slow(looks: Looks) -> None:
    times = count()
    broker = in_memory(clock=lambda: next(times) * history.LONGEST_LOOK / 2)
    ask(broker, READER)
    broker.turn()
    assert 1 <= len(looks.streams) <= 3


@pytest.mark.parametrize(
    ("events", "most"),
    [
        (b"none,no.*", history.SLICE),
        (b",".join(b"none.%d" % number for number in range(9_000)), history.SLICE),
        (b",".join(b"*%d*.*z%d*" % (number, number) for number in range(100)), history.TRIES // 600),
        (b",".join(b"%d*.%s" % (number, b"a*" * 90) for number in range(100)), 30),
    ],
    ids=["one mask", "many names", "many masks", "many stars"],
)
def test_the_more_masks_are_to_be_tried_the_less_is_looked_at_without_a_look_at_the_clock(
    looks: Looks, events: bytes, most: int
) -> None:
    """Else one slice would take many times as long as all of a turn may."""
    times = count()
    broker = in_memory(clock=lambda: next(times) * history.LONGEST_LOOK)
    ask(broker, EVERYTHING, b"earliest --events=" + events)
    for _ in range(3):
        broker.turn()
        assert most - 100 < looks.took() <= most + 100
    assert len(looks.streams) == 3


def test_on_disk_a_turn_looks_at_so_much_of_all_histories(looks: Looks) -> None:
    on_disk = OnDisk()
    publisher = on_disk.connect()
    fill(lambda data: on_disk.broker.feed(publisher, data))
    on_disk.work()
    on_disk.wait(1.0)
    on_disk.said(publisher)
    asking = [ask(on_disk.broker, READER) for _ in range(2)]
    on_disk.broker.turn()
    ended = 0
    total = 0
    while ended < 2 * STREAMS:
        while on_disk.disk.complete(urgent=False) or on_disk.disk.complete(urgent=True):
            pass
        on_disk.broker.poll_disk()
        assert looks.took() == 0, "the disk may have many pieces at once"
        on_disk.broker.turn()
        looked = looks.took()
        assert looked <= history.MOST_LOOKED + history.SLICE + 100
        total += looked
        ended += sum(len(on_disk.said(client)) for client in asking)
    assert total > 2 * STREAMS * 300_000


def test_all_are_shown_in_order_however_they_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "SLICE", 20)
    monkeypatch.setattr(history, "MOST_LOOKED", 50)
    broker = Broker(clock=lambda: 0.0, high_water=200)
    client = broker.connect(PEER)
    broker.feed(client, b"s subscribe q e\n")
    broker.feed(client, b"".join(b"m%d publish e %s\n" % (n, b"x" * (n % 90)) for n in range(300)))
    broker.feed(client, b"h history earliest\n")
    lines: list[bytes] = []
    while not lines or b"--end" not in lines[-1]:
        broker.turn()
        lines += said(broker, client)
    assert [line.split(b" ")[3] for line in lines[:-1]] == [b"m%d" % number for number in range(300)]


def test_any_number_of_names_is_found_at_once() -> None:
    """No memory of answers, which names that go round and round would turn over for each message."""
    rights = Rights("reader", history=tuple(f"name.{number}" for number in range(10_000)))
    asked = rights.may_read
    assert not hasattr(asked, "__closure__")
    assert asked(b"name.9999")
    assert not asked(b"name.10000")
    assert not asked(b"")
