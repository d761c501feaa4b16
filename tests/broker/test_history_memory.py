"""What histories have read and not answered is counted, and bounded for all of them together; nothing is missing. What
they keep to know what is wanted is counted too."""

import gc
import random
import tracemalloc
from collections.abc import Iterator

import pytest

from mqks.broker import Broker, capacity
from mqks.broker.actions.history import MOST_MASKS, REMEMBERED
from mqks.broker.connections.client import Client
from mqks.broker.limits import REASONS, Limits
from mqks.broker.persistence import history
from mqks.broker.persistence.history import Stream
from tests.broker.on_disk import OnDisk

STREAMS = 16
MESSAGES = 40_000
HIGH_WATER = 32 << 10
TWO_KINDS = pytest.mark.parametrize("journaled", [True, False], ids=["on disk", "in memory"])


class Stage:
    """A log of several pieces, and clients that read its history, or ask for it and do not read."""

    def __init__(self, journaled: bool) -> None:
        self.on_disk = OnDisk(high_water=HIGH_WATER) if journaled else None
        self.broker = self.on_disk.broker if self.on_disk else Broker(high_water=HIGH_WATER, clock=lambda: 0.0)
        publisher = self.connect()
        self.broker.feed(publisher, b"s subscribe q e.1\n")
        for number in range(0, MESSAGES, 1000):
            self.broker.feed(publisher, b"".join(b"m%d publish e.1 x\n" % n for n in range(number, number + 1000)))
        self.work()
        if self.on_disk:
            self.on_disk.wait(1.0)
        self.broker.disconnect(publisher)

    def connect(self) -> Client:
        return self.broker.connect("127.0.0.1:1", inside=True)

    def ask(self, words: bytes = b"earliest", streams: int = STREAMS) -> Client:
        client = self.connect()
        self.broker.feed(client, b"".join(b"h%d history %s\n" % (number, words) for number in range(streams)))
        return client

    def work(self) -> None:
        """A turn, and all that the disk was asked for."""
        if self.on_disk:
            self.on_disk.work()
        self.broker.turn()
        assert self.broker.histories.held <= history.MOST_HELD + history.PIECE

    def settle(self) -> None:
        """Until nothing more happens: nobody reads."""
        self.work()
        while self.broker.timers.is_set("history") or (self.on_disk and self.on_disk.disk.jobs[False]):
            self.work()


def read_for_streams() -> int:
    """What is there in truth."""
    streams: Iterator[Stream] = (one for one in gc.get_objects() if isinstance(one, Stream))
    return sum(len(part[1]) for stream in streams for part in (stream.text, stream.piece) if part is not None)


@TWO_KINDS
@pytest.mark.parametrize("words", [b"earliest", b"earliest --follow"])
def test_clients_that_do_not_read_hold_a_bounded_part_of_memory_that_is_counted(
    monkeypatch: pytest.MonkeyPatch, journaled: bool, words: bytes
) -> None:
    monkeypatch.setattr(history, "MOST_HELD", 1 << 20)
    stage = Stage(journaled)
    used = []
    for _ in range(3):
        deaf = [stage.ask(words) for _ in range(5)]
        stage.settle()
        gc.collect()
        held = stage.broker.histories.held
        assert 0 < held == read_for_streams()
        before = stage.broker.core.account.used
        for client in deaf:
            stage.broker.disconnect(client)
        assert stage.broker.histories.held == 0
        assert stage.broker.core.account.used <= before - held
        used.append(stage.broker.core.account.used)
    assert used[1] == used[2]


@pytest.mark.parametrize("max_memory", [8 << 20, 1 << 30])
def test_of_a_small_memory_they_have_a_part(max_memory: int) -> None:
    broker = Broker(max_memory=max_memory)
    assert broker.histories.most_held == min(max_memory // 8, history.MOST_HELD)


def test_what_the_disk_has_read_for_one_who_is_gone_is_given_back() -> None:
    stage = Stage(journaled=True)
    client = stage.ask()
    stage.broker.feed(client, b"d delete_consumer h1\n")
    assert stage.broker.histories.held > 0
    stage.broker.disconnect(client)
    stage.work()
    assert stage.broker.histories.held == 0


def ended(said: bytes, streams: int) -> bool:
    return said.count(b" ok --end ") == streams


def by_stream(said: bytes) -> dict[bytes, list[bytes]]:
    """The message ids, for each request id."""
    found: dict[bytes, list[bytes]] = {}
    for line in said.splitlines():
        words = line.split()
        if words[2] != b"--end":
            found.setdefault(words[0], []).append(words[3])
    return found


@TWO_KINDS
@pytest.mark.parametrize("most", [1, 1 << 20])
def test_all_get_all_however_slowly_they_read(monkeypatch: pytest.MonkeyPatch, journaled: bool, most: int) -> None:
    """What was read for them is dropped again and again, and read again."""
    monkeypatch.setattr(history, "MOST_HELD", most)
    stage, rng = Stage(journaled), random.Random(1)
    deaf = stage.ask()
    stage.settle()
    said = {stage.ask(streams=3): b"" for _ in range(4)}
    while not all(ended(text, 3) for text in said.values()):
        stage.work()
        for client in said:
            text = client.pending()[: rng.randrange(4 * HIGH_WATER)]
            stage.broker.sent(client, len(text))
            said[client] += text
    wanted = [b"m%d" % number for number in range(MESSAGES)]
    for text in said.values():
        assert by_stream(text) == {b"h%d" % number: wanted for number in range(3)}
    assert deaf.pending_size < 2 * HIGH_WATER


def test_raw_batches_are_all_there_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_HELD", 1)
    stage = Stage(journaled=True)
    stage.ask()
    stage.settle()
    said = {stage.ask(b"earliest --raw", streams=1): b"" for _ in range(3)}
    while not all(ended(text, 1) for text in said.values()):
        stage.work()
        for client in said:
            text = client.pending()
            stage.broker.sent(client, len(text))
            said[client] += text
    assert stage.on_disk
    (content,) = stage.on_disk.disk.content("journal").values()
    for text in said.values():
        batches, _, _ = text.rpartition(b"h0 ok --end ")
        assert batches.startswith(content.split(b"\n", 1)[1][:100])
        assert batches in content
        assert batches.count(b" publish e.1 x\n") == MESSAGES


def read_until_error(stage: Stage, client: Client) -> list[bytes]:
    said = b""
    while b" error " not in said:
        stage.work()
        text = client.pending()
        stage.broker.sent(client, len(text))
        said += text
    return said.splitlines()[:-1]


def test_damage_is_told_after_all_that_comes_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it was found ahead of time, and what came before was dropped since."""
    monkeypatch.setattr(history, "MOST_HELD", 1 << 20)
    stage = Stage(journaled=True)
    assert stage.on_disk
    (inode,) = [inode for name, inode in stage.on_disk.disk.entries.items() if name.startswith("journal/")]
    inode.data[history.PIECE + 10_000] ^= 1
    before = read_until_error(stage, stage.ask(streams=1))
    assert 0 < len(before) < MESSAGES
    slow = stage.ask(streams=1)
    stage.settle()
    stage.ask()
    stage.settle()
    assert read_until_error(stage, slow) == before


# ---- What is wanted

PEER = "127.0.0.1:1"
MANY = Limits().max_events
NAMES = b",".join(b"n%d" % number for number in range(MANY // 2))  # of which a set takes most
MASKS = {
    "words": b"*." + b"a." * (MANY - 3),
    "stars": b"a." + b"*a" * (MANY - 2),
    "masks": b",".join(b"*.%d" % number for number in range(MOST_MASKS)),
}
WANTED = {"names": NAMES, "long names": b",".join([b"x" * 1000] * 100), **MASKS}


@pytest.mark.parametrize("events", WANTED.values(), ids=WANTED)
def test_what_a_history_wants_is_counted_as_long_as_it_goes_on(events: bytes) -> None:
    broker = Broker(clock=lambda: 0.0)
    client = broker.connect(PEER, inside=True)
    asked = b"h1 history latest --follow --events=%s\n" % events
    broker.feed(client, asked + b"d delete_consumer h1\n")  # what is made once is made
    broker.turn()
    broker.sent(client, client.pending_size)
    before = broker.core.account.used
    tracemalloc.start()
    broker.feed(client, asked)
    broker.turn()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    counted = broker.core.account.used - before
    assert 0 < taken <= counted
    broker.feed(client, b"d delete_consumer h1\n")
    broker.turn()
    broker.sent(client, client.pending_size)
    assert broker.core.account.used == before, "it has seen enough"
    broker.feed(client, asked)
    broker.disconnect(client)
    assert broker.core.account.used <= before, "it has gone"


def test_what_is_remembered_is_counted_beforehand() -> None:
    broker = Broker(clock=lambda: 0.0)
    client = broker.connect(PEER)
    before = broker.core.account.used
    broker.feed(client, b"h1 history latest --follow --events=*.no\n")
    counted = broker.core.account.used - before
    (stream,) = (one for one in gc.get_objects() if isinstance(one, Stream) and one.client is client)
    assert stream.wants
    tracemalloc.start()
    for number in range(2 * REMEMBERED):
        assert not stream.wants(b"%0255d.yes" % number)  # too long to be remembered
        assert not stream.wants(b"%0252d.yes" % number)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert REMEMBERED * 256 < taken < counted


@pytest.mark.parametrize("journaled", [True, False], ids=["on disk", "in memory"])
def test_full_memory_leaves_a_reserve_for_histories(
    journaled: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "RESERVE", 4096)
    stage = Stage(journaled)
    stage.broker.core.account.charge(stage.broker.core.account.max_memory)
    client = stage.broker.connect(PEER)
    stage.broker.feed(client, b"h1 history latest\nh2 history latest --events=e.1\n")
    stage.broker.feed(client, b"h3 history latest --events=%s\n" % NAMES[:3999])
    stage.broker.feed(client, b"h4 history latest --events=*.1\n%s history latest\n" % (b"h" * 4000))
    answers = [line.split(b" ")[1:3] for line in client.pending().splitlines()]
    assert [words[0] if words[0] == b"error" else words[1] for words in answers] == [
        b"--end", b"--end", b"error", b"error", b"error"
    ]  # fmt: skip
    assert caplog.text.count(REASONS["max_memory"]) == 3


def test_a_full_disk_keeps_nobody_from_reading() -> None:
    stage = Stage(journaled=True)
    stage.broker.core.log.refusing = True
    client = stage.connect()
    stage.broker.feed(client, b"h1 history latest --events=%s\n" % NAMES)
    stage.work()
    assert client.pending().startswith(b"h1 ok --end ")


def test_nothing_stays_of_one_who_followed_though_the_log_does_not_grow() -> None:
    broker = Broker(clock=lambda: 0.0)
    client = broker.connect(PEER)
    for _ in range(10):
        broker.feed(client, b"h1 history latest --follow\nd delete_consumer h1\n")
    gc.collect()
    assert not [one for one in gc.get_objects() if isinstance(one, Stream) and one.client is client]
