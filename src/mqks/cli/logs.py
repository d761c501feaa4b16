"""The log of the commands, on stderr: a line is `2026-01-02T03:04:05.678Z info message`, or an object of JSON.

Records quote what clients sent, so what is not printable is escaped: no client can forge a second line or reach
the terminal of whoever reads the log. Nor can one fill it: of one kind of line some go out in a second, and the rest is
counted; and what is long is cut. A line with an error_id always goes out, since somebody was told the id; the broker
itself sees to it that those do not become too many.
"""

import contextlib
import json
import logging
import threading
from collections import Counter
from datetime import UTC, datetime

from mqks.logs import Entry, printable

CONTROLS_OF_JSON = {0x7F: "\\u007f"}  # the only one that json leaves as it is
LINES_A_SECOND = 100  # of one kind
LONGEST = 500  # characters of a field, of a message that has none, and of a line of a trace: names may have a million
Kind = tuple[str, str]


def time_of(record: logging.LogRecord) -> str:
    time = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{time}.{int(record.msecs):03}Z"


def short(value: object) -> object:
    """As it is, or its beginning and how long it was."""
    text = str(value)
    return value if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text):,} characters)"


class ShortTraces(logging.Formatter):
    def formatException(self, *args: object) -> str:
        """What a client sent may stand in it."""
        trace = super().formatException(*args)  # type: ignore[arg-type]  # whatever logging hands over
        return "\n".join(str(short(line)) for line in trace.split("\n"))


class TextFormatter(ShortTraces):
    def formatMessage(self, record: logging.LogRecord) -> str:
        return f"{time_of(record)} {record.levelname.lower()} {printable(record.message)}"

    def formatException(self, *args: object) -> str:
        """Indented, so that no line of it passes for a record."""
        trace = super().formatException(*args)
        return "\n".join(f"  {printable(line)}" for line in trace.split("\n"))


class JsonFormatter(ShortTraces):
    def format(self, record: logging.LogRecord) -> str:
        entry = record.msg if isinstance(record.msg, Entry) else None
        told: dict[str, object] = {
            "time": time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if entry:
            told |= entry.fields
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str).translate(CONTROLS_OF_JSON)


FORMATS: dict[str, type[logging.Formatter]] = {"text": TextFormatter, "json": JsonFormatter}


class LimitedHandler(logging.StreamHandler):  # type: ignore[type-arg]  # it is generic for mypy only
    """At most LINES_A_SECOND of one kind, then one that counts the rest: when the second is over, or at the end."""

    def __init__(self) -> None:
        super().__init__()
        self._second = 0
        self._seen = Counter[Kind]()
        self._left_out = Counter[Kind]()
        self._last: dict[Kind, logging.LogRecord] = {}  # of those left out
        self._alarm: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Called with the handler's lock held."""
        if (second := int(record.created)) != self._second:
            self._tell_of_left_out()
            self._second = second
            self._seen.clear()
        kind = kind_of(record)
        self._seen[kind] += 1
        if self._seen[kind] <= LINES_A_SECOND or has_error_id(record):
            super().emit(record)
            return
        self._left_out[kind] += 1
        self._last[kind] = record
        if self._alarm is None:
            self._alarm = threading.Timer(1.0, self._tell_late)
            self._alarm.daemon = True
            with contextlib.suppress(RuntimeError):  # no thread is to be had: the next record or the end will tell
                self._alarm.start()

    def format(self, record: logging.LogRecord) -> str:
        return super().format(shortened(record))

    def close(self) -> None:
        self._tell_late()
        super().close()

    def _tell_late(self) -> None:
        self.acquire()
        try:
            self._tell_of_left_out()
        finally:
            self.release()

    def _tell_of_left_out(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        for kind, record in self._last.items():
            super().emit(counting(record, self._left_out[kind] - 1))
        self._left_out.clear()
        self._last.clear()


def kind_of(record: logging.LogRecord) -> Kind:
    return record.name, record.msg.template if isinstance(record.msg, Entry) else str(record.msg)


def has_error_id(record: logging.LogRecord) -> bool:
    return isinstance(record.msg, Entry) and "error_id" in record.msg.fields


def shortened(record: logging.LogRecord) -> logging.LogRecord:
    """The record, with nothing in it that is long."""
    if isinstance(record.msg, Entry):
        said: object = Entry(record.msg.template, **{name: short(value) for name, value in record.msg.fields.items()})
    else:
        said = short(record.getMessage())
    return logging.makeLogRecord(record.__dict__ | {"msg": said, "args": None})


def counting(last: logging.LogRecord, more: int) -> logging.LogRecord:
    """The last of those left out, which speaks for the others too."""
    if not more:
        return last
    if isinstance(last.msg, Entry):
        said, fields = last.msg.template, last.msg.fields
    else:
        said, fields = last.getMessage().replace("{", "{{").replace("}", "}}"), {}
    entry = Entry(said + "; such a line was logged {more:,} times more in that second", **fields, more=more)
    return logging.makeLogRecord(last.__dict__ | {"msg": entry, "args": None})


def set_up(level: str, format: str = "text") -> None:
    handler = LimitedHandler()
    handler.setFormatter(FORMATS[format]())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.captureWarnings(True)
