"""Brokers as an operator meets them: at work, and with one of five things wrong. They have HTTP and a journal.

Each incident is a block: while it runs, the thing is wrong. `holds` tells by the broker's own state when it has begun.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import mqks
import mqks.testing
from mqks.journal.journal import Journal
from tests.running import PATIENCE

State = dict[str, Any]
Stage = Callable[[mqks.testing.Broker], AbstractContextManager[None]]

PROGRESS, STATS = "mqks.pipeline.progress", "mqks.stats.minute"
TURN = 0.02  # seconds between two messages of who keeps publishing
SPEAKS_EVERY = 5.0  # seconds, a job on Spark
HOSTILE = '<img/src=x/onerror=alert(1)>&"' + "'"
PATH = "a/b?c=d#e"

# ── at work ──

QUEUES = {
    "billing": ["order.paid", "order.refunded"],
    "search-index": ["order.paid", "user.created", "page.changed"],
    "sessions": ["user.connected"],
    "push-notifications": ["user.connected", "order.paid"],
    HOSTILE: ["user.created"],
    PATH: ["user.created"],
    "очередь:{1}": ["user.created"],
}
SHARES = {"user.connected": 5, "order.paid": 3, "page.changed": 1, "user.created": 1, "order.refunded": 1}


@contextmanager
def at_work(broker: mqks.testing.Broker) -> Iterator[mqks.Client]:
    """Some fifty messages a second from five events to seven queues, a pipeline that tells of itself, and `mail`, which
    nobody consumes. The client is for the test."""
    stop = threading.Event()
    with ExitStack() as stack:
        mq = stack.enter_context(mqks.Client(broker.url))
        mq.rebind("mail", ["mail.wanted"])
        for number in range(30):
            mq.publish(
                "mail.wanted", {"to": f"user{number}@example.org", "template": "welcome", "urgent": number % 3 == 0}
            )
        workers = stack.enter_context(mqks.Client(broker.url))
        for queue, events in QUEUES.items():
            stack.enter_context(running(take_all, stack.enter_context(workers.consume(queue, events)), stop))
        stack.enter_context(running(keep_publishing, mq, stop))
        stack.callback(stop.set)
        yield mq


@contextmanager
def running(work: Callable[..., None], *arguments: object) -> Iterator[None]:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    yield
    thread.join()


def take_all(consumer: mqks.Consumer, stop: threading.Event) -> None:
    while not stop.is_set():
        consumer.get(timeout=TURN)


def keep_publishing(mq: mqks.Client, stop: threading.Event) -> None:
    events = [event for event, share in SHARES.items() for _ in range(share)]
    tell_minutes(mq)
    turn = 0
    while not stop.wait(TURN):
        if turn % 100 == 0:
            tell_jobs(mq, turn)
        mq.publish(
            events[turn % len(events)], {"number": turn, "user": {"id": turn % 7, "name": "Kate"}, "tags": ["a", "b"]}
        )
        turn += 1


def tell_jobs(mq: mqks.Client, turn: int) -> None:
    mq.publish(PROGRESS, progress("archive", position=1_233_900 + turn, rows=812_345 + turn, rows_per_second=2311.0))
    mq.publish(PROGRESS, progress("stats", position=1_234_400 + turn, rows=812_345 + turn, rows_per_second=2290.5))


def progress(job: str, position: int, rows: int = 0, rows_per_second: float = 0.0, state: str = "running") -> State:
    """What a job says; the end of the journal is some bytes further."""
    latest = max(1_234_567, position)
    return {
        "job": job,
        "state": state,
        "batch": 812,
        "rows": rows,
        "rows_per_second": rows_per_second,
        "position": position,
        "latest": latest,
        "lag_positions": latest - position,
        "lag_seconds": (latest - position) / 300,
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }


def tell_minutes(mq: mqks.Client, minutes: int = 45) -> None:
    """Counts of the last minutes, of which the newest is not final."""
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    for back in range(minutes, -1, -1):
        minute = (now - timedelta(minutes=back)).strftime("%Y-%m-%dT%H:%M:%SZ")
        for name, share in SHARES.items():
            count = share * (1000 + 40 * (back % 11) + 15 * back)
            row = {"minute": minute, "name": name, "count": count, "bytes": count * 90, "rate": round(count / 60, 1)}
            mq.publish(STATS, {**row, "kind": "event", "final": back > 0})
            if back == 0:
                mq.publish(STATS, {**row, "kind": "mask", "final": False})
    mq.publish(STATS, {**row, "kind": "queue", "name": "billing", "final": False})


# ── what may go wrong ──


@dataclass(frozen=True)
class Incident:
    kind: str
    stage: Stage
    holds: Callable[[State], bool]
    named: str  # what the sentence has to say, as a regex
    leads_to: str


def queue_of(state: State, name: str) -> State:
    """All zero if it is not there yet."""
    nothing = {"ready": 0, "unacked": 0, "consumers": 0, "retrying": 0}
    return next((queue for queue in state["queues"] if queue["name"] == name), nothing)


@contextmanager
def no_consumer(broker: mqks.testing.Broker) -> Iterator[None]:
    with mqks.Client(broker.url) as mq:
        mq.rebind("mail", ["mail.wanted"])
        mq.publish_many(("mail.wanted", {"to": f"user{number}@example.org"}) for number in range(7))
        yield
        mq.delete_queue("mail")


@contextmanager
def poison(broker: mqks.testing.Broker) -> Iterator[None]:
    """One message that its consumer cannot digest."""
    stop = threading.Event()

    def reject_all(orders: mqks.Consumer) -> None:
        while not stop.wait(TURN):
            if message := orders.get(timeout=TURN):
                message.reject()

    with mqks.Client(broker.url) as mq, mq.consume("billing", ["order.paid"], manual_ack=True) as orders:
        mq.publish("order.paid", "not what anyone expects", confirm=True)
        with running(reject_all, orders):
            yield
            stop.set()
        mq.delete_queue("billing")


@contextmanager
def slow_consumer(broker: mqks.testing.Broker) -> Iterator[None]:
    """It took one picture, and is at it for ever, while others wait."""
    with mqks.Client(broker.url) as mq, mq.consume("thumbnails", ["picture"], manual_ack=True, prefetch=1) as pictures:
        mq.publish_many(("picture", str(number)) for number in range(5))
        assert pictures.get(timeout=PATIENCE)
        yield
        mq.delete_queue("thumbnails")


@contextmanager
def nearly_full_disk(_: mqks.testing.Broker) -> Iterator[None]:
    with patch.object(Journal, "space", return_value=(2 << 30, 100 << 30)):
        yield


@contextmanager
def stalled_job(broker: mqks.testing.Broker) -> Iterator[None]:
    """It had something to do, and was not heard of again."""
    with mqks.Client(broker.url) as mq:
        mq.publish(PROGRESS, progress("archive", position=1_000_000), confirm=True)
        yield
        mq.publish(PROGRESS, progress("archive", position=1_234_567, state="stopped"), confirm=True)


def waits_alone(state: State) -> bool:
    queue = queue_of(state, "mail")
    return bool(queue["ready"]) and not queue["consumers"]


def does_nothing(state: State) -> bool:
    queue = queue_of(state, "thumbnails")
    return bool(queue["ready"] and queue["unacked"])


def has_missed_its_word(state: State) -> bool:
    return any(job["state"] == "running" and job["age"] > SPEAKS_EVERY for job in state["pipeline"]["jobs"])


INCIDENTS = [
    Incident(
        "no-consumer", no_consumer, waits_alone, r"mail has had no consumer for \d+ s, 7 messages wait", "#/queue/mail"
    ),
    Incident(
        "poison",
        poison,
        lambda state: queue_of(state, "billing")["retrying"] >= 5,
        r"billing .* again and again",
        "#/queue/billing",
    ),
    Incident("slow", slow_consumer, does_nothing, r"thumbnails has a slow consumer", "#/queue/thumbnails"),
    Incident(
        "disk",
        nearly_full_disk,
        lambda state: state["journal"]["disk_free"] == 2 << 30,
        r"The disk is nearly full: .+ are left",
        "#/journal",
    ),
    Incident("stalled", stalled_job, has_missed_its_word, r"Spark archive has said nothing for \d+ s", "#/pipeline"),
]
