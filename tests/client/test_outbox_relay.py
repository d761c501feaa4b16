"""The relay of an outbox: woken, failing, killed. Rows are published once each, whatever ends it in between."""

import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import mqks
from mqks.client import outbox as module
from mqks.client.errors import ConnectionLost, Refused
from mqks.client.outbox import LONGEST_LINE, Outbox
from mqks.testing import Broker, broker
from tests.client.both import until
from tests.client.outboxes import Scripted, add_all, database, left, path, scripted
from tests.running import PATIENCE

__all__ = ["database", "path", "scripted"]


@contextmanager
def relaying(outbox: Outbox, connect: Callable[[], Any], mq: mqks.Client) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=outbox.relay, args=(connect, mq, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        outbox.notify()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_a_relay_is_woken_at_once_and_stops_at_once(
    path: Path, database: sqlite3.Connection, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_WAIT", 600.0)  # who waits so long was not woken
    outbox = Outbox(poll=600.0)
    with relaying(outbox, lambda: sqlite3.connect(path), scripted.client):
        for data in "abc":
            add_all(outbox, database, data)
            outbox.notify()
            assert scripted.came.get(timeout=PATIENCE) == data


def test_those_that_share_an_outbox_take_turns(path: Path, database: sqlite3.Connection, scripted: Scripted) -> None:
    outbox = Outbox()
    add_all(outbox, database, "a")

    def flush() -> None:
        with closing(sqlite3.connect(path)) as connection:
            outbox.flush(connection, scripted.client)

    second = threading.Thread(target=flush)

    def amid_the_first(_data: str) -> bool:
        if not second.ident:
            second.start()
            second.join(0.1)
        return False

    scripted.refuses = amid_the_first
    flush()
    second.join(PATIENCE)
    assert scripted.batches == [1]


def test_a_relay_finds_what_others_write_and_closes_its_connection(
    path: Path, database: sqlite3.Connection, scripted: Scripted
) -> None:
    opened: list[sqlite3.Connection] = []

    def connect() -> sqlite3.Connection:
        opened.append(sqlite3.connect(path, check_same_thread=False))
        return opened[-1]

    with relaying(Outbox(poll=0.05), connect, scripted.client):
        for data in "abc":
            add_all(Outbox(), database, data)
            assert scripted.came.get(timeout=PATIENCE) == data
    assert len(opened) == 1
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")


def test_a_relay_goes_on_when_the_database_or_the_broker_fails(
    path: Path, database: sqlite3.Connection, scripted: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = Outbox(poll=0.01)
    database.execute("DROP TABLE mqks_outbox")
    tries = iter([OSError("no route to the database"), OSError("no route to the database"), None])

    def connect() -> sqlite3.Connection:
        if error := next(tries, None):
            raise error
        return sqlite3.connect(path)

    def warned(text: str) -> None:
        until(lambda: text in caplog.text)

    with relaying(outbox, connect, scripted.client):
        warned("OSError: no route to the database")
        warned("no such table")
        scripted.fails = TimeoutError("no answer")
        outbox.create(database)
        add_all(outbox, database, "a")
        warned("TimeoutError: no answer")
        scripted.fails = None
        until(lambda: left(database) == [])
    assert scripted.data == ["a"]
    assert caplog.text.count("no route") == 1  # the same is not said twice


def test_a_relay_that_fails_stops_at_once(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    for word in ("FIRST_WAIT", "LONGEST_WAIT"):
        monkeypatch.setattr(module, word, 600.0)
    stop, failed = threading.Event(), threading.Event()

    def connect() -> sqlite3.Connection:
        failed.set()
        raise OSError("no route to the database")

    relay = threading.Thread(target=Outbox().relay, args=(connect, scripted.client, stop))
    relay.start()
    assert failed.wait(PATIENCE)
    stop.set()
    relay.join(PATIENCE)
    assert not relay.is_alive()


@pytest.mark.parametrize("rows", [[], ["a"]])
def test_a_relay_ends_with_its_client(
    path: Path, database: sqlite3.Connection, running: Broker, rows: list[str]
) -> None:
    outbox = Outbox()
    add_all(outbox, database, *rows)
    mq = mqks.Client(running.url)
    mq.close()
    with pytest.raises(ConnectionLost, match="closed"):
        outbox.relay(lambda: sqlite3.connect(path), mq)
    assert left(database) == [(row, None) for row in rows]


# With a real broker


def received(consumer: mqks.Consumer, count: int) -> list[str]:
    """The ids of so many messages, and of what came beyond them."""
    messages = [consumer.get(PATIENCE) for _ in range(count)]
    assert all(messages), f"only {len(list(filter(None, messages)))} of {count} came"
    return [message.id for message in messages if message]


def test_a_line_that_is_too_long_does_not_hold_up_the_others(database: sqlite3.Connection, running: Broker) -> None:
    """By one byte, as the broker counts."""
    outbox = Outbox()
    longest = LONGEST_LINE - len("0" * 36 + " publish --confirm --once=outbox e ")
    ids = add_all(outbox, database, "a", "b" * (longest + 1), "c" * longest)
    with mqks.connect(running.url) as mq, mq.consume("q", ["e"]) as consumer:
        assert outbox.flush(database, mq) == 2
        assert received(consumer, 2) == [ids[0], ids[2]]
    (failed,) = outbox.failed(database)
    assert failed.id == ids[1] and re.fullmatch(r"error \d{20}\w{4}", failed.error)


def test_a_full_broker_that_is_slowly_emptied_gets_every_row(
    path: Path, database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that also consumes is refused, again and again, where another one would be slowed down."""
    monkeypatch.setattr(module, "LONGEST_WAIT", 0.05)
    outbox = Outbox()
    with broker(max_memory="16M") as made, mqks.connect(made.url) as mq, mqks.connect(made.url) as other:
        own = mq.consume("own", ["own"]).ready()
        mq.rebind("q", ["e"])
        fillers = fill(mq)
        ids = add_all(outbox, database, *(str(number) * 50_000 for number in range(100, 160)))
        with relaying(outbox, lambda: sqlite3.connect(path), mq), other.consume("q", manual_ack=True) as consumer:
            until(lambda: "the broker refused" in caplog.text)
            taken: list[str] = []
            while len(taken) < fillers + len(ids):
                message = consumer.get(PATIENCE)
                assert message and message.ack(confirm=True)
                taken.append(message.id)
            until(lambda: left(database) == [])
        assert sorted(taken[fillers:]) == ids
        own.delete()


def fill(mq: mqks.Client) -> int:
    """How many messages it takes until the broker is full."""
    for number in range(1000):
        try:
            mq.publish("e", "f" * 100_000, confirm=True)
        except Refused:
            return number
    raise AssertionError("it is never full")


def test_several_relays_at_once_while_the_broker_is_restarted(
    path: Path, database: sqlite3.Connection, durable: Broker
) -> None:
    with mqks.connect(durable.url) as mq, ExitStack() as relays:
        mq.rebind("q", ["e"])
        for _ in range(3):
            client = relays.enter_context(mqks.connect(durable.url))
            relay = relaying(Outbox(batch=7, poll=0.01), lambda: sqlite3.connect(path, timeout=PATIENCE), client)
            relays.enter_context(relay)
        outbox = Outbox()
        ids = [id for turn in range(5) for id in rows_and_a_restart(outbox, database, durable, turn)]
        until(lambda: left(database) == [])
        relays.close()
        assert mq.stats()["queues"]["q"]["ready"] == len(ids)
        with mq.consume("q") as consumer:
            assert sorted(received(consumer, len(ids))) == ids


def rows_and_a_restart(outbox: Outbox, database: sqlite3.Connection, durable: Broker, turn: int) -> list[str]:
    ids = [id for number in range(20) for id in add_all(outbox, database, f"{turn}.{number}")]
    durable.restart()
    return ids


RELAY = """
import os, signal, sqlite3, sys
import mqks
from mqks.client.outbox import Outbox

path, url, calls = sys.argv[1], sys.argv[2], int(sys.argv[3])

class Deadly:
    # Kills the process before its n-th call of the database.
    def __init__(self, real):
        self.real = real

    def __getattr__(self, name):
        global calls
        if name in ("execute", "commit"):
            calls -= 1
            if calls == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return getattr(self.real, name)

    def cursor(self):
        return Deadly(self.real.cursor())

with mqks.connect(url) as mq:
    Outbox(batch=10, paramstyle="qmark").relay(lambda: Deadly(sqlite3.connect(path, timeout=10)), mq)
"""


@contextmanager
def killed_in_the_end(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", *command]) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_relay_that_is_killed_at_any_point_neither_loses_nor_repeats(
    path: Path, database: sqlite3.Connection, durable: Broker
) -> None:
    """It kills itself before each of its calls of the database, and is killed while messages come."""
    outbox, rng, ids = Outbox(), random.Random(4), []
    with mqks.connect(durable.url) as mq, mq.consume("seen", ["e"]) as seen:
        mq.rebind("q", ["e"])
        for turn in range(12):
            ids += add_all(outbox, database, *(f"{turn}.{number}" for number in range(50)))
            at_call = turn if turn % 2 else 0
            with killed_in_the_end(RELAY, str(path), durable.url, str(at_call)) as relay:
                if not at_call:
                    received(seen, rng.randrange(1, 40))
                    relay.kill()
                assert relay.wait(PATIENCE) == -signal.SIGKILL
        assert outbox.flush(database, mq) > 0
        stats = mq.stats()
        assert stats["duplicates"] > 0  # so some were killed between the ok and the DELETE
        assert stats["queues"]["q"]["ready"] == len(ids) == 600
        with mq.consume("q") as consumer:
            assert received(consumer, len(ids)) == ids
