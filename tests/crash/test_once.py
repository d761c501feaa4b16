"""`--once` with a real broker: killed and started again, by publishers that do not know what was taken."""

import signal
from pathlib import Path

import pytest

from mqks.journal import Reader
from tests.conftest import Connect, Start
from tests.crash.brokers import end, kill
from tests.running import Connection, RunningBroker

ENDINGS = pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL], ids=lambda ending: ending.name)
ROUNDS = 5
MESSAGES = 3000


@ENDINGS
def test_an_id_that_was_confirmed_is_known_after_a_restart(
    start: Start, connect: Connect, ending: signal.Signals
) -> None:
    broker = start()
    client = connect(broker)
    assert client.ask("s1 subscribe --confirm q1 e1") == "s1 ok "
    assert client.ask("m1 publish --once --confirm e1 d1") == "m1 ok "
    assert client.ask("m1 publish --once=other --confirm e1 d2") == "m1 ok "
    assert client.ask('m2 send --once {"event": "e1"}') == "m2 ok "
    for _ in range(2):
        end(broker, ending)
        broker = start()
        client = connect(broker)
        assert client.ask("m1 publish --once --confirm e1 again") == "m1 ok "
        assert client.ask("m1 publish --confirm --once=other e1 again") == "m1 ok "
        assert client.ask('m2 send --once {"event": "e1", "again": true}') == "m2 ok "
        assert client.ask("x1 _eval [state.duplicates, state.remembered]") == "x1 ok [3, 3]"
    client.send(b"c1 consume q1\n")
    assert [client.line() for _ in range(3)] == [
        b"c1 ok m1 event=e1 d1",
        b"c1 ok m1 event=e1 d2",
        b'c1 ok m2 event=e1 {"event": "e1"}',
    ]
    assert client.ask("p1 ping that was all") == "p1 ok that was all"


def publish_and_kill(broker: RunningBroker, client: Connection, first: int, confirmed: int) -> None:
    """Publish all from the first on, and kill the broker when so many are confirmed."""
    for number in range(first, MESSAGES):
        client.send(b"m%d publish --once=load --confirm e1 %d\n" % (number, number))
    for number in range(first, confirmed):
        assert client.line() == b"m%d ok " % number
    kill(broker)


def test_killed_again_and_again_each_message_is_there_once(start: Start, connect: Connect) -> None:
    """Each time from a bit before the last that was confirmed: of the others nobody knows."""
    first = 0
    for round in range(1, ROUNDS + 1):
        broker = start("--segment-size=64K")
        client = connect(broker)
        assert client.ask("s1 subscribe --confirm q1 e1") == "s1 ok "
        confirmed = MESSAGES * round // ROUNDS
        publish_and_kill(broker, client, first, confirmed)
        first = confirmed - 50
        client.close()
    broker = start()
    client = connect(broker)
    client.send(b"c1 consume q1\n")
    assert [int(client.line().split(b" ")[4]) for _ in range(MESSAGES)] == list(range(MESSAGES))
    assert client.ask("p1 ping that was all") == "p1 ok that was all"
    assert client.ask("x1 _eval state.remembered") == f"x1 ok {MESSAGES}"


def test_the_journal_of_it_is_read_by_others(start: Start, connect: Connect, folder: Path) -> None:
    broker = start()
    client = connect(broker)
    assert client.ask("m1 publish --once=orders --confirm e1 d1") == "m1 ok "
    assert client.ask("m1 publish --once=orders --confirm e1 d1") == "m1 ok "
    broker.stop()
    (message,) = Reader(folder).messages()
    assert (message.id, message.event, message.data, message.once) == (b"m1", b"e1", b"d1", b"orders")
    assert message.line == b"m1 publish --once=orders e1 d1"


def test_ids_leave_room_for_messages(start: Start, connect: Connect) -> None:
    """However many are published, and whatever --dedup-count allows, they have an eighth of the memory."""
    broker = start("--max-memory=4M", "--fsync=never")
    assert "at most 8192 ids of --once are remembered" in broker.log
    client = connect(broker)
    for first in range(0, 40_000, 1000):
        client.send(b"".join(b"m%d publish --once e1 d\n" % number for number in range(first, first + 1000)))
    assert client.ask("m0 publish --confirm --once e1 d") == "m0 ok ", "a publish was refused"
    assert client.ask("x1 _eval [state.remembered, state.duplicates]") == "x1 ok [8192, 0]"
