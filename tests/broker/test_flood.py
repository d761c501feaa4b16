"""Mistakes and their traces in the log: each error_id can be found there, and no client can flood it.

The clock is the test's own. What is logged is caught as records, before any formatting.
"""

import logging
import re
from collections.abc import Callable

import pytest

from mqks.broker import Broker
from mqks.broker.connections.client import Client
from mqks.broker.connections.mistakes import LOGGED_BYTES, LOGGED_LINES, LOGGED_ONE_BY_ONE
from tests.broker.driver import PEER
from tests.broker.on_disk import OnDisk

RECORD = re.compile(r"error ([0-9]{20}[0-9a-zA-Z]{4}) client=(\S+) reason=(.+?) line=(.+?)")
RECORD_OR_COUNT = re.compile(
    RECORD.pattern + r"|error \w{24} client=\S+ reason=.+ was met \d+ times more in that second"
)
NO_UTF8 = b"\xff" * 900_000


class Flooded:
    """A broker with a clock that stands still until told, and what it logged."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.now = 1_000_000.5
        self.broker = Broker(clock=lambda: self.now)
        self.caplog = caplog
        self.client = self.broker.connect(PEER)

    def error_ids(self, *lines: bytes, client: Client | None = None) -> list[bytes]:
        """Feed bad lines; the error_id that each one got."""
        client = client or self.client
        self.broker.feed(client, b"".join(line + b"\n" for line in lines))
        while client.unheard:
            self.broker.turn()
        replies = client.pending().splitlines()
        self.broker.sent(client, client.pending_size)
        assert [reply.split(b" ")[1] for reply in replies] == [b"error"] * len(lines)
        return [reply.split(b" ")[2] for reply in replies]

    def logged(self, record: re.Pattern[str] = RECORD) -> list[str]:
        """The log lines since the last call, each of which is one whole record."""
        messages = [entry.getMessage() for entry in self.caplog.records]
        assert all(entry.levelno == logging.WARNING for entry in self.caplog.records)
        assert all(record.fullmatch(message) for message in messages), messages
        self.caplog.clear()
        return messages


@pytest.fixture
def flooded(caplog: pytest.LogCaptureFixture) -> Flooded:
    return Flooded(caplog)


# ---- One mistake


def test_log_line_says_who_what_and_why(flooded: Flooded) -> None:
    (error_id,) = flooded.error_ids(b"x1 consume q1 --nope")
    (line,) = flooded.logged()
    assert (
        line == f"error {error_id.decode()} client={PEER} reason=\"unknown flag: '--nope'\" line='x1 consume q1 --nope'"
    )


MISTAKES = {
    "no action": b"x",
    "no request_id": b"-",
    "name too long to show": NO_UTF8 + b" nope",
    "unknown action": b"x " + NO_UTF8,
    "TAB": b"x ping \t" + NO_UTF8,
    "NUL": b"x ping \0" + NO_UTF8,
    "CR": b"x\rx ping",
    "line too long": b"x ping " + b"y" * (1 << 20),
    "unknown flag": b"x consume q --" + NO_UTF8,
    "not a count": b"x consume q --prefetch=" + NO_UTF8,
    "not seconds": b"x consume q --delete-queue-when-unused=" + NO_UTF8,
    "value where none goes": b"x consume q --manual-ack=" + NO_UTF8,
    "illegal name": b"x consume {" + NO_UTF8,
    "illegal event": b"x publish {" + NO_UTF8,
    "looks retried": b"x subscribe q e,retry=" + b"1" * 900_000,
    "not JSON": b'x send {"' + NO_UTF8 + b'"}',
    "number too long": b'x send {"a": ' + b"1" * 900_000 + b"}",
    "nested too deeply": b"x send " + b'{"a":' * 150_000,
    "unknown key": b'x recv {"pattern": {}, "queue": "q", "' + b"k" * 900_000 + b'": 1}',
    "illegal queue": b'x recv {"pattern": {}, "queue": "--' + b"k" * 900_000 + b'"}',
    "half of a pair": b'x recv {"pattern": {}, "queue": "\\ud800"}',
    "unknown field": b"x _eval state." + b"y" * 900_000,
    "unknown name": b"x _eval " + b"y" * 900_000,
    "no expression": b"x _eval " + b"(" * 900_000,
    "no UTF-8": b"x _eval " + NO_UTF8,
    "no such queue": b"x _eval state.queues['" + b"y" * 900_000 + b"']",
    "terminal codes": b"x \x1b[2J\x1b]0;owned\x07",
    "a line that looks like another": b"x nope' (and 7 more like it before)",
    "a newline in other scripts": "x nope \u2028\u0085\u202e".encode(),
}


@pytest.mark.parametrize("line", MISTAKES.values(), ids=MISTAKES)
def test_log_line_is_short_and_printable_whatever_the_mistake(flooded: Flooded, line: bytes) -> None:
    (error_id,) = flooded.error_ids(line)
    (logged,) = flooded.logged()
    found = RECORD.fullmatch(logged)
    assert found and found[1].encode() == error_id
    assert found[2] == PEER
    assert logged.isascii() and logged.isprintable()
    assert "internal error" not in logged
    shown = ascii(line[:1024].decode("utf-8", "backslashreplace"))
    assert logged.endswith(f" line={shown}"), "the line is cut"
    assert len(logged) < len(shown) + 1536, "and so is the reason"


def test_line_of_1_kib_is_shown_whole(flooded: Flooded) -> None:
    flooded.error_ids(b"x " + b"y" * 1022)
    flooded.now += 1
    flooded.error_ids(b"x " + b"y" * 1022 + b"z")
    for logged in flooded.logged():
        assert logged.endswith(" line='x " + "y" * 1022 + "'")


# ---- Many


def test_the_first_few_mistakes_have_each_their_own_id_and_log_line(flooded: Flooded) -> None:
    lines = [b"x%d nope" % n for n in range(LOGGED_ONE_BY_ONE)]
    ids = flooded.error_ids(*lines)
    assert len(set(ids)) == LOGGED_ONE_BY_ONE
    for error_id, line, logged in zip(ids, lines, flooded.logged(), strict=True):
        assert error_id.decode() in logged and line.decode() in logged


def test_beyond_them_those_of_one_second_and_reason_share_an_id(flooded: Flooded) -> None:
    assert len(set(flooded.error_ids(*[b"x%d nope" % n for n in range(1000)]))) == LOGGED_ONE_BY_ONE
    flooded.now += 0.4  # still the same second
    assert len(set(flooded.error_ids(*[b"x consume"] * 500, *[b"x nope"] * 500))) == LOGGED_ONE_BY_ONE + 1
    logged = flooded.logged()
    assert len(logged) == 2 * LOGGED_ONE_BY_ONE
    assert "unknown action" in logged[0] and "line='x0 nope'" in logged[0]
    assert "expected a queue" in logged[-1]
    flooded.now += 0.1
    again, other = flooded.error_ids(b"x9 nope", b"x9 consume")
    before, unknown, and_before, consume = flooded.logged(RECORD_OR_COUNT)
    assert before.endswith(f"was met {1500 - LOGGED_ONE_BY_ONE} times more in that second")
    assert and_before.endswith(f"was met {500 - LOGGED_ONE_BY_ONE} times more in that second")
    assert again.decode() in unknown and other.decode() in consume
    flooded.now += 1
    flooded.error_ids(b"x nope")
    assert len(flooded.logged()) == 1, "what was said of the others is not said again"
    assert flooded.broker.mistakes.errors == 2003


def test_the_count_comes_also_if_the_client_makes_no_more_mistakes(flooded: Flooded) -> None:
    flooded.error_ids(*[b"x nope"] * 100)
    flooded.now += 0.3
    flooded.broker.tick()
    assert len(flooded.logged()) == LOGGED_ONE_BY_ONE, "the second is not over"
    flooded.now += 0.7
    flooded.broker.tick()
    (count,) = flooded.logged(RECORD_OR_COUNT)
    assert f"client={PEER} " in count
    assert count.endswith(f"was met {100 - LOGGED_ONE_BY_ONE} times more in that second")
    flooded.broker.disconnect(flooded.client)
    flooded.broker.close()
    assert flooded.logged() == [], "it is not told again"


def test_a_second_that_has_begun_is_not_told_with_the_one_before(flooded: Flooded) -> None:
    flooded.error_ids(*[b"x nope"] * 100)
    flooded.now += 0.6
    flooded.error_ids(*[b"x nope"] * 200)
    flooded.now += 0.4  # a second after the first, within the next
    flooded.broker.tick()
    assert len(flooded.logged(RECORD_OR_COUNT)) == LOGGED_ONE_BY_ONE + 1 + LOGGED_ONE_BY_ONE
    flooded.error_ids(*[b"x nope"] * 5)
    assert flooded.logged() == []
    flooded.now += 1
    flooded.broker.tick()
    (count,) = flooded.logged(RECORD_OR_COUNT)
    assert count.endswith(f"was met {205 - LOGGED_ONE_BY_ONE} times more in that second")


def test_a_client_that_goes_leaves_the_count_in_the_log(flooded: Flooded) -> None:
    other = flooded.broker.connect("192.0.2.1:7")
    flooded.error_ids(*[b"x nope"] * 100, client=other)
    flooded.logged()
    flooded.broker.disconnect(other)
    (count,) = flooded.logged(RECORD_OR_COUNT)
    assert "client=192.0.2.1:7 " in count
    assert count.endswith(f"was met {100 - LOGGED_ONE_BY_ONE} times more in that second")


def test_a_client_that_goes_after_the_end_is_told_of_once(flooded: Flooded) -> None:
    flooded.error_ids(*[b"x nope"] * 100)
    flooded.logged()
    flooded.broker.close()
    flooded.broker.disconnect(flooded.client)
    (count,) = flooded.logged(RECORD_OR_COUNT)
    assert count.endswith(f"was met {100 - LOGGED_ONE_BY_ONE} times more in that second")


def test_id_is_shared_within_its_connection_only(flooded: Flooded) -> None:
    other = flooded.broker.connect("192.0.2.1:7")
    mine = flooded.error_ids(*[b"x nope"] * 100)
    theirs = flooded.error_ids(*[b"x nope"] * 100, client=other)
    assert not set(mine) & set(theirs)
    logged = flooded.logged()
    assert f"client={PEER} " in logged[0]
    assert "client=192.0.2.1:7 " in logged[-1]


@pytest.mark.parametrize(
    "lines",
    [
        lambda n: b"x action%d" % n,
        lambda n: b"x consume q --flag%d" % n,
        lambda n: b"x consume q --prefetch=a%d" % n,
        lambda n: b'x send {"a%d"}' % n + b" " * n,
        lambda n: b'x recv {"pattern": {}, "queue": "q", "key%d": 1}' % n,
        lambda n: b"x _eval state.a%d" % n,
        lambda n: b"x publish {%d d" % n,
        lambda n: b"x%d\t" % n,
    ],
)
def test_one_mistake_in_many_forms_is_one_mistake(flooded: Flooded, lines: Callable[[int], bytes]) -> None:
    """Else a client could fill the log, and the broker's memory, by making each mistake different."""
    assert len(set(flooded.error_ids(*(lines(n) for n in range(200))))) == LOGGED_ONE_BY_ONE
    assert len(flooded.logged()) == LOGGED_ONE_BY_ONE


def test_refused_publishes_are_one_mistake(caplog: pytest.LogCaptureFixture) -> None:
    """Beyond --max-memory, with data or without, as MQKS or as SEVX."""
    broker = Broker(max_memory=1 << 16)
    client = broker.connect(PEER)
    broker.feed(client, b"s subscribe q1 e1\n" + b"m publish e1 d\n")
    assert client.pending() == b"" and broker.core.account.full
    broker.feed(client, b'm1 publish e1 d\nm2 publish e1\nm3 publish --confirm e2 d\nm4 send {"event": "e1"}\n')
    replies = [line.rpartition(b" ") for line in client.pending().splitlines()]
    assert [reply for reply, _, _ in replies] == [b"m%d error" % n for n in range(1, 5)]
    for record, (_, _, error_id) in zip(caplog.records, replies, strict=True):
        assert record.getMessage().startswith(f"error {error_id.decode()} ")
        assert "--max-memory" in record.getMessage()
    assert broker.queues.by_name[b"q1"].ready_count == 1


# ---- Crowds


def test_a_crowd_shares_ids_and_is_counted(flooded: Flooded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many connections with a mistake each would fill the log as one with many would."""
    monkeypatch.setattr("mqks.broker.connections.mistakes.LOGGED_LINES", 20)
    crowd = [flooded.broker.connect(f"192.0.2.1:{port}") for port in range(1, 101)]
    ids = {flooded.error_ids(b"x nope", client=one)[0] for one in crowd}
    logged = flooded.logged()
    assert len(ids) == len(logged) == 20 + 1, "and one that speaks for the others"
    assert all(any(error_id.decode() in line for line in logged) for error_id in ids)
    flooded.now += 1
    flooded.broker.tick()
    (count,) = [entry.getMessage() for entry in flooded.caplog.records]
    assert count.endswith(" reason='unknown action' was met 79 times more in that second")
    flooded.caplog.clear()
    flooded.error_ids(b"x nope", client=crowd[0])
    (line,) = flooded.logged()
    assert "client=192.0.2.1:1 " in line, "in the next second all is as before"


def test_all_together_fill_some_bytes_of_the_log_and_not_more(flooded: Flooded) -> None:
    crowd = [flooded.broker.connect(f"192.0.2.1:{port}") for port in range(1, 201)]
    much = NO_UTF8[:10_000]  # more than a line of the log shows
    for one in crowd:
        for mistake in (b"x " + much, b"x consume q --" + much, b"x publish {" + much):
            flooded.error_ids(*[mistake] * 12, client=one)
    logged = flooded.logged()
    longest = max(map(len, logged))
    assert sum(map(len, logged)) < LOGGED_BYTES + 4 * longest, "one more, and one that is shared for each kind"
    assert len(logged) < LOGGED_LINES, "they are long"
    flooded.now += 1
    flooded.broker.tick()
    counted = [int(message.split()[-6]) for entry in flooded.caplog.records if (message := entry.getMessage())]
    assert len(logged) + sum(counted) == flooded.broker.mistakes.errors == 200 * 3 * 12, "none is forgotten"


def test_a_first_mistake_has_its_own_line_in_the_flood_of_others(flooded: Flooded) -> None:
    honest = flooded.broker.connect("192.0.2.9:9")
    crowd = [flooded.broker.connect(f"192.0.2.1:{port}") for port in range(1, 31)]
    for one in crowd:
        flooded.error_ids(b"x nope", client=one)
    flooded.now += 1
    for one in crowd:
        flooded.error_ids(*[b"x nope"] * 100, client=one)
    assert len(flooded.logged()) == 30 + LOGGED_LINES // 2 + 1
    (error_id,) = flooded.error_ids(b"x consume", client=honest)
    (line,) = flooded.logged()
    assert error_id.decode() in line and "client=192.0.2.9:9 " in line


def test_who_has_a_line_shares_its_own_id_when_there_is_no_more_room(flooded: Flooded) -> None:
    others = [flooded.broker.connect(f"192.0.2.1:{port}") for port in range(LOGGED_LINES)]
    (first,) = flooded.error_ids(b"x nope")
    shared = {flooded.error_ids(b"x nope", client=one)[0] for one in others}
    assert len(shared) == LOGGED_LINES
    assert flooded.error_ids(b"x nope") == [first]


def test_who_is_turned_away_is_named_and_the_others_are_counted(flooded: Flooded) -> None:
    broker = flooded.broker
    too_many = broker.limits.reached("max_connections")
    ids = [broker.connections.refuse(f"192.0.2.1:{port}", too_many) for port in range(1, 101)]
    assert len(set(ids)) == LOGGED_ONE_BY_ONE
    logged = [entry.getMessage() for entry in flooded.caplog.records]
    reason = "reason='--max-connections is reached'"
    assert logged == [
        f"error {error_id.decode()} client=192.0.2.1:{port} {reason}"
        for port, error_id in enumerate(ids[:LOGGED_ONE_BY_ONE], 1)
    ]
    flooded.broker.close()  # nothing is lost at the end
    flooded.broker.close()  # nor told twice
    (count,) = (entry.getMessage() for entry in flooded.caplog.records[LOGGED_ONE_BY_ONE:])
    assert count == f"error {ids[-1].decode()} {reason} was met {100 - LOGGED_ONE_BY_ONE} times more in that second"
    assert flooded.broker.connections.refused == 100


def test_a_fault_of_the_broker_is_one_record_with_its_id(flooded: Flooded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqks.broker.requests.find", lambda *_: 1 / 0)
    (error_id,) = flooded.error_ids(b"x ping")
    (entry,) = flooded.caplog.records
    assert entry.levelno == logging.ERROR and entry.exc_info
    assert error_id.decode() in entry.getMessage() and "ZeroDivisionError" in entry.getMessage()


def test_a_fault_of_the_broker_is_told_in_the_flood_of_clients_too(
    flooded: Flooded, monkeypatch: pytest.MonkeyPatch
) -> None:
    for port in range(2 * LOGGED_LINES):
        flooded.error_ids(b"x nope", client=flooded.broker.connect(f"192.0.2.1:{port}"))
    flooded.caplog.clear()
    monkeypatch.setattr("mqks.broker.requests.find", lambda *_: 1 / 0)
    ids = flooded.error_ids(*[b"x ping"] * 50)
    assert len(set(ids)) == len(flooded.caplog.records) == LOGGED_ONE_BY_ONE
    assert ids[0].decode() in flooded.caplog.records[0].getMessage()


# ---- Every error counts


def test_requests_that_waited_for_a_disk_that_failed_are_counted_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    on_disk = OnDisk()
    client = on_disk.connect()
    assert on_disk.say(client, b"m1 publish --confirm e1 d", b"m2 publish --confirm e1 d") == []
    on_disk.broker.persistence.drop_held()
    assert on_disk.said(client) == []
    assert on_disk.broker.mistakes.errors == 0
    (entry,) = caplog.records
    assert entry.levelno == logging.ERROR and entry.getMessage().startswith("2 requests waited for the disk")


def test_a_damaged_journal_met_by_history_is_an_error_of_the_broker(caplog: pytest.LogCaptureFixture) -> None:
    on_disk = OnDisk()
    client = on_disk.connect()
    on_disk.say(client, b"m1 publish --confirm e1 d")
    on_disk.work()
    on_disk.wait(1.0)
    [inode] = [inode for name, inode in on_disk.disk.entries.items() if name.startswith("journal/")]
    inode.data[inode.data.index(b"m1 publish")] ^= 1
    on_disk.said(client)
    on_disk.say(client, b"h1 history earliest")
    on_disk.work()
    (reply,) = on_disk.said(client)
    assert reply.startswith(b"h1 error ")
    assert on_disk.broker.mistakes.errors == 1
    (entry,) = caplog.records
    assert entry.levelno == logging.ERROR
    told = entry.getMessage()
    assert told.startswith(f"error {reply.split()[2].decode()} client=127.0.0.1:1 reason='the journal is damaged: run ")
    assert re.search(r"at position \d+' history='h1' position=\d+\Z", told)
