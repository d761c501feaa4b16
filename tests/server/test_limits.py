"""Every limit: how it is reached, what the log says then, and that it is counted.

In process, with a clock that the test moves; in the end some of them by flags and over real sockets. What each of them
leaves alone is in the files beside this one.
"""

import logging
import random
import re
import socket
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import fields
from itertools import product
from typing import Any, NamedTuple

import pytest

from mqks.broker import Broker
from mqks.broker.connections.client import Client
from mqks.broker.limits import FIXED, REASONS, Limits
from mqks.broker.persistence.history import MOST_STREAMS
from mqks.broker.persistence.persistence import MOST_HOLDS
from mqks.server.config import IN_FILE, Config
from tests.broker.fake_sockets import FakeSockets
from tests.running import PATIENCE, Connection, running_broker
from tests.sim.disk import FakeDisk
from tests.web.stage import Stage
from tests.web.test_metrics import labelled, scraped

ELSEWHERE = {"max_length", "max_bytes"}  # with what they are about: full queues


# ---- Each limit: the way there


def ask(*lines: bytes) -> Callable[[Stage], None]:
    """All is done, but the last is refused."""

    def reach(stage: Stage) -> None:
        *done, refused = stage.ask(stage.connect(), *lines)
        assert not any(b" error " in line for line in done)
        assert re.fullmatch(rb"\S+ error [0-9]{20}\w{4}", refused)

    return reach


def come(peer: str) -> Callable[[Stage], None]:
    """The second one is turned away."""

    def reach(stage: Stage) -> None:
        stage.connect()
        bad = stage.broker.connections.limit_error(peer)
        assert bad
        stage.broker.connections.refuse(peer, bad)

    return reach


def hurry(stage: Stage) -> None:
    assert len(stage.ask(stage.connect(), *[b"p ping"] * 12)) == 11


def dawdle(stage: Stage) -> None:
    client = stage.connect()
    stage.broker.feed(client, b"p1 ping not the end")
    assert stage.broker.connections.overdue() == []
    stage.now = 60.0
    assert stage.broker.connections.overdue() == [client]
    assert client.pending().startswith(b"- error ")


def stay_unknown(stage: Stage) -> None:
    gone: list[Client] = []
    stage.broker.authentication.require_tokens(lambda *_: None)
    stage.broker.connections.attach(FakeSockets(hang_up=gone.append))
    client = stage.connect()
    stage.now = 11.0
    stage.broker.tick()
    assert gone == [client]
    assert client.pending().startswith(b"- error ")


def fill_disk(stage: Stage) -> None:
    stage.broker.recover()
    ask(b"m1 publish e1 d1")(stage)


def hold_much(stage: Stage) -> None:
    stage.broker.recover()
    ask(*(b"x hold n%d earliest --for=60" % number for number in range(MOST_HOLDS + 1)))(stage)


def grow_unacked(stage: Stage) -> None:
    client = stage.connect()
    stage.ask(client, b"c1 consume q1 e1 --manual-ack --prefetch=8")
    assert client.consumers[b"c1"].prefetch == 7


class Case(NamedTuple):
    options: dict[str, Any]
    reach: Callable[[Stage], None]
    said: str  # in the log


CASES = {
    "max_line": Case({"max_line": 64}, ask(b"p1 ping " + b"x" * 64), r"the line is longer than --max-line"),
    "max_connections": Case(
        {"limits": Limits(max_connections=1)}, come("192.0.2.1:1"), r"--max-connections is reached"
    ),
    "max_connections_per_address": Case(
        {"limits": Limits(max_connections_per_address=1)},
        come("127.0.0.1:1"),
        r"--max-connections-per-address is reached",
    ),
    "max_rate": Case(
        {"limits": Limits(max_rate=10)}, hurry, r"is slowed down: it makes more requests a second than --max-rate"
    ),
    "line_timeout": Case({}, dawdle, r"a line did not end within --line-timeout' bytes=19"),
    "auth_timeout": Case({}, stay_unknown, r"it did not say who it is within --auth-timeout"),
    "max_queues": Case(
        {"limits": Limits(max_queues=1)},
        ask(b"r1 rebind q1 e1", b"c1 consume q2 e1"),
        r"--max-queues is reached: delete some queue first",
    ),
    "max_events": Case(
        {"limits": Limits(max_events=2)},
        ask(b"r1 rebind q1 e1 e2", b"r2 rebind q1 --add e3"),
        r"a queue or a history may have no more events than --max-events: 'q1'",
    ),
    "max_consumers": Case(
        {"limits": Limits(max_consumers=1)},
        ask(b"c1 consume q1 e1", b"c2 consume q2 e1"),
        r"--max-consumers of one connection is reached",
    ),
    "max_unacked": Case(
        {"limits": Limits(max_unacked=7)},
        grow_unacked,
        r"no more than 7 messages .* for consumer 'c1': a consumer asked for more unacked messages than --max-unacked",
    ),
    "min_free_disk": Case(
        {"disk": FakeDisk(random.Random(1)), "min_free": 2 << 40},
        fill_disk,
        r"the disk takes no more: see the log of the broker",
    ),
    "max_memory": Case(
        {"max_memory": 1 << 16},
        ask(b"r1 rebind q1 e1", b"m1 publish e1 d1", b"m2 publish e1 d2"),
        r"out of memory: --max-memory is reached, consume or delete some queue first",
    ),
    "histories": Case(
        {},
        ask(*(b"h%d history latest --follow" % number for number in range(MOST_STREAMS + 1))),
        rf"too many histories at once on one connection: {MOST_STREAMS}",
    ),
    "holds": Case({"disk": FakeDisk(random.Random(1))}, hold_much, rf"too many holds: {MOST_HOLDS}"),
}


@pytest.mark.parametrize("name", CASES)
def test_each_limit_is_said_and_counted(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    case = CASES[name]
    stage = Stage(**case.options)
    before = labelled(scraped(stage.figures), "mqks_limit_reached_total", "limit")
    assert before == {name.replace("_", "-"): 0 for name in REASONS}
    case.reach(stage)
    told = [record.getMessage() for record in caplog.records]
    assert len([line for line in told if re.search(case.said, line)]) == 1, told
    stage.wait()
    after = labelled(scraped(stage.figures), "mqks_limit_reached_total", "limit")
    assert after == {**before, name.replace("_", "-"): 1}


def test_each_limit_has_a_case() -> None:
    assert CASES.keys() | ELSEWHERE == REASONS.keys()


def test_each_limit_is_an_option_with_the_same_default() -> None:
    assert REASONS.keys() - FIXED.keys() <= IN_FILE.keys()
    for each in fields(Limits):
        if each.init:
            assert getattr(Config(), each.name) == each.default, each.name


# ---- Addresses


@pytest.mark.parametrize(
    ("one", "another", "same"),
    [
        ("192.0.2.1:1", "192.0.2.1:2", True),
        ("192.0.2.1:1", "192.0.2.2:1", False),
        ("192.0.2.1:1", "[::ffff:192.0.2.1]:1", True),
        ("[::ffff:192.0.2.1]:1", "[::ffff:192.0.2.2]:1", False),
        ("[2001:db8::1]:1", "[2001:db8::ffff:0:0:2]:1", True),
        ("[2001:db8::1]:1", "[2001:db8:0:1::1]:1", False),
        ("[fe80::1%eth0]:1", "[fe80::2%eth1]:1", True),
        ("a name", "a name", True),
        ("a name", "another", False),
    ],
)
def test_who_counts_as_one_address(one: str, another: str, same: bool) -> None:
    broker = Broker(limits=Limits(max_connections_per_address=1))
    client = broker.connect(one)
    assert (broker.connections.limit_error(another) is not None) == same
    broker.disconnect(client)
    assert broker.connections.limit_error(one) is None, "who has gone is not counted"


def test_those_from_inside_are_not_counted() -> None:
    broker = Broker(limits=Limits(max_connections=1, max_connections_per_address=1, max_consumers=1, max_events=1))
    inside = broker.connect("inside", inside=True)
    assert broker.connections.limit_error("192.0.2.1:1") is None
    broker.feed(inside, b"c1 consume --confirm q1 e1\nc2 consume --confirm q2 e1\n")
    assert inside.pending() == b"c1 ok \nc2 ok \n"
    broker.feed(inside, b"h1 history earliest --events=e1,e.*\n")
    assert inside.pending().endswith(b"\nh1 ok --end 0\n")


# ---- By flags, over sockets


def test_over_sockets() -> None:
    flags = ("--max-connections-per-address=2", "--line-timeout=0.1", "--max-rate=100", "--max-queues=1")
    with running_broker(*flags) as broker, ExitStack() as stack:
        one = stack.enter_context(closing(Connection(broker.port)))
        slow = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), PATIENCE))
        slow.sendall(b"p1 ping")
        with slow.makefile("rb") as said:
            begun, error_id = said.readline().split(b" error ")
            assert begun == b"-" and said.readline() == b""
        assert broker.wait_for_log(rf"error {error_id.decode().strip()} client=\S+ reason='a line did not end")
        two = stack.enter_context(closing(Connection(broker.port)))
        three = stack.enter_context(closing(Connection(broker.port)))
        error_id = three.line().removeprefix(b"- error ")
        assert broker.wait_for_log(rf"error {error_id.decode()} client=\S+ reason='--max-connections-per-address is")
        two.send(b"".join(b"p%d ping\n" % number for number in range(150)))
        assert [two.line() for _ in range(150)] == [b"p%d ok " % number for number in range(150)]
        assert broker.wait_for_log(rf"client {two.address} is slowed down: .* --max-rate")
        assert one.ask("r1 rebind --confirm q1 e1") == "r1 ok "
        assert one.ask("r2 rebind --confirm q2 e1").startswith("r2 error ")
        times = one.ask("~ _eval sorted((name, times) for name, times in state.limits.items() if times)")
        wanted = ("line_timeout", "max_connections_per_address", "max_queues", "max_rate")
        assert times == f"~ ok {list(product(wanted, (1,)))}"
