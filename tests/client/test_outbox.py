"""The outbox: rows of a committed transaction are published, in order, and those that are refused hold up nobody.

What the broker answers is scripted here; `test_outbox_relay.py` has a real one.
"""

import random
import re
import sqlite3
import sys
from types import ModuleType
from typing import Any

import pytest

from mqks.client import outbox as module
from mqks.client.errors import Refused
from mqks.client.outbox import LONGEST_LINE, MARKS, Outbox, ParamStyle
from mqks.names import is_name
from tests.client.outboxes import Scripted, add_all, database, left, path, scripted

__all__ = ["database", "path", "scripted"]


# Adding


def test_what_is_committed_is_published_and_what_is_rolled_back_is_not(
    database: sqlite3.Connection, scripted: Scripted
) -> None:
    outbox = Outbox()
    with database:
        id = outbox.add(database, "order.created", {"id": 42})
    with pytest.raises(ZeroDivisionError), database:
        outbox.add(database, "order.created", {"id": 1 / 1})
        raise ZeroDivisionError
    assert outbox.flush(database, scripted.client) == 1
    assert scripted.taken == {id: ("order.created", '{"id": 42}')}
    assert scripted.scopes == {"outbox"}
    assert left(database) == []
    assert outbox.flush(database, scripted.client) == 0


def test_create_leaves_a_table_as_it_is(database: sqlite3.Connection) -> None:
    outbox = Outbox()
    add_all(outbox, database, "d")
    outbox.create(database)
    assert left(database) == [("d", None)]


def test_ids_are_legal_and_sort_as_they_were_made_even_if_the_clock_goes_back() -> None:
    make = module._Ids(iter([10**18, 10**18, 5, 10**18 + 1, 2 * 10**18]).__next__)
    ids = [make() for _ in range(5)]
    assert ids == sorted(ids)
    assert len({id[:20] for id in ids}) == 5
    assert all(is_name(id.encode()) and re.fullmatch(r"\d{20}[0-9a-f]{16}", id) for id in ids)


@pytest.mark.parametrize(
    ("event", "data"),
    [("two words", ""), ("--flag", ""), ("e,retry=1", ""), ("", ""), ("e", "a\nb"), ("e", b"\xff"), ("e", ["\ud800"])],
)
def test_what_cannot_be_published_cannot_be_added(database: sqlite3.Connection, event: str, data: object) -> None:
    with database, pytest.raises(ValueError):
        Outbox().add(database, event, data)
    assert left(database) == []


@pytest.mark.parametrize(
    "options", [{"table": "a; b"}, {"table": ""}, {"scope": "a b"}, {"batch": 0}, {"batch": 1000}, {"poll": 0}]
)
def test_options_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Outbox(**options)


# Databases


BAD = "bad " * (LONGEST_LINE // 4)  # no broker takes it, unless it says so
TO_SQLITE: dict[ParamStyle, tuple[type, str, str]] = {
    "qmark": (tuple, r"\?", "?"),
    "numeric": (tuple, r":(\d+)", r"?\1"),
    "named": (dict, r":(\w+)", r":\1"),
    "format": (tuple, r"%s", "?"),
    "pyformat": (dict, r"%\((\w+)\)s", r":\1"),
}


class Foreign:
    """A connection, and its cursor, to a database that writes values in its own way; beneath is SQLite."""

    def __init__(self, real: Any, style: ParamStyle) -> None:
        self._real = real
        self._style = style

    def cursor(self) -> "Foreign":
        return Foreign(self._real.cursor(), self._style)

    def execute(self, sql: str, *values: Any) -> None:
        for given in values:
            kind, theirs, ours = TO_SQLITE[self._style]
            sql, count = re.subn(theirs, ours, sql)
            assert len(given) == count and type(given) is kind
        self._real.execute(sql, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@pytest.mark.parametrize("told", ["by the user", "by the module"])
@pytest.mark.parametrize("style", MARKS)
def test_every_paramstyle(
    database: sqlite3.Connection, scripted: Scripted, style: ParamStyle, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    somedb = ModuleType("somedb")
    somedb.paramstyle = style  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "somedb", somedb)
    place = "somedb.deep.connections" if told == "by the module" else "nowhere"
    connection = type("Connection", (Foreign,), {"__module__": place})(database, style)
    outbox = Outbox("main.elsewhere", paramstyle=style if told == "by the user" else None)
    scripted.refuses = BAD.__eq__
    outbox.create(connection)
    for data in ("good", BAD, "'%s' ? :1 %(v1)s"):
        outbox.add(connection, "e", data)
    connection.commit()
    assert outbox.flush(connection, scripted.client) == 2
    assert scripted.data == ["good", "'%s' ? :1 %(v1)s"]
    assert [(row.data, row.error) for row in outbox.failed(connection)] == [(BAD, "error no-bad bad b")]
    assert outbox.retry(connection) == 1


def test_a_database_that_does_not_tell_its_paramstyle(database: sqlite3.Connection) -> None:
    with pytest.raises(ValueError, match="paramstyle"):
        Outbox().add(Foreign(database, "qmark"), "e")


def test_a_transaction_that_is_open_is_not_published(database: sqlite3.Connection, scripted: Scripted) -> None:
    outbox = Outbox()
    outbox.add(database, "e", "d")
    with pytest.raises(RuntimeError, match="amid a transaction"):
        outbox.flush(database, scripted.client)
    database.rollback()
    assert outbox.flush(database, scripted.client) == 0
    assert not scripted.taken


# What the broker may answer


def test_rows_go_in_order_and_in_batches(database: sqlite3.Connection, scripted: Scripted) -> None:
    outbox = Outbox(batch=2)
    ids = add_all(outbox, database, *"abcde")
    assert outbox.flush(database, scripted.client) == 5
    assert scripted.data == list("abcde") and list(scripted.taken) == ids
    assert scripted.batches == [2, 2, 1]


def test_without_an_answer_rows_stay_and_are_published_again(database: sqlite3.Connection, scripted: Scripted) -> None:
    outbox = Outbox()
    add_all(outbox, database, "a", "b")
    scripted.fails = TimeoutError("no answer")
    with pytest.raises(TimeoutError):
        outbox.flush(database, scripted.client)
    assert left(database) == [("a", None), ("b", None)]
    scripted.fails = None
    assert outbox.flush(database, scripted.client) == 2
    assert scripted.data == ["a", "b"] and left(database) == []


def test_a_row_that_is_refused_is_set_aside_with_its_error_and_others_go_on(
    database: sqlite3.Connection, scripted: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = Outbox(batch=2)
    bad, worse = BAD, "worse" + BAD
    ids = add_all(outbox, database, "a", bad, "b", worse, "c")
    scripted.refuses = lambda data: data in (bad, worse)
    assert outbox.flush(database, scripted.client) == 3
    assert scripted.data == ["a", "b", "c"]
    errors = "error no-bad bad b", "error no-worsebad "
    assert outbox.failed(database) == [(ids[1], "e", bad, errors[0]), (ids[3], "e", worse, errors[1])]
    assert [record.args[0] for record in caplog.records if isinstance(record.args, tuple)] == [ids[1], ids[3]]
    assert outbox.flush(database, scripted.client) == 0
    scripted.refuses = lambda _data: False
    with database:
        assert outbox.retry(database) == 2
    assert outbox.flush(database, scripted.client) == 2
    assert list(scripted.taken) == [ids[0], ids[2], ids[4], ids[1], ids[3]]
    assert left(database) == []


def test_a_broker_that_takes_nothing_is_not_the_fault_of_the_rows(
    database: sqlite3.Connection, scripted: Scripted
) -> None:
    outbox = Outbox()
    add_all(outbox, database, "a", "b")
    scripted.refuses = lambda data: data != "a"  # it became full after that
    with pytest.raises(Refused, match="error no-b"):
        outbox.flush(database, scripted.client)
    assert left(database) == [("b", None)]
    scripted.refuses = lambda _data: False
    assert outbox.flush(database, scripted.client) == 1
    assert scripted.data == ["a", "b"]


def test_however_often_and_whichever_a_broker_refuses_none_is_blamed(
    database: sqlite3.Connection, scripted: Scripted
) -> None:
    outbox, rng = Outbox(batch=3), random.Random(5)
    ids = add_all(outbox, database, *(str(number) * 1000 for number in range(9)))
    scripted.refuses = lambda _data: rng.random() < 0.8
    while left(database):
        try:
            outbox.flush(database, scripted.client)
        except Refused:
            assert outbox.failed(database) == []
    assert sorted(scripted.taken) == ids


@pytest.mark.parametrize("told", [None, 2000])
def test_only_a_line_that_is_too_long_is_set_aside(
    database: sqlite3.Connection, scripted: Scripted, told: int | None
) -> None:
    """Also while the broker takes nothing at all, and to the byte."""
    outbox = Outbox()
    scripted.limits = {"max_line": told} if told else {}
    longest = (told or LONGEST_LINE) - len("0" * 36 + " publish --confirm --once=outbox e ")
    fits, too_long = "é" + "f" * (longest - 2), "é" + "t" * (longest - 1)
    add_all(outbox, database, "a", too_long, fits)
    scripted.refuses = lambda _data: True
    with pytest.raises(Refused, match="error no-a"):
        outbox.flush(database, scripted.client)
    assert left(database) == [("a", None), (too_long, "error no-étttttttt"), (fits, None)]


@pytest.mark.parametrize(
    ("id", "event", "data"), [("1", "two words", ""), ("1", "e", "a\nb"), ("a b", "e", ""), ("1" * 65, "e", "")]
)
def test_rows_of_others_that_are_no_messages_are_set_aside(
    database: sqlite3.Connection, scripted: Scripted, id: str, event: str, data: str
) -> None:
    outbox = Outbox()
    with database:
        database.execute("INSERT INTO mqks_outbox (id, event, data) VALUES (?, ?, ?)", (id, event, data))
        database.execute("INSERT INTO mqks_outbox (id, event, data) VALUES ('z', 'e', 'good')")
    assert outbox.flush(database, scripted.client) == 1
    assert scripted.taken == {"z": ("e", "good")}
    assert [row[:3] for row in outbox.failed(database)] == [(id, event, data)]


LOOSE = "CREATE TABLE mqks_outbox (id, event, data, error)"  # a table of others, which takes anything


@pytest.mark.parametrize(
    ("id", "event", "data", "fault"),
    [
        (b"1", "e", "", "id is bytes"),
        (1, "e", "", "id is int"),
        (None, "e", "", "id is NULL"),
        ("1", b"e", "", "event is bytes"),
        ("1", 2.5, "", "event is float"),
        ("1", None, "", "event is NULL"),
        ("1", "e", b"d", "data is bytes"),
        ("1", "e", 3, "data is int"),
        ("1", "e", None, "data is NULL"),
    ],
)
def test_what_is_no_text_is_set_aside_and_others_go_on(
    database: sqlite3.Connection, scripted: Scripted, id: Any, event: Any, data: Any, fault: str
) -> None:
    outbox = Outbox(batch=2)
    with database:
        database.executescript("DROP TABLE mqks_outbox;" + LOOSE)
        row = "INSERT INTO mqks_outbox (id, event, data) VALUES (?, ?, ?)"
        database.executemany(row, [("z1", "e", "good"), (id, event, data), ("z2", "e", "too")])
    assert outbox.flush(database, scripted.client) == 2
    assert scripted.data == ["good", "too"]
    assert outbox.failed(database) == [(id, event, data, f"{fault}, and has to be text")]
    with database:
        assert outbox.retry(database) == 1
        database.execute("UPDATE mqks_outbox SET id = 'z3', event = 'e', data = 'now'")
    assert outbox.flush(database, scripted.client) == 1
    assert scripted.data == ["good", "too", "now"]


class Unhashable(Foreign):
    """A driver that answers blobs as bytearrays."""

    def cursor(self) -> "Unhashable":
        return Unhashable(self._real.cursor(), self._style)

    def fetchall(self) -> list[list[Any]]:
        rows = self._real.fetchall()
        return [[bytearray(value) if isinstance(value, bytes) else value for value in row] for row in rows]


def test_values_that_cannot_be_keys_are_set_aside_too(database: sqlite3.Connection, scripted: Scripted) -> None:
    outbox = Outbox(paramstyle="qmark")
    with database:
        database.execute("INSERT INTO mqks_outbox (id, event, data) VALUES (x'31', x'31', x'31')")
    add_all(outbox, database, "good")
    assert outbox.flush(Unhashable(database, "qmark"), scripted.client) == 1
    assert [row.error for row in outbox.failed(database)] == ["id is bytearray, and has to be text"]


def test_a_row_that_is_not_found_by_its_id_is_an_error_and_no_endless_loop(
    database: sqlite3.Connection, scripted: Scripted
) -> None:
    outbox = Outbox(batch=1)
    add_all(outbox, database, "a")
    database.text_factory = bytes
    with pytest.raises(LookupError, match="id is bytes, and has to be text"):
        outbox.flush(database, scripted.client)
    database.text_factory = str
    assert outbox.flush(database, scripted.client) == 1


def test_text_that_is_not_utf_8_cannot_be_read_from_sqlite(database: sqlite3.Connection, scripted: Scripted) -> None:
    """Unless its user says how; the page shows it."""
    outbox = Outbox()
    with database:
        database.execute("INSERT INTO mqks_outbox (id, event, data) VALUES ('1', 'e', CAST(x'ff' AS TEXT))")
    add_all(outbox, database, "good")
    with pytest.raises(sqlite3.OperationalError, match="decode to UTF-8"):
        outbox.flush(database, scripted.client)
    assert not scripted.taken
    database.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
    assert outbox.flush(database, scripted.client) == 1
    (failed,) = outbox.failed(database)
    assert failed.id == "1" and failed.error.startswith("an outbox holds UTF-8 only")


def test_while_the_broker_is_away_nothing_is_given_to_the_client(
    database: sqlite3.Connection, scripted: Scripted
) -> None:
    outbox = Outbox()
    add_all(outbox, database, "a")
    scripted.connected = False
    outbox.flush(database, scripted.client)
    assert scripted.pings == 1
