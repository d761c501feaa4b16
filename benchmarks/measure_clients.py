"""What a Python client can do: it runs in a process of its own, with the load generator on the other side.

So the client is what is measured: the generator and each server are faster than any of them. As in `measure.py`, what
came is checked and a wrong number is not given; here every message is, after the clock has stopped.
"""

import math
import time
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection

from benchmarks.behind import Behind
from benchmarks.clients.library import Library
from benchmarks.contenders.base import BenchError, Contender
from benchmarks.contenders.clients import PythonClient
from benchmarks.load import CYCLE, Publisher, collect, converse, count_bytes, nothing_more
from benchmarks.measure import MICRO, Metrics
from benchmarks.payload import Load, check, check_data, data, delivered_bytes
from benchmarks.server import Server

WARM_UP = 5000  # messages before the clock starts: connections, caches, an interpreter that has seen the loop


@dataclass(frozen=True)
class Order:
    """A method of the library, and the numbers of the messages that it publishes or is to get."""

    method: str
    first: int
    count: int
    cycle: int = 1 << 62  # so many messages until their data is the same again


@dataclass(frozen=True)
class Timed:
    started: float
    ended: float
    cpu: float


class ClientProcess(Behind[Timed]):
    """Carries out orders one by one; `with` ends it."""

    name = "client"

    def __init__(self, server: Server, load: Load) -> None:
        super().__init__(serve, server, load)

    def start(self, order: Order) -> None:
        self.pipe.send(order)

    def times(self) -> Timed:
        return self.answer()

    def do(self, order: Order) -> Timed:
        self.start(order)
        return self.times()


def serve(pipe: Connection, server: Server, load: Load) -> None:
    """The client's process."""
    contender = server.contender
    assert isinstance(contender, PythonClient)
    module, name = contender.library
    try:
        library: Library = getattr(import_module(f"benchmarks.clients.{module}"), name)(server.port)
        pipe.send(Timed(0.0, 0.0, 0.0))
        while True:
            pipe.send(carry_out(library, pipe.recv(), load.size))
    except Exception as error:  # whatever a library raises
        pipe.send(f"{type(error).__name__}: {error}")


def carry_out(library: Library, order: Order, size: int) -> Timed:
    method = getattr(library, order.method)
    if order.method in ("open_consumer", "open_acker"):
        method()
        return Timed(0.0, 0.0, 0.0)
    publishes = order.method in ("publish", "confirm")
    given = items(library, order, size) if publishes else order.count
    cpu, started = time.process_time(), time.monotonic()
    taken = method(given)
    timed = Timed(started, time.monotonic(), time.process_time() - cpu)
    if not publishes and taken != items(library, order, size):
        raise BenchError(f"{order.method} lost, doubled, changed or reordered messages")
    return timed


def items(library: Library, order: Order, size: int) -> list[object]:
    return [library.item(data(n % order.cycle, size)) for n in range(order.first, order.first + order.count)]


def client_publish(contender: Contender, load: Load, messages: int) -> Metrics:
    """Messages a second that one client published without asking for an answer, until the server had taken all."""
    if contender.keeps:
        return kept(contender, load, messages, "publish", "taken_rate")
    with Server(contender) as server, ClientProcess(server, load) as client:
        sock = server.connect(contender.open_consumer(load.layout[0], shared=False))
        client.start(Order("publish", 0, WARM_UP))
        streams = collect([sock], delivered_bytes(contender, load, WARM_UP), contender.noise)
        client.times()
        check(contender, load, streams, WARM_UP)
        client.start(Order("publish", WARM_UP, messages))
        count_bytes([sock], delivered_bytes(contender, load, messages), contender.noise)
        timed = client.times()
        nothing_more([sock], contender.noise)
        return metrics("taken_rate", messages, timed)


def client_confirmed(contender: Contender, load: Load, messages: int) -> Metrics:
    """The same, each message answered."""
    return kept(contender, load, messages, "confirm", "confirmed_rate")


def kept(contender: Contender, load: Load, messages: int, method: str, metric: str) -> Metrics:
    """Published into a queue, which is read back and checked afterwards."""
    messages = math.ceil(messages / 1000) * 1000
    with Server(contender) as server, ClientProcess(server, load) as client:
        server.connect(contender.create([(b"q1", b"e1")])).close()
        client.do(Order(method, 0, WARM_UP))
        timed = client.do(Order(method, WARM_UP, messages))
        request, reader = contender.drain(WARM_UP + messages, load.size)
        stream = bytearray()
        converse(server.connect(), request, reader, stream)
        check_data(contender, load, bytes(stream), WARM_UP + messages)
        return metrics(metric, messages, timed)


def client_consume(contender: Contender, load: Load, messages: int) -> Metrics:
    """Messages a second that one client got, from the first byte that was published to its last message."""
    return got(contender, load, messages, "open_consumer", "consume")


def client_acked(contender: Contender, load: Load, messages: int) -> Metrics:
    """The same, each message acknowledged by itself, until the server had taken the last ack."""
    return got(contender, load, messages, "open_acker", "acknowledge")


def got(contender: Contender, load: Load, messages: int, open_it: str, method: str) -> Metrics:
    per_block = load.per_block(contender)
    blocks = math.ceil(messages / per_block)
    messages, warm_up = blocks * per_block, CYCLE * per_block
    cycle = Order.cycle if load.distinct else warm_up
    with Server(contender) as server, ClientProcess(server, load) as client:
        if contender.keeps:
            server.connect(contender.create([(b"q1", b"e1")])).close()
        client.do(Order(open_it, 0, 0))
        with Publisher(server, load, CYCLE + blocks) as publisher:
            publisher.start(0, CYCLE)
            client.do(Order(method, 0, warm_up, cycle))
            publisher.times()
            client.start(Order(method, warm_up, messages, cycle))
            publisher.start(CYCLE, blocks)
            timed = client.times()
            started, _ = publisher.times()
            return metrics("rate", messages, Timed(started, timed.ended, timed.cpu))


def metrics(rate: str, messages: int, timed: Timed) -> Metrics:
    return {rate: messages / (timed.ended - timed.started), "client_cpu_us": timed.cpu / messages * MICRO}
