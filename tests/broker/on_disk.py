"""A broker in process on a fake disk, for tests of what it keeps: it can be killed, lose its power, and come back."""

import random
from typing import Any

from mqks.broker import Broker
from mqks.broker.connections.client import Client
from mqks.broker.queues.queue import Queue
from tests.sim.disk import FakeDisk

START = 1_700_000_000.0


class OnDisk:
    def __init__(self, **options: Any) -> None:
        self.disk = FakeDisk(random.Random(1))
        self.options = options
        self.now = 0.0
        self.salvage = False
        self.start()

    def start(self) -> None:
        self.broker = Broker(
            disk=self.disk, seed=1, clock=lambda: self.now, wall=lambda: START + self.now, **self.options
        )
        self.broker.recover(salvage=self.salvage)
        self.work()

    def crash(self, *, power_loss: bool = False) -> None:
        """The process ends without a word, and another starts on what is left."""
        self.disk.crash(power_loss=power_loss)
        self.start()

    def stop(self) -> None:
        """It ends in order, and another starts."""
        for client in list(self.broker.connections.clients):
            self.broker.disconnect(client)
        self.disk.works_by_itself = True
        self.broker.close()
        self.disk.crash(power_loss=True)
        self.start()

    def connect(self) -> Client:
        return self.broker.connect("127.0.0.1:1")

    def say(self, client: Client, *requests: bytes) -> list[bytes]:
        """What this client is told in the turn that takes these requests; others read nothing meanwhile."""
        self.broker.feed(client, b"".join(request + b"\n" for request in requests))
        self.broker.turn()
        return self.said(client)

    def said(self, client: Client) -> list[bytes]:
        text = client.pending()
        self.broker.sent(client, len(text))
        return text.splitlines()

    def work(self) -> None:
        """All that the disk was asked for is done, and the broker has heard of it."""
        while self.disk.complete(urgent=True) or self.disk.complete(urgent=False):
            self.broker.poll_disk()
        self.broker.turn()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.broker.tick()
        self.work()

    def queue(self, name: bytes = b"q1") -> Queue:
        return self.broker.queues.by_name[name]

    def drain(self, name: bytes = b"q1") -> list[bytes]:
        """The text of all that is ready in a queue, after "{id} ok "; it is settled."""
        client = self.connect()
        lines = self.say(client, b"drain consume " + name)
        while self.queue(name).ready_count:
            self.work()
            lines += self.said(client)
        self.broker.disconnect(client)
        self.broker.turn()
        return [line.removeprefix(b"drain ok ") for line in lines]
