"""One function per kind of scenario: starts a fresh server, puts a load on it, returns its numbers.

Each checks what came back, outside of the timed part, and raises BenchError rather than give a wrong number.
"""

import math
import resource
import statistics
import time

from benchmarks.contenders.base import Contender
from benchmarks.load import CHUNK, CYCLE, Publisher, collect, converse, count_bytes, nothing_more, received
from benchmarks.payload import Load, check, check_data, check_tail, data, delivered_bytes
from benchmarks.server import Server, talk

Metrics = dict[str, float]
MICRO = 1e6


def throughput(contender: Contender, load: Load, messages: int) -> Metrics:
    """Deliveries a second, from the publisher's first byte to the consumers' last, and the CPU for each."""
    per_block = load.per_block(contender)
    checked, blocks = max(1, CYCLE // load.fan), math.ceil(messages / per_block)
    with Server(contender) as server, Publisher(server, load, checked + blocks) as publisher:
        sockets = [server.connect(contender.open_consumer(s, load.shared)) for s in load.layout]
        publisher.start(0, checked)
        streams = collect(sockets, delivered_bytes(contender, load, checked * per_block), contender.noise)
        publisher.times()
        check(contender, load, streams, checked * per_block)
        cpu = server.cpu()
        publisher.start(checked, blocks)
        ended = count_bytes(sockets, delivered_bytes(contender, load, blocks * per_block), contender.noise)
        started, _ = publisher.times()
        nothing_more(sockets, contender.noise)
        cpu = server.cpu() - cpu
        deliveries = blocks * per_block * load.fan
        return {"rate": deliveries / (ended - started), "cpu_us": cpu / deliveries * MICRO}


def manual_ack(contender: Contender, load: Load, messages: int) -> Metrics:
    """Messages a second published, delivered and each acknowledged."""
    per_block = load.per_block(contender)
    blocks = math.ceil(messages / per_block)
    with Server(contender) as server:
        server.connect(contender.create([(b"q1", b"e1")])).close()
        sock = server.connect(contender.open_acker())
        with Publisher(server, load, CYCLE + blocks) as publisher:
            request, reader = contender.acker(0, CYCLE * per_block, load.size)
            publisher.start(0, CYCLE)
            kept = bytearray()
            converse(sock, request, reader, kept)
            talk(sock, contender.barrier())
            publisher.times()
            check_data(contender, load, bytes(kept), CYCLE * per_block)
            request, reader = contender.acker(CYCLE * per_block, blocks * per_block, load.size)
            cpu = server.cpu()
            publisher.start(CYCLE, blocks)
            tail = converse(sock, request, reader)
            talk(sock, contender.barrier())
            ended = time.monotonic()
            started, _ = publisher.times()
            cpu = server.cpu() - cpu
            check_tail(contender, load, tail, (CYCLE + blocks) * per_block)
            rate = blocks * per_block / (ended - started)
            return {"rate": rate, "cpu_us": cpu / (blocks * per_block) * MICRO}


def latency(contender: Contender, load: Load, messages: int) -> Metrics:
    """Microseconds from publish to receive, one message at a time, publisher and consumer in one process."""
    with Server(contender) as server:
        consumer = server.connect(contender.open_consumer(load.layout[0], shared=False))
        publisher = server.connect(contender.open_publisher())
        buffer, queue = bytearray(CHUNK), load.layout[0][0][0]
        samples = []
        for n in range(messages):
            line = load.publish(contender, n)
            expected = contender.deliver(n, load.event(n), queue, data(n, load.size))
            started = time.perf_counter_ns()
            publisher.sendall(line)
            got = received(consumer.recv_into(buffer), len(expected))
            ended = time.perf_counter_ns()
            if buffer[:got] == expected:
                samples.append((ended - started) / 1000)
            else:  # it came in two pieces, or with a PING beside it: not a sample, but still to be right
                whole = bytes(buffer[:got])
                while expected not in whole:
                    whole += buffer[: received(consumer.recv_into(buffer), len(expected))]
        cuts = statistics.quantiles(samples, n=100)
        return {"p50_us": cuts[49], "p99_us": cuts[98]}


def idle_connections(contender: Contender, load: Load, messages: int) -> Metrics:  # noqa: ARG001
    """Resident bytes of the server for each connection that has said hello and then stays silent."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with Server(contender) as server:
        # The first tenth pays for what start-up left free or lying about: only growth beyond it is counted.
        sockets = [server.connect(contender.hello()) for _ in range(messages // 10)]
        before = server.settled_rss()
        sockets += [server.connect(contender.hello()) for _ in range(messages - len(sockets))]
        grown = server.settled_rss() - before
        for sock in sockets:
            sock.close()
        return {"connection_bytes": grown / (messages - messages // 10)}


def backlog(contender: Contender, load: Load, messages: int) -> Metrics:
    """What a backlog costs in memory beyond its own bytes, how fast it drains, and what stays afterwards."""
    blocks = messages // load.per_block(contender)
    messages = blocks * load.per_block(contender)
    own = sum(contender.stored_bytes(n, b"e1", data(n, load.size)) for n in (0, messages - 1)) / 2 * messages
    with Server(contender) as server:
        with Publisher(server, load, blocks) as publisher:
            server.connect(contender.create([(b"q1", b"e1")])).close()
            before = server.settled_rss()
            publisher.start(0, blocks)
            started, taken = publisher.times()
        full = server.settled_rss()
        consumer = server.connect()
        request, reader = contender.drain(messages, load.size)
        cpu, drain = server.cpu(), time.monotonic()
        tail = converse(consumer, request, reader)
        drained = time.monotonic()
        cpu = server.cpu() - cpu
        check_tail(contender, load, tail, messages)
        return {
            "beyond_bytes": (full - before - own) / messages,
            "taken_rate": messages / (taken - started),
            "drain_rate": messages / (drained - drain),
            "drain_cpu_us": cpu / messages * MICRO,
            "left_mib": (server.settled_rss() - before) / 2**20,
        }


def many_queues(contender: Contender, load: Load, messages: int) -> Metrics:
    """What a queue costs in memory, and how fast messages are taken that go to all of them in turn."""
    queues = [(queue, events[0]) for queue, events in load.layout[0]]
    blocks = math.ceil(messages / load.per_block(contender))
    messages = blocks * load.per_block(contender)
    with Server(contender) as server, Publisher(server, load, blocks) as publisher:
        holder = server.connect()
        before = server.settled_rss()
        talk(holder, contender.create(queues))
        grown = server.settled_rss() - before
        cpu = server.cpu()
        publisher.start(0, blocks)
        delivered = 0.0
        if not contender.keeps:
            delivered = count_bytes([holder], delivered_bytes(contender, load, messages), contender.noise)
        started, taken = publisher.times()
        cpu = server.cpu() - cpu
        return {
            "queue_bytes": grown / len(queues),
            "taken_rate": messages / (max(delivered, taken) - started),
            "cpu_us": cpu / messages * MICRO,
        }
