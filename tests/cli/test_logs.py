"""The log: as text and as JSON, one line per incident, and never more than somebody can read."""

import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from mqks.cli.logs import LINES_A_SECOND, LONGEST, JsonFormatter, LimitedHandler, TextFormatter
from mqks.logs import Entry
from tests.running import PATIENCE, Connection, RunningBroker, running_broker

NOON = 1_767_355_200.625  # 2026-01-02T12:00:00.625Z
NASTY = "a\nb\x1b[2J\x7f\x85\u2028\u202ec"


def record(message: object, *args: object, at: float = NOON, **more: object) -> logging.LogRecord:
    known = {"name": "mqks.test", "levelname": "WARNING", "levelno": logging.WARNING}
    made = {"msg": message, "args": args, "created": at, "msecs": at % 1 * 1000}
    return logging.makeLogRecord(known | made | more)


def raised(message: str) -> tuple[Any, ...]:
    try:
        raise ValueError(message)
    except ValueError:
        return sys.exc_info()


# ---- A line


def test_text_has_the_fields_in_their_places() -> None:
    entry = Entry("error {error_id} client={client} reason={reason!a}", error_id=b"42", client="c1", reason="it's")
    assert TextFormatter().format(record(entry)) == (
        '2026-01-02T12:00:00.625Z warning error 42 client=c1 reason="it\'s"'
    )


def test_json_has_the_same_message_and_each_field() -> None:
    entry = Entry("queue {queue!a} has {messages:,} messages {{}}", queue=b"q\xff", messages=3)
    line = JsonFormatter().format(record(entry))
    assert json.loads(line) == {
        "time": "2026-01-02T12:00:00.625Z",
        "level": "warning",
        "logger": "mqks.test",
        "message": r"queue 'q\\xff' has 3 messages {}",
        "queue": r"q\xff",
        "messages": 3,
    }


def test_json_of_what_others_log() -> None:
    assert json.loads(JsonFormatter().format(record("%s of %d", "one", 2)))["message"] == "one of 2"


@pytest.mark.parametrize("entry", [Entry("{line}", line=NASTY), NASTY], ids=["field", "message"])
@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
def test_nobody_can_forge_a_line_or_reach_the_terminal(formatter: logging.Formatter, entry: object) -> None:
    line = formatter.format(record(entry))
    assert not set(line) & {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))}


def test_no_field_turns_the_direction_of_a_line() -> None:
    """Whoever shows it: those who run a broker in their own process have a format of their own."""
    assert str(Entry("refused: {reason}", reason=f"é{NASTY}")) == r"refused: éa\nb\x1b[2J\x7f\x85\u2028\u202ec"


def test_json_gives_back_what_was_sent() -> None:
    assert json.loads(JsonFormatter().format(record(Entry("{line!a}", line=NASTY))))["line"] == NASTY


def test_exception_is_text_inside_the_object() -> None:
    line = JsonFormatter().format(record("bad", exc_info=raised(NASTY)))
    assert "\n" not in line
    trace = json.loads(line)["exception"]
    assert trace.startswith("Traceback ") and trace.endswith(f"ValueError: {NASTY}")


def test_lines_of_an_exception_do_not_pass_for_records() -> None:
    first, *trace = (
        TextFormatter().format(record("bad", exc_info=raised("x\n2026-01-02T12:00:00Z error \x1b"))).split("\n")
    )
    assert first == "2026-01-02T12:00:00.625Z warning bad"
    assert trace and all(line.startswith("  ") for line in trace)
    assert trace[-1].endswith(r"error \x1b")


# ---- Many


class Written(io.StringIO):
    """A stderr that can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.counted = threading.Event()

    def write(self, text: str) -> int:
        done = super().write(text)
        if "times more" in text:
            self.counted.set()
        return done

    def lines(self) -> list[str]:
        return [line.partition(" warning ")[2] for line in self.getvalue().splitlines()]


@pytest.fixture
def written() -> Written:
    return Written()


@pytest.fixture
def handler(written: Written) -> Iterator[LimitedHandler]:
    made = LimitedHandler()
    made.setStream(written)
    made.setFormatter(TextFormatter())
    yield made
    made.close()


def gone(number: int) -> Entry:
    return Entry("client {client} is gone", client=number)


FIRST = [f"client {number} is gone" for number in range(LINES_A_SECOND)]


def test_beyond_so_many_of_one_kind_the_rest_is_counted(handler: LimitedHandler, written: Written) -> None:
    for number in range(LINES_A_SECOND + 1235):
        handler.handle(record(gone(number)))
    handler.handle(record("another"))
    assert written.lines() == [*FIRST, "another"]
    handler.handle(record(gone(7), at=NOON + 1))
    last = LINES_A_SECOND + 1234
    count = f"client {last} is gone; such a line was logged 1,234 times more in that second"
    assert written.lines()[-2:] == [count, "client 7 is gone"]


def test_one_beyond_is_just_told_later(handler: LimitedHandler, written: Written) -> None:
    for number in range(LINES_A_SECOND + 1):
        handler.handle(record(gone(number)))
    handler.close()
    assert written.lines() == [*FIRST, f"client {LINES_A_SECOND} is gone"]


def test_kinds_are_counted_apart(handler: LimitedHandler, written: Written) -> None:
    for number in range(LINES_A_SECOND):
        handler.handle(record(gone(number)))
        handler.handle(record(gone(number), name="mqks.other"))
        handler.handle(record("client %d came", number))
    assert len(written.lines()) == 3 * LINES_A_SECOND


def test_an_error_id_is_always_there(handler: LimitedHandler, written: Written) -> None:
    for number in range(2 * LINES_A_SECOND):
        handler.handle(record(Entry("error {error_id}", error_id=number)))
    assert written.lines() == [f"error {number}" for number in range(2 * LINES_A_SECOND)]


def test_json_has_the_count_as_a_field(handler: LimitedHandler, written: Written) -> None:
    handler.setFormatter(JsonFormatter())
    for number in range(LINES_A_SECOND + 3):
        handler.handle(record(gone(number)))
    handler.close()
    told = json.loads(written.getvalue().splitlines()[-1])
    assert (told["client"], told["more"]) == (LINES_A_SECOND + 2, 2)
    assert told["message"] == f"client {LINES_A_SECOND + 2} is gone; such a line was logged 2 times more in that second"


def test_the_count_comes_also_if_nothing_else_is_logged(handler: LimitedHandler, written: Written) -> None:
    for number in range(LINES_A_SECOND + 3):
        handler.handle(record(gone(number)))
    assert written.counted.wait(PATIENCE)
    assert written.lines()[-1].endswith("logged 2 times more in that second")


def test_braces_of_clients_are_no_fields(handler: LimitedHandler, written: Written) -> None:
    for _ in range(LINES_A_SECOND + 3):
        handler.handle(record(Entry("line {line!a}", line="{line} {0} {")))
    handler.close()
    assert written.lines()[-1] == "line '{line} {0} {'; such a line was logged 2 times more in that second"


# ---- Long


def long_records(name: str) -> dict[str, logging.LogRecord]:
    return {
        "field": record(Entry("queue {queue!a} is full, {messages:,}", queue=name.encode(), messages=12345)),
        "error": record(Entry("tokens stay as they were: {reason}", reason=OSError(name))),
        "message": record("queue %s is full", name),
        "trace": record(Entry("error {error_id}", error_id=b"42"), exc_info=raised(name)),
    }


@pytest.mark.parametrize("letter", ["x", "\xe9", "\U0001f642", "\x1b", "'"], ids=ascii)
@pytest.mark.parametrize("kind", long_records(""))
@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
def test_no_record_is_long_whatever_names_clients_choose(
    formatter: logging.Formatter, kind: str, letter: str, handler: LimitedHandler, written: Written
) -> None:
    handler.setFormatter(formatter)
    handler.handle(long_records(letter * 400_000)[kind])
    assert len(written.getvalue()) < 25 * LONGEST
    assert "400,0" in written.getvalue(), "how long it was"


def test_what_is_not_long_stays_as_it_is(handler: LimitedHandler, written: Written) -> None:
    handler.setFormatter(JsonFormatter())
    handler.handle(record(Entry("{queue!a} has {messages:,}", queue=b"q" * LONGEST, messages=12345)))
    told = json.loads(written.getvalue())
    assert (told["queue"], told["messages"], told["message"]) == ("q" * LONGEST, 12345, f"'{'q' * LONGEST}' has 12,345")


def test_one_of_many_that_is_told_with_their_count_is_not_long_either(
    handler: LimitedHandler, written: Written
) -> None:
    for _ in range(LINES_A_SECOND + 3):
        handler.handle(record(Entry("client {client} is gone", client="c" * 100_000)))
    handler.close()
    assert len(written.lines()[-1]) < 2 * LONGEST and written.lines()[-1].endswith("2 times more in that second")


# ---- Processes


def run(code: str) -> list[dict[str, Any]]:
    """The objects that a process of its own has logged; it ends with 1."""
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1, done.stderr
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_nothing_is_lost_at_the_end() -> None:
    told = run(
        "import logging, sys; from mqks.cli import logs; logs.set_up('info', 'json')\n"
        "for number in range(5000): logging.info('again')\n"
        "sys.exit(1)"
    )
    assert len(told) < 5000
    assert sum(1 + each.get("more", 0) for each in told) == 5000


def test_faults_and_warnings_are_objects_too() -> None:
    warning, fault = run(
        "import sys, warnings; import mqks.cli.mqksd as mqksd\n"
        "def serve(*_):\n"
        "    warnings.warn('look out')\n"
        "    return 1 / 0\n"
        "mqksd.serve = serve\n"
        "sys.argv = ['mqksd', '--log-format=json']\n"
        "sys.exit(mqksd.main())"
    )
    assert "look out" in warning["message"]
    assert fault["level"] == "critical" and "ZeroDivisionError" in fault["exception"]


def the_line(broker: RunningBroker, answer: str) -> dict[str, Any]:
    """The one line of the log about the error_id of this answer."""
    error_id = answer.split()[2]
    assert broker.wait_for_log(error_id)
    (line,) = [line for line in broker.log.splitlines() if error_id in line]
    told: dict[str, Any] = json.loads(line)
    assert told["error_id"] == error_id and told["level"] == "warning"
    return told


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_client_with_long_names_does_not_fill_the_log(format: str) -> None:
    flags = (f"--log-format={format}", "--no-http", "--max-unacked=10")
    with running_broker(*flags) as broker, closing(Connection(broker.port)) as client:
        name = "\xe9" * 400_000
        for number in range(5):
            assert client.ask(f"{number}{name} consume q1 --manual-ack --confirm").endswith(" ok ")
        assert client.ask(f"r rebind {name} e1 --max-length=1 --overflow=drop-oldest --confirm") == "r ok "
        for number in range(3):
            assert client.ask(f"m{number} publish --confirm e1 data") == f"m{number} ok "
    assert "gets no more than" in broker.log and "were dropped while it was full" in broker.log
    assert len(broker.log) < 100_000


def test_error_ids_are_found_in_json() -> None:
    with running_broker("--log-format=json", "--no-http", "--max-connections=1") as broker, ExitStack() as stack:
        client = stack.enter_context(closing(Connection(broker.port)))
        told = the_line(broker, client.ask('x1 consume q1 --nope="\x1b'))
        assert told["client"] == client.address
        assert told["line"] == 'x1 consume q1 --nope="\x1b'
        assert told["reason"].startswith("unknown flag: ")
        begun = f"error {told['error_id']} client={client.address} reason={told['reason']!a} line={told['line']!a}"
        assert told["message"] == begun
        refused = stack.enter_context(closing(Connection(broker.port)))
        told = the_line(broker, refused.line().decode())
        assert told["client"] == refused.address
        assert told["reason"] == "--max-connections is reached"
    assert [json.loads(line)["message"] for line in broker.log.splitlines()][-2:] == ["stopping", "stopped"]
