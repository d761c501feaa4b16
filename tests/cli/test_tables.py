"""`mqks queues`, `mqks stats`, and `mqks top` in a pipe."""

import json

import pytest

from tests.cli.conftest import Cli
from tests.cli.running import started, stopped
from tests.conftest import Brokers
from tests.running import Connection, RunningBroker


@pytest.fixture
def some(wire: Connection) -> Connection:
    """Three queues."""
    wire.send(b"c1 consume beta e1 e2 --manual-ack --delete-queue-when-unused=2.5\n")
    wire.send(b'r1 recv {"queue": "gamma", "pattern": {"x": 1}, "delete_queue_when_unused": true}\n')
    assert wire.line() == b"r1 ok "
    wire.send(b"r2 rebind alpha\x1b[31m e1\n")
    wire.send(b"m1 publish e1 d1\nm2 publish e1 d2\n")
    assert [wire.line() for _ in range(2)] == [b"c1 ok m1 event=e1 d1", b"c1 ok m2 event=e1 d2"]
    return wire


@pytest.mark.usefixtures("some")
def test_queues(cli: Cli) -> None:
    said = cli("queues")
    assert (said.code, said.err) == (0, "")
    assert said.lines == [
        r"queue          ready  unacked  consumers  delete when unused  events",
        r"alpha\x1b[31m      2        0          0  -                   e1",
        r"beta               0        2          1  after 2.5 s         e1 e2",
        r'gamma              0        0          1  at once             {"x": 1}',
        r"3 queues, 2 ready, 2 unacked, 2 consumers",
    ]


@pytest.mark.usefixtures("some")
def test_queues_json(cli: Cli) -> None:
    said = cli("queues", "--json")
    assert len(said.lines) == 1
    alpha, beta, gamma = json.loads(said.out)
    assert alpha["queue"] == "alpha\x1b[31m"
    assert (beta["queue"], beta["events"], beta["unacked"], beta["delete_when_unused"]) == (
        "beta",
        ["e1", "e2"],
        2,
        2.5,
    )
    assert gamma["pattern"] == {"x": 1}


@pytest.mark.usefixtures("broker")
def test_no_queues(cli: Cli) -> None:
    assert cli("queues").lines == ["0 queues, 0 ready, 0 unacked, 0 consumers"]
    assert json.loads(cli("queues", "--json").out) == []


@pytest.mark.usefixtures("some")
def test_stats(cli: Cli, broker: RunningBroker) -> None:
    told = cli("stats", "--json").json
    assert set(told["queues"]) == {"alpha\x1b[31m", "beta", "gamma"}
    said = cli("stats")
    assert said.code == 0
    assert said.lines[0].startswith(f"mqksd {told['version']} at mqks://127.0.0.1:{broker.port}, up ")
    rows = dict(line.split(maxsplit=1) for line in said.lines[1:])
    assert list(rows) == ["messages", "queues", "clients", "memory", "durability"]
    assert rows["queues"] == "3 queues, 2 ready, 2 unacked, 2 consumers"
    assert rows["durability"] == "memory only: nothing survives a restart"


def test_stats_of_a_journal(cli: Cli, shared_broker: Brokers) -> None:
    broker = shared_broker(fsync="always")
    wire = Connection(broker.port)
    assert wire.ask("h1 hold archive earliest --for=3600 --confirm") == "h1 ok "
    said = cli("stats", f"--url=mqks://127.0.0.1:{broker.port}")
    rows = dict(line.split(maxsplit=1) for line in said.lines[1:])
    assert rows["durability"] == "always: what is confirmed is on disk"
    assert " in 1 segment, from 0 to " in rows["journal"]
    assert rows["hold"].startswith("archive at 0, for ")
    assert wire.ask("h1 hold archive earliest --for=0 --confirm") == "h1 ok "
    wire.close()


@pytest.mark.usefixtures("some")
def test_top_in_a_pipe(cli: Cli) -> None:
    said = cli("top", "--count=2", "--interval=0.1")
    assert (said.code, said.err) == (0, "")
    assert "\x1b" not in said.out
    first, second = said.out.split("\n\nmqksd ")
    head, rates, blank, heads, *rows = first.splitlines()
    assert head.startswith("mqksd ")
    assert rates == "0 published/s, 0 delivered/s, 0 acked/s, 3 queues"
    assert (blank, heads.split()) == (
        "",
        ["queue", "ready", "unacked", "consumers", "published/s", "delivered/s", "acked/s"],
    )
    assert [row.split()[0] for row in rows] == [r"alpha\x1b[31m", "beta", "gamma"]  # the one with most ready first
    assert len(second.splitlines()) == 7


def test_top_shows_rates_of_the_busiest_first(wire: Connection) -> None:
    wire.send(b"c1 consume zebra e1\nc2 consume ant e2\n")
    with started("top", "--json", "--interval=0.1") as top:
        assert top.stdout
        while True:
            wire.send(b"m1 publish e1 d\n")
            assert wire.line() == b"c1 ok m1 event=e1 d"
            shown = json.loads(top.stdout.readline())
            if shown["published_per_s"]:
                break
        assert [one["queue"] for one in shown["queues"]] == ["zebra", "ant"]
        assert shown["queues"][0]["published_per_s"] > 0
        assert shown["queues"][0]["delivered_per_s"] > 0
        assert shown["queues"][1]["published_per_s"] == 0
        assert stopped(top).code == 130
