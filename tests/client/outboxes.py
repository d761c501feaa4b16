"""What tests of the outbox share: a database, and a client whose broker is scripted."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

import pytest

import mqks
from mqks.client.errors import Refused
from mqks.client.outbox import Outbox


class Scripted:
    """A client whose broker takes an id once, and refuses what it is told to refuse."""

    def __init__(self) -> None:
        self.connected = True
        self.taken: dict[str, tuple[str, str]] = {}  # id → event, data
        self.scopes: set[str] = set()
        self.batches: list[int] = []
        self.pings = 0
        self.limits: dict[str, int] = {}  # what it tells of itself
        self.came: SimpleQueue[str] = SimpleQueue()
        self.refuses: Callable[[str], bool] = lambda _data: False
        self.fails: Exception | None = None  # raised when all was taken, as if the answers had not come

    def publish_many(
        self, messages: Iterable[tuple[str, str, str]], *, once: str, on_refused: Callable[[Refused], object]
    ) -> None:
        given = list(messages)
        self.batches.append(len(given))
        self.scopes.add(once)
        for event, data, id in given:
            if self.refuses(data):
                on_refused(Refused(f"{id} publish --confirm --once={once} {event} {data}", f"no-{data[:9]}"))
            else:
                self.taken.setdefault(id, (event, data))
                self.came.put(data)
        if self.fails:
            raise self.fails

    def stats(self) -> dict[str, int]:
        return self.limits

    def ping(self) -> None:
        self.pings += 1

    @property
    def data(self) -> list[str]:
        return [data for _, data in self.taken.values()]

    @property
    def client(self) -> mqks.Client:
        return cast(mqks.Client, self)


@pytest.fixture
def scripted() -> Scripted:
    return Scripted()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders.db"


@pytest.fixture
def database(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as connection:
        Outbox().create(connection)
        yield connection


def left(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return connection.execute("SELECT data, error FROM mqks_outbox ORDER BY id").fetchall()


def add_all(outbox: Outbox, database: sqlite3.Connection, *data: str) -> list[str]:
    with database:
        return [outbox.add(database, "e", item) for item in data]
