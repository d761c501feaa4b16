"""`mqks sub`, `mqks tail`, `mqks history`."""

import json
import select
import signal
import subprocess
import sys

import pytest

from tests.cli.conftest import Cli
from tests.cli.running import ended, started, stopped
from tests.conftest import Brokers, Connect, Start
from tests.running import Connection


def publish(wire: Connection, *messages: str) -> None:
    """Each is an event and data; the ids are m1, m2, …"""
    for number, message in enumerate(messages, 1):
        assert wire.ask(f"m{number} publish --confirm {message}") == f"m{number} ok "


def line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout
    return process.stdout.readline().decode("utf-8", "surrogateescape").rstrip("\n")


# ── sub ──


def test_sub(cli: Cli, wire: Connection) -> None:
    with started("sub", "q1", "e1", "e2") as sub:
        wire.until_true("len(state.consumers) == 1")
        assert wire.ask("ev1 _eval state.consumers[0].prefetch") == "ev1 ok 1000"
        publish(wire, "e1 d1", "e2 d 2", "e3 none", "e1 ")
        assert [line(sub) for _ in range(3)] == ["m1 e1 d1", "m2 e2 d 2", "m4 e1 "]
        said = stopped(sub)
    assert (said.code, said.out, said.err) == (130, "", "")
    assert cli("queues", "--json").json[0]["ready"] == 0


def test_sub_shows_bytes_as_they_are_in_a_pipe(wire: Connection) -> None:
    wire.send(b"r1 rebind q1 e1\nm1 publish e1 \xff\x1b[31m\nm2 publish e1 ok\n")
    with started("sub", "q1", "--count=2") as sub:
        assert ended(sub).lines == ["m1 e1 \udcff\x1b[31m", "m2 e1 ok"]


def test_sub_json(wire: Connection) -> None:
    wire.send(b'r1 rebind q1 e1\nm1 publish e1 \xff\x1b\nm2 publish e1 {"a": 1}\x7f\n')
    with started("sub", "q1", "--count=2", "--json") as sub:
        said = ended(sub)
    assert said.json == [
        {"id": "m1", "event": "e1", "data_base64": "/xs=", "retry": 0},
        {"id": "m2", "event": "e1", "data": '{"a": 1}\x7f', "retry": 0},
    ]
    assert said.out.replace("\n", "").isprintable()


def test_count_takes_no_more_than_so_many(cli: Cli, wire: Connection) -> None:
    wire.send(b"r1 rebind q1 e1\n" + b"".join(b"m%d publish e1 d\n" % number for number in range(500)))
    for count, first, left in ((3, 0, 497), (1, 3, 496), (250, 4, 246)):
        said = cli("sub", "q1", f"--count={count}", "--json")
        assert [json.loads(line)["id"] for line in said.lines] == [
            f"m{number}" for number in range(first, first + count)
        ]
        wire.until_true("len(state.consumers) == 0")
        assert wire.ask("ev1 _eval (state.queues['q1'].ready, state.queues['q1'].unacked)") == f"ev1 ok ({left}, 0)"


def test_ack_is_sent_for_what_was_printed(cli: Cli, wire: Connection) -> None:
    wire.send(b"r1 rebind q1 e1\n")
    publish(wire, "e1 d1", "e1 d2")
    with started("sub", "q1", "--ack", "--prefetch=1") as sub:
        assert [line(sub) for _ in range(2)] == ["m1 e1 d1", "m2 e1 d2"]
        wire.until_true("state.queues['q1'].acked == 2")
        assert wire.ask("ev1 _eval state.consumers[0].prefetch") == "ev1 ok 1"
    assert cli("queues").words[1][:3] == ["q1", "0", "0"]


def test_what_was_not_printed_comes_again(wire: Connection) -> None:
    """Nobody reads what the first one prints: it can ack no more than a pipe holds."""
    wire.send(b"r1 rebind q1 e1\n" + b"".join(b"m%d publish e1 %s\n" % (n, b"x" * 20_000) for n in range(50)))
    with started("sub", "q1", "--ack") as sub:
        wire.until_true("state.queues['q1'].acked > 0")
        sub.kill()
        printed = ended(sub).out.count("\n")
    wire.until_true("len(state.consumers) == 0")
    acked = int(wire.ask("ev1 _eval state.queues['q1'].acked").removeprefix("ev1 ok "))
    assert printed - 1 <= acked <= printed < 20
    with started("sub", "q1", f"--count={50 - acked}", "--json") as sub:
        assert [message["retry"] for message in ended(sub).json] == [1] * (50 - acked)


def test_retries_are_shown(cli: Cli, wire: Connection) -> None:
    wire.send(b"c1 consume q1 e1 --manual-ack\nm1 publish e1 d1\n")
    assert wire.line() == b"c1 ok m1 event=e1 d1"
    assert wire.ask("x1 delete_consumer --confirm c1") == "x1 ok "
    assert cli("sub", "q1", "--count=1").lines == ["m1 e1,retry=1 d1"]


def test_events_replace_or_add(cli: Cli, wire: Connection) -> None:
    wire.send(b"r1 rebind q1 e1\nm1 publish e1 d1\n")
    assert cli("sub", "q1", "e2", "--add", "--count=1").code == 0
    assert wire.ask("ev1 _eval state.queues['q1'].events") == "ev1 ok ['e1', 'e2']"
    publish(wire, "e2 d2")
    assert cli("sub", "q1", "e3", "--count=1").code == 0
    assert wire.ask("ev1 _eval state.queues['q1'].events") == "ev1 ok ['e3']"


@pytest.mark.parametrize(("flag", "told"), [("", "None"), ("--delete-when-unused=60", "60.0")])
def test_delete_when_unused(wire: Connection, flag: str, told: str) -> None:
    with started("sub", "q1", "e1", *filter(None, [flag])) as sub:
        wire.until_true("len(state.consumers) == 1")
        assert wire.ask("ev1 _eval state.queues['q1'].delete_when_unused") == f"ev1 ok {told}"
        assert stopped(sub).code == 130


def test_delete_when_unused_at_once(wire: Connection) -> None:
    with started("sub", "--delete-when-unused", "q1", "e1") as sub:
        wire.until_true("len(state.consumers) == 1")
        assert stopped(sub).code == 130
    wire.until_true("'q1' not in state.queues")


def test_whoever_reads_may_stop_reading(wire: Connection) -> None:
    wire.send(b"r1 rebind q1 e1\n" + b"".join(b"m%d publish e1 %s\n" % (n, b"x" * 20_000) for n in range(50)))
    with started("sub", "q1", "--ack") as sub:
        assert line(sub).startswith("m0 ")
        assert sub.stdout
        assert sub.stderr
        sub.stdout.close()
        assert sub.stderr.read() == b""
        assert sub.wait(60) == 0


BACKLOG = 50_000


@pytest.fixture
def backlog(wire: Connection) -> Connection:
    """q1 has many messages, each a line of more than 100 bytes."""
    wire.send(b"r1 rebind q1 e1\n" + b"".join(b"m%d publish e1 %s\n" % (n, b"x" * 100) for n in range(BACKLOG)))
    wire.until_true(f"state.queues['q1'].ready == {BACKLOG}")
    return wire


def left(wire: Connection) -> list[str]:
    """The ids of the messages that are in the queue when its consumer has gone."""
    wire.until_true("len(state.consumers) == 0")
    count = wire.ask("ev1 _eval state.queues['q1'].ready").removeprefix("ev1 ok ")
    with started("sub", "q1", f"--count={count}") as sub:
        return [words[0] for words in ended(sub).words]


EVERY = {f"m{number}" for number in range(BACKLOG)}


def test_head_takes_no_more_than_a_pipe_holds(backlog: Connection) -> None:
    command = f"{sys.executable} -m mqks.cli.mqks sub q1 | head -3; exit ${{PIPESTATUS[0]}}"
    run = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")
    assert [line.split()[0] for line in run.stdout.splitlines()] == ["m0", "m1", "m2"]
    assert len(left(backlog)) > BACKLOG - 2_000  # 200 KB: the pipe, and what `head` read at a time


@pytest.mark.parametrize("flags", [(), ("--ack",)])
def test_ctrl_c_in_a_backlog_loses_nothing(backlog: Connection, flags: tuple[str, ...]) -> None:
    with started("sub", "q1", *flags, bufsize=0) as sub:
        printed = [line(sub).split()[0] for _ in range(1_000)]
        said = stopped(sub)
    assert (said.code, said.err) == (130, "")
    printed += [words[0] for words in said.words]
    still = left(backlog)
    assert {*printed, *still} == EVERY
    assert 0 < len(still) <= BACKLOG - 1_000


def test_ctrl_c_when_nobody_reads(backlog: Connection) -> None:
    """It does not wait for ever for stdout, and what only a part of was printed comes again."""
    with started("sub", "q1", bufsize=0) as sub:
        assert line(sub).startswith("m0 ")
        sub.send_signal(signal.SIGINT)
        assert sub.wait(60) == 130
        whole = [text.split()[0] for text in ended(sub).out.split("\n")[:-1]]
    assert {"m0", *whole, *left(backlog)} == EVERY


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sub"], "required: QUEUE; see"),
        (["rebind"], "required: QUEUE; see"),
        (["sub", "--add", "q1"], "--add needs events"),
        (["sub", "q1", "--prefetch=some"], "is not a count"),
        (["sub", "q1", "--count=0"], "too few"),
        (["sub", "q1", "--count=many"], "is not a count"),
        (["sub", "two words"], "is not a queue"),
        (["sub", "q1", "{e1"], "is not an event"),
        (["sub", "q1", "--delete-when-unused=soon"], "is not a number of seconds"),
        (["tail", "--from=yesterday"], "is not a position, a time"),
        (["history", "yesterday"], "is not a position, a time"),
        (["history", "--limit=-1"], "is not a count"),
        (["history", "--events=a b"], "is not an event"),
    ],
)
def test_wrong_arguments(cli: Cli, arguments: list[str], said: str) -> None:
    found = cli(*arguments)
    assert found.code == 2
    assert said in found.err


# ── tail, history ──


def test_history(cli: Cli, connect: Connect, shared_broker: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    with_journal = shared_broker(fsync="always")
    wire = connect(with_journal)
    monkeypatch.setenv("MQKS_URL", f"mqks://127.0.0.1:{with_journal.port}")
    place = cli("stats", "--json").json["position"]
    publish(wire, "his.a d1", "his.b d 2", "his.a ")
    assert wire.ask('m4 send {"x": 1}') == "m4 ok "
    said = cli("history", str(place))
    positions = [int(words[0]) for words in said.words]
    assert positions == sorted(set(positions))
    assert [text.partition(" ")[2] for text in said.lines] == [
        "m1 his.a d1",
        "m2 his.b d 2",
        "m3 his.a ",
        'm4 - {"x": 1}',
    ]
    assert cli("history", "--events=his.b,his.x").words[-1][1:] == ["m2", "his.b", "d", "2"]
    assert cli("history", str(positions[1]), "--limit=1", "--json").json == {
        "id": "m2",
        "event": "his.b",
        "data": "d 2",
        "position": positions[1],
    }
    assert cli("history", str(positions[0]), f"--to={positions[2]}").lines == said.lines[:2]
    assert cli("history", "latest").lines == []
    assert cli("history", "2026-01-31T12:00", "--to=2026-01-31T13:00").lines == []
    assert cli("history", "2020-01-31T12:00", "--events=his.*", "--limit=1").words[0][2:] == ["his.a", "d1"]
    gone = cli("history", str(10**15))
    assert (gone.code, gone.out) == (1, "")
    assert gone.err.startswith("mqks: the broker refused 'history 1000000000000000")


def test_tail(wire: Connection) -> None:
    publish(wire, "tail.old d0")
    with started("tail", "tail.*", "plain") as tail, started("tail") as everything:
        # Each begins where the log ends when it asks: nobody can tell when, until it shows a first message.
        seen = {tail: "", everything: ""}
        number = 0
        while not all(seen.values()):
            number += 1
            wire.send(b"k%d publish tail.key %d\n" % (number, number))
            for process in [process for process, shown in seen.items() if not shown]:
                if ready(process):
                    seen[process] = line(process)
        publish(wire, "tail.a d1", "other.a d2", "plain d3", "other d4")
        shown: list[str] = []
        while not shown or "d3" not in shown[-1]:
            shown.append(line(tail))
        assert [text.split()[1:] for text in shown if " tail.key " not in text] == [
            ["m1", "tail.a", "d1"],
            ["m3", "plain", "d3"],
        ]
        while " other d4" not in line(everything):
            pass
        for process in (tail, everything):
            said = stopped(process)
            assert (said.code, said.err) == (130, "")
    assert wire.ask("ev1 _eval len(state.queues)") == "ev1 ok 0"


def ready(process: subprocess.Popen[bytes]) -> bool:
    assert process.stdout
    return bool(select.select([process.stdout], [], [], 0.05)[0])


def test_tail_from_earlier(cli: Cli, wire: Connection) -> None:
    place = cli("stats", "--json").json["position"]
    publish(wire, "from.a d1", "from.b d2")
    said = cli("tail", "from.*", f"--from={place}", "--count=2", "--json")
    assert [(one["position"] >= place, one["id"], one["data"]) for one in said.json] == [
        (True, "m1", "d1"),
        (True, "m2", "d2"),
    ]


# ── a broker that goes and comes ──


@pytest.mark.parametrize(
    "command", [("sub", "q1", "e1"), ("sub", "q1", "e1", "--ack"), ("tail", "e1"), ("history", "--follow")]
)
def test_a_restart_in_between(command: tuple[str, ...], start: Start, connect: Connect) -> None:
    broker = start()
    url = f"mqks://127.0.0.1:{broker.port}"
    with started(*command, f"--url={url}") as process:
        assert process.stderr
        wire = connect(broker)
        if command[0] == "sub":
            wire.until_true("len(state.consumers) == 1")
        number = 0
        while not ready(process):
            number += 1
            wire.send(b"k%d publish e1 first\n" % number)
        assert line(process).endswith(" e1 first")
        broker.process.kill()
        assert process.stderr.readline() == f"mqks: connection to {url} lost, reconnecting\n".encode()
        again = start(f"--port={broker.port}")
        assert process.stderr.readline() == f"mqks: connected to {url} again\n".encode()
        assert connect(again).ask("m1 publish --confirm e1 second") == "m1 ok "
        while not (shown := line(process)).endswith(" e1 second"):
            assert shown.endswith(" first")
        said = stopped(process)
        assert (said.code, said.err) == (130, "")
