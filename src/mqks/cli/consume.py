"""`mqks sub`, `mqks tail` and `mqks history`: messages on stdout, from a queue or from the log."""

import math
import os
import sys
import threading
from argparse import ArgumentParser, Namespace
from bisect import bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING

from mqks.cli.command import (
    Command,
    add_json,
    add_limits,
    amount,
    event,
    events,
    limits_of,
    note_masks,
    perhaps_seconds,
    place,
    queue,
    some,
)
from mqks.cli.connection import add_url, apart, broker
from mqks.cli.output import Messages

if TYPE_CHECKING:
    from mqks.client.blocking import Consumer, Message

PREFETCH = 1000  # messages that the broker gives before one of them is acked
PIECE = 1 << 15  # bytes that are printed, and then acked, together
PATIENCE = 2.0  # seconds for stdout to take a piece, and for the broker to take its acks, after Ctrl-C
WHERE = "a position, a time in ISO form, earliest or latest"


def add_count(parser: ArgumentParser) -> None:
    parser.add_argument("--count", metavar="N", type=some, help="end after so many messages")


# ── sub ──


def add_sub(parser: ArgumentParser) -> None:
    parser.add_argument("queue", metavar="QUEUE", type=queue, help="made if there is none")
    about = "subscribe the queue to these instead"
    parser.add_argument("events", metavar="EVENT", nargs="*", default=[], type=event, help=about)
    parser.add_argument("--add", action="store_true", help="subscribe to these events too, not instead")
    about = "ack each message before the next one is printed, not many at a time"
    parser.add_argument("--ack", action="store_true", help=about)
    about = f"no more messages on their way than this (default {PREFETCH}; 0: any number)"
    parser.add_argument("--prefetch", metavar="N", type=amount, default=PREFETCH, help=about)
    about = "delete the queue when it has no consumer (for so many seconds)"
    parser.add_argument("--delete-when-unused", metavar="S", nargs="?", type=perhaps_seconds, default=False, help=about)
    add_limits(parser)
    add_count(parser)
    add_url(parser)
    add_json(parser)


def sub(args: Namespace) -> int:
    if args.add and not args.events:
        args.parser.error("--add needs events to add")
    note_masks(args.events)
    with broker(args) as mq:
        consumer = mq.consume(
            args.queue,
            () if args.add else args.events,
            add_events=args.events if args.add else (),
            manual_ack=True,
            prefetch=min(args.prefetch or args.count, args.count) if args.count else args.prefetch,
            delete_queue_when_unused=args.delete_when_unused,
            **limits_of(args),
        )
        consumer.ready()
        printing = Printing(consumer, Messages(args.json), at_once=not args.ack)
        try:
            apart(lambda: printing.run(args.count))
        except KeyboardInterrupt:
            printing.finish()
            raise
        consumer.delete()
    return 0


class Printing:
    """Prints messages, and acks those that stdout has taken as a whole: what was not printed stays in the queue.

    It runs in a thread of its own. Whoever wants it to end waits until it is between two pieces.
    """

    def __init__(self, consumer: "Consumer", messages: Messages, *, at_once: bool) -> None:
        self._consumer = consumer
        self._messages = messages
        self._at_once = at_once
        self._out = sys.stdout.fileno()  # not its buffer, which does not tell how much was written
        self._busy = threading.Lock()
        self._ending = False  # else the one who prints could take the lock again and again

    def run(self, count: int | None) -> None:
        left = math.inf if count is None else count
        while left and not self._ending and (message := self._consumer.get()):
            with self._busy:
                left -= self._print(message, left if self._at_once else 1)

    def finish(self) -> None:
        """After the piece that is being printed, if stdout takes it in good time, nothing more is."""
        self._ending = True
        self._busy.acquire(timeout=PATIENCE)

    def _print(self, first: "Message", most: float) -> int:
        """This message and those that are there already, up to a piece."""
        messages, text, ends = [first], bytearray(self._line(first)), []
        while True:
            ends.append(len(text))
            if len(messages) == most or len(text) >= PIECE or not (message := self._consumer.get(0)):
                break
            messages.append(message)
            text += self._line(message)
        written = 0
        try:
            while written < len(text):
                written += os.write(self._out, memoryview(text)[written:])
        finally:
            self._ack(messages[: bisect_right(ends, written)])
        return len(messages)

    def _line(self, message: "Message") -> bytes:
        return self._messages.line(message.id, message.event, message.data, retry=message.retry)

    def _ack(self, printed: "list[Message]") -> None:
        """The confirm of the last one is one for all. If the connection is gone they may come again."""
        from mqks.client.errors import ConnectionLost

        with suppress(ConnectionLost):
            for message in printed:
                message.ack(confirm=message is printed[-1])


# ── tail, history ──


def add_tail(parser: ArgumentParser) -> None:
    about = "only these events: e1 order.* (a * stands for anything but a dot)"
    parser.add_argument("events", metavar="MASK", nargs="*", type=event, help=about)
    where = f"begin here, not with what comes now: {WHERE}"
    parser.add_argument("--from", dest="start", metavar="PLACE", type=place, default="latest", help=where)
    add_count(parser)
    add_url(parser)
    add_json(parser)
    parser.set_defaults(stop=None, follow=True)


def add_history(parser: ArgumentParser) -> None:
    parser.add_argument("start", metavar="FROM", nargs="?", type=place, default="earliest", help=WHERE)
    parser.add_argument("--to", dest="stop", metavar="PLACE", type=place, help="where to stop: the same")
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


SUB = Command("print the messages of a queue as they come", add_sub, sub, "mqks sub billing order.new order.paid")
TAIL = Command("watch events as they come; no queue notices", add_tail, history, "mqks tail 'order.*'")
HISTORY = Command(
    "print messages that the broker has in its log",
    add_history,
    history,
    "mqks history 2026-01-31T12:00 --events='order.*' --json",
)
