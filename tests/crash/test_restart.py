"""What a folder means to a broker: what it keeps over a restart, and when it refuses to start on it."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Connect, Start
from tests.crash.brokers import end, kill, refusal

ENDINGS = pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL], ids=lambda ending: ending.name)


# ---- What is kept


def test_sigterm_keeps_everything_with_exact_retry_counts(start: Start, connect: Connect) -> None:
    broker = start()
    client = connect(broker)
    assert client.ask("s1 subscribe --confirm q1 e1 e2") == "s1 ok "
    for number in range(1, 6):
        assert client.ask(f"m{number} publish --confirm e1 d{number}") == f"m{number} ok "
    assert client.ask("c1 consume --confirm q1 --manual-ack --prefetch=4") == "c1 ok "
    assert [client.line() for _ in range(4)] == [b"c1 ok m%d event=e1 d%d" % (n, n) for n in range(1, 5)]
    client.send(b"a1 ack c1 m2 --confirm\n")
    # The ack makes room at once; its `ok` waits for the disk.
    assert {client.line(), client.line()} == {b"a1 ok ", b"c1 ok m5 event=e1 d5"}
    client.send(b"r1 reject c1 m1\n")
    assert client.line() == b"c1 ok m1 event=e1,retry=1 d1"
    client.send(b"r1 reject c1 m1\n")
    assert client.line() == b"c1 ok m1 event=e1,retry=2 d1"
    broker.stop()

    # All four were with the consumer, so each was tried once more; they are in the order of their last delivery.
    wanted = [
        b"m3 event=e1,retry=1 d3",
        b"m4 event=e1,retry=1 d4",
        b"m5 event=e1,retry=1 d5",
        b"m1 event=e1,retry=3 d1",
    ]
    broker = start()  # nobody consumes in this life: nothing changes
    assert connect(broker).ask("m6 publish --confirm e2 d6") == "m6 ok "
    broker.stop()
    client = connect(start())
    assert client.ask("c1 consume --confirm q1") == "c1 ok "
    assert [client.line() for _ in range(5)] == [b"c1 ok " + line for line in [*wanted, b"m6 event=e2 d6"]]
    assert client.ask("p1 ping that was all") == "p1 ok that was all"


@ENDINGS
def test_queues_and_patterns_are_kept_and_deleted_ones_are_not(
    start: Start, connect: Connect, ending: signal.Signals
) -> None:
    broker = start()
    client = connect(broker)
    for request in ("subscribe --confirm q1 e1 e2", "subscribe --confirm q2 e1", "subscribe --confirm q3 e1"):
        assert client.ask(f"s1 {request}") == "s1 ok "
    assert client.ask("r1 rebind --confirm q2 --remove e1 --add e3") == "r1 ok "
    recv = '{"queue": "q4", "pattern": {"kind": {"is": 1}}, "delete_queue_when_unused": false}'
    assert client.ask(f"c4 recv {recv}") == "c4 ok "
    assert client.ask("d1 delete_queue --confirm q3") == "d1 ok "
    end(broker, ending)
    client = connect(start())
    queues = "[[q.name, q.events] for q in [state.queues[name] for name in sorted(state.queues)]]"
    assert client.ask(f"x1 _eval {queues}") == "x1 ok [['q1', ['e1', 'e2']], ['q2', ['e3']], ['q4', []]]"
    assert client.ask('m1 send {"kind": {"is": 1, "more": 2}}') == "m1 ok "
    assert client.ask('m2 send {"kind": {"is": 2}}') == "m2 ok "
    assert client.ask(f"c4 recv {recv}") == "c4 ok "
    assert client.line() == b'c4 ok m1 {"kind": {"is": 1, "more": 2}}'
    assert client.ask("p1 ping that was all") == "p1 ok that was all"


@ENDINGS
def test_limits_of_queues_are_kept_and_what_they_dropped_does_not_return(
    start: Start, connect: Connect, ending: signal.Signals
) -> None:
    broker = start()
    client = connect(broker)
    assert client.ask("s1 subscribe --confirm q1 e1 --max-length=3 --overflow=drop-oldest") == "s1 ok "
    assert client.ask("s2 subscribe --confirm q2 e2 --max-bytes=40") == "s2 ok "
    for number in range(1, 7):
        assert client.ask(f"m{number} publish --confirm e1 d{number}") == f"m{number} ok "
    for number in (7, 8):
        assert client.ask(f"m{number} publish --confirm e2 d{number}") == f"m{number} ok "
    assert client.ask("m9 publish --confirm e2 d9").startswith("m9 error ")
    end(broker, ending)
    client = connect(start())
    limits = "[(q.ready, q.max_length, q.max_bytes, q.bytes, q.overflow) for q in state.queues.values()]"
    assert client.ask(f"x1 _eval {limits}") == "x1 ok [(3, 3, 0, 0, 'drop-oldest'), (2, 0, 40, 34, 'reject')]"
    assert client.ask("m9 publish --confirm e2 d9").startswith("m9 error ")
    assert client.ask("m10 publish --confirm e1 d10") == "m10 ok "
    assert client.ask("c1 consume --confirm q1") == "c1 ok "
    assert [client.line() for _ in range(3)] == [b"c1 ok m%d event=e1 d%d" % (n, n) for n in (5, 6, 10)]
    assert client.ask("p1 ping that was all") == "p1 ok that was all"


@ENDINGS
def test_an_unused_queue_outlives_a_restart_until_the_grace_is_over(
    start: Start, connect: Connect, ending: signal.Signals
) -> None:
    broker = start()
    client = connect(broker)
    assert client.ask("c1 consume --confirm q1 e1 --delete-queue-when-unused=1 --manual-ack") == "c1 ok "
    assert client.ask("m1 publish e1 d1") == "c1 ok m1 event=e1 d1"
    end(broker, ending)

    broker = start()  # with the grace that it has by itself, which is much longer
    client = connect(broker)
    assert client.ask("c2 consume --confirm q2 e2 --delete-queue-when-unused=1") == "c2 ok "
    assert client.ask("d2 delete_consumer --confirm c2") == "d2 ok "
    client.until_true("'q2' not in state.queues")  # so more than the second of q1 has passed too
    assert client.ask("x1 _eval [q.ready for q in [state.queues['q1']]]") == "x1 ok [1]"
    end(broker, ending)

    client = connect(start("--restart-grace=1"))
    client.until_true("'q1' not in state.queues")


@ENDINGS
def test_the_ids_that_it_makes_never_go_back(start: Start, connect: Connect, ending: signal.Signals) -> None:
    last = ""
    for _ in range(3):
        broker = start()
        error_id = connect(broker).ask("x1 nonsense").removeprefix("x1 error ")
        assert last < error_id
        last = error_id
        end(broker, ending)


# ---- When it refuses


def test_a_second_broker_on_the_folder_is_refused_and_the_first_goes_on(
    start: Start, connect: Connect, folder: Path
) -> None:
    client = connect(start())
    said = refusal(start(wait=False))
    assert re.search(rf" error .*{re.escape(str(folder))}.*(another|in use)", said), said
    assert "Traceback" not in said
    assert client.ask("m1 publish --confirm e1 still here") == "m1 ok "


def test_a_killed_broker_leaves_no_lock_behind(start: Start, connect: Connect) -> None:
    kill(start())
    assert connect(start()).ask("p1 ping here") == "p1 ok here"


def test_a_read_only_folder_is_refused(start: Start, folder: Path) -> None:
    """For root no permission is in the way, so there the folder is made read-only by a mount of its own."""
    folder.mkdir()
    if os.geteuid() == 0:
        mount = f"mount --bind '{folder}' '{folder}' && mount -o remount,ro,bind '{folder}' && exec \"$@\""
        prefix: tuple[str, ...] = in_a_namespace(mount)
    else:
        folder.chmod(0o555)
        prefix = ()
    said = refusal(start(wait=False, prefix=prefix))
    folder.chmod(0o755)
    assert re.search(rf" error .*{re.escape(str(folder))}", said), said
    assert "Traceback" not in said


def test_a_full_disk_refuses_messages_and_loses_none(start: Start, connect: Connect, folder: Path) -> None:
    """A small disk that fills up: publishers are told, what was confirmed can be read, and nothing hangs."""
    folder.mkdir()
    mount = f"mount -t tmpfs -o size=24m none '{folder}' && exec \"$@\""
    broker = start("--segment-size=4M", "--min-free-disk=0", prefix=in_a_namespace(mount))
    client, consumer = connect(broker), connect(broker)
    assert client.ask("s1 subscribe --confirm q1 e1") == "s1 ok "
    data, answer = "x" * 100_000, ""
    confirmed: list[int] = []
    while not answer.startswith("m1 error "):
        number = len(confirmed) + 1
        assert number < 1000, "24 MiB took 100 MB"
        answer = client.ask(f"m1 publish --confirm e1 {number} {data}")
        confirmed += [number] if answer == "m1 ok " else []
    assert client.ask("p1 ping still here") == "p1 ok still here"
    assert broker.wait_for_log(answer.removeprefix("m1 error ")), broker.log
    assert "consume or delete queue 'q1', which has the oldest message" in broker.log
    consumer.send(b"c1 consume q1\n")
    assert [int(consumer.line().split(b" ", 5)[4]) for _ in confirmed] == confirmed


def in_a_namespace(script: str) -> tuple[str, ...]:
    """A command that runs another after the script has mounted something that nobody else sees."""
    prefix = ("unshare", "--map-root-user", "--mount", "sh", "-c")
    probe = subprocess.run([*prefix, "mount -t tmpfs none /mnt"], capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"this machine does not let us mount ({probe.stderr.strip()}); tests/sim has the same case")
    return (*prefix, script, "sh")


def test_a_message_retried_very_often_is_delivered_after_a_restart(start: Start, connect: Connect) -> None:
    """255 retries are counted beside its position; of those beyond, a restart knows only that they were many."""
    broker = start()
    client = connect(broker)
    client.send(b"c1 consume q1 e1 --manual-ack\nm1 publish e1 d1\n")
    for retry in range(300):
        assert client.line() == b"c1 ok m1 event=e1%s d1" % (b",retry=%d" % retry if retry else b"")
        client.send(b"r1 reject c1 m1\n")
    assert client.line() == b"c1 ok m1 event=e1,retry=300 d1"
    client.close()
    broker.stop()
    client = connect(start())
    client.send(b"c1 consume q1 --manual-ack\n")
    assert re.fullmatch(rb"c1 ok m1 event=e1,retry=\d+ d1", client.line())
    assert client.ask("a1 ack c1 m1 --confirm") == "a1 ok "
