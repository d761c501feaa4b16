"""Confirmed publishes over one socket, against peers that play a script and against a real broker; no Spark."""

import select
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

import mqks.testing
from mqks.client.address import Address, find_address
from mqks.client.errors import ConnectionLost, Refused
from mqks.client.options import SHORTEST_TRY
from pyspark_mqks import publishing, reaching
from pyspark_mqks.lines import Block, Columns
from pyspark_mqks.options import SinkOptions
from pyspark_mqks.publishing import Publisher
from pyspark_mqks.sink import Published, Task, publish
from tests.spark.peers import PATIENCE, Clock, Talk, peer, taken


def block(*lines: bytes) -> Block:
    return Block(memoryview(b"".join(line + b"\n" for line in lines)), np.cumsum([len(line) + 1 for line in lines]))


def line(number: int, data: str = "") -> bytes:
    return b"m%d publish --confirm --once=test e1 %s" % (number, data.encode() or b"d%d" % number)


def blocks(count: int, size: int = 500) -> Iterable[Block]:
    for start in range(0, count, size):
        yield block(*map(line, range(start, min(start + size, count))))


def publisher(address: Address, retry_for: float = PATIENCE, **options: float) -> Publisher:
    return Publisher(address, retry_for=retry_for, **options)  # type: ignore[arg-type]  # window is an int


def put_all(address: Address, *given: Block, **options: float) -> int:
    with publisher(address, **options) as sink:
        for each in given:
            sink.put(each)
        sink.flush()
        assert sink.unconfirmed == 0
        return sink.confirmed


class Moved:
    """Stands where modules have `time`: it moves only when somebody sleeps, or when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def moved_by_sleeping(monkeypatch: pytest.MonkeyPatch) -> Moved:
    clock = Moved()
    for module in (publishing, reaching):
        monkeypatch.setattr(module, "time", clock)
    return clock


# ── scripts ──


def test_it_asks_how_long_a_line_may_be() -> None:
    with peer(lambda talk: talk.greet().until_the_end()) as played, publisher(played.address) as sink:
        assert sink.max_line == 1000


def test_nothing_counts_before_its_ok() -> None:
    counted: list[int] = []
    sent, ended = threading.Event(), threading.Event()

    def scene(talk: Talk) -> None:
        lines = talk.greet().lines(3)
        talk.confirm(*lines[:2])
        sent.set()
        assert not ended.wait(0.05)
        talk.confirm(lines[2])
        assert ended.wait(PATIENCE)

    with peer(scene) as played:
        counted.append(put_all(played.address, block(line(1), line(2)), block(line(3))))
        assert sent.is_set()
        ended.set()
    assert counted == [3]


@pytest.mark.parametrize("cut", [b"", b"m4", b"m4 ok", b"m4 ok "])
def test_what_has_no_ok_is_sent_again_and_no_more(cut: bytes) -> None:
    again: list[bytes] = []

    def first(talk: Talk) -> None:
        lines = talk.greet().lines(6)
        talk.confirm(*lines[:3])
        talk.say(cut)

    def second(talk: Talk) -> None:
        again.extend(talk.greet().lines(3))
        talk.confirm(*again)
        assert talk.until_the_end() == b""

    with peer(first, second) as played:
        assert put_all(played.address, block(line(1), line(2)), block(line(3), line(4), line(5)), block(line(6))) == 6
    assert again == [line(4), line(5), line(6)]


def test_a_line_that_was_cut_is_sent_whole() -> None:
    long = line(1, "x" * (8 << 20))

    def first(talk: Talk) -> None:
        talk.greet().socket.recv(1000)

    def second(talk: Talk) -> None:
        assert talk.greet().line() == long
        talk.confirm(long)

    with peer(first, second) as played:
        assert put_all(played.address, block(long)) == 1


def test_replies_in_pieces() -> None:
    def scene(talk: Talk) -> None:
        talk.greet()
        for reply in (each.partition(b" ")[0] + b" ok \n" for each in talk.lines(5)):
            for at in range(len(reply)):
                talk.say(reply[at : at + 1])

    with peer(scene) as played:
        assert put_all(played.address, block(*map(line, range(5)))) == 5


def test_an_error_names_the_line() -> None:
    def scene(talk: Talk) -> None:
        talk.greet().lines(3)
        talk.say(b"m2 error 2026\nm1 ok \n")  # errors may overtake oks
        talk.until_the_end()

    with peer(scene) as played, pytest.raises(Refused, match="'m2 publish --confirm --once=test e1 d2': error 2026;"):
        put_all(played.address, block(line(1)), block(line(2), line(3)))


def test_no_more_than_a_window_waits() -> None:
    """The peer says nothing until it has seen a window; what comes then is what the ok makes room for."""
    size = len(line(1)) + 1
    seen: list[bytes] = []

    def scene(talk: Talk) -> None:
        talk.greet()
        seen.extend(talk.lines(3))
        talk.socket.settimeout(0.05)
        with pytest.raises(TimeoutError):
            talk.socket.recv(1)
        talk.socket.settimeout(PATIENCE)
        talk.confirm(seen[0])
        assert talk.socket.recv(size) == line(4) + b"\n"
        talk.confirm(*seen[1:], line(4))

    with peer(scene) as played:
        assert put_all(played.address, *(block(line(number)) for number in (1, 2, 3, 4)), window=3 * size) == 4


def test_a_block_larger_than_the_window_goes_alone() -> None:
    def scene(talk: Talk) -> None:
        talk.greet()
        for _ in range(2):
            talk.confirm(*talk.lines(5))

    with peer(scene) as played:
        assert put_all(played.address, block(*map(line, range(5))), block(*map(line, range(5, 10))), window=10) == 10


def test_a_broker_that_is_gone_for_too_long() -> None:
    def scene(talk: Talk) -> None:
        talk.confirm(*talk.greet().lines(2))
        talk.lines(1)

    told = "cannot reach .*is mqksd running there.*0.2 s .option retryFor.*2 are confirmed, 1 were sent and are not"
    with peer(scene) as played, pytest.raises(ConnectionLost, match=told):
        put_all(played.address, block(line(1), line(2), line(3)), retry_for=0.2)


def test_a_try_ends_with_the_time_for_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that accepts and stays silent uses all the time that a try has."""
    clock = Clock()
    monkeypatch.setattr(reaching, "time", clock)
    patience = reaching.Patience(Address("127.0.0.1", 1), 30.0)
    assert patience.within is None
    patience.wait(TimeoutError())
    assert patience.within is None, "as much as ever"
    clock.ahead = 25.0
    assert patience.within is not None and 0 < patience.within < 5
    clock.ahead = 40.0
    assert patience.within == SHORTEST_TRY
    patience.renew()
    assert patience.within is None


def test_a_broker_that_was_never_there() -> None:
    with peer() as played:
        pass
    with pytest.raises(ConnectionLost, match="cannot reach"):
        publisher(played.address, retry_for=0.1)


def test_connections_that_come_and_go_do_not_go_on_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def scene(talk: Talk) -> None:
        talk.greet().lines(1)

    moved_by_sleeping(monkeypatch)
    with peer(*[scene] * 3) as played, pytest.raises(ConnectionLost):
        put_all(played.address, block(line(1)), retry_for=0.5)


def test_the_time_that_rows_take_to_come_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection goes, a second one too, much later and without an ok between them: that is no long absence."""
    clock, close = Clock(), threading.Event()
    for module in (publishing, reaching):
        monkeypatch.setattr(module, "time", clock)

    def gone(sink: Publisher) -> None:
        assert sink._socket is not None
        assert select.select([sink._socket], [], [], PATIENCE)[0]

    def second(talk: Talk) -> None:
        talk.greet().lines(2)
        assert close.wait(PATIENCE)

    scenes = (lambda talk: talk.greet().lines(1), second, lambda talk: talk.confirm(*talk.greet().lines(3)))
    with peer(*scenes) as played, publisher(played.address) as sink:
        sink.put(block(line(1)))
        gone(sink)
        sink.put(block(line(2)))
        clock.ahead += 100 * PATIENCE
        close.set()
        gone(sink)
        sink.put(block(line(3)))
        sink.flush()
        assert sink.confirmed == 3


def test_a_silent_broker_is_left_for_a_new_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = moved_by_sleeping(monkeypatch)

    def silent(talk: Talk) -> None:
        assert talk.greet().line() == line(1)
        talk.socket.settimeout(0.01)
        with suppress(ConnectionError):  # it has left
            while True:
                clock.now += PATIENCE
                talk.say(b"m")  # no answer, only a reason to look at the clock
                with suppress(TimeoutError):
                    assert talk.socket.recv(1) == b""
                    break

    def speaks(talk: Talk) -> None:
        talk.confirm(*talk.greet().lines(1))

    with peer(silent, speaks) as played:
        assert put_all(played.address, block(line(1)), silence=PATIENCE / 2) == 1


@pytest.mark.parametrize("answer", [b"- error 2026", b"HTTP/1.1 400 Bad Request", b"{id} ok {}", b"{id} ok nothing"])
def test_who_does_not_let_us_in_is_asked_again(answer: bytes) -> None:
    def refuses(talk: Talk) -> None:
        talk.say(answer.replace(b"{id}", talk.line().split()[0]) + b"\n")

    with peer(refuses, lambda talk: talk.greet().confirm(*talk.lines(1))) as played:
        assert put_all(played.address, block(line(1))) == 1


def test_more_answers_than_questions_are_not_believed() -> None:
    def first(talk: Talk) -> None:
        talk.greet().lines(1)
        talk.say(b"m1 ok \nm0 ok \n")

    with peer(first, lambda talk: talk.greet().confirm(*talk.lines(1))) as played:
        assert put_all(played.address, block(line(1))) == 1


def test_the_rate_is_kept() -> None:
    def scene(talk: Talk) -> None:
        talk.greet()
        for _ in range(4):
            talk.confirm(*talk.lines(5))

    with peer(scene) as played:
        begin = time.monotonic()
        assert put_all(played.address, *blocks(20, 5), rate=100.0) == 20
        assert time.monotonic() - begin >= 0.15  # the first 5 go at once


# ── a real broker ──


def test_replies_are_read_while_lines_are_sent() -> None:
    """A broker does not read from those who do not read, so with such a window both would wait for ever."""
    with mqks.testing.broker() as broker:
        assert put_all(find_address(broker.url), *blocks(200_000, 20_000), window=1 << 30) == 200_000
        with mqks.connect(broker.url) as mq:
            assert mq.stats()["published"] == 200_000


def test_restarts_and_lost_connections_lose_and_double_nothing(tmp_path: Path) -> None:
    """The broker is cut off or restarted while lines are on their way, again and again."""
    rows = 40_000
    with mqks.testing.broker(data=tmp_path) as broker, publisher(find_address(broker.url)) as sink:
        lost = 0
        for number, each in enumerate(blocks(rows)):
            sink.put(each)
            lost += sink.unconfirmed > 0 and number % 8 in (3, 7)
            if number % 8 == 3:
                broker.drop_connections()
            elif number % 8 == 7:
                broker.restart()
        sink.flush()
        assert sink.confirmed == rows
        ids = Counter(message.id for message in taken(broker.url))
    assert lost
    assert len(ids) == rows
    assert set(ids.values()) == {1}


def test_a_task_that_fails_after_its_rows_were_published_is_tried_again() -> None:
    """Equal rows among them; those of another task with the same rows are others."""
    schema = StructType([StructField("event", StringType()), StructField("data", StringType())])
    batches = [
        pa.record_batch({"event": ["e1"] * 100, "data": [str(n % 30) for n in range(at, at + 100)]})
        for at in range(0, 1000, 100)
    ]

    def failing() -> Iterator[Any]:
        yield from batches
        while len(taken(broker.url)) < 1000:
            pass
        raise RuntimeError("the end of a task")

    with mqks.testing.broker() as broker:
        options = SinkOptions.parse({"url": broker.url})
        with pytest.raises(RuntimeError, match="the end of a task"):
            publish(options, Columns.of(schema), failing(), Task(partition=3))
        assert publish(options, Columns.of(schema), reversed(batches), Task(partition=3)) == Published(1000)
        found = Counter(message.data for message in taken(broker.url))
        assert found == Counter(str(n % 30) for n in range(1000))
        publish(options, Columns.of(schema), batches, Task(partition=4))
        assert len(taken(broker.url)) == 2000


def test_a_refused_row_of_a_real_broker() -> None:
    with (
        mqks.testing.broker(dedup_count=0) as broker,
        pytest.raises(Refused, match="the broker refused 'm0 publish --confirm --once=test e1 d0'"),
    ):
        put_all(find_address(broker.url), *blocks(10))


def test_no_room_for_another_connection_is_waited_for() -> None:
    with mqks.testing.broker(max_connections=1) as broker:
        first = mqks.connect(broker.url).__enter__()
        leaving = threading.Timer(0.2, first.close)
        leaving.start()
        assert put_all(find_address(broker.url), *blocks(10)) == 10
        leaving.join()
