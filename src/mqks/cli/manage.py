"""`mqks rebind`, `delete-queue`, `ping` and `eval`: one question, one answer."""

import statistics
import time
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from mqks.cli.command import (
    Command,
    add_json,
    add_limits,
    data,
    event,
    limits_of,
    note_masks,
    perhaps_seconds,
    queue,
    some,
)
from mqks.cli.connection import add_url, broker
from mqks.cli.output import as_json, complain, in_utf8, shown_name, visible
from mqks.formatting import counted

if TYPE_CHECKING:
    from mqks.client.blocking import Client

# ── rebind ──


def add_rebind(parser: ArgumentParser) -> None:
    parser.add_argument("queue", metavar="QUEUE", type=queue, help="made if there is none")
    about = "subscribe it to these instead; with no event and no flag it is subscribed to nothing"
    parser.add_argument("events", metavar="EVENT", nargs="*", default=[], type=event, help=about)
    for flag, about in (
        ("--remove", "no longer to these"),
        ("--remove-mask", "no longer to what these match: 'order.*'"),
        ("--add", "to these too"),
    ):
        parser.add_argument(flag, metavar="EVENT", nargs="+", action="extend", default=[], type=event, help=about)
    add_limits(parser)
    add_url(parser)
    add_json(parser)


def queues_of(mq: "Client") -> dict[str, Any] | None:
    """By name, as `stats` has them; None for a token that may not see them."""
    from mqks.client.errors import Refused

    try:
        queues: dict[str, Any] = mq.stats()["queues"]
    except Refused:
        return None
    return queues


def rebind(args: Namespace) -> int:
    changes, limits = {"remove": args.remove, "remove_mask": args.remove_mask, "add": args.add}, limits_of(args)
    note_masks([*args.events, *args.remove, *args.add])
    events = args.events if args.events or not (any(changes.values()) or limits) else None
    with broker(args) as mq:
        mq.rebind(args.queue, events, **changes, **limits)
        queues = queues_of(mq)
    now = None if queues is None else queues.get(shown_name(args.queue), {}).get("events", [])
    if args.json:
        print(as_json({"queue": shown_name(args.queue), "events": now}))
    elif now is None:
        print(f"{visible(args.queue)} is rebound; this token may not see to what")
    else:
        print(f"{visible(args.queue)} is subscribed to {visible(' '.join(now)) or 'nothing'}")
    return 0


# ── delete-queue ──


def add_delete(parser: ArgumentParser) -> None:
    parser.add_argument("queue", metavar="QUEUE", type=queue)
    about = "only when it has no consumer (for so many seconds)"
    parser.add_argument("--when-unused", metavar="S", nargs="?", type=perhaps_seconds, default=False, help=about)
    add_url(parser)
    add_json(parser)


def delete(args: Namespace) -> int:
    with broker(args) as mq:
        queues = queues_of(mq)  # the broker says `ok` to the deletion of a queue that is not there
        if queues is not None and shown_name(args.queue) not in queues:
            complain(f"there is no queue {visible(args.queue)}")
            return 1
        mq.delete_queue(args.queue, when_unused=args.when_unused)
    if args.json:
        print(as_json({"queue": shown_name(args.queue), "when_unused": args.when_unused}))
    elif args.when_unused is False:
        unseen = "" if queues is not None else ", if it was there; this token may not see that"
        print(f"{visible(args.queue)} is deleted{unseen}")
    else:
        wait = "" if args.when_unused is True else f" for {args.when_unused:g} s"
        print(f"{visible(args.queue)} goes when it has no consumer{wait}")
    return 0


# ── ping, eval ──


def add_ping(parser: ArgumentParser) -> None:
    parser.add_argument(
        "data", metavar="DATA", nargs="?", type=data, default="", help="what the broker shall send back"
    )
    parser.add_argument("--count", metavar="N", type=some, default=10, help="how many times (default 10)")
    add_url(parser)
    add_json(parser)


def ping(args: Namespace) -> int:
    times = []
    with broker(args) as mq:
        for _ in range(args.count):
            begun = time.perf_counter()
            answer = mq.ping(args.data)
            times.append(1000 * (time.perf_counter() - begun))
            if answer != args.data:
                complain(f"the broker answered {answer!r} to {args.data!r}")
                return 1
    figures = {"min": min(times), "median": statistics.median(times), "max": max(times)}
    if args.json:
        print(as_json({"count": args.count, **{f"{name}_ms": round(value, 3) for name, value in figures.items()}}))
    else:
        told = ", ".join(f"{name} {value:.3f} ms" for name, value in figures.items())
        print(f"{counted(args.count, 'ping')}: {told}")
    return 0


def add_eval(parser: ArgumentParser) -> None:
    parser.add_argument("code", metavar="CODE", help="an expression over `state`: docs/PROTOCOL.md, _eval")
    add_url(parser)
    add_json(parser)


def evaluate(args: Namespace) -> int:
    with broker(args) as mq:
        result = mq.eval(args.code)
    print(as_json({"result": in_utf8(result)}) if args.json else visible(result))
    return 0


REBIND = Command("change the events of a queue", add_rebind, rebind, "mqks rebind billing --add order.refunded")
DELETE = Command("delete a queue and its messages", add_delete, delete, "mqks delete-queue billing")
PING = Command("measure round trips to the broker", add_ping, ping, "mqks ping --count 100")
EVAL = Command("ask the broker an expression", add_eval, evaluate, "mqks eval 'len(state.queues)'")
