"""`mqks bench`: it measures something, says what, and leaves nothing."""

import re

import pytest

from tests.cli.conftest import Cli
from tests.cli.running import started, stopped
from tests.conftest import Brokers
from tests.running import Connection


def test_bench(cli: Cli, wire: Connection) -> None:
    said = cli("bench", "--seconds=0.2", "--size=10")
    assert (said.code, said.err) == (0, "")
    number, what = said.lines
    assert re.fullmatch(r"[\d,]+ msg/s, round trip [\d.]+ ms \(median\), [\d.]+ ms \(99 %\)", number)
    assert re.fullmatch(
        r"one Python process published and consumed [\d,]+ messages of 10 B in \d+\.\d s, "
        r"through one queue, auto ack, durability memory",
        what,
    )
    assert wire.ask("ev1 _eval len(state.queues)") == "ev1 ok 0"


@pytest.mark.usefixtures("broker")
def test_bench_json(cli: Cli) -> None:
    told = cli("bench", "--seconds=0.1", "--json").json
    assert told["size"] == 128
    assert told["messages"] > 0
    assert told["messages_per_s"] > 0
    assert 0 < told["round_trip_median_ms"] <= told["round_trip_99_ms"]


def test_bench_warns_of_the_journal(cli: Cli, shared_broker: Brokers) -> None:
    said = cli("bench", "--seconds=0.1", f"--url=mqks://127.0.0.1:{shared_broker(fsync='never').port}")
    assert said.code == 0
    assert said.err.startswith("mqks: the messages of this run go to the broker's journal")


def test_messages_that_the_broker_refuses(cli: Cli, shared_broker: Brokers) -> None:
    said = cli("bench", "--size=200", f"--url=mqks://127.0.0.1:{shared_broker('--max-line=200').port}")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("mqks: the broker refused ")


def test_ctrl_c_leaves_no_queue(wire: Connection) -> None:
    with started("bench", "--seconds=60") as bench:
        wire.until_true("any(queue.delivered > 1000 for queue in state.queues.values())")
        name = wire.ask("ev1 _eval sorted(state.queues)[0]")
        assert name.startswith("ev1 ok mqks-bench-")
        said = stopped(bench)
        assert (said.code, said.out, said.err) == (130, "", "")
    assert wire.ask("ev1 _eval len(state.queues)") == "ev1 ok 0"
