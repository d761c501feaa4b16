"""A real broker over sockets whose disk fails or is full: what its clients are told, and what they are not."""

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqks.journal.disk import Done, RealDisk
from mqks.journal.errors import JournalError
from mqks.testing import Broker, broker
from tests.running import Connection


@pytest.fixture
def running(folder: Path) -> Iterator[Broker]:
    with broker(data=folder) as started:
        yield started


@pytest.fixture
def client(running: Broker) -> Iterator[Connection]:
    connection = Connection(running.port)
    yield connection
    connection.close()


def test_who_waits_for_a_sync_that_fails_is_cut_off_without_an_answer(
    running: Broker, client: Connection, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_sync, finished = RealDisk.start_sync, RealDisk.finished
    failing: set[int] = set()

    def start(disk: RealDisk, files: tuple[int, ...], tag: int, *, urgent: bool = True) -> None:
        if any(b"m1 publish" in path.read_bytes() for path in (folder / "journal").iterdir()):
            failing.add(tag)
        start_sync(disk, files, tag, urgent=urgent)

    def failed(disk: RealDisk) -> list[Done]:
        error = OSError(errno.EIO, os.strerror(errno.EIO))
        return [done._replace(error=error) if done.tag in failing else done for done in finished(disk)]

    monkeypatch.setattr(RealDisk, "start_sync", start)
    monkeypatch.setattr(RealDisk, "finished", failed)
    client.send(b"m1 publish --confirm e1 d1\nm2 publish --confirm e1 d2\n")
    with pytest.raises(ConnectionError, match="closed the connection, or stopped in b''"):
        client.line()
    with pytest.raises(JournalError, match="a sync has failed"):
        running.stop()


def test_what_a_full_disk_did_not_take_is_answered_and_delivered_when_it_does(
    client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, full, has_room = RealDisk.write, threading.Event(), threading.Event()

    def refused(disk: RealDisk, file: int, data: bytes, offset: int) -> None:
        if b"m1 publish" in bytes(data):
            full.set()
        if full.is_set() and not has_room.is_set():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(disk, file, data, offset)

    assert client.ask("c1 consume --confirm q1 e1") == "c1 ok "
    monkeypatch.setattr(RealDisk, "write", refused)
    client.send(b"m1 publish --confirm e1 d1\n")
    assert client.ask("p1 ping first") == "p1 ok first"
    assert client.ask("m2 publish --confirm e1 d2").startswith("m2 error ")
    assert client.ask("p2 ping then") == "p2 ok then"
    has_room.set()
    assert {client.line(), client.line()} == {b"m1 ok ", b"c1 ok m1 event=e1 d1"}
    assert client.ask("m2 publish --confirm e9 d2") == "m2 ok "
