"""`mqks sub`, `mqks tail` and `mqks history`: messages on stdout, from a queue or from the log."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from mqks.cli.command import Command, amount, event, events, perhaps_seconds, place_in_utc, queue, some
from mqks.cli.connection import add_json, add_url, broker
from mqks.cli.output import Messages

if TYPE_CHECKING:
    from mqks.client.blocking import Consumer, Message

PREFETCH = 100  # with --ack: messages that the broker gives before one of them is acked
WHERE = "a position, a time in ISO form, earliest or latest"


def add_count(parser: ArgumentParser) -> None:
    parser.add_argument("--count", metavar="N", type=some, help="end after so many messages")


# ── sub ──


def add_sub(parser: ArgumentParser) -> None:
    parser.add_argument("queue", metavar="QUEUE", type=queue, help="made if there is none")
    parser.add_argument("events", metavar="EVENT", nargs="*", type=event, help="subscribe the queue to these instead")
    parser.add_argument("--add", action="store_true", help="subscribe to these events too, not instead")
    about = "ack each message when it has been printed; else the broker forgets it when it has been sent"
    parser.add_argument("--ack", action="store_true", help=about)
    about = f"with --ack: no more unacked messages than this (default {PREFETCH}; 0: any number)"
    parser.add_argument("--prefetch", metavar="N", type=amount, help=about)
    about = "delete the queue when it has no consumer (for so many seconds)"
    parser.add_argument("--delete-when-unused", metavar="S", nargs="?", type=perhaps_seconds, default=False, help=about)
    add_count(parser)
    add_url(parser)
    add_json(parser)


def sub(args: Namespace) -> int:
    if args.add and not args.events:
        args.parser.error("--add needs events to add")
    if args.prefetch is not None and not args.ack:
        args.parser.error("--prefetch needs --ack")
    # No more than --count may leave the queue: what was given beyond goes back to it, since nobody acks it.
    manual = args.ack or args.count is not None
    prefetch = PREFETCH if args.prefetch is None else args.prefetch
    if args.count is not None:
        prefetch = min(prefetch or args.count, args.count)
    with broker(args) as mq:
        consumer = mq.consume(
            args.queue,
            () if args.add else args.events,
            add_events=args.events if args.add else (),
            manual_ack=manual,
            prefetch=prefetch if manual else None,
            delete_queue_when_unused=args.delete_when_unused,
        )
        consumer.ready()
        print_messages(consumer, manual, args)
        consumer.delete()
    return 0


def print_messages(consumer: "Consumer", manual: bool, args: Namespace) -> None:
    """Print, flush, ack: in this order, for as many messages at a time as are there."""
    out = Messages(args.json)
    printed: list[Message] = []

    def settle() -> None:
        out.flush()
        for message in printed if manual else ():
            message.ack()
        printed.clear()

    shown = 0
    while args.count is None or shown < args.count:
        message = consumer.get(0)
        if message is None:
            settle()
            message = consumer.get()
        if message is None:  # there will be no more
            break
        out.show(message.id, message.event, message.data, retry=message.retry)
        shown += 1
        printed.append(message)
        if len(printed) >= PREFETCH:
            settle()
    settle()


# ── tail, history ──


def add_tail(parser: ArgumentParser) -> None:
    about = "only these events: e1 order.* (a * stands for anything but a dot)"
    parser.add_argument("events", metavar="MASK", nargs="*", type=event, help=about)
    where = f"begin here, not with what comes now: {WHERE}"
    parser.add_argument("--from", dest="start", metavar="PLACE", type=place_in_utc, default="latest", help=where)
    add_count(parser)
    add_url(parser)
    add_json(parser)
    parser.set_defaults(stop=None, follow=True)


def add_history(parser: ArgumentParser) -> None:
    parser.add_argument("start", metavar="FROM", nargs="?", type=place_in_utc, default="earliest", help=WHERE)
    parser.add_argument("--to", dest="stop", metavar="PLACE", type=place_in_utc, help="where to stop: the same")
    about = "only these: e1,order.*"
    parser.add_argument("--events", metavar="MASK,…", type=events, default=[], help=about)
    parser.add_argument("--limit", dest="count", metavar="N", type=amount, help="no more than so many messages")
    parser.add_argument("--follow", action="store_true", help="go on with what comes, until Ctrl-C")
    add_url(parser)
    add_json(parser)


def history(args: Namespace) -> int:
    out = Messages(args.json)
    with broker(args) as mq:
        records = mq.history(args.start, to=args.stop, events=args.events, limit=args.count, follow=args.follow)
        for record in records:
            out.show(record.id, record.event, record.data, position=record.position)
            if args.follow:
                out.flush()
        out.flush()
    return 0


SUB = Command("print the messages of a queue as they come", add_sub, sub, "mqks sub billing order.new order.paid --ack")
TAIL = Command("watch events as they come; no queue notices", add_tail, history, "mqks tail 'order.*'")
HISTORY = Command(
    "print messages that the broker has in its log",
    add_history,
    history,
    "mqks history 2026-01-31T12:00 --events='order.*' --json",
)
