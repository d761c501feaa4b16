"""Queues that outlive the broker: any bytes of several clients, and then starts.

An input is what `lines` takes; the broker has a journal, on a disk in memory. When all is said the clients go. It is
killed and starts twice, first from the journal alone and then from the checkpoint that this made; it stops in order and
starts once more. What must hold: each start succeeds, and finds queues and holds as they were.
"""

import random
from typing import Any

from mqks.broker.queues.queue_limits import AT_ONCE
from tests.fuzz.lines import BEGIN, StrictBroker, Talk, pieces
from tests.sim.disk import FakeDisk


class Lives(Talk):
    def __init__(self) -> None:
        self.disk = FakeDisk(random.Random(1))
        super().__init__(self._start(BEGIN))

    def _start(self, now: float) -> StrictBroker:
        broker = StrictBroker(now=now, disk=self.disk)
        broker.recover()
        return broker

    def turn(self, most: int) -> None:
        self.broker.turn()
        while self.disk.complete(urgent=True) or self.disk.complete(urgent=False):
            self.broker.poll_disk()
        super().turn(most)

    def everybody_goes(self) -> None:
        for client in [*self.clients, self.witness]:
            self.broker.disconnect(client)
        self.broker.tick()  # queues that are unused from now on go
        for queue in self.broker.queues.by_name.values():
            self.broker.core.limits.trim(
                queue, AT_ONCE
            )  # what returned to a queue that is too long: a start does the same
        self.broker.turn()

    def killed(self) -> None:
        self.disk.crash(power_loss=False)
        self.broker = self._start(self.broker.now)

    def stopped(self) -> None:
        self.disk.works_by_itself = True
        self.broker.close()
        self.killed()

    def kept(self) -> tuple[dict[bytes, Any], dict[bytes, int]]:
        assert self.broker.persistence.journal and not self.broker.broken, self.broker.broken
        queues = {
            name: (queue.definition(), queue.max_length, queue.max_bytes, queue.drops_oldest, queue.ready_count)
            for name, queue in self.broker.queues.by_name.items()
        }
        holds = self.broker.persistence.journal.retention.holds
        soon = self.broker.now + 0.001  # as exactly as the journal has it
        return queues, {name: hold.position for name, hold in holds.items() if hold.expires > soon}


def kept(data: bytes) -> None:
    lives = Lives()
    lives.do(list(pieces(data)))
    lives.finish()
    lives.everybody_goes()
    before = lives.kept()
    for begin_again in (lives.killed, lives.killed, lives.stopped):
        begin_again()
        assert lives.kept() == before, f"a start after it was {begin_again.__name__} finds other queues or holds"
