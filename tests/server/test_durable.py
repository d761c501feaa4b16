"""A broker with a journal, over real sockets: when it answers, what it keeps, and what it lets go.

The disk is the real one, so that only the order of what comes can be told. That nothing is confirmed before the disk
has it is for those to prove that have a disk in their hands: tests/journal/test_confirm.py and tests/sim.
"""

import re
import signal
import socket
import threading
from pathlib import Path

import pytest

from tests.conftest import Connect, Start
from tests.crash.brokers import end, kill
from tests.running import PATIENCE, Connection, RunningBroker

ENDINGS = pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL], ids=lambda ending: ending.name)
MEMORY = 8 << 20  # --max-memory
MANY = 200_000  # messages of e1: several times more than fit into that memory


def talk(broker: RunningBroker, requests: bytes) -> list[bytes]:
    """As `printf … | nc -N` does: send all, say that there is no more, and read to the end."""
    with socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE) as client:
        client.sendall(requests)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(1 << 20), b"")).splitlines()


def look(client: Connection, expression: str) -> str:
    return client.ask(f"~look _eval {expression}").removeprefix("~look ok ")


def publish_many(client: Connection, first: int, count: int) -> None:
    """Messages m{number} of event e1, taken by the broker when this returns."""
    for start in range(first, first + count, 1000):
        numbers = range(start, min(start + 1000, first + count))
        client.send(b"".join(b"m%d publish e1 %0100d\n" % (number, number) for number in numbers))
    assert client.ask("~ ping all") == "~ ok all", "publishes were refused"


def read_many(broker: RunningBroker, request: bytes, first: int, count: int, memory: Connection | None = None) -> None:
    """All of them come to the consumer c1 that the request makes, in order, and nothing else; some may be retried."""
    wanted = (b"c1 ok m%d event=e1 %0100d\n" % (number, number) for number in range(first, first + count))
    address = ("127.0.0.1", broker.port)
    with socket.create_connection(address, timeout=PATIENCE) as client, client.makefile("rb", 1 << 20) as file:
        client.sendall(request)
        for number, line in enumerate(wanted):
            got = file.readline()
            assert got.replace(b",retry=1 ", b" ") == line, f"line {number}"
            if memory is not None and number % 20_000 == 0:
                assert int(look(memory, "state.memory")) < MEMORY
        client.sendall(b"~ ping all\n")
        assert file.readline() == b"~ ok all\n"


def segments(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "journal").iterdir())


def wait_for_removal(broker: RunningBroker, client: Connection) -> None:
    """What goes at a start goes in one turn, so who is answered after the first has gone finds that all have."""
    assert broker.wait_for_log("is removed"), broker.log
    assert client.ask("~ ping all") == "~ ok all"


# ---- Replies


def test_confirmations_keep_their_order_and_pings_overtake_them(start: Start, connect: Connect) -> None:
    client = connect(start())
    assert client.ask("s0 subscribe --confirm q0 e0") == "s0 ok "  # the broker is at work, not at its first sync
    client.send(
        b"m1 publish --confirm e1 d1\ns1 subscribe --confirm q1 e1\np1 ping hello\nx1 nonsense\n"
        b'r1 rebind --confirm q1 e2\nv1 send {"event": "e2"}\nd1 delete_queue --confirm q0\nm2 publish --confirm e2 d\n'
    )
    replies = [client.line().split(b" ")[0] for _ in range(8)]
    assert replies == [b"p1", b"x1", b"m1", b"s1", b"r1", b"v1", b"d1", b"m2"]


def test_acks_are_confirmed_in_order_with_all_else(start: Start, connect: Connect) -> None:
    client = connect(start())
    assert client.ask("c1 consume --confirm q1 e1 --manual-ack") == "c1 ok "
    assert client.ask("m1 publish e1 d1") == "c1 ok m1 event=e1 d1"
    assert client.ask("m2 publish e1 d2") == "c1 ok m2 event=e1 d2"
    client.send(
        b"m3 publish --confirm e0 d3\na1 ack --confirm c1 m1\nr1 reject --confirm c1 m2\nm4 publish --confirm e0 d4\n"
    )
    lines = [client.line() for _ in range(5)]
    assert lines.index(b"c1 ok m2 event=e1,retry=1 d2") < 5
    assert [line for line in lines if not line.startswith(b"c1")] == [b"m3 ok ", b"a1 ok ", b"r1 ok ", b"m4 ok "]


def test_a_confirmation_comes_though_the_client_has_no_more_to_say(start: Start) -> None:
    broker = start()
    assert talk(broker, b"a publish --confirm e x\n") == [b"a ok "]
    many = b"".join(b"m%d publish --confirm e x\n" % number for number in range(5000))
    assert talk(broker, many) == [b"m%d ok " % number for number in range(5000)]


def test_so_does_that_of_a_client_that_consumes(start: Start, connect: Connect) -> None:
    """It is gone as a consumer, so the message stays in its queue."""
    broker = start()
    replies = talk(broker, b"c consume --confirm --manual-ack q e\na publish --confirm e x\nb ack --confirm c none\n")
    assert [line for line in replies if line.endswith(b" ok ")] == [b"c ok ", b"a ok ", b"b ok "]
    client = connect(broker)
    assert client.ask("c1 consume --confirm q") == "c1 ok "
    assert re.fullmatch(rb"c1 ok a event=e(,retry=1)? x", client.line())


def test_a_consumer_is_confirmed_before_its_first_message(start: Start, connect: Connect) -> None:
    broker = start()
    client = connect(broker)
    client.send(b"s1 subscribe q1 e1\nm1 publish e1 d1\nc1 consume --confirm q1\n")
    assert [client.line() for _ in range(2)] == [b"c1 ok ", b"c1 ok m1 event=e1 d1"]
    client.send(b'm2 publish --confirm e2 d2\nc2 recv {"queue": "q2", "pattern": {}}\nm3 publish e3 d3\n')
    assert [client.line() for _ in range(3)] == [b"m2 ok ", b"c2 ok ", b'c2 ok m3 {"event": "e3", "data": "d3"}']


def test_an_update_comes_before_the_confirmation_of_what_caused_it(start: Start, connect: Connect) -> None:
    client = connect(start())
    assert client.ask("c1 consume --confirm q1 e1") == "c1 ok "
    client.send(b"r1 rebind --confirm q1 e2\nd1 delete_queue --confirm q1\n")
    assert [client.line() for _ in range(4)] == [b"c1 ok --update q1 e2", b"c1 ok --update q1", b"r1 ok ", b"d1 ok "]


@pytest.mark.parametrize("fsync", ["always", "interval", "interval=1", "never"])
def test_each_mode_answers_and_keeps_what_a_killed_broker_had_answered(
    start: Start, connect: Connect, fsync: str
) -> None:
    broker = start(f"--fsync={fsync}")
    client = connect(broker)
    assert client.ask("s1 subscribe --confirm q1 e1") == "s1 ok "
    for number in range(1, 4):
        assert client.ask(f"m{number} publish --confirm e1 d{number}") == f"m{number} ok "
    kill(broker)
    client = connect(start(f"--fsync={fsync}"))
    client.send(b"c1 consume q1\n")
    assert [client.line() for _ in range(3)] == [b"c1 ok m%d event=e1 d%d" % (n, n) for n in (1, 2, 3)]
    assert client.ask("p1 ping that was all") == "p1 ok that was all"


def test_many_publishers_share_the_syncs_that_they_wait_for(start: Start, connect: Connect) -> None:
    """Each waits for its own confirmation before it goes on: all get theirs."""
    broker = start()
    clients = [connect(broker) for _ in range(20)]
    wrong: list[str] = []

    def publish(client: Connection, name: int) -> None:
        for number in range(20):
            answer = client.ask(f"m{name}.{number} publish --confirm e1 x")
            if answer != f"m{name}.{number} ok ":
                wrong.append(answer)

    threads = [threading.Thread(target=publish, args=(client, name)) for name, client in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# ---- What a restart keeps (tests/crash/test_restart.py has more)


@ENDINGS
def test_unacked_messages_return_to_their_places_and_acked_ones_do_not(
    start: Start, connect: Connect, ending: signal.Signals
) -> None:
    broker = start()
    client = connect(broker)
    assert client.ask("c1 consume --confirm q1 e1 --manual-ack --prefetch=4") == "c1 ok "
    for number in range(1, 7):
        client.send(b"m%d publish e1 d%d\n" % (number, number))
    assert [client.line().split()[2] for _ in range(4)] == [b"m1", b"m2", b"m3", b"m4"]
    client.send(b"r1 reject c1 m3\na1 ack --confirm c1 m2\n")  # m3 goes to the tail, and waits there
    assert sorted(client.line() for _ in range(3)) == [b"a1 ok ", b"c1 ok m5 event=e1 d5", b"c1 ok m6 event=e1 d6"]
    end(broker, ending)
    client = connect(start())
    assert client.ask("c1 consume --confirm q1") == "c1 ok "
    lines = [client.line() for _ in range(5)]
    lines.remove(b"c1 ok m3 event=e1,retry=1 d3")  # the place of what was rejected is not promised after a crash
    assert lines == [b"c1 ok m%d event=e1,retry=1 d%d" % (n, n) for n in (1, 4, 5, 6)]
    assert client.ask("p1 ping that was all") == "p1 ok that was all"


@ENDINGS
def test_when_a_queue_goes_is_kept_as_the_early_dialect_set_it(
    start: Start, connect: Connect, ending: signal.Signals
) -> None:
    broker = start()
    client = connect(broker)
    assert client.ask("s1 subscribe --confirm q1 e1") == "s1 ok "
    assert client.ask("d1 delete_queue --confirm q1 --when-unused=3600") == "d1 ok "
    end(broker, ending)
    client = connect(start())
    assert client.ask("c1 consume --confirm q1") == "c1 ok "  # which would clear what another consume had set
    assert look(client, "state.queues['q1'].delete_when_unused") == "3600.0"


# ---- More than memory holds


def test_a_queue_larger_than_memory_comes_out_whole_and_in_order(start: Start, connect: Connect) -> None:
    broker = start(f"--max-memory={MEMORY}", "--fsync=never")
    client = connect(broker)
    assert client.ask("s1 subscribe --confirm q1 e1") == "s1 ok "
    for first in range(0, MANY, 20_000):
        publish_many(client, first, 20_000)
        assert int(look(client, "state.memory")) < MEMORY
    assert look(client, "state.queues['q1'].ready") == str(MANY)
    read_many(broker, b"c1 consume q1\n", 0, MANY, client)
    assert client.ask("m1 publish --confirm e2 x") == "m1 ok "
    assert look(client, "state.queues['q1'].ready + state.queues['q1'].unacked") == "0"


@ENDINGS
def test_so_it_does_after_a_restart_in_the_middle(start: Start, connect: Connect, ending: signal.Signals) -> None:
    flags = (f"--max-memory={MEMORY}", "--fsync=never", "--segment-size=1M")
    broker = start(*flags)
    client = connect(broker)
    assert client.ask("s1 subscribe --confirm q1 e1") == "s1 ok "
    publish_many(client, 0, 50_000)
    # What is acked is gone; one who took more than it acked gives it back.
    client.send(b"c1 consume q1 --manual-ack --prefetch=1000\n")
    assert [int(client.line().split()[2][1:]) for _ in range(1000)] == list(range(1000))
    client.send(b"a1 ack --all --confirm c1\n")
    while client.line() != b"a1 ok ":
        pass
    end(broker, ending)
    broker = start(*flags)
    client = connect(broker)
    publish_many(client, 50_000, 10_000)
    assert look(client, "state.queues['q1'].ready") == "59000"
    assert int(look(client, "state.memory")) < MEMORY
    read_many(broker, b"c1 consume q1\n", 1000, 59_000)


def test_a_large_queue_is_deleted_at_once_and_its_place_on_disk_is_given_back(
    start: Start, connect: Connect, folder: Path
) -> None:
    flags = (f"--max-memory={MEMORY}", "--fsync=never", "--segment-size=1M", "--retain-bytes=1M")
    broker = start(*flags, "--retain-bytes=1G")
    client = connect(broker)
    assert client.ask("s1 subscribe --confirm q1 e1") == "s1 ok "
    publish_many(client, 0, 60_000)
    before = int(look(client, "state.memory"))
    assert client.ask("d1 delete_queue --confirm q1") == "d1 ok "
    assert look(client, "len(state.queues)") == "0"
    assert int(look(client, "state.memory")) < before
    assert client.ask("c1 consume --confirm q1 e1") == "c1 ok "
    assert client.ask("m1 publish e1 new") == "c1 ok m1 event=e1 new"
    broker.stop()
    broker = start(*flags)
    client = connect(broker)
    wait_for_removal(broker, client)
    assert look(client, "state.queues['q1'].ready") == "0"
    broker.stop()
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 3 << 20


# ---- What may go, and what stays


def test_old_segments_go_but_not_those_that_a_queue_needs(start: Start, connect: Connect, folder: Path) -> None:
    flags = ("--segment-size=64K", "--retain-bytes=128K", "--fsync=never")
    broker = start(*flags, "--retain-bytes=1G")
    client = connect(broker)
    publish_many(client, 0, 5000)
    assert client.ask("s1 subscribe --confirm q1 e0") == "s1 ok "
    assert client.ask("m1 publish --confirm e0 forgotten") == "m1 ok "
    publish_many(client, 5000, 5000)
    before = segments(folder)
    [pinned] = [name for name in before if b"m1 publish e0 forgotten\n" in (folder / "journal" / name).read_bytes()]
    assert pinned not in (before[0], before[-1])
    broker.stop()
    broker = start(*flags)
    client = connect(broker)
    wait_for_removal(broker, client)
    left = segments(folder)
    assert left[0] == pinned, "what was before it is gone"
    assert not set(left[1:]) & set(before[before.index(pinned) + 1 : -3]), "and so is what came after it"
    client.send(b"c1 consume q1\n")
    assert client.line() == b"c1 ok m1 event=e0 forgotten"
    for round in range(600):  # until there is again more than is to be retained, and the broker has looked
        publish_many(client, 10_000 + 1000 * round, 1000)
        if broker.wait_for_log(f"{pinned} is removed", 0.1):
            break
    assert client.ask("~ ping gone") == "~ ok gone"  # it is said before it is done, in the same turn
    assert pinned not in segments(folder)


def test_old_segments_go_while_the_broker_runs(start: Start, connect: Connect, folder: Path) -> None:
    broker = start("--segment-size=64K", "--retain-bytes=256K", "--fsync=never")
    client = connect(broker)
    for round in range(600):
        publish_many(client, 1000 * round, 1000)
        if broker.wait_for_log("is removed", 0.1):  # it looks from time to time
            break
    assert client.ask("~ ping all") == "~ ok all"
    assert f"{0:020d}.mqks" not in segments(folder)


def test_young_segments_stay_while_there_is_room_for_them(start: Start, connect: Connect, folder: Path) -> None:
    flags = ("--segment-size=64K", "--retain-bytes=1G", "--fsync=never")
    broker = start(*flags)
    publish_many(connect(broker), 0, 5000)
    broker.stop()
    before = segments(folder)
    broker = start(*flags)
    broker.stop()
    assert len(before) > 3 and before == segments(folder)[: len(before)]
    broker = start(*flags, "--retain-age=0")
    wait_for_removal(broker, connect(broker))
    assert not set(before) & set(segments(folder))
