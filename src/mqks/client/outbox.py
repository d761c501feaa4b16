"""Messages that belong to a transaction of the user's own database: published if it commits, and not if it does not.

`add` writes a row beside the user's other rows, in the same transaction. A relay reads the rows, publishes them with
`--once` and deletes those that are confirmed: whatever ends it in between, the next round publishes them again, and the
broker drops what it has already. No transaction is open while the broker is asked.

It touches one table, through any connection as PEP 249 has them, and a blocking client.
"""

import logging
import secrets
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Literal, NamedTuple, Protocol

from mqks.client import protocol
from mqks.client.blocking import Client
from mqks.client.errors import ConnectionLost, Refused
from mqks.client.message import to_text
from mqks.client.verbs import name
from mqks.dtid import EPOCH
from mqks.names import is_event, is_name

log = logging.getLogger("mqks.client.outbox")

LONGEST_LINE = 1 << 20  # bytes that a broker takes, unless it tells another number
LONGEST_ID = 64  # characters
LARGEST_BATCH = 999  # values that any SQLite takes in one statement
FIRST_WAIT = 0.02  # seconds until a relay with nothing to do looks again; then twice that, and so on
LONGEST_WAIT = 10.0  # where something fails: a broker that is full is not to be asked each second

ParamStyle = Literal["qmark", "numeric", "named", "format", "pyformat"]
MARKS: dict[ParamStyle, str] = {  # how the n-th value is written in SQL
    "qmark": "?",
    "numeric": ":{0}",
    "named": ":v{0}",
    "format": "%s",
    "pyformat": "%(v{0})s",
}
BY_NAME = ("named", "pyformat")  # the values are a dict

CREATE = """CREATE TABLE IF NOT EXISTS {table} (
    id VARCHAR(64) NOT NULL PRIMARY KEY,
    event TEXT NOT NULL,
    data TEXT NOT NULL,
    error TEXT
)"""
ADD = "INSERT INTO {table} (id, event, data) VALUES (?, ?, ?)"
NEXT = "SELECT id, event, data FROM {table} WHERE error IS NULL ORDER BY id LIMIT {batch}"
DELETE = "DELETE FROM {table} WHERE id IN ({marks})"
FAIL = "UPDATE {table} SET error = ? WHERE id = ?"
FAIL_NULL = "UPDATE {table} SET error = ? WHERE id IS NULL"
FAILED = "SELECT id, event, data, error FROM {table} WHERE error IS NOT NULL ORDER BY id"
RETRY = "UPDATE {table} SET error = NULL WHERE error IS NOT NULL"


class Connection(Protocol):
    """As PEP 249 has it, and no more of it than is used here."""

    def cursor(self) -> Any: ...
    def commit(self) -> Any: ...
    def close(self) -> Any: ...


class Row(NamedTuple):
    """All text, if `add` has written it; others may write what they like."""

    id: Any
    event: Any
    data: Any


class FailedRow(NamedTuple):
    """As it stands in the table: where something is no text, that is the error."""

    id: Any
    event: Any
    data: Any
    error: str


class Outbox:
    """One table of messages to publish; use one object for all threads.

    `add`, `failed` and `retry` are part of the caller's transaction. `create`, `flush` and `relay` commit their own.
    """

    def __init__(
        self,
        table: str = "mqks_outbox",
        *,
        scope: str = "outbox",
        paramstyle: ParamStyle | None = None,
        batch: int = 500,
        poll: float = 1.0,
    ) -> None:
        if not all(word.isidentifier() for word in table.split(".")):
            raise ValueError(
                f"{table!r} is no name for a table: letters, digits and _, perhaps with a schema and a dot"
            )
        if paramstyle not in (None, *MARKS):
            raise ValueError(f"paramstyle is one of {', '.join(MARKS)}, not {paramstyle!r}")
        if not 1 <= batch <= LARGEST_BATCH or poll <= 0:
            raise ValueError(f"batch is 1 to {LARGEST_BATCH}, and poll is more than 0")
        self.table = table
        self.scope = name(scope)
        self.batch = batch
        self.poll = poll
        self._paramstyle = paramstyle
        self._ids = _Ids()
        self._turn = threading.Lock()  # one round at a time: a client has no id twice on its way
        self._changed = threading.Condition()
        self._notes = 0

    def create(self, connection: Connection) -> None:
        """The table, if it is not there."""
        self._execute(connection, CREATE)
        connection.commit()

    def add(self, connection: Connection, event: str, data: object = "") -> str:
        """A message to be published when the caller's transaction is committed; answers the id that it will have.

        Data is as in `publish`, and has to be UTF-8.
        """
        row = Row(id := self._ids(), event, to_text(data))
        if fault := _fault(row):
            raise ValueError(fault)
        self._execute(connection, ADD, *row)
        return id

    def notify(self) -> None:
        """Wakes the relays of this object: the caller has committed something, or wants them to stop."""
        with self._changed:
            self._notes += 1
            self._changed.notify_all()

    def flush(self, connection: Connection, mq: Client) -> int:
        """Publish what there is and answer how many that was. The connection may not be amid a transaction."""
        _check_idle(connection)
        published = 0
        while True:
            with self._turn:
                read, taken = self._round(connection, mq)
            published += taken
            if read < self.batch:
                return published

    def relay(self, connect: Callable[[], Connection], mq: Client, stop: threading.Event | None = None) -> None:
        """Publish what comes, until `stop` is set; looks at least each `poll` seconds, and at once after `notify`.

        Whatever fails is tried again, on a new connection to the database. Only a client that was closed ends it.
        """
        connection: Connection | None = None
        stop = stop or threading.Event()
        wait, told = FIRST_WAIT, ""
        try:
            while not stop.is_set():
                seen = self._notes
                try:
                    if connection is None:
                        connection = connect()
                    with self._turn:
                        read, _ = self._round(connection, mq)
                    if not read and not mq.connected:
                        mq.ping()  # raises, if it was closed; else it waits for the broker, as a row would
                    told, wait = "", FIRST_WAIT if read else min(2 * wait, self.poll)
                    if not read:
                        self._wait(seen, wait)
                except ConnectionLost:
                    raise
                except Exception as error:  # of the broker or of any database
                    if told != (told := f"{type(error).__name__}: {error}"):
                        log.warning("the outbox %s waits and tries again: %s", self.table, told)
                    _close(connection)
                    connection, wait = None, min(2 * wait, LONGEST_WAIT)
                    stop.wait(wait)  # whatever is added meanwhile
        finally:
            _close(connection)

    def failed(self, connection: Connection) -> list[FailedRow]:
        """Rows that the broker refused, each with the error; they stay until they are deleted or tried again."""
        return [FailedRow(*row) for row in self._select(connection, FAILED)]

    def retry(self, connection: Connection) -> int:
        """Have the rows that failed published again; answers how many they are."""
        return int(self._execute(connection, RETRY))

    # Inside

    def _wait(self, seen: int, seconds: float) -> None:
        """For a note that was not seen yet."""
        with self._changed:
            self._changed.wait_for(lambda: self._notes != seen, seconds)

    def _round(self, connection: Connection, mq: Client) -> tuple[int, int]:
        """The next rows: how many were read, and how many of them published."""
        rows = [Row(*row) for row in self._select(connection, NEXT)]
        connection.commit()  # the end of what this connection has seen of the table
        if not rows:
            return 0, 0
        if not mq.connected:
            mq.ping()  # waits for the broker, and buffers nothing meanwhile
        checked = [(row, _fault(row)) for row in rows]
        faults = [(row.id, fault) for row, fault in checked if fault]
        messages = [row for row, fault in checked if not fault]
        refused = self._publish(connection, mq, messages)
        too_long: list[Row] = []
        if refused:
            # Which can never be taken? A broker that is full refuses any row, for as long as it is.
            longest = mq.stats().get("max_line", LONGEST_LINE)
            too_long = [row for row in messages if row.id in refused and self._length(row) > longest]
        self._fail(connection, faults + [(row.id, f"error {refused.pop(row.id).error_id}") for row in too_long])
        if refused:
            raise next(iter(refused.values()))
        return len(rows), len(messages) - len(too_long)

    def _length(self, row: Row) -> int:
        """Of its line, as the broker counts it."""
        request = protocol.publish(row.event, row.data, confirm=True, once=protocol.once_flag(self.scope))
        return len(protocol.unended_line(protocol.encode(row.id), request))

    def _publish(self, connection: Connection, mq: Client, rows: Sequence[Row]) -> dict[str, Refused]:
        """Publish and delete; answers those that were refused. What was taken is deleted before anything else, since
        the broker remembers its id for some time only."""
        errors: list[Refused] = []
        mq.publish_many(((row.event, row.data, row.id) for row in rows), once=self.scope, on_refused=errors.append)
        refused = {error.id: error for error in errors}
        if taken := [row.id for row in rows if row.id not in refused]:
            self._execute(connection, DELETE, *taken)
            connection.commit()
        return refused

    def _fail(self, connection: Connection, faults: Sequence[tuple[Any, str]]) -> None:
        """Set rows aside. One that is not found by its id would be read again at once, and again: better to wait."""
        lost = ""
        for id, fault in faults:
            if self._execute(connection, *((FAIL_NULL, fault) if id is None else (FAIL, fault, id))) == 0:
                lost = f"a row cannot be set aside, since none is found by its id {id!r}: {fault}"
            else:
                log.error("message %s of the outbox %s cannot be published and is set aside: %s", id, self.table, fault)
        if faults:
            connection.commit()
        if lost:
            raise LookupError(lost)

    # SQL

    def _select(self, connection: Connection, sql: str) -> list[Any]:
        cursor = connection.cursor()
        try:
            cursor.execute(self._filled(sql))
            return list(cursor.fetchall())
        finally:
            cursor.close()

    def _execute(self, connection: Connection, sql: str, *values: Any) -> Any:
        """Answers how many rows it was."""
        cursor = connection.cursor()
        try:
            text, given = self._written(connection, self._filled(sql, values), values)
            cursor.execute(text, *given)
            return cursor.rowcount
        finally:
            cursor.close()

    def _filled(self, sql: str, values: Sequence[Any] = ()) -> str:
        return sql.format(table=self.table, batch=self.batch, marks=", ".join("?" * len(values)))

    def _written(self, connection: Connection, sql: str, values: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
        """Text and values as the connection wants them."""
        if not values:
            return sql, ()
        style = self._paramstyle or _paramstyle(connection)
        head, *rest = sql.split("?")
        text = head + "".join(MARKS[style].format(n) + piece for n, piece in enumerate(rest, 1))
        return text, ({f"v{n}": value for n, value in enumerate(values, 1)} if style in BY_NAME else tuple(values),)


class _Ids:
    """Ids that sort as they were made, by any collation of any database: a time to the microsecond that never repeats
    here, and 64 random bits for whoever else makes them. The first 24 characters are a dtid."""

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._microsecond = 0

    def __call__(self) -> str:
        with self._lock:
            self._microsecond = max(self._clock() // 1000, self._microsecond + 1)
            at = EPOCH + timedelta(microseconds=self._microsecond)
        return f"{at:%Y%m%d%H%M%S%f}{secrets.token_hex(8)}"


def _fault(row: Row) -> str:
    """What keeps a row from being a line of the protocol; others than `add` may have written it."""
    for column, value in zip(Row._fields, row, strict=True):
        if not isinstance(value, str):
            return f"{column} is {'NULL' if value is None else type(value).__name__}, and has to be text"
    try:
        to_text(row.data).encode()
        if not is_event(row.event.encode()):
            return f"{row.event!r} is no name for an event: no spaces, not -, --… or {{…, no ,retry=… at its end"
        if not is_name(row.id.encode()) or len(row.id) > LONGEST_ID:
            return f"{row.id!r} is no id for a message: no spaces, not -, --… or {{…, {LONGEST_ID} characters at most"
    except UnicodeEncodeError as error:
        return f"an outbox holds UTF-8 only: {error}"
    except ValueError as error:
        return str(error)
    return ""


def _paramstyle(connection: Connection) -> ParamStyle:
    """As the module says that the connection comes from."""
    for kind in type(connection).__mro__:
        module = kind.__module__
        while module:
            said = getattr(sys.modules.get(module), "paramstyle", None)
            for style in MARKS:
                if style == said:
                    return style
            module = module.rpartition(".")[0]
    raise ValueError(
        f"{type(connection)} does not tell its paramstyle: give Outbox(paramstyle=…) one of {', '.join(MARKS)}"
    )


def _check_idle(connection: Connection) -> None:
    """A flush commits, which its caller may not want yet. Not every database tells; SQLite does."""
    if getattr(connection, "in_transaction", False) and getattr(connection, "autocommit", None) is not False:
        raise RuntimeError("this connection is amid a transaction: commit first, or flush over a connection of its own")


def _close(connection: Connection | None) -> None:
    if connection is not None:
        try:
            connection.close()
        except Exception as error:  # it is broken, which is why it is closed
            log.debug("closing a connection to the database: %s", error)
