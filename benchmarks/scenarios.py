"""The table of what is measured: for each scenario its load, its contenders, and how many messages each gets.

The counts make each measurement last about a second at the speeds seen so far; `--scale` multiplies them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.contenders.base import Contender
from benchmarks.contenders.clients import MqksAsyncio, MqksBlocking, NatsPy, NatsPyStream, RedisPy, RedisPyStream
from benchmarks.contenders.copy import Copy
from benchmarks.contenders.mqks import Mqks, MqksDurable, MqksMemory, MqksSmall, MqksWatched
from benchmarks.contenders.nats import JetStream, JetStreamFile, Nats
from benchmarks.contenders.redis import Redis, RedisAlways, RedisEverysec, RedisList, RedisStreams
from benchmarks.contenders.spark import ByUrl, Fiftieth, OnSpark, Subscribed, Text, Unfiltered
from benchmarks.contenders.tls import MqksPlain, MqksTls, NatsTls
from benchmarks.measure import (
    Metrics,
    backlog,
    idle_connections,
    latency,
    manual_ack,
    many_queues,
    throughput,
)
from benchmarks.measure_clients import client_acked, client_confirmed, client_consume, client_publish
from benchmarks.measure_http import http_cost
from benchmarks.measure_journal import acked_if_it_can, confirmed, drain, history, recovery
from benchmarks.measure_spark import archived, counted, filtered, scan, scan_time, streamed, written
from benchmarks.payload import Layout, Load, shuffled

Counts = Mapping[type[Contender], int]
MEMORY, JOURNAL, CLIENTS, HTTP, TLS, SPARK = PARTS = [
    "in memory",
    "with the journal",
    "Python clients",
    "with HTTP",
    "by TLS",
    "with Spark",
]


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    measure: Callable[[Contender, Load, int], Metrics]
    load: Load
    messages: Counts
    scaled: bool = True  # a memory scenario keeps its size whatever the scale
    part: str = MEMORY  # of the report: a table of its own, with its own columns


ONE: Layout = (((b"q1", (b"e1",)),),)
MIXED_EVENTS = [b"e%02d" % e for e in range(100)]
MIXED: Layout = (tuple((b"q%02d" % q, tuple(MIXED_EVENTS[q::20])) for q in range(20)),)
MANY: Layout = (tuple((b"q%05d" % q, (b"e%05d" % q,)) for q in range(10_000)),)


ORDERS = Load(64, (), shuffled([b"order.%02d" % e for e in range(100)]))  # lines of 107 bytes


def fan_out(count: int) -> Layout:
    return tuple(((b"q%03d" % q, (b"e1",)),) for q in range(count))


def one_to_one(size: int, title: str, messages: Counts) -> Scenario:
    return Scenario(f"auto-{size}", f"auto-ack 1→1, {title}", throughput, Load(size, ONE), messages)


K, M = 1_000, 1_000_000
SCENARIOS = [
    one_to_one(16, "16 B", {Mqks: 12 * M, Copy: 18 * M, Nats: 2 * M, Redis: 2 * M}),
    one_to_one(128, "128 B", {Mqks: 6 * M, Copy: 6 * M, Nats: 2 * M, Redis: 1 * M}),
    one_to_one(1024, "1 KiB", {Mqks: 1 * M, Copy: 1 * M, Nats: 500 * K, Redis: 500 * K}),
    one_to_one(16384, "16 KiB", {Mqks: 80 * K, Copy: 80 * K, Nats: 40 * K, Redis: 60 * K}),
    Scenario(
        "mixed",
        "100 events, 20 queues, 128 B",
        throughput,
        Load(128, MIXED, shuffled(MIXED_EVENTS)),
        {Mqks: 4 * M, Copy: 6 * M, Nats: 1 * M, Redis: 700 * K},
    ),
    Scenario(
        "manual",
        "manual ack, 128 B",
        manual_ack,
        Load(128, ONE, distinct=True),
        {Mqks: 2 * M, JetStream: 150 * K, RedisStreams: 200 * K},
    ),
    Scenario(
        "fan-10",
        "fan-out x10, 128 B",
        throughput,
        Load(128, fan_out(10)),
        {Mqks: 800 * K, Copy: 800 * K, Nats: 300 * K, Redis: 300 * K},
    ),
    Scenario(
        "fan-100",
        "fan-out x100, 128 B",
        throughput,
        Load(128, fan_out(100)),
        {Mqks: 80 * K, Copy: 80 * K, Nats: 30 * K, Redis: 40 * K},
    ),
    Scenario(
        "latency",
        "one at a time, 128 B",
        latency,
        Load(128, ONE),
        {Mqks: 20 * K, Copy: 20 * K, Nats: 20 * K, Redis: 20 * K},
    ),
    Scenario(
        "idle",
        "5,000 idle connections",
        idle_connections,
        Load(128, ONE),
        {Mqks: 5 * K, Nats: 5 * K, Redis: 5 * K},
        scaled=False,
    ),
    Scenario(
        "backlog",
        "backlog of 1,000,000 x 128 B",
        backlog,
        Load(128, ONE, distinct=True, block_messages=1000),
        {Mqks: 1 * M, JetStream: 1 * M, RedisList: 1 * M},
        scaled=False,
    ),
    Scenario(
        "queues",
        "10,000 queues, 128 B",
        many_queues,
        Load(128, MANY, tuple(events[0] for _, events in MANY[0])),
        {Mqks: 1 * M, Nats: 1 * M, RedisList: 1 * M},
    ),
    Scenario(
        "shared",
        "200 consumers on one queue, 128 B",
        throughput,
        Load(128, ONE * 200, shared=True),
        {Mqks: 500 * K, Nats: 500 * K},
    ),
    Scenario(
        "journal-128",
        "auto-ack 1→1, 128 B",
        throughput,
        Load(128, ONE),
        {MqksDurable: 6 * M, MqksMemory: 6 * M, Nats: 2 * M},
        part=JOURNAL,
    ),
    Scenario(
        "journal-manual",
        "manual ack, 128 B (NATS: core, no ack)",
        acked_if_it_can,
        Load(128, ONE, distinct=True),
        {MqksDurable: 2 * M, MqksMemory: 2 * M, Nats: 2 * M},
        part=JOURNAL,
    ),
    Scenario(
        "confirmed",
        "each message confirmed, window 1,000, 128 B",
        confirmed,
        Load(128, ONE),
        {MqksDurable: 1 * M, JetStreamFile: 300 * K, RedisAlways: 100 * K, RedisEverysec: 500 * K},
        part=JOURNAL,
    ),
    Scenario("recovery", "10,000,000 x 128 B queued", recovery, Load(128, ONE), {MqksDurable: 10 * M}, part=JOURNAL),
    Scenario(
        "drain", "5 GB of 128 B queued, --max-memory=256M", drain, Load(128, ONE), {MqksSmall: 33 * M}, part=JOURNAL
    ),
    Scenario("history", "2,000,000 x 128 B read back", history, Load(128, ONE), {MqksDurable: 2 * M}, part=JOURNAL),
    Scenario(
        "client-publish",
        "published one by one, 128 B",
        client_publish,
        Load(128, ONE),
        {MqksAsyncio: 500 * K, MqksBlocking: 300 * K, NatsPy: 200 * K, RedisPy: 100 * K},
        part=CLIENTS,
    ),
    Scenario(
        "client-consume",
        "auto-ack, 128 B",
        client_consume,
        Load(128, ONE),
        {MqksAsyncio: 500 * K, MqksBlocking: 500 * K, NatsPy: 100 * K, RedisPy: 400 * K},
        part=CLIENTS,
    ),
    Scenario(
        "client-confirmed",
        "each message confirmed, window 1,000, 128 B",
        client_confirmed,
        Load(128, ONE),
        {MqksAsyncio: 200 * K, MqksBlocking: 200 * K, NatsPyStream: 30 * K, RedisPy: 100 * K},
        part=CLIENTS,
    ),
    Scenario(
        "client-manual",
        "manual ack, up to 1,000 unacked, 128 B",
        client_acked,
        Load(128, ONE, distinct=True),
        {MqksAsyncio: 300 * K, MqksBlocking: 300 * K, NatsPyStream: 50 * K, RedisPyStream: 50 * K},
        part=CLIENTS,
    ),
    Scenario(
        "http-cost",
        "10,000 messages a second, 128 B",
        http_cost,
        Load(128, ONE, distinct=True),
        {MqksWatched: 300 * K},
        part=HTTP,
    ),
    Scenario(
        "tls-128",
        "auto-ack 1→1, 128 B",
        throughput,
        Load(128, ONE),
        {MqksTls: 4 * M, MqksPlain: 6 * M, NatsTls: 1 * M},
        part=TLS,
    ),
    Scenario(
        "tls-16384",
        "auto-ack 1→1, 16 KiB",
        throughput,
        Load(16384, ONE),
        {MqksTls: 40 * K, MqksPlain: 80 * K, NatsTls: 30 * K},
        part=TLS,
    ),
    Scenario(
        "tls-latency",
        "one message at a time, 128 B",
        latency,
        Load(128, ONE),
        {MqksTls: 10 * K, MqksPlain: 20 * K, NatsTls: 10 * K},
        part=TLS,
    ),
    Scenario(
        "tls-idle",
        "1,000 idle connections",
        idle_connections,
        Load(128, ONE),
        {MqksTls: 1000, MqksPlain: 1000, NatsTls: 1000},
        scaled=False,
        part=TLS,
    ),
    Scenario("spark-scan", "all columns, 64 B", scan, ORDERS, {OnSpark: 5 * M, ByUrl: 5 * M, Text: 5 * M}, part=SPARK),
    Scenario(
        "spark-filter",
        "one event of 100, 64 B",
        filtered,
        ORDERS,
        {OnSpark: 5 * M, Subscribed: 5 * M, Unfiltered: 5 * M, Text: 5 * M},
        part=SPARK,
    ),
    Scenario("spark-stream", "journal → Parquet, 64 B", streamed, ORDERS, {OnSpark: 5 * M, Text: 5 * M}, part=SPARK),
    Scenario("spark-archive", "journal → lake, data as VARIANT, 64 B", archived, ORDERS, {OnSpark: 5 * M}, part=SPARK),
    Scenario("spark-sink", "published and confirmed, 64 B", written, ORDERS, {OnSpark: 1 * M}, part=SPARK),
    Scenario("spark-stats", "publish → first update", counted, ORDERS, {OnSpark: 20}, scaled=False, part=SPARK),
    Scenario("spark-flat", "50,000,000 rows, 64 B", scan_time, ORDERS, {OnSpark: 50 * M, Fiftieth: 1 * M}, part=SPARK),
]
