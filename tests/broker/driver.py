"""The broker in process, for tests: driven by itself (`talk`), or side by side with the model (`Pair`).

No sockets, no sleeping: what was "sent" and what time it is are said by the test.
"""

import re
from collections.abc import Iterable
from copy import deepcopy
from itertools import pairwise, permutations
from typing import Any

from mqks.broker import Broker
from mqks.broker.connections.client import Client
from mqks.broker.queues.queue import Queue
from tests.model import ERROR, Model
from tests.model_queues import Queue as ModelQueue

DEDUP_WINDOW = 1.5  # seconds
DEDUP_COUNT = 5  # so few that ids are forgotten all the time
PEER = "127.0.0.1:5000"
ERROR_LINE = re.compile(rb"^([^ \n]+ error )[0-9]{20}[0-9a-zA-Z]{4}$", re.MULTILINE)


def masked(replies: bytes) -> bytes:
    """Replies with the model's ERROR in place of each error_id."""
    return ERROR_LINE.sub(rb"\g<1>" + ERROR, replies)


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    """`data` in pieces, cut at these places (taken modulo its length)."""
    ends = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(ends)]


def talk(pieces: Iterable[bytes], max_line: int = 1 << 20) -> bytes:
    """All that a fresh broker answers, masked, on one connection that sends these pieces in one turn."""
    broker = Broker(max_line=max_line)
    connection = broker.connect(PEER)
    for piece in pieces:
        broker.feed(connection, piece)
    broker.turn()
    return masked(connection.pending())


class Pair:
    """A broker and a model that get the same requests and must give the same replies, byte for byte.

    One thing is left to the broker: which queue it serves first in a turn. That is no promise, but with full
    buffers it decides which messages find room. So `turn` looks for an order of the queues with which the
    model gives what the broker gave, on all connections; if there is none, the broker is wrong.
    """

    def __init__(self, *, max_line: int, high_water: int) -> None:
        self.now = 1_700_000_000.0
        dedup: dict[str, Any] = {"dedup_window": DEDUP_WINDOW, "dedup_count": DEDUP_COUNT}
        limits: dict[str, Any] = {"max_line": max_line, "high_water": high_water, "clock": lambda: self.now, **dedup}
        self.broker = Broker(**limits, wall=lambda: self.now, dedup_part_bits=1)
        self.model = Model(**limits)
        self.cores: list[Client] = []  # model.connections has their twins, at the same indexes
        self.differs = False
        self.partial: list[bytes] = []  # what was sent of each connection's first line

    def connect(self) -> None:
        self.cores.append(self.broker.connect(PEER))
        self.partial.append(b"")
        self.model.connect()

    def feed(self, index: int, data: bytes) -> None:
        self.broker.feed(self.cores[index], data)
        self.model.feed(self.model.connections[index], data)

    def sent(self, index: int, count: int) -> None:
        pending = self.cores[index].pending()
        count = min(count, len(pending))
        self.broker.sent(self.cores[index], count)
        self.partial[index] = (self.partial[index] + pending[:count]).rpartition(b"\n")[2]
        self.model.sent(self.model.connections[index], count)

    def disconnect(self, index: int) -> None:
        self.broker.disconnect(self.cores.pop(index))
        del self.partial[index]
        self.model.disconnect(self.model.connections[index])

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.broker.tick()
        self.model.tick()

    def turn(self) -> None:
        self.broker.turn()
        self.model.resume()
        before = self.model
        busy = [name for name, queue in before.queues.items() if queue.ready or queue.returned]
        for order in permutations(busy):
            self.model = deepcopy(before)
            self.model.deliver(order)
            if self.of_broker() == self.of_model():
                return
        self.compare()

    def consumers(self) -> list[tuple[int, bytes]]:
        """Connection and id of each."""
        return [
            (index, consumer_id)
            for index, connection in enumerate(self.model.connections)
            for consumer_id in connection.consumers
        ]

    def unsettled(self) -> list[tuple[int, bytes, bytes]]:
        """Connection, consumer and message of each delivery that waits for an ack (the model knows them)."""
        return [
            (index, delivery.consumer.id, delivery.copy.message.id)
            for index, connection in enumerate(self.model.connections)
            for consumer in connection.consumers.values()
            for delivery in consumer.queue.of(consumer)
            if consumer.manual_ack
        ]

    def of_broker(self) -> list[bytes]:
        return [masked(partial + core.pending()) for partial, core in zip(self.partial, self.cores, strict=True)]

    def of_model(self) -> list[bytes]:
        return [b"".join(line.text for line in connection.lines) for connection in self.model.connections]

    def compare(self) -> None:
        """What waits to be sent, with the whole of a line that was sent in part, is the same in both."""
        for index, (broker, model) in enumerate(zip(self.of_broker(), self.of_model(), strict=True)):
            self.differs = broker != model
            assert broker.split(b"\n") == model.split(b"\n"), f"connection {index}: broker != model"
        for name, queue in self.model.queues.items():
            self.compare_limits(self.broker.queues.by_name[name], queue)

    def compare_limits(self, real: Queue, model: ModelQueue) -> None:
        """What a queue with limits holds and has dropped is the same."""
        held = model.held()
        found = (real.length, real.dropped, real.max_length, real.max_bytes, real.drops_oldest)
        assert found == (len(held), model.dropped, model.max_length, model.max_bytes, model.drops_oldest), model.name
        if real.max_bytes:
            assert real.bytes == sum(message.size for message in held), model.name
