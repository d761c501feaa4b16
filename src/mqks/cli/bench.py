"""`mqks bench`: one number for this machine and this broker. docs/BENCHMARKS.md compares it with others."""

import os
import threading
import time
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, NamedTuple

from mqks.cli.command import Command, add_json, amount, seconds
from mqks.cli.connection import add_url, apart, broker
from mqks.cli.output import as_json, complain
from mqks.formatting import size_in_tenths

if TYPE_CHECKING:
    from mqks.client.blocking import Client, Consumer

BATCH = 500  # messages published together
MOST_UNDERWAY = 20_000  # published and not consumed: so that the broker's memory is not what is measured
END = "end"  # data of the last message, which is none of those that are counted
ROUND_TRIPS = 1_000
PATIENCE = 10.0  # seconds until a message that does not come counts as lost


class Result(NamedTuple):
    messages: int
    seconds: float
    median: float  # ms
    slow: float  # ms: 99 % are quicker

    @property
    def speed(self) -> float:
        return self.messages / self.seconds


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--size", metavar="BYTES", type=amount, default=128, help="of a message's data (default 128)")
    parser.add_argument("--seconds", metavar="S", type=seconds, default=3.0, help="how long (default 3)")
    add_url(parser)
    add_json(parser)


def run(args: Namespace) -> int:
    with broker(args, tell=False) as consuming, broker(args, tell=False) as publishing:
        durability = consuming.stats()["durability"]
        if durability != "memory":
            complain("the messages of this run go to the broker's journal, and stay there until retention removes them")
        result = apart(lambda: measure(publishing, consuming, args))
    print(as_fields(result, args, durability) if args.json else as_text(result, args, durability))
    return 0


def measure(publishing: "Client", consuming: "Client", args: Namespace) -> Result:
    name = f"mqks-bench-{time.time_ns()}-{os.getpid()}"
    data = "x" * args.size
    # Should this process be stopped or killed, the queue goes with its consumer.
    consumer = consuming.consume(name, [name], delete_queue_when_unused=True)
    consumer.ready()
    publishing.publish(name, data, confirm=True)  # should the broker refuse such messages, it is told here
    receive(consumer)
    messages, passed = throughput(publishing, consumer, name, data, args.seconds)
    times = sorted(round_trips(publishing, consumer, name, data))
    consuming.delete_queue(name)
    return Result(messages, passed, times[len(times) // 2], times[len(times) * 99 // 100])


def throughput(mq: "Client", consumer: "Consumer", event: str, data: str, length: float) -> tuple[int, float]:
    """Messages that came through, and in what time."""
    batch = [(event, data)] * BATCH
    underway = threading.Semaphore(MOST_UNDERWAY // BATCH)

    def publish() -> None:
        going_on = True
        while going_on:  # at least one batch, however late this thread gets its turn
            if underway.acquire(timeout=1):
                mq.publish_many(batch, confirm=False)
            going_on = time.perf_counter() - begun < length
        mq.publish(event, END)

    begun = time.perf_counter()
    threading.Thread(target=publish, name="publisher", daemon=True).start()
    came = 0
    while receive(consumer) != END:
        came += 1
        if came % BATCH == 0:
            underway.release()
    return came, time.perf_counter() - begun


def round_trips(mq: "Client", consumer: "Consumer", event: str, data: str) -> list[float]:
    """Milliseconds from a publish until the message is there, one after the other."""
    times: list[float] = []
    end = time.perf_counter() + 1
    while len(times) < ROUND_TRIPS and (not times or time.perf_counter() < end):
        begun = time.perf_counter()
        mq.publish(event, data)
        receive(consumer)
        times.append(1000 * (time.perf_counter() - begun))
    return times


def receive(consumer: "Consumer") -> str:
    message = consumer.get(PATIENCE)
    if message is None:
        raise TimeoutError(f"no message came for {PATIENCE:g} s: was the broker stopped, or the queue deleted?")
    return message.data


def as_text(result: Result, args: Namespace, durability: str) -> str:
    what = f"{result.messages:,} messages of {size_in_tenths(args.size)} in {result.seconds:.1f} s"
    return (
        f"{result.speed:,.0f} msg/s, round trip {result.median:.3f} ms (median), {result.slow:.3f} ms (99 %)\n"
        f"one Python process published and consumed {what}, through one queue, auto ack, durability {durability}"
    )


def as_fields(result: Result, args: Namespace, durability: str) -> str:
    return as_json(
        {
            "messages_per_s": round(result.speed),
            "round_trip_median_ms": round(result.median, 3),
            "round_trip_99_ms": round(result.slow, 3),
            "messages": result.messages,
            "seconds": round(result.seconds, 3),
            "size": args.size,
            "durability": durability,
        }
    )


COMMAND = Command("measure messages per second, here and now", arguments, run, "mqks bench --size 1024")
