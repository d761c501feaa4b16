"""What Prometheus' own parsers read of `/metrics`, compared with what the test counted while it did things."""

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_text

import mqks
from mqks.broker import Broker
from mqks.broker.connections.client import Client
from mqks.journal.disk import RealDisk
from mqks.web.counters import MOST_SHOWN
from mqks.web.metrics import Metrics
from mqks.web.state import Figures
from tests.web.stage import HOST, Stage
from tests.web.test_pipeline_figures import progress

OPEN = "application/openmetrics-text; version=1.0.0"
EVENTS = [b"e%d" % number for number in range(6)]

Labels = tuple[tuple[str, str], ...]
Samples = dict[tuple[str, Labels], float]


def families(figures: Figures, accept: str = "") -> list[Metric]:
    page, content_type = Metrics(figures).text(accept)
    assert content_type.startswith("application/openmetrics-text" if accept else "text/plain")
    return list((parse_open if accept else parse_text)(page.decode()))


def scraped(figures: Figures, accept: str = "") -> Samples:
    found: Samples = {}
    for family in families(figures, accept):
        for sample in family.samples:
            name = sample.name, tuple(sorted(sample.labels.items()))
            assert name not in found, f"{name} is there twice"
            found[name] = sample.value
    return found


def labelled(samples: Samples, name: str, label: str) -> dict[str, float]:
    return {dict(labels)[label]: value for (metric, labels), value in samples.items() if metric == name}


def of_queues(samples: Samples, name: str) -> dict[str, float]:
    return labelled(samples, name, "queue")


# ── a workload, and what it must come to ──


@dataclass
class ModelQueue:
    events: set[bytes]
    consumer: bytes | None = None  # there is one at most
    manual: bool = False
    ready: deque[bytes] = field(default_factory=deque)
    unacked: list[bytes] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def put(self, message: bytes) -> None:
        self.counts["published"] += 1
        self.ready.append(message)
        self.deliver()

    def deliver(self) -> None:
        while self.consumer and self.ready:
            message = self.ready.popleft()
            self.counts["delivered"] += 1
            if self.manual:
                self.unacked.append(message)

    def ack(self, message: bytes) -> None:
        self.unacked.remove(message)
        self.counts["acked"] += 1

    def reject(self, message: bytes) -> None:
        self.unacked.remove(message)
        self.counts["rejected"] += 1
        self.counts["retried"] += 1
        self.ready.append(message)
        self.deliver()

    def leave(self) -> None:
        """What was not acked goes back to its place, before all that came later."""
        self.consumer = None
        self.counts["retried"] += len(self.unacked)
        self.ready.extendleft(reversed(self.unacked))
        self.unacked.clear()


class Workload:
    """Does something at random to the broker, and to a plain account of it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.stage = Stage()
        self.publisher, self.consumer = self.stage.connect(), self.stage.connect()
        self.queues: dict[bytes, ModelQueue] = {}
        self.counts: Counter[str] = Counter()
        self.events: Counter[bytes] = Counter()
        self.bytes_in = 0
        self.number = 0
        for number in range(4):
            name, events = b"q%d" % number, set(self.rng.sample(EVENTS[:-1], 2))  # nobody wants the last one
            self.queues[name] = ModelQueue(events)
            self.say(self.consumer, b"r rebind %s %s" % (name, b" ".join(sorted(events))))

    def say(self, client: Client, line: bytes) -> None:
        self.bytes_in += len(line) + 1
        self.stage.say(client, line)

    def step(self) -> None:
        self.number += 1
        name, queue = self.rng.choice(sorted(self.queues.items()))
        self.rng.choice(self.ACTIONS)(self, name, queue)
        if self.rng.random() < 0.05:
            self.stage.wait()

    def publish(self, _: bytes, __: ModelQueue) -> None:
        event, message = self.rng.choice(EVENTS), b"m%d" % self.number
        self.say(self.publisher, b"%s publish %s data" % (message, event))
        self.counts["published"] += 1
        self.events[event] += 1
        for queue in self.queues.values():
            if event in queue.events:
                queue.put(message)

    def publish_twice(self, _: bytes, __: ModelQueue) -> None:
        line = b"m%d publish --once %s data" % (self.number, EVENTS[-1])
        self.say(self.publisher, line)
        self.say(self.publisher, line)
        self.counts["published"] += 1
        self.counts["duplicates"] += 1

    def consume(self, name: bytes, queue: ModelQueue) -> None:
        if queue.consumer:
            return
        queue.consumer, queue.manual = b"c%d" % self.number, self.rng.random() < 0.8
        self.say(self.consumer, b"%s consume %s%s" % (queue.consumer, name, b" --manual-ack" if queue.manual else b""))
        queue.deliver()

    def ack(self, _: bytes, queue: ModelQueue) -> None:
        if queue.unacked:
            message = self.rng.choice(queue.unacked)
            self.say(self.consumer, b"a ack %s %s" % (queue.consumer, message))
            queue.ack(message)

    def reject(self, _: bytes, queue: ModelQueue) -> None:
        if queue.unacked:
            message = self.rng.choice(queue.unacked)
            self.say(self.consumer, b"j reject %s %s" % (queue.consumer, message))
            queue.reject(message)

    def leave(self, _: bytes, queue: ModelQueue) -> None:
        if queue.consumer:
            self.say(self.consumer, b"d delete_consumer %s" % queue.consumer)
            queue.leave()

    def mistake(self, _: bytes, __: ModelQueue) -> None:
        self.say(self.publisher, b"x nonsense")
        self.counts["errors"] += 1

    ACTIONS = [publish] * 6 + [consume, ack, ack, ack, reject, reject, leave, mistake, publish_twice]

    def total(self, count: str) -> int:
        return sum(queue.counts[count] for queue in self.queues.values())


def test_what_full_queues_drop_is_counted() -> None:
    stage = Stage()
    client = stage.connect()
    stage.say(client, b"s subscribe q1 e1 --max-length=2 --overflow=drop-oldest", b"s subscribe q2 e1")
    stage.say(client, *[b"m publish e1 d"] * 5)
    stage.wait()
    samples = scraped(stage.figures)
    assert of_queues(samples, "mqks_queue_dropped_total") == {"q1": 3, "q2": 0}
    assert samples["mqks_dropped_total", ()] == 3


@pytest.mark.parametrize("accept", ["", OPEN])
@pytest.mark.parametrize("seed", range(5))
def test_all_counts_are_what_was_done(seed: int, accept: str) -> None:
    work = Workload(seed)
    for _ in range(1500):
        work.step()
    work.stage.wait()
    samples = scraped(work.stage.figures, accept)
    totals = {name: value for (name, labels), value in samples.items() if not labels}
    assert totals["mqks_published_total"] == work.counts["published"]
    assert totals["mqks_duplicates_total"] == work.counts["duplicates"]
    assert totals["mqks_errors_total"] == work.counts["errors"]
    for name in ("delivered", "acked", "rejected"):
        assert totals[f"mqks_{name}_total"] == work.total(name) > 0
    assert totals["mqks_received_bytes_total"] == work.bytes_in
    assert totals["mqks_connections"] == 2
    assert totals["mqks_queues"] == 4
    assert totals["mqks_consumers"] == sum(1 for queue in work.queues.values() if queue.consumer)
    for name in ("published", "delivered", "acked", "rejected", "retried"):
        expected = {queue.decode(): model.counts[name] for queue, model in work.queues.items()}
        assert of_queues(samples, f"mqks_queue_{name}_total") == expected
        assert any(expected.values())
    levels: dict[str, Callable[[ModelQueue], int]] = {
        "ready": lambda queue: len(queue.ready),
        "unacked": lambda queue: len(queue.unacked),
        "consumers": lambda queue: int(queue.consumer is not None),
    }
    for name, level in levels.items():
        expected = {queue.decode(): level(model) for queue, model in work.queues.items()}
        assert of_queues(samples, f"mqks_queue_{name}") == expected
    ages = of_queues(samples, "mqks_queue_oldest_seconds")
    assert {name: bool(age) for name, age in ages.items()} == {
        queue.decode(): bool(model.ready or model.unacked) for queue, model in work.queues.items()
    }
    wanted = set[bytes]().union(*(queue.events for queue in work.queues.values()))
    counted = {
        dict(labels)["event"]: value
        for (name, labels), value in samples.items()
        if name == "mqks_event_published_total"
    }
    assert counted == {event.decode(): work.events[event] for event in wanted}


# ── the rest ──


def test_both_formats_say_the_same() -> None:
    work = Workload(9)
    for _ in range(300):
        work.step()
    work.stage.wait()
    figures = work.stage.figures

    def own(samples: Samples) -> Samples:
        return {name: value for name, value in samples.items() if name[0].startswith("mqks_")}

    assert own(scraped(figures)) == own(scraped(figures, OPEN))
    types = {family.name: family.type for family in families(figures, OPEN)}
    assert types["mqks_queue_published"] == types["mqks_published"] == "counter"
    assert types["mqks_queue_ready"] == "gauge"
    assert types["mqks"] == "info"


def test_every_family_says_what_it_means() -> None:
    for family in families(Stage().figures, OPEN):
        assert family.documentation, family.name


def test_it_is_made_once_a_second_at_most() -> None:
    stage = Stage()
    metrics = Metrics(stage.figures)
    first, _ = metrics.text()
    assert metrics.text()[0] is first
    stage.wait()
    assert metrics.text()[0] is not first


@pytest.mark.parametrize(
    "accept",
    [
        *("", "*/*", ",;,", "text/plain;version=\xe9", "text/plain;version=1.0.0", "application/json"),
        *(f"{OPEN}{version}" for version in ("", ";version=x", ";version=1=2", ";version=99999.1.1", "; Version=0")),
        "application/openmetrics-text;version=1.0." + 5000 * "9",
        "text/html, Application/OpenMetrics-Text;version=1.0.0;q=0.5,text/plain;q=0.1",
    ],
)
def test_whatever_is_accepted_there_are_two_pages(accept: str) -> None:
    stage = Stage()
    metrics = Metrics(stage.figures)
    plain, opened = metrics.text(), metrics.text(OPEN)
    assert plain[1] == "text/plain; version=0.0.4; charset=utf-8"
    assert opened[1] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    page, kind = metrics.text(accept)
    known = opened if "openmetrics" in accept.lower() else plain
    assert page is known[0]
    assert kind == known[1]


def test_the_broker_and_its_process() -> None:
    stage = Stage(max_memory=1 << 20)
    stage.broker.connections.refused = 2
    stage.figures.refused_requests = 4
    stage.wait(7)
    samples = scraped(stage.figures)
    assert samples["mqks_info", (("durability", "memory"), ("version", mqks.__version__))] == 1
    assert samples["mqks_uptime_seconds", ()] == 7
    assert samples["mqks_refused_clients_total", ()] == 2
    assert samples["mqks_refused_requests_total", ()] == 4
    assert samples["mqks_memory_limit_bytes", ()] == 1 << 20
    assert samples["process_resident_memory_bytes", ()] > 1 << 20
    assert not [name for name, _ in samples if name.startswith(("mqks_journal", "mqks_disk", "mqks_hold"))]


@pytest.mark.parametrize("accept", ["", OPEN])
def test_names_of_any_bytes(accept: str) -> None:
    stage = Stage()
    names = {
        b'a"b': 'a"b',
        b"a\\b": "a\\b",
        b"a\\n": "a\\n",
        b"\xff": "\\xff",
        b"\\xff": "\\\\xff",
        "ü{}".encode(): "ü{}",
        b"a,b=c": "a,b=c",
    }
    client = stage.connect()
    stage.say(client, *(b"r rebind %s %s" % (name, name) for name in names))
    stage.wait()
    samples = scraped(stage.figures, accept)
    assert of_queues(samples, "mqks_queue_ready").keys() == set(names.values())
    assert labelled(samples, "mqks_event_published_total", "event").keys() == set(names.values())


def test_a_queue_that_is_gone_is_not_told_of() -> None:
    stage = Stage()
    client = stage.connect()
    metrics = Metrics(stage.figures)
    stage.say(client, b"r rebind a e", b"r rebind b e")
    stage.wait()
    assert b'mqks_queue_ready{queue="a"} 0' in metrics.text()[0]
    stage.say(client, b"d delete_queue a", b"m publish e x")
    stage.wait()
    page, _ = metrics.text()
    assert b'queue="a"' not in page
    assert b'mqks_queue_ready{queue="b"} 1' in page


def test_of_very_many_events_those_with_the_most() -> None:
    stage = Stage()
    client = stage.connect()
    stage.say(client, *(b"r rebind q%d %s" % (q, b" ".join(b"e%d.%d" % (q, e) for e in range(200))) for q in range(6)))
    stage.say(client, b"m publish e5.199 x")
    stage.wait()
    counted = labelled(scraped(stage.figures), "mqks_event_published_total", "event")
    assert len(counted) == MOST_SHOWN
    assert counted["e5.199"] == 1


def test_jobs() -> None:
    stage = Stage()
    client = stage.connect()
    stage.say(client, b"m publish mqks.pipeline.progress " + progress())
    stage.say(client, b"m publish mqks.pipeline.progress " + progress(job="stats", state="failed", lag_seconds=None))
    stage.wait()
    samples = scraped(stage.figures)
    assert samples["mqks_pipeline_running", (("job", "archive"),)] == 1
    assert samples["mqks_pipeline_running", (("job", "stats"),)] == 0
    assert samples["mqks_pipeline_lag_seconds", (("job", "archive"),)] == 2.5
    assert ("mqks_pipeline_lag_seconds", (("job", "stats"),)) not in samples
    assert samples["mqks_pipeline_lag_positions", (("job", "archive"),)] == 1000
    assert samples["mqks_pipeline_rows_per_second", (("job", "archive"),)] == 50.5
    stage.wait(30)
    assert scraped(stage.figures)["mqks_pipeline_running", (("job", "archive"),)] == 0  # it is silent


@pytest.mark.parametrize("accept", ["", OPEN])
def test_the_journal(tmp_path: Path, accept: str) -> None:
    disk = RealDisk(tmp_path)
    broker = Broker(disk=disk)
    broker.recover()
    client = broker.connect("127.0.0.1:5000")
    broker.feed(client, b"h hold archive 0 --for=60\nm publish e x\n")
    broker.turn()
    assert broker.persistence.journal is not None
    for seconds in (0.0001, 0.003, 0.003, 99.0):
        broker.persistence.journal.sync_times.add(seconds, 0.0)
    figures = Figures(broker, HOST)
    figures.sample()
    samples = scraped(figures, accept)
    journal = figures.journal()
    for point in ("earliest", "written", "synced"):
        assert samples["mqks_journal_position_bytes", (("point", point),)] == journal[point]
    assert samples["mqks_journal_bytes", ()] == journal["bytes"] > 0
    assert samples["mqks_journal_segments", ()] == 1
    assert samples["mqks_journal_full", ()] == 0
    assert samples["mqks_hold_behind_bytes", (("hold", "archive"),)] == journal["written"]
    assert samples["mqks_disk_free_bytes", ()] == journal["disk_free"]
    assert samples["mqks_disk_bytes", ()] == journal["disk_total"]
    times = broker.persistence.journal.sync_times
    assert samples["mqks_journal_sync_seconds_count", ()] == times.count >= 4
    assert samples["mqks_journal_sync_seconds_sum", ()] == pytest.approx(times.sum)
    buckets = {dict(labels)["le"]: value for (name, labels), value in samples.items() if name.endswith("_bucket")}
    assert len(buckets) == len(times.buckets) + 1
    assert buckets["+Inf"] == times.count
    assert list(buckets.values()) == sorted(buckets.values())
    assert buckets["0.005"] - buckets["0.0025"] >= 2
    broker.disconnect(client)
    broker.close()
    disk.stop()
