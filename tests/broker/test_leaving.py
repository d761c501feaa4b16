"""Consumers that leave while messages are on their way to them: a queue that goes leaves nothing of these behind."""

import pytest

from mqks.broker.connections.client import Client
from tests.broker.on_disk import OnDisk

WAYS = {
    "unused": (b"c1 consume q1 e1 --delete-queue-when-unused", [b"d delete_consumer c1"]),
    "deleted later": (b"c1 consume q1 e1", [b"d delete_consumer c1", b"d delete_queue q1"]),
    "deleted at once": (b"c1 consume q1 e1", [b"d delete_queue q1"]),
    "SEVX": (b'c1 recv {"pattern": {"event": "e1"}, "queue": "q1"}', [b'd delete_receiver {"receiver_id": "c1"}']),
}


def given(on_disk: OnDisk, consume: bytes) -> Client:
    """A client that was given messages, and has read none of them."""
    client = on_disk.connect()
    on_disk.say(client, consume)
    on_disk.work()
    on_disk.said(client)
    on_disk.broker.feed(client, b"".join(b"m%d publish e1 d1\n" % number for number in range(1000)))
    on_disk.work()
    assert client.pending_size > 1000
    return client


@pytest.mark.parametrize(("consume", "leave"), WAYS.values(), ids=WAYS)
def test_a_checkpoint_keeps_no_part_of_the_log_that_no_queue_knows(consume: bytes, leave: list[bytes]) -> None:
    on_disk = OnDisk()
    client = given(on_disk, consume)
    on_disk.broker.feed(client, b"".join(line + b"\n" for line in leave))
    on_disk.work()
    assert not on_disk.broker.queues.by_name and client.pending_size > 1000
    assert on_disk.broker.core.log.extents() == b""
    on_disk.broker.sent(client, client.pending_size)
    on_disk.broker.disconnect(client)
    on_disk.work()
    on_disk.crash()
    assert on_disk.broker.core.log.extents() == b""


def test_one_that_has_left_gets_what_is_on_its_way_and_the_queue_is_done_with_it() -> None:
    on_disk = OnDisk()
    client = given(on_disk, b"c1 consume q1 e1")
    on_disk.broker.feed(client, b"d delete_consumer c1\n")
    on_disk.work()
    assert on_disk.queue().unsettled == 1000
    assert len(on_disk.said(client)) == 1000
    assert on_disk.queue().length == 0
    on_disk.broker.feed(client, b"d delete_queue q1\n")
    on_disk.work()
    assert on_disk.broker.core.log.extents() == b""
