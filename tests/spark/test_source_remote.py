"""The source by url: what it makes of brokers that come and go, have no room, or are none. Without Spark."""

import socket
import threading
from pathlib import Path

import pytest

from mqks import connect
from mqks.client.access import Access
from mqks.client.address import Address
from mqks.client.reaching import connected as reached
from mqks.journal.columns import Columns
from mqks.testing import broker
from pyspark_mqks import reaching, remote
from pyspark_mqks.loss import DataLoss, fail
from pyspark_mqks.remote import Remote
from tests.journal.making import Making
from tests.spark.peers import PATIENCE, Clock, Talk, peer
from tests.spark.scanning import scanned, stream_reader

KEEP = {"retain_age": "3650d", "retain_bytes": "1G", "fsync": "never"}


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Address]:
    """One for each connection that is made."""
    made: list[Address] = []

    def connected(address: Address, access: Access, within: float | None) -> socket.socket:
        made.append(address)
        return reached(address, access, within=within)

    monkeypatch.setattr(remote, "connected", connected)
    return made


def scanned_by(journal: Remote, stop: int) -> int:
    """How many rows there are before that position."""
    columns = Columns(["id"])
    for _ in journal.scan(columns, 0, stop):
        pass
    return columns.rows


# ── damage ──


def test_a_damaged_header_of_a_large_batch(
    tmp_path: Path, connections: list[Address], caplog: pytest.LogCaptureFixture
) -> None:
    """What is missing is found by halving, and told once and exactly."""
    made = Making(tmp_path / "data", fsync="never")
    batches = [made.batch(b"m%d publish e1 " % number + b"x" * 200_000) for number in range(5)]
    path = made.path
    made.segment(fsync="never")
    with broker(data=made.folder, **KEEP) as running:
        with path.open("r+b") as file:
            file.seek(batches[2] + 24)
            file.write(b" hatch ")
        with pytest.raises(DataLoss, match=f"positions {batches[2]} to {batches[3]} cannot be read"):
            scanned({"url": running.url})
        connections.clear()
        caplog.clear()
        found = scanned({"url": running.url, "failOnDataLoss": "false"}, ["id"])
        assert [row["id"] for row in found] == ["m0", "m1", "m3", "m4"]
        told = [record.args for record in caplog.records if record.name == "mqks.spark"]
        assert [args[:2] for args in told if isinstance(args, tuple)] == [(batches[2], batches[3])]
        assert len(connections) < 100


# ── connections ──


def test_a_stream_that_waits_asks_over_one_connection(tmp_path: Path, connections: list[Address]) -> None:
    with broker(data=tmp_path / "data", fsync="never") as running, connect(running.url) as client:
        client.publish("e1", "d1", confirm=True)
        reader = stream_reader({"url": running.url, "retryFor": 0, "maxOffsetsPerTrigger": 10})
        at = reader.initialOffset()
        for _ in range(50):
            assert reader.latestOffset(at, reader.getDefaultReadLimit()) == at
        assert len(connections) == 1
        client.publish("e1", "d2", confirm=True)
        while reader.latestOffset(at, reader.getDefaultReadLimit()) == at:
            pass
        assert len(connections) == 1
        running.drop_connections()  # one that has ended is no reason to wait, or to fail
        reader.reportLatestOffset()
        assert len(connections) == 2


def test_that_nothing_is_new_is_one_question() -> None:
    def scene(talk: Talk) -> None:
        assert talk.line() == b"h history latest --to=earliest"
        talk.say(b"h ok --end 4711\n")
        assert talk.until_the_end() == b""

    with peer(scene) as played:
        reader = stream_reader({"url": str(played.address)})
        assert reader.latestOffset({"position": 4711}, reader.getDefaultReadLimit()) == {"position": 4711}
        del reader


def test_no_room_for_another_connection_is_waited_for(tmp_path: Path) -> None:
    with broker(data=tmp_path / "data", max_connections=1, fsync="never") as running:
        first = connect(running.url).__enter__()
        first.publish("e1", "d1", confirm=True)
        leaving = threading.Timer(0.2, first.close)
        leaving.start()
        assert len(scanned({"url": running.url, "retryFor": PATIENCE})) == 1
        leaving.join()


@pytest.mark.parametrize(
    "answer",
    [
        b"- error 2026\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"h history latest --to=earliest\n",  # an echo
        b"h ok\n",
        b"h ok --end soon\n",
        b"",
    ],
)
def test_who_does_not_answer_as_a_broker_is_asked_again(answer: bytes) -> None:
    def other(talk: Talk) -> None:
        assert talk.line() == b"h history latest --to=earliest"
        talk.say(answer)

    def speaks(talk: Talk) -> None:
        talk.line()
        talk.say(b"h ok --end 4711\n")
        assert talk.until_the_end() == b""

    with peer(other, speaks) as played:
        journal = Remote(str(played.address), PATIENCE, fail)
        assert journal.latest() == 4711
        del journal


def test_connected_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """As may happen on loopback, where the port that nobody listens at is taken for our own end."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        address = Address(*made.getsockname()[:2])
        made.connect((address.host, address.port))
        monkeypatch.setattr(socket, "create_connection", lambda *_: made)
        with pytest.raises(ConnectionRefusedError, match="to itself"):
            reached(address, Access())
        assert made.fileno() == -1


# ── answers ──


def test_time_without_a_failure_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker stops cleanly, which ends its answer, and is away for a moment, long after the scan began."""
    made = Making(tmp_path / "data", fsync="never")
    first, second = made.batch(b"m1 publish e1 d"), made.batch(b"m2 publish e1 d")
    bytes = made.path.read_bytes()
    clock = Clock()
    monkeypatch.setattr(reaching, "time", clock)

    def stops(talk: Talk) -> None:
        assert talk.line() == b"h history 0 --raw --to=%d" % made.end
        talk.say(bytes[first:second] + b"h ok --end %d\n" % second)

    def is_away(talk: Talk) -> None:
        talk.line()

    def goes_on(talk: Talk) -> None:
        assert talk.line() == b"h history %d --raw --to=%d" % (second, made.end)
        talk.say(bytes[second:] + b"h ok --end %d\n" % made.end)

    with peer(is_away, stops, is_away, is_away, goes_on) as played:
        columns = Columns(["id"])
        for _ in Remote(str(played.address), PATIENCE, fail).scan(columns, 0, made.end):
            clock.ahead += 10 * PATIENCE  # what is done with the rows takes its time
        assert columns.rows == 2


@pytest.mark.parametrize("size", [1, 7, 100, 1000])
def test_an_answer_in_pieces(tmp_path: Path, size: int) -> None:
    made = Making(tmp_path / "data", fsync="never")
    for number in range(20):
        made.batch(b"m%d publish e1 " % number + b"x" * (number % 5 * 100))
    sent = made.path.read_bytes()[41:] + b"h ok --end %d\n" % made.end

    def scene(talk: Talk) -> None:
        talk.line()
        for at in range(0, len(sent), size):
            talk.say(sent[at : at + size])

    with peer(scene, scene) as played:
        journal = Remote(str(played.address), PATIENCE, fail)
        assert scanned_by(journal, made.end) == 20
        assert journal.count(0, made.end, 20) == made.end
        del journal
