"""Who is slowed down by --max-rate or overdue by --line-timeout, and who is not; with a clock that the test moves."""

import pytest

from mqks.broker.limits import Limits
from tests.web.stage import Stage

# ---- Requests a second


def test_who_is_slowed_down_loses_nothing_and_is_not_refused() -> None:
    stage = Stage(limits=Limits(max_rate=10))
    client = stage.connect()
    told = stage.ask(client, *(b"p%d ping" % number for number in range(100)))
    assert len(told) == 11, "as many as in a second come at once, and one that shows that it goes on"
    while len(told) < 100:
        stage.now += 0.1
        stage.broker.tick()
        told += stage.ask(client)
    assert told == [b"p%d ok " % number for number in range(100)]
    assert 8.8 <= stage.now <= 9.3, "ten a second from then on"
    assert stage.broker.mistakes.errors == 0


@pytest.mark.parametrize("rate", [1, 7, 1000, 100_000])
def test_in_the_long_run_it_is_as_many_as_allowed(rate: int) -> None:
    stage = Stage(limits=Limits(max_rate=rate))
    client = stage.connect()
    wanted = 4 * rate
    stage.broker.feed(client, b"p ping\n" * wanted)
    while client.lines < wanted:
        if client.blocked:
            assert stage.broker.timers.next is not None
            stage.now = max(stage.now, stage.broker.timers.next)
            stage.broker.tick()
        stage.serve()
    assert 2.9 - 1 / rate <= stage.now <= 3.2, "a second's worth at once, and one that shows that it goes on"


def test_who_keeps_to_it_is_never_slowed_down() -> None:
    stage = Stage(limits=Limits(max_rate=10))
    client, other = stage.connect(), stage.connect()
    for number in range(1000):
        stage.now = number / 10
        assert stage.ask(client, b"p ping") == [b"p ok "]
    assert stage.broker.limits.times["max_rate"] == 0
    assert len(stage.ask(other, *[b"p ping"] * 10)) == 10, "each has its own"


def test_it_is_told_once_until_all_was_calm(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(limits=Limits(max_rate=1))
    client = stage.connect()

    def pass_time(seconds: int, *lines: bytes) -> None:
        for _ in range(seconds):
            stage.ask(client, *lines)
            stage.now += 1
            stage.broker.tick()

    pass_time(20, b"p ping", b"p ping")
    pass_time(20 + 3)
    pass_time(20, b"p ping", b"p ping")
    assert stage.broker.limits.times["max_rate"] == len(caplog.records) == 1
    pass_time(20 + 20)
    pass_time(5, b"p ping", b"p ping")
    assert stage.broker.limits.times["max_rate"] == len(caplog.records) == 2


def test_who_is_slowed_down_goes_on_once_each_time() -> None:
    """It costs more and more to go on as often as one has been stopped."""
    stage = Stage(limits=Limits(max_rate=1))
    client = stage.connect()
    stage.broker.feed(client, b"p ping\n" * 100)
    for _ in range(5):
        stage.now += 1
        stage.broker.tick()
        assert stage.broker.core.deferred.resumable() == [client]
        stage.broker.core.parser.resume(client)
        assert client.blocked and client.unheard


def test_a_consumer_that_is_slowed_down_gets_its_messages() -> None:
    stage = Stage(limits=Limits(max_rate=2))
    client, publisher = stage.connect(), stage.connect()
    stage.ask(client, b"c1 consume q1 e1", *[b"p ping"] * 10)
    assert client.blocked
    stage.ask(publisher, b"m1 publish e1 d1")
    assert client.pending() == b"c1 ok m1 event=e1 d1\n"


def test_what_else_holds_a_client_back_is_not_undone() -> None:
    stage = Stage(limits=Limits(max_rate=1))
    client = stage.connect()
    stage.broker.core.parser.block(client)
    stage.broker.pace.spent(client)
    client.budget = -1
    stage.broker.pace.spent(client)
    stage.now += 5
    stage.broker.tick()
    assert stage.ask(client, b"p1 ping") == []
    stage.broker.core.parser.unblock(client)
    assert stage.ask(client) == [b"p1 ok "]


def test_a_client_that_goes_while_it_is_slowed_down_leaves_nothing_behind() -> None:
    stage = Stage(limits=Limits(max_rate=1))
    client = stage.connect()
    stage.ask(client, *[b"p ping"] * 5)
    assert stage.broker.timers.next is not None
    stage.broker.disconnect(client)
    assert stage.broker.timers.next is None


# ---- Lines that do not end


@pytest.mark.parametrize(
    ("begun", "later", "overdue"),
    [
        (b"p1 ping", b"", True),
        (b"p1 ping", b" and on and on", True),
        (b"p1 ping", b"\n", False),
        (b"p1 ping", b"\np2 ping", False),
        (b"p1 ping\n", b"", False),
        (b"\n", b"p1", False),
        (b"x" * 100, b"", True),
        (b"x" * 100, b"x" * 100, True),
        (b"x" * 100, b"\n", False),
        (b"x" * 100, b"\np1", False),
    ],
    ids=lambda value: value.decode()[:12] if isinstance(value, bytes) else str(value),
)
def test_who_is_overdue(begun: bytes, later: bytes, overdue: bool) -> None:
    """A line that is too long counts too, though it is not kept."""
    stage = Stage(max_line=64)
    client = stage.connect()
    stage.broker.feed(client, begun)
    for seconds in (0, 30, 59):
        stage.now = seconds
        assert stage.broker.connections.overdue() == []
    stage.broker.feed(client, later)
    stage.now = 60
    assert (stage.broker.connections.overdue() == [client]) == overdue


def test_whom_the_broker_does_not_hear_is_not_overdue() -> None:
    stage = Stage()
    client = stage.connect()
    stage.broker.feed(client, b"p1 ping")
    assert stage.broker.connections.overdue() == []
    stage.broker.core.parser.block(client)
    for seconds in (60, 120):
        stage.now = seconds
        assert stage.broker.connections.overdue() == []
    stage.broker.core.parser.unblock(client)
    assert stage.broker.connections.overdue() == [], "its time begins anew"
    stage.now += 60
    assert stage.broker.connections.overdue() == [client]


def test_without_a_time_limit_nobody_is_overdue() -> None:
    stage = Stage(limits=Limits(line_timeout=0))
    stage.broker.feed(stage.connect(), b"p1 ping")
    for stage.now in (0, 1e6):
        assert stage.broker.connections.overdue() == []
