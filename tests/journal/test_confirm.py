"""When the broker says `ok`, with a disk in hand: not before the sync that covers it, and never if that fails."""

import errno
import random

import pytest

from mqks.broker import Broker
from mqks.broker.connections.client import Client
from mqks.journal.journal import RETRY
from tests.broker.fake_sockets import FakeSockets
from tests.sim.disk import FakeDisk

# Requests to be confirmed, after c1 has been given m1 and m2 of q1; each changes something that a client may rely on.
RELIED_ON = {
    "publish": b"r1 publish --confirm e1 d1",
    "publish that no queue wants": b"r1 publish --confirm e9 d1",
    "send": b'r1 send {"event": "e1"}',
    "ack": b"r1 ack --confirm c1 m1",
    "ack --all": b"r1 ack --all --confirm c1",
    "reject": b"r1 reject --confirm c1 m2",
    "rebind": b"r1 rebind --confirm q1 e1 e2",
    "subscribe": b"r1 subscribe --confirm q3 e3",
    "consume": b"r1 consume --confirm q4 e4",
    "recv": b'r1 recv {"queue": "q5", "pattern": {"a": 1}}',
    "delete_queue": b"r1 delete_queue --confirm q1",
    "delete_queue --when-unused": b"r1 delete_queue --confirm q1 --when-unused=5",
}


class Started:
    """A broker on a fake disk, whose syncs end when told."""

    def __init__(self, fsync: str = "always") -> None:
        self.disk = FakeDisk(random.Random(1))
        self.now = 0.0
        self.broker = Broker(disk=self.disk, seed=1, clock=lambda: self.now, fsync=fsync)
        self.broker.recover()
        self.client = self.broker.connect("127.0.0.1:1")
        self.sync()

    def say(self, *requests: bytes, client: Client | None = None) -> list[bytes]:
        """What is said in the turn that takes these requests."""
        self.broker.feed(client or self.client, b"".join(request + b"\n" for request in requests))
        self.broker.turn()
        return self.said(client)

    def said(self, client: Client | None = None) -> list[bytes]:
        text = (client or self.client).pending()
        self.broker.sent(client or self.client, len(text))
        return text.splitlines()

    def sync(self) -> list[bytes]:
        """All that is on its way to the disk gets there; what is said then."""
        while self.disk.complete(urgent=True) or self.disk.complete(urgent=False):
            self.broker.poll_disk()
        self.broker.turn()
        return self.said()

    def journal(self) -> bytes:
        """What a power loss cannot take."""
        return b"".join(self.disk.durable("journal").values())

    def with_messages(self) -> "Started":
        self.say(b"c1 consume q1 e1 --manual-ack", b"m1 publish e1 d1", b"m2 publish e1 d2")
        self.sync()
        return self


def confirmed(lines: list[bytes]) -> bool:
    return b"r1 ok " in lines


@pytest.mark.parametrize("request_line", RELIED_ON.values(), ids=RELIED_ON.keys())
def test_ok_is_said_when_the_sync_is_done_and_not_before(request_line: bytes) -> None:
    started = Started().with_messages()
    assert not confirmed(started.say(request_line))
    for _ in range(3):
        started.broker.poll_disk()
        assert not confirmed(started.say(b"p1 ping"))
    assert confirmed(started.sync())


def test_what_is_confirmed_is_on_disk() -> None:
    started = Started()
    started.say(b"m1 publish --confirm e1 d1", b"s1 subscribe --confirm q1 e1")
    assert b"m1 publish e1 d1\n" not in started.journal()
    assert started.sync() == [b"m1 ok ", b"s1 ok "]
    assert b"m1 publish e1 d1\n" in started.journal()
    assert b" rebind q1 e1\n" in started.journal()


@pytest.mark.parametrize("fsync", ["interval", "never"])
def test_in_the_other_modes_nobody_waits(fsync: str) -> None:
    started = Started(fsync)
    assert started.say(b"m1 publish --confirm e1 d1") == [b"m1 ok "]
    assert not started.disk.complete(urgent=True)


def test_one_sync_confirms_all_that_came_before_it() -> None:
    started = Started()
    assert started.broker.persistence.journal
    started.say(b"m0 publish --confirm e1 d0")  # its sync is on its way
    before = started.broker.persistence.journal.syncs
    clients = [started.broker.connect(f"127.0.0.1:{port}") for port in range(2, 102)]
    for client in clients:
        assert started.say(b"m1 publish --confirm e1 d1", client=client) == []
    assert started.sync() == [b"m0 ok "]
    assert all(started.said(client) == [b"m1 ok "] for client in clients)
    assert started.broker.persistence.journal.syncs == before + 1


def test_a_sync_that_fails_confirms_nothing_and_nothing_more_is_taken() -> None:
    started = Started()
    closed: list[Client] = []
    started.broker.connections.attach(FakeSockets(hang_up=closed.append))
    other = started.broker.connect("127.0.0.1:2")
    started.say(b"m1 publish --confirm e1 d1", b"c1 consume --confirm q1 e1")
    started.say(b"m3 publish e1 d3", client=other)
    started.disk.fail("sync", errno.EIO)
    assert started.sync() == [], "neither ok nor error is known to be true"
    assert closed == [started.client]
    assert started.say(b"m4 publish --confirm e1 d4") == [], "it is not heard any more"
    assert "sync" in (started.broker.broken or "") and "Input/output error" in (started.broker.broken or "")
    assert started.say(b"m2 publish --confirm e1 d2", client=other)[0].startswith(b"m2 error ")
    assert b"m2 publish" not in b"".join(started.disk.content("journal").values())
    assert not started.disk.complete(urgent=True), "a sync is not tried again: it might say that all is well"


def test_who_publishes_without_confirm_is_told_too_when_nothing_more_is_taken() -> None:
    started = Started()
    other = started.broker.connect("127.0.0.1:2")
    started.say(b"m1 publish --confirm e1 d1")
    started.disk.fail("sync", errno.EIO)
    started.sync()
    assert started.say(b"m2 publish e1 d2", client=other)[0].startswith(b"m2 error ")


def test_an_ack_that_a_full_disk_refused_is_not_confirmed_before_it_is_written() -> None:
    started = Started()
    started.say(b"c1 consume q1 e1 --manual-ack", b"m1 publish e1 d1")
    started.sync()
    started.disk.fail("write", errno.ENOSPC)
    for request in (b"r1 ack --confirm c1 m1", b"r2 ack --confirm c1 m1"):
        assert started.say(request) + started.sync() == []
    started.now = RETRY
    started.broker.tick()
    assert started.say(b"r3 ack --confirm c1 m1") + started.sync() == [b"r1 ok ", b"r2 ok ", b"r3 ok "]
    started.disk.crash(power_loss=True)
    broker = Broker(disk=started.disk, seed=1, clock=lambda: 0.0)
    broker.recover()
    assert broker.queues.by_name[b"q1"].ready_count == 0


def test_acks_are_synced_where_nothing_is_published() -> None:
    """Within the interval, for those who wait for it."""
    now = 0.0
    disk = FakeDisk(random.Random(1))
    broker = Broker(disk=disk, seed=1, clock=lambda: now, fsync="interval", interval=1.0)
    broker.recover()
    client = broker.connect("127.0.0.1:1")

    def work() -> None:
        nonlocal now
        for _ in range(3):
            now += 1.5
            broker.tick()
            while disk.complete(urgent=True) or disk.complete(urgent=False):
                broker.poll_disk()
            broker.turn()
            broker.sent(client, client.pending_size)

    broker.feed(client, b"c1 consume q1 e1 --manual-ack\nm1 publish e1 d1\n")
    broker.turn()
    work()
    broker.feed(client, b"a1 ack c1 m1\n")
    broker.turn()
    work()
    durable, content = disk.durable("progress"), disk.content("progress")
    assert {name: durable[name] for name in content} == content
    assert any(text for name, text in content.items() if name.endswith(".log"))


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["error", "full"])
def test_a_stop_whose_last_write_fails_leaves_a_folder_that_starts(error: int) -> None:
    started = Started().with_messages()
    started.disk.fail("write", error)
    started.broker.close()
    assert started.broker.persistence.journal
    assert started.broker.persistence.journal.unwritten

    started.disk.crash(power_loss=False)
    again = Broker(disk=started.disk, seed=1, clock=lambda: started.now)
    again.recover()
    assert again.queues.by_name[b"q1"].ready_count == 2
