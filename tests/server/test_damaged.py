"""A damaged journal under a real broker: what it refuses, what it advises, and what --salvage does and says."""

import re
from pathlib import Path

import pytest

from mqks.journal.salvage import salvage
from mqks.journal.verify import verify
from tests.conftest import Connect, Start
from tests.crash.brokers import kill, refusal
from tests.running import Connection
from tests.server.test_durable import look, segments


def flip(path: Path, text: bytes) -> None:
    """One bit of the file, where this text stands."""
    data = path.read_bytes()
    at = data.index(text)
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def three_messages(client: Connection) -> None:
    """Each confirmed, so that the batch of the next one says that it is on disk."""
    assert client.ask("s1 subscribe --confirm q1 e1") == "s1 ok "
    for number in range(1, 4):
        assert client.ask(f"m{number} publish --confirm e1 d{number}") == f"m{number} ok "


def test_a_damaged_journal_is_refused_with_advice_and_salvage_says_what_is_lost(
    start: Start, connect: Connect, folder: Path
) -> None:
    broker = start()
    three_messages(connect(broker))
    kill(broker)
    [segment] = segments(folder)
    flip(folder / "journal" / segment, b"m2 publish")
    for _ in range(2):  # to refuse changes nothing
        said = refusal(start(wait=False))
        assert re.search(rf" error .*{segment} is damaged at byte \d+: .*checksum.*salvage", said), said
        assert "Traceback" not in said
    broker = start("--salvage")
    assert re.search(rf"warning segment {segment} was damaged: it is kept as .*aside", broker.log), broker.log
    lost = re.search(r"warning positions (\d+) to (\d+) are lost: .*checksum", broker.log)
    assert lost and int(lost[1]) < int(lost[2])
    client = connect(broker)
    client.send(b"c1 consume q1\n")
    assert [client.line() for _ in range(2)] == [b"c1 ok m1 event=e1 d1", b"c1 ok m3 event=e1 d3"]
    assert client.ask("p1 ping that was all") == "p1 ok that was all"
    aside = folder / "aside" / f"{segment}.damaged"
    assert b"l2 publish" in aside.read_bytes(), "the damaged file is kept as it was"
    broker.stop()
    start()  # it needs to be salvaged once


def test_a_message_that_is_damaged_at_rest_stops_the_broker_when_it_is_wanted(
    start: Start, connect: Connect, folder: Path
) -> None:
    """A start does not read all that queues hold; what cannot be read later is never left out in silence."""
    broker = start()
    three_messages(connect(broker))
    broker.stop()
    [segment] = segments(folder)
    flip(folder / "journal" / segment, b"m2 publish")
    broker = start()
    connect(broker).send(b"c1 consume q1\n")
    said = refusal(broker)
    assert re.search(rf" error .*{segment} is damaged at byte \d+: .*salvage", said), said
    broker = start("--salvage")
    client = connect(broker)
    client.send(b"c1 consume q1\n")
    assert [client.line().split()[2] for _ in range(2)] == [b"m1", b"m3"]
    assert broker.wait_for_log(r"error messages of queue 'q1' that are lost, .*: 1"), broker.log
    assert client.ask("p1 ping that was all") == "p1 ok that was all"


def test_a_journal_that_is_cut_short_is_refused_and_salvage_goes_on_without(
    start: Start, connect: Connect, folder: Path
) -> None:
    broker = start()
    three_messages(connect(broker))
    broker.stop()
    [segment] = segments(folder)
    path = folder / "journal" / segment
    path.write_bytes(path.read_bytes().partition(b"m3 publish")[0])
    said = refusal(start(wait=False))
    assert re.search(r" error .*the journal lacks what stood from position .* start with --salvage", said), said
    broker = start("--salvage")
    assert re.search(r"warning positions \d+ to \d+ are missing", broker.log), broker.log
    client = connect(broker)
    client.send(b"c1 consume q1\n")
    assert [client.line().split()[2] for _ in range(2)] == [b"m1", b"m2"]
    assert broker.wait_for_log(r"error messages of queue 'q1' that are lost, .*: 1"), broker.log
    assert client.ask("m4 publish e1 d4") == "c1 ok m4 event=e1 d4"
    broker.stop()
    start()


@pytest.mark.parametrize("way", ["command", "start"])
def test_after_a_salvage_every_queue_drains(start: Start, connect: Connect, folder: Path, way: str) -> None:
    """Nothing but its first line is left of the first segment, and the first batch of the others is damaged too."""
    flags = ("--segment-size=64K",)
    broker = start(*flags)
    client = connect(broker)
    assert client.ask("s1 subscribe --confirm q1 e1") == "s1 ok "
    sent = [f"f{number}" for number in range(200)]
    for id in sent:  # a batch each
        assert client.ask(f"{id} publish --confirm e1 {id:x<1000}") == f"{id} ok "
    broker.stop()
    lost = set()
    for number, name in enumerate(segments(folder)[:-1]):
        path = folder / "journal" / name
        data = bytearray(path.read_bytes())
        at = [found.start() + 1 for found in re.finditer(rb"\n[^\n]* batch [^\n]*\n", data)][: 1 if number else None]
        for offset in at:
            data[offset + 100] ^= 1
            lost |= {line.split()[0].decode() for line in bytes(data[offset:]).splitlines()[1:2] if line[:1] == b"f"}
        path.write_bytes(data)
    assert 50 < len(lost) < 100
    if way == "command":
        salvage(folder)
    broker = start(*flags, *(["--salvage"] if way == "start" else []))
    kept = [id for id in sent if id not in lost]
    for _ in range(2):
        client = connect(broker)
        client.send(b"c1 consume q1 --manual-ack --prefetch=1000\n")
        assert [client.line().split()[2].decode() for _ in kept] == kept
        assert client.ask("p1 ping that was all") == "p1 ok that was all"
        broker.stop()
        assert verify(folder).good
        broker = start(*flags)


def test_a_lost_log_of_progress_is_refused_with_advice(start: Start, connect: Connect, folder: Path) -> None:
    broker = start()
    three_messages(connect(broker))
    broker.stop()
    [path] = (folder / "progress").glob("*.log")
    path.unlink()
    said = refusal(start(wait=False))
    assert re.search(rf" error .*progress/{path.name} is missing: acks were lost; .*--salvage", said), said
    broker = start("--salvage")
    assert re.search(rf"warning progress/{path.name} is missing: acks since .* are lost", broker.log), broker.log
    assert look(connect(broker), "state.queues['q1'].ready") == "3"
    broker.stop()
    start()


def test_after_a_salvage_other_damage_is_refused_as_ever(start: Start, connect: Connect, folder: Path) -> None:
    """What was given up once is no licence for more, whatever became of `aside`."""
    broker = start()
    three_messages(connect(broker))
    broker.stop()
    [segment] = segments(folder)
    flip(folder / "journal" / segment, b"m2 publish")
    start("--salvage").stop()
    for path in (folder / "aside").iterdir():
        path.unlink()
    kept = next(name for name in segments(folder) if b"m3 publish" in (folder / "journal" / name).read_bytes())
    flip(folder / "journal" / kept, b"m3 publish")
    broker = start()
    connect(broker).send(b"c1 consume q1\n")
    assert "is damaged" in refusal(broker)


def test_a_file_that_queues_need_is_missed_at_once(start: Start, connect: Connect, folder: Path) -> None:
    broker = start()
    three_messages(connect(broker))
    broker.stop()
    start().stop()  # a second segment, so that the first can be gone from before the checkpoint
    (folder / "journal" / segments(folder)[0]).unlink()
    assert re.search(r"no file with positions \d+ to \d+, where queues have messages", refusal(start(wait=False)))
    broker = start("--salvage")
    assert "are lost: the journal has no file with them" in broker.log


def test_a_torn_end_is_cut_off_kept_aside_and_told(start: Start, connect: Connect, folder: Path) -> None:
    broker = start()
    three_messages(connect(broker))
    kill(broker)
    [segment] = segments(folder)
    with (folder / "journal" / segment).open("ab") as file:
        file.write(b"20991231235959000000abcd batch 0000")
    broker = start()
    cut = re.search(r"warning the journal was cut at position (\d+): .* 35 bytes are kept in aside/", broker.log)
    assert cut, broker.log
    assert (folder / "aside" / f"{segment}.{cut[1]}.cut").read_bytes().endswith(b"batch 0000")
    assert look(connect(broker), "state.queues['q1'].ready") == "3"
