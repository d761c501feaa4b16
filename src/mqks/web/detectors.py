"""What can be wrong, as a table: each detector looks at figures and says in words what it finds.

They are pure functions: no clock, no broker, nothing remembered. What has to last for some time before it counts comes
with its seconds.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from mqks.broker.limits import REASONS
from mqks.web.words import duration, key, quoted, rate, several, shown, size

OK, WARNING, TROUBLE = LEVELS = ("ok", "warning", "trouble")


@dataclass(frozen=True)
class Limits:
    """From where on something is worth a word. Times in seconds."""

    alone: float = 2.0  # messages wait and there is no consumer
    retries: int = 5  # of one message
    deaf: float = 3.0  # a client takes nothing of what waits for it
    idle: float = 3.0  # a consumer settles nothing, though messages wait
    behind: float = 2.0  # age of the oldest message in a queue that grows
    disk_share: float = 0.05  # of the disk, left
    disk_days: float = 1.0
    silent: float = 9.0  # a job says nothing; it speaks every 5 seconds
    starting: float = 90.0  # a job of before the broker's start says nothing; Spark takes its time, too
    stuck: float = 15.0  # a job has something to do and gets nowhere
    memory: float = 0.9  # of what may be used


LIMITS = Limits()


class Found(NamedTuple):
    kind: str
    subject: str  # what it is about, as a key
    level: str
    text: str  # a sentence
    why: str  # some words, where it is clear what they are about
    link: str
    more: str = ""  # how several more of the same are told; {} is their number
    queue: str = ""  # who is meant, for the log
    client: str = ""
    weight: float = 0.0  # among those of its kind: the heaviest are told first


# ── queues ──


class SlowConsumer(NamedTuple):
    id: str
    client: str
    seconds: float  # without settling anything
    unacked: int


class QueueSample(NamedTuple):
    """A queue in which something waits, or was retried lately."""

    name: str
    key: str
    ready: int
    consumers: int
    alone: float = 0.0  # seconds without a consumer
    since_start: bool = False  # of the broker: before it, nobody knows
    retrying: int = 0  # the most that a message has been retried lately
    in_rate: float = 0.0
    out_rate: float = 0.0
    grown: int = 0  # how many more wait than some seconds ago
    age: float | None = None  # of the oldest message that waits
    slow: Sequence[SlowConsumer] = ()

    @property
    def link(self) -> str:
        return f"#/queue/{self.key}"


def no_consumer(queue: QueueSample, limits: Limits) -> Iterator[Found]:
    if queue.ready and not queue.consumers and queue.alone >= limits.alone:
        alone = duration(queue.alone)
        since = f"since the start {alone} ago" if queue.since_start else f"for {alone}"
        waits = f"{several(queue.ready, 'message')} {'waits' if queue.ready == 1 else 'wait'}"
        yield Found(
            "no-consumer",
            queue.key,
            WARNING,
            f"{quoted(queue.name)} has had no consumer {since}, {waits}.",
            f"no consumer {since}",
            queue.link,
            "{} more queues have messages and no consumer.",
            queue=queue.name,
            weight=queue.ready,
        )


def poison(queue: QueueSample, limits: Limits) -> Iterator[Found]:
    if queue.retrying >= limits.retries:
        yield Found(
            "poison",
            queue.key,
            WARNING,
            f"{quoted(queue.name)} gives the same messages again and again: one came back {queue.retrying:,} times.",
            f"a message came back {queue.retrying:,} times",
            queue.link,
            "{} more queues give the same messages again and again.",
            queue=queue.name,
            weight=queue.retrying,
        )


def slow(queue: QueueSample, limits: Limits) -> Iterator[Found]:
    for consumer in queue.slow:
        if queue.ready and consumer.seconds >= limits.idle:
            yield Found(
                "slow",
                f"{queue.key} {consumer.client} {consumer.id}",
                WARNING,
                f"{quoted(queue.name)} has a slow consumer: {quoted(consumer.id)} of {consumer.client} has settled "
                f"nothing for {duration(consumer.seconds)} and has {several(consumer.unacked, 'message')}.",
                f"consumer {consumer.id} has settled nothing for {duration(consumer.seconds)}",
                queue.link,
                "{} more consumers are slow.",
                queue=queue.name,
                client=consumer.client,
                weight=consumer.seconds,
            )


def behind(queue: QueueSample, limits: Limits) -> Iterator[Found]:
    age = queue.age
    if age is None or age < limits.behind or any(slow(queue, limits)):  # a slow consumer is the reason, and told of
        return
    if queue.consumers and queue.grown > 0 and queue.out_rate < queue.in_rate:
        yield Found(
            "behind",
            queue.key,
            WARNING,
            f"{quoted(queue.name)} falls behind: {rate(queue.in_rate)} come and {rate(queue.out_rate)} go, "
            f"the oldest of {several(queue.ready, 'message')} has waited for {duration(age)}.",
            f"{rate(queue.in_rate)} come, {rate(queue.out_rate)} go",
            queue.link,
            "{} more queues fall behind.",
            queue=queue.name,
            weight=queue.ready,
        )


# ── all else ──


class DeafClient(NamedTuple):
    client: str
    seconds: float
    pending: int


class JobSample(NamedTuple):
    job: str
    state: str
    silent: float  # seconds since it spoke
    stuck: float  # seconds for which it has had something to do and got nowhere
    lag_seconds: float | None = None
    since_start: bool = False  # of the broker: it spoke only before

    @property
    def key(self) -> str:
        return key(self.job.encode())


class Situation(NamedTuple):
    broken: str | None = None
    full: str | None = None
    disk_free: int | None = None
    disk_total: int | None = None
    days_left: float | None = None
    memory: int = 0
    max_memory: int = 0
    reached: Mapping[str, int] = MappingProxyType({})  # limit → how often that was lately
    latest: Mapping[str, str] = MappingProxyType({})  # limit → by whom or what, the last time
    deaf: Sequence[DeafClient] = ()
    jobs: Sequence[JobSample] = ()


def broken(now: Situation, _: Limits) -> Iterator[Found]:
    if now.broken:
        text = f"The journal has failed and the broker stops: {now.broken}."
        yield Found("broken", "", TROUBLE, text, "the journal has failed", "#/journal")


def disk(now: Situation, limits: Limits) -> Iterator[Found]:
    link, free = "#/journal", now.disk_free
    if now.full:
        yield Found("disk", "", TROUBLE, f"No messages are taken: {now.full}.", "the disk is full", link)
    elif free is not None and now.disk_total and free < limits.disk_share * now.disk_total:
        share = f"{100 * free / now.disk_total:.1f} %"
        text = f"The disk is nearly full: {size(free)} are left, {share} of it."
        yield Found("disk", "", WARNING, text, f"{size(free)} left", link)
    elif now.days_left is not None and now.days_left < limits.disk_days:
        left = duration(now.days_left * 86_400)
        yield Found("disk", "", WARNING, f"The disk will be full in {left}.", f"full in {left}", link)


def memory(now: Situation, limits: Limits) -> Iterator[Found]:
    if now.memory > limits.memory * now.max_memory:
        share = f"{100 * now.memory / max(now.max_memory, 1):.0f} %"
        text = f"{share} of the memory is used, {size(now.memory)}: beyond the limit messages are refused."
        yield Found("memory", "", WARNING, text, f"{share} used", "#/connections")


def refused(now: Situation, _: Limits) -> Iterator[Found]:
    for name in ("max_connections", "max_connections_per_address"):
        if count := now.reached.get(name, 0):
            text = f"{several(count, 'client')} {'was' if count == 1 else 'were'} turned away: {REASONS[name]}."
            yield Found("refused", name, WARNING, text, "clients were turned away", "#/connections")


# Not what clients alone are to blame for, such as a long line; disk and memory are told of above.
WORTH_A_WORD = {
    "max_queues": "#/queues",
    "max_events": "#/queues",
    "max_consumers": "#/connections",
    "max_length": "#/queues",
    "max_bytes": "#/queues",
    "max_rate": "#/connections",
}


def limited(now: Situation, _: Limits) -> Iterator[Found]:
    for name, link in WORTH_A_WORD.items():
        if count := now.reached.get(name, 0):
            why = f"a limit was reached {several(count, 'time')}"
            by = f", the last time by {latest}" if (latest := now.latest.get(name)) else ""
            more = "{} more limits were reached."
            yield Found("limited", name, WARNING, f"{why.capitalize()}: {REASONS[name]}{by}.", why, link, more)


def deaf(now: Situation, limits: Limits) -> Iterator[Found]:
    for one in now.deaf:
        if one.seconds >= limits.deaf:
            why = f"has read nothing for {duration(one.seconds)}"
            text = f"Client {one.client} {why}, {size(one.pending)} wait for it."
            more = "{} more clients do not read."
            link, seconds = "#/connections", one.seconds
            yield Found("deaf", one.client, TROUBLE, text, why, link, more, client=one.client, weight=seconds)


def stalled(now: Situation, limits: Limits) -> Iterator[Found]:
    for job in now.jobs:
        if why := _stalled(job, limits):
            text = f"Spark {shown(job.job)} {why}."
            yield Found("stalled", job.key, WARNING, text, why, "#/pipeline", "{} more jobs are stalled.")


def _stalled(job: JobSample, limits: Limits) -> str | None:
    if job.state == "failed":
        return "has failed"
    if job.state != "running":
        return None
    if job.since_start:
        return f"has said nothing since the start {duration(job.silent)} ago" if job.silent > limits.starting else None
    if job.silent > limits.silent:
        return f"has said nothing for {duration(job.silent)}"
    if job.stuck > limits.stuck:
        lag = f", and is {duration(job.lag_seconds)} behind" if job.lag_seconds and job.lag_seconds >= 1 else ""
        return f"has got nowhere for {duration(job.stuck)}{lag}"
    return None


OF_QUEUES: tuple[Callable[[QueueSample, Limits], Iterator[Found]], ...] = (no_consumer, poison, slow, behind)
OF_ALL: tuple[Callable[[Situation, Limits], Iterator[Found]], ...] = (
    broken,
    disk,
    deaf,
    memory,
    refused,
    limited,
    stalled,
)


def about_queue(queue: QueueSample, limits: Limits = LIMITS) -> list[Found]:
    return [found for detector in OF_QUEUES for found in detector(queue, limits)]


def about_all(now: Situation, limits: Limits = LIMITS) -> list[Found]:
    return [found for detector in OF_ALL for found in detector(now, limits)]
