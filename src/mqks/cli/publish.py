"""`mqks pub`: one message, or one per line of stdin."""

import os
import stat
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

from mqks.cli.command import Bar, Command, add_json, data, event, name, name_or_nothing, typed, wrong_with
from mqks.cli.connection import add_url, broker
from mqks.cli.output import as_json, complain, shown_name
from mqks.formatting import counted
from mqks.values import rate

if TYPE_CHECKING:
    from mqks.client.blocking import Client
    from mqks.client.errors import Refused
    from mqks.client.verbs import Outgoing

STDIN = "-"
PATIENCE = 60.0  # seconds for a broker that restarts while lines are published
PIECE = 1 << 18  # bytes of stdin that are published together: enough to share a wait for the disk
MOST_COMPLAINTS = 20  # lines that are named one by one
TICKS = 20  # per second, where there is a rate


class Line(NamedTuple):
    number: int
    data: bytes


per_second = typed(rate("N/s", unit="/s"), "a rate such as 100 or 100/s")


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("event", metavar="EVENT", type=event)
    about = "what it says; without it, or if it is -, each line of stdin is a message"
    parser.add_argument("data", metavar="DATA", nargs="?", type=data, default=STDIN, help=about)
    about = "drop what has an id that the broker has seen lately, in this scope if there is one: --once=SCOPE"
    parser.add_argument("--once", metavar="SCOPE", nargs="?", type=name_or_nothing, help=about)
    about = "the id of the message; of lines: {ID}-{number of the line}, so with --once a file can be published again"
    parser.add_argument("--id", metavar="ID", type=name, help=about)
    about = "do not wait until the broker has it on disk"
    parser.add_argument("--no-confirm", dest="confirm", action="store_false", help=about)
    parser.add_argument(
        "--rate",
        metavar="N/s",
        type=per_second,
        help="no more messages per second than this",
    )
    add_url(parser)
    add_json(parser)


def run(args: Namespace) -> int:
    args.once = args.once or args.once is not None  # `--once` alone came as an empty scope
    if args.once and not args.confirm:
        args.parser.error("--once is always confirmed: leave --no-confirm out")
    if args.data != STDIN:
        with broker(args) as mq:
            return one(mq, args)
    if sys.stdin.isatty():
        complain("each line that you type is a message; Ctrl-D ends")
    with broker(args, timeout=PATIENCE) as mq:
        return lines(mq, args)


def one(mq: "Client", args: Namespace) -> int:
    message_id = mq.publish(args.event, args.data, confirm=args.confirm, once=args.once, id=args.id)
    print(as_json({"id": shown_name(message_id), "event": shown_name(args.event)}) if args.json else message_id)
    return 0


# ── lines of stdin ──


def pieces() -> Iterator[list[Line]]:
    """The lines of stdin as they come: who writes slowly is not kept waiting for more."""
    number = 0
    begun = b""
    while piece := os.read(sys.stdin.fileno(), PIECE):
        *whole, begun = (begun + piece).split(b"\n")
        yield [Line(at, line.removesuffix(b"\r")) for at, line in enumerate(whole, number + 1)]
        number += len(whole)
    if begun:
        yield [Line(number + 1, begun.removesuffix(b"\r"))]


class Publishing:
    """How far it is: what was published, what was not, and a line on stderr about it."""

    def __init__(self) -> None:
        self.published = 0
        self.wrong = 0
        self._bytes = 0
        self._bar = Bar(sys.stderr)
        self._begun = self._told = time.monotonic()
        info = os.fstat(sys.stdin.fileno())
        self._size = info.st_size if stat.S_ISREG(info.st_mode) else None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun

    @property
    def speed(self) -> str:
        return f"{self.published / max(self.seconds, 1e-9):,.0f} msg/s"

    def went(self, lines: Collection[Line]) -> None:
        self.published += len(lines)
        self._bytes += sum(len(line.data) + 1 for line in lines)
        if time.monotonic() - self._told < 0.1:
            return
        self._told = time.monotonic()
        if self._size is None:
            self._bar.say(f"{counted(self.published, 'message')}, {self.speed}")
        else:
            self._bar(min(self._bytes, self._size), self._size, self.speed)

    def failed(self, line: Line, why: str) -> None:
        self.wrong += 1
        self._bytes += len(line.data) + 1
        if self.wrong <= MOST_COMPLAINTS:
            self._bar.end()
            complain(f"line {line.number}: {why}")

    def end(self, args: Namespace) -> None:
        self._bar.end()
        if self.wrong > MOST_COMPLAINTS:
            complain(f"… and {self.wrong - MOST_COMPLAINTS:,} more lines")
        if args.json:
            fields = {"published": self.published, "wrong": self.wrong, "seconds": round(self.seconds, 3)}
            print(as_json(fields))
        else:
            wrong = f"; wrong: {counted(self.wrong, 'line')}" if self.wrong else ""
            print(f"published {counted(self.published, 'message')}, {self.speed}{wrong}", file=sys.stderr)


def lines(mq: "Client", args: Namespace) -> int:
    progress = Publishing()
    try:
        for piece in paced(pieces(), args.rate):
            good = []
            for line in piece:
                if why := wrong_with(line.data):
                    progress.failed(line, why)
                else:
                    good.append(line)
            publish(mq, args, good, progress)
    finally:
        progress.end(args)
    return 1 if progress.wrong else 0


def publish(mq: "Client", args: Namespace, piece: list[Line], progress: Publishing) -> None:
    """All of them at once. Those that the broker refuses are named, the rest is published."""
    refused: list[Refused] = []
    texts = (line.data.decode("utf-8", "surrogateescape") for line in piece)
    messages: list[Outgoing]
    if args.id:
        messages = [(args.event, text, f"{args.id}-{line.number}") for text, line in zip(texts, piece, strict=True)]
    else:
        messages = [(args.event, text) for text in texts]
    ids = mq.publish_many(messages, confirm=args.confirm, once=args.once, on_refused=refused.append)
    lines = dict(zip(ids, piece, strict=True))
    for error in refused:
        progress.failed(lines.pop(error.id), str(error))
    progress.went(lines.values())


def paced(whole: Iterator[list[Line]], rate: float | None) -> Iterator[list[Line]]:
    """At most `rate` lines per second, in small steps."""
    if rate is None:
        yield from whole
        return
    step = max(1, int(rate / TICKS))
    due = time.monotonic()
    for piece in whole:
        for at in range(0, len(piece), step):
            now = time.monotonic()
            time.sleep(max(0.0, due - now))
            part = piece[at : at + step]
            due = max(due, now) + len(part) / rate  # time in which nothing came is not made up for
            yield part


COMMAND = Command(
    "publish a message, or one per line of stdin",
    arguments,
    run,
    "mqks pub order.new '{\"id\": 1}'\n  mqks pub logs --rate 1000/s < app.log",
)
