"""`/metrics`: the figures as Prometheus reads them. They are collected when somebody scrapes, at most once a second.

Families with a sample for each queue or event are written here, by hand: prometheus-client takes about a hundred times
as long for a sample, which with thousands of queues would stop the broker for a good part of a second.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, exposition
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.openmetrics import exposition as open_exposition
from prometheus_client.registry import Collector

from mqks import __version__
from mqks.broker.queues.queue import Queue
from mqks.journal.timing import Histogram
from mqks.names import text
from mqks.web.counters import COUNTERS, MOST_SHOWN
from mqks.web.state import Figures

MOST_QUEUES = 10_000
LONGEST_LABEL = 200  # bytes of a name
OTHERS = "all others"  # no queue is called so: names have no spaces
OPEN = "application/openmetrics-text"
END = b"# EOF\n"  # of a page in OpenMetrics

NAMES = {"refused": "refused_clients"}
GAUGES = {
    "connections": "Clients that are connected.",
    "consumers": "Consumers, of all clients.",
    "queues": "Queues.",
    "memory": "Bytes taken for messages, queues and buffers.",
    "max_memory": "Bytes that may be taken: --max-memory.",
}
GAUGE_NAMES = {"memory": "memory_bytes", "max_memory": "memory_limit_bytes"}

JOURNAL_GAUGES = {
    "bytes": ("journal_bytes", "Bytes of all segments."),
    "segments": ("journal_segments", "Segments."),
    "full": ("journal_full", "1 while the disk takes no more."),
    "disk_free": ("disk_free_bytes", "Bytes left on the journal's disk."),
    "disk_total": ("disk_bytes", "Bytes of the journal's disk."),
}
JOB_GAUGES = {
    "lag_seconds": "Age of the oldest event that the job has not done.",
    "lag_positions": "Positions that the job is behind the journal's end.",
    "rows_per_second": "Rows a second of the job's last batch.",
}

OfQueue = Callable[[Queue], int]
QUEUE_COUNTERS: dict[str, tuple[str, OfQueue]] = {
    "published": ("Messages put into the queue.", lambda queue: queue.published),
    "delivered": ("Deliveries of the queue.", lambda queue: queue.delivered),
    "acked": ("Manual acks of the queue.", lambda queue: queue.acked),
    "rejected": ("Rejects of the queue.", lambda queue: queue.rejected),
    "dropped": ("Messages that were dropped because the queue was full.", lambda queue: queue.dropped),
    "retried": ("Times that a message of the queue was rejected or returned.", lambda queue: queue.retried),
}
QUEUE_GAUGES: dict[str, tuple[str, OfQueue]] = {
    "ready": ("Messages that wait for a consumer.", lambda queue: queue.ready_count),
    "unacked": ("Messages given to consumers and not settled.", lambda queue: queue.unsettled),
    "consumers": ("Consumers of the queue.", lambda queue: len(queue.consumers)),
}
AGE = "Age of the oldest message of the queue; 0 if it has none."


class _Broker(Collector):
    """All but what there is of each queue and event."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        figures = self._figures
        totals, journal = figures.totals(), figures.journal()
        for name, counter in COUNTERS.items():
            yield CounterMetricFamily(f"mqks_{NAMES.get(name, name)}", counter.means, value=totals[name])
        help = "Requests over HTTP that were refused: from elsewhere, without the right, or too many at once."
        yield CounterMetricFamily("mqks_refused_requests", help, value=figures.refused_requests)
        help = "Times that a limit was reached."
        reached = CounterMetricFamily("mqks_limit_reached", help, labels=["limit"])
        for name, times in figures.broker.limits.times.items():
            reached.add_metric([name.replace("_", "-")], times)
        yield reached
        for name, help in GAUGES.items():
            yield GaugeMetricFamily(f"mqks_{GAUGE_NAMES.get(name, name)}", help, value=totals[name])
        yield GaugeMetricFamily("mqks_uptime_seconds", "Seconds since the broker was started.", value=figures.uptime)
        about = {"version": __version__, "durability": str(journal["durability"])}
        yield InfoMetricFamily("mqks", "The broker's version, and how safe messages are.", value=about)
        if (kept := figures.broker.persistence.journal) is not None:
            yield from self._journal(journal, kept.sync_times)
        yield from self._jobs()

    @staticmethod
    def _journal(journal: dict[str, Any], times: Histogram) -> Iterator[Metric]:
        positions = GaugeMetricFamily("mqks_journal_position_bytes", "Positions in the journal.", labels=["point"])
        for point in ("earliest", "written", "synced"):
            positions.add_metric([point], journal[point])
        yield positions
        yield CounterMetricFamily("mqks_journal_syncs", "Syncs of the journal.", value=journal["syncs"])
        for key, (name, help) in JOURNAL_GAUGES.items():
            if journal[key] is not None:
                yield GaugeMetricFamily(f"mqks_{name}", help, value=float(journal[key]))
        held = GaugeMetricFamily("mqks_hold_behind_bytes", "Bytes of journal that a hold keeps.", labels=["hold"])
        for name, behind in {hold["name"]: hold["behind"] for hold in journal["holds"]}.items():  # a cut one may be two
            held.add_metric([name], behind)
        yield held
        count, buckets = 0, []
        for bound, more in zip([*map(str, times.buckets), "+Inf"], times.counts, strict=True):
            count += more
            buckets.append((bound, float(count)))
        help = "Seconds that a sync took."
        yield HistogramMetricFamily("mqks_journal_sync_seconds", help, buckets=buckets, sum_value=times.sum)

    def _jobs(self) -> Iterator[Metric]:
        jobs = self._figures.jobs()
        running = GaugeMetricFamily("mqks_pipeline_running", "1 if the job on Spark says that it runs.", labels=["job"])
        for job in jobs:
            running.add_metric([job["job"]], float(job["state"] == "running" and job["level"] == "ok"))
        yield running
        for name, help in JOB_GAUGES.items():
            family = GaugeMetricFamily(f"mqks_pipeline_{name}", help, labels=["job"])
            for job in jobs:
                if job[name] is not None:
                    family.add_metric([job["job"]], job[name])
            yield family


class Metrics:
    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._registry = CollectorRegistry()
        self._registry.register(_Broker(figures))
        ProcessCollector(registry=self._registry)
        self._labels: dict[bytes, str] = {}

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """The page and its content type: OpenMetrics for those who accept it, and else plain text."""
        is_open = any(kind.partition(";")[0].strip().lower() == OPEN for kind in accept.split(","))
        page = self._figures.once(f"metrics {is_open}", lambda: self._page(is_open))
        return page, open_exposition.CONTENT_TYPE_LATEST if is_open else exposition.CONTENT_TYPE_PLAIN_0_0_4

    def _page(self, is_open: bool) -> bytes:
        page: bytes = (open_exposition if is_open else exposition).generate_latest(self._registry)
        many = "".join(self._many(is_open)).encode()
        return page.removesuffix(END) + many + END if is_open else page + many

    def _many(self, is_open: bool) -> Iterator[str]:
        figures = self._figures
        queues, others = figures.scraped(MOST_QUEUES, LONGEST_LABEL)
        labels = self._of(queues)
        left = {name: sum(map(count, others)) for name, (_, count) in QUEUE_GAUGES.items()} if others else {}
        for name, (help, count) in QUEUE_COUNTERS.items():
            counts = zip(labels, map(count, queues), strict=True)
            yield from _family(f"mqks_queue_{name}", "counter", help, counts, is_open)
        for name, (help, count) in QUEUE_GAUGES.items():
            counts = zip(labels, map(count, queues), strict=True)
            rest = [(_label("queue", OTHERS), left[name])] if left else []
            yield from _family(f"mqks_queue_{name}", "gauge", help, chain(counts, rest), is_open)
        ages = zip(labels, (figures.age(queue) or 0.0 for queue in queues), strict=True)
        yield from _family("mqks_queue_oldest_seconds", "gauge", AGE, ages, is_open)
        help = f"Messages of the event so far; of the {MOST_SHOWN:,} subscribed events with the most."
        counted = figures.event_counts()
        events = ((_label("event", text(event)), count) for event, count in counted if len(event) <= LONGEST_LABEL)
        yield from _family("mqks_event_published", "counter", help, events, is_open)

    def _of(self, queues: Iterable[Queue]) -> list[str]:
        """The labels, which stay the same as long as the queues do."""
        known = self._labels
        self._labels = {queue.name: known.get(queue.name) or _label("queue", text(queue.name)) for queue in queues}
        return list(self._labels.values())


def _label(name: str, value: str) -> str:
    escaped = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return f'{{{name}="{escaped}"}} '


def _family(name: str, kind: str, help: str, samples: Iterable[tuple[str, float]], is_open: bool) -> Iterator[str]:
    """As both formats have it: they differ in where a counter is called _total."""
    sample = f"{name}_total" if kind == "counter" else name
    about = name if is_open else sample
    yield f"# HELP {about} {help}\n# TYPE {about} {kind}\n"
    yield "".join([f"{sample}{labels}{value}\n" for labels, value in samples])
