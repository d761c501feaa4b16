"""`mqks rebind`, `delete-queue`, `ping`, `eval`."""

import re

import pytest

from mqks.cli.output import visible
from tests.cli.conftest import Cli
from tests.running import Connection, RunningBroker


@pytest.mark.parametrize(
    ("arguments", "events"),
    [
        ([], "nothing"),
        (["e5", "e6"], "e5 e6"),
        (["--add", "e5"], "e1 e2 e3.a e3.b e5"),
        (["--add", "e5", "e6", "--remove", "e1", "--remove", "e2"], "e3.a e3.b e5 e6"),
        (["--remove-mask", "e3.*"], "e1 e2"),
        (["e7", "--add", "e8", "--remove-mask", "e3.*"], "e7 e8"),
    ],
)
def test_rebind(cli: Cli, wire: Connection, arguments: list[str], events: str) -> None:
    assert wire.ask("r1 rebind q1 e1 e2 e3.a e3.b --confirm") == "r1 ok "
    said = cli("rebind", "q1", *arguments)
    assert (said.code, said.lines, said.err) == (0, [f"q1 is subscribed to {events}"], "")
    listed = [] if events == "nothing" else events.split()
    assert wire.ask("ev1 _eval state.queues['q1'].events") == f"ev1 ok {listed}"
    assert cli("rebind", "q1", "--add", "e9", "--json").json == {"queue": "q1", "events": [*listed, "e9"]}


def test_limits_of_a_queue(cli: Cli, wire: Connection) -> None:
    assert cli("rebind", "q1", "e1", "--max-length=2", "--overflow=drop-oldest").lines == ["q1 is subscribed to e1"]
    assert cli("rebind", "q1", "--max-length=1").lines == ["q1 is subscribed to e1"]
    wire.send(b"m1 publish e1 d1\nm2 publish e1 d2\n")
    assert cli("sub", "q1", "--count=1", "--max-bytes=500").lines == ["m2 e1 d2"]
    limits = "[(q.max_length, q.max_bytes, q.overflow, q.dropped) for q in state.queues.values()]"
    assert wire.ask(f"ev1 _eval {limits}") == "ev1 ok [(1, 500, 'drop-oldest', 1)]"
    said = cli("rebind", "q1", "--overflow=drop")
    assert said.code == 2
    assert "drop-oldest" in said.err


def test_what_looks_like_a_mask_is_noted(cli: Cli, wire: Connection) -> None:
    said = cli("rebind", "q1", "order.*", "--add", "e.*", "--remove-mask", "x.*")
    assert (said.code, said.lines) == (0, ["q1 is subscribed to e.* order.*"])
    assert [line.partition(" is taken as a name; ")[0] for line in said.err.splitlines()] == [
        "mqks: note: 'order.*'",
        "mqks: note: 'e.*'",
    ]
    wire.send(b"m1 publish order.* d1\n")
    said = cli("sub", "q1", "order.*", "--count=1")
    assert (said.code, said.lines) == (0, ["m1 order.* d1"])
    assert said.err.startswith("mqks: note: 'order.*' is taken as a name; ")


def test_delete_queue(cli: Cli, wire: Connection) -> None:
    assert wire.ask("r1 rebind q1 e1 --confirm") == "r1 ok "
    assert cli("delete-queue", "q1", "--when-unused=60").lines == ["q1 goes when it has no consumer for 60 s"]
    assert wire.ask("ev1 _eval state.queues['q1'].delete_when_unused") == "ev1 ok 60.0"
    assert cli("delete-queue", "q1").lines == ["q1 is deleted"]
    assert wire.ask("ev1 _eval len(state.queues)") == "ev1 ok 0"
    assert wire.ask("r1 rebind q1 e1 --confirm") == "r1 ok "
    assert cli("delete-queue", "--when-unused", "q1", "--json").json == {"queue": "q1", "when_unused": True}
    assert wire.ask("ev1 _eval len(state.queues)") == "ev1 ok 0"


@pytest.mark.parametrize("name", [r"a\x41", b"\xff".decode("utf-8", "surrogateescape"), "ä"])
def test_names_are_compared_as_the_broker_shows_them(cli: Cli, wire: Connection, name: str) -> None:
    assert cli("rebind", name, "e1").lines == [f"{visible(name)} is subscribed to e1"]
    assert cli("delete-queue", name).lines == [f"{visible(name)} is deleted"]
    assert wire.ask("ev1 _eval len(state.queues)") == "ev1 ok 0"


@pytest.mark.parametrize("flags", [[], ["--when-unused=5"], ["--json"]])
def test_there_is_no_queue_to_delete(cli: Cli, wire: Connection, flags: list[str]) -> None:
    assert wire.ask("r1 rebind q1 e1 --confirm") == "r1 ok "
    said = cli("delete-queue", "q2", *flags)
    assert (said.code, said.out, said.err) == (1, "", "mqks: there is no queue q2\n")
    assert wire.ask("ev1 _eval sorted(state.queues)") == "ev1 ok ['q1']"


@pytest.mark.usefixtures("broker")
def test_ping(cli: Cli) -> None:
    said = cli("ping")
    assert re.fullmatch(r"10 pings: min [\d.]+ ms, median [\d.]+ ms, max [\d.]+ ms\n", said.out)
    assert cli("ping", "some data", "--count=1").out.startswith("1 ping: ")
    assert cli("ping", "--count=1", "--", "--data").code == 0
    told = cli("ping", "--count=3", "--json").json
    assert told["count"] == 3
    assert 0 < told["min_ms"] <= told["median_ms"] <= told["max_ms"]


@pytest.mark.usefixtures("broker")
def test_eval(cli: Cli) -> None:
    assert cli("eval", "len(state.queues) + 1").lines == ["1"]
    assert cli("eval", "'a' + 'b'", "--json").json == {"result": "ab"}


def test_a_refusal_is_one_line_with_its_id(cli: Cli, broker: RunningBroker) -> None:
    said = cli("eval", "import os")
    assert (said.code, said.out) == (1, "")
    found = re.fullmatch(r"mqks: the broker refused '.*_eval import os': error (\w{24}); its log says why\n", said.err)
    assert found, said.err
    assert broker.wait_for_log(found[1])


@pytest.mark.parametrize(
    "arguments",
    [["rebind"], ["rebind", "q1", "--add"], ["rebind", "a b"], ["delete-queue"], ["ping", "--count=0"], ["eval"]],
)
def test_wrong_arguments(cli: Cli, arguments: list[str]) -> None:
    said = cli(*arguments)
    assert said.code == 2
    assert said.err.endswith(f"; see mqks {arguments[0]} --help\n") and said.err.count("\n") == 1
