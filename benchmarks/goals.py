"""The goals: what MQKS must reach, as a ratio to a peer in the same run, or as a plain number."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """How a measured number is shown."""

    key: str
    title: str
    unit: str


METRICS = [
    Metric("rate", "delivered", "/s"),
    Metric("cpu_us", "server CPU", "µs/msg"),
    Metric("plain_cpu_us", "server CPU, --no-http", "µs/msg"),
    Metric("watched_times", "CPU, times that with --no-http", "x"),
    Metric("client_cpu_us", "client CPU", "µs/msg"),
    Metric("p50_us", "latency p50", "µs"),
    Metric("p99_us", "latency p99", "µs"),
    Metric("connection_bytes", "memory per connection", "B"),
    Metric("beyond_bytes", "memory per message beyond its bytes", "B"),
    Metric("taken_rate", "taken", "/s"),
    Metric("drain_rate", "drained", "/s"),
    Metric("drain_cpu_us", "server CPU, draining", "µs/msg"),
    Metric("left_mib", "memory left after the drain", "MiB"),
    Metric("queue_bytes", "memory per queue", "B"),
    Metric("confirmed_rate", "confirmed", "/s"),
    Metric("start_s", "start after kill -9", "s"),
    Metric("peak_mib", "peak memory", "MiB"),
    Metric("history_rate", "history", "/s"),
    Metric("raw_mb", "history, raw", "MB/s"),
    Metric("row_rate", "rows", "/s"),
    Metric("row_us", "time", "µs/row"),
    Metric("spark_cpu_us", "Spark CPU", "µs/row"),
    Metric("first_p50_s", "first update, p50", "s"),
    Metric("first_max_s", "first update, longest", "s"),
]


@dataclass(frozen=True)
class Goal:
    """Our number, divided by the peer's where there is a peer, is at least or at most `limit`."""

    scenario: str
    metric: str
    peer: str | None
    at_least: bool
    limit: float
    family: str = "MQKS"

    def text(self) -> str:
        sign = "≥" if self.at_least else "≤"
        limit = f"{self.limit:g}x {self.peer}" if self.peer else f"{self.limit:,.10g}"
        return f"{sign} {limit}" if self.family == "MQKS" else f"{self.family} {sign} {limit}"

    def met(self, medians: Mapping[str, Mapping[str, float]]) -> bool | None:
        """From family → metric → median; None when one of the two was not measured."""
        ours = medians.get(self.family, {}).get(self.metric)
        theirs = medians.get(self.peer, {}).get(self.metric) if self.peer else 1.0
        if ours is None or not theirs:
            return None
        return ours / theirs >= self.limit if self.at_least else ours / theirs <= self.limit


def like_one_to_one(scenario: str) -> list[Goal]:
    return [
        Goal(scenario, "rate", "NATS", True, 2.5),
        Goal(scenario, "rate", "copy", True, 0.6),
        Goal(scenario, "cpu_us", "NATS", False, 0.25),
    ]


def like_a_client(scenario: str, metric: str) -> list[Goal]:
    return [Goal(scenario, metric, "NATS", True, 5, family) for family in ("MQKS", "MQKS blocking")]


GOALS = [
    *like_one_to_one("auto-128"),
    *like_one_to_one("mixed"),
    Goal("manual", "rate", "NATS", True, 10),
    Goal("manual", "rate", "Redis", True, 5),
    Goal("fan-100", "rate", "NATS", True, 3),
    Goal("latency", "p50_us", "NATS", False, 1),
    Goal("latency", "p99_us", "NATS", False, 1),
    Goal("idle", "connection_bytes", None, False, 4096),
    Goal("backlog", "beyond_bytes", None, False, 16),
    Goal("journal-128", "rate", "MQKS memory", True, 0.7),
    Goal("journal-128", "rate", "NATS", True, 2),
    Goal("journal-manual", "rate", "MQKS memory", True, 0.7),
    Goal("journal-manual", "rate", "NATS", True, 2),
    Goal("confirmed", "confirmed_rate", "Redis", True, 5),
    Goal("confirmed", "confirmed_rate", "NATS", True, 1),
    Goal("recovery", "start_s", None, False, 10),
    Goal("drain", "peak_mib", None, False, 320),
    Goal("history", "history_rate", None, True, 1e6),
    Goal("client-publish", "taken_rate", None, True, 300_000),
    *like_a_client("client-publish", "taken_rate"),
    *like_a_client("client-consume", "rate"),
    *like_a_client("client-confirmed", "confirmed_rate"),
    *like_a_client("client-manual", "rate"),
    Goal("http-cost", "watched_times", None, False, 1.01),
    Goal("tls-128", "rate", "NATS", True, 2.5),
    Goal("tls-128", "cpu_us", "NATS", False, 0.5),
    Goal("spark-scan", "row_rate", "Spark text", True, 2),
    Goal("spark-filter", "row_rate", "MQKS scan", True, 1.5),
    Goal("spark-stream", "row_rate", None, True, 500_000),
    Goal("spark-sink", "row_rate", None, True, 250_000),
    Goal("spark-stats", "first_p50_s", None, False, 2),
    Goal("spark-flat", "row_us", "MQKS 1/50", False, 1.2),
]
