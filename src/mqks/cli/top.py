"""`mqks top`: the queues and their rates, live. On a terminal it has a screen of its own; else a table per interval."""

import os
import select
import shutil
import signal
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mqks.cli.command import Command, add_json, seconds, some
from mqks.cli.connection import add_url, broker
from mqks.cli.output import BOLD, as_json, cut, has_colours, paint, print_lines, queue_fields, table
from mqks.formatting import counted, duration_in_two_units, size_in_tenths

if TYPE_CHECKING:
    from types import FrameType

    from mqks.client.blocking import Client

PATIENCE = 5.0  # seconds for an answer
SOON = 0.1  # seconds: the shortest interval
COUNTERS = ("published", "delivered", "acked")
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # a screen of its own without a cursor, and back
HOME, REST_OF_LINE, REST = "\x1b[H", "\x1b[K", "\x1b[J"

Stats = dict[str, Any]


def arguments(parser: ArgumentParser) -> None:
    about = "seconds between two looks (default 1)"
    parser.add_argument("--interval", metavar="S", type=seconds, default=1.0, help=about)
    parser.add_argument("--count", metavar="N", type=some, help="end after so many tables")
    add_url(parser)
    add_json(parser)


def run(args: Namespace) -> int:
    args.interval = max(args.interval, SOON)
    on_terminal = sys.stdout.isatty() and not args.json
    with broker(args, timeout=PATIENCE, tell=not on_terminal) as mq:
        if on_terminal:
            with screen() as keys:
                watch(mq, args, keys)
        else:
            report(mq, args)
    return 0


# ── what is shown ──


def rates(before: Stats, now: Stats) -> dict[str, float]:
    """Per second; what counts from the start again since the broker did has gone from 0 to now."""
    passed = now["looked_at"] - before["looked_at"]
    found = {}
    for counter in COUNTERS:
        grown = now[counter] - before.get(counter, 0)
        found[counter] = (grown if grown >= 0 else now[counter]) / passed if passed else 0.0
    return found


def look(mq: "Client") -> Stats:
    return {**mq.stats(), "looked_at": time.monotonic()}


def frame(before: Stats, now: Stats) -> Stats:
    """The rates of all, and of each queue; the busiest first."""
    times = {"looked_at": before["looked_at"]}
    queues = []
    for one in queue_fields(now):
        earlier = {**before["queues"].get(one["queue"], {}), **times}
        figures = rates(earlier, {**one, "looked_at": now["looked_at"]})
        fields = {name: one[name] for name in ("queue", "ready", "unacked", "consumers")}
        queues.append({**fields, **{f"{name}_per_s": round(value, 1) for name, value in figures.items()}})
    queues.sort(key=lambda one: (-sum(one[f"{name}_per_s"] for name in COUNTERS), -one["ready"], one["queue"]))
    whole = {f"{name}_per_s": round(value, 1) for name, value in rates(before, now).items()}
    return {**whole, "connections": now["connections"], "memory": now["memory"], "queues": queues}


def lines(shown: Stats, now: Stats, url: str, colours: bool, width: int = 0) -> Iterator[str]:
    up = f"up {duration_in_two_units(now['uptime'])}, durability {now['durability']}"
    size = f"{counted(now['connections'], 'connection')}, memory {size_in_tenths(now['memory'])}"
    yield paint(cut(f"mqksd {now['version']} at {url}, {up}, {size}", width), BOLD, colours)
    whole = ", ".join(f"{shown[f'{name}_per_s']:,.0f} {name}/s" for name in COUNTERS)
    yield cut(f"{whole}, {counted(len(shown['queues']), 'queue')}", width)
    yield ""
    heads = ("queue", "ready", "unacked", "consumers", *(f"{name}/s" for name in COUNTERS))
    yield from table([heads, *(one.values() for one in shown["queues"])], colours, width)


# ── in a pipe ──


def report(mq: "Client", args: Namespace) -> None:
    before, shown = look(mq), 0
    while args.count is None or shown < args.count:
        time.sleep(args.interval)
        now = look(mq)
        found = frame(before, now)
        if args.json:
            print(as_json(found))
        else:
            print_lines([*([""] * (shown > 0)), *lines(found, now, str(mq.address), has_colours(sys.stdout))])
        sys.stdout.flush()
        before, shown = now, shown + 1


# ── on a terminal ──


@contextmanager
def screen() -> Iterator[bool]:
    """A screen of our own, with keys as they are pressed where stdin is a terminal too; in the end all is put back."""
    import termios
    import tty

    def stop(number: int, _: "FrameType | None") -> None:
        sys.exit(128 + number)

    keys = sys.stdin.isatty()
    earlier = termios.tcgetattr(sys.stdin) if keys else None
    handler = signal.signal(signal.SIGTERM, stop)
    try:
        if keys:
            tty.setcbreak(sys.stdin)
        sys.stdout.write(ENTER)
        yield keys
    finally:
        sys.stdout.write(LEAVE)
        sys.stdout.flush()
        if earlier is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, earlier)
        signal.signal(signal.SIGTERM, handler)


def watch(mq: "Client", args: Namespace, keys: bool) -> None:
    """Draw, wait for a key or the time, look again. At first there are queues, but no rates yet."""
    colours = has_colours(sys.stdout)
    before = now = look(mq)
    shown = 0
    while args.count is None or shown <= args.count:
        size = shutil.get_terminal_size()
        draw(list(lines(frame(before, now), now, str(mq.address), colours, size.columns)), size.lines)
        shown += 1
        if wait(args.interval, keys):
            return
        while (found := again(mq)) is None:
            if wait(SOON, keys):
                return
        before, now = now, found


def again(mq: "Client") -> Stats | None:
    """Look; None: the broker is away, the client goes on trying, and it is said."""
    if not mq.connected:
        draw(["connection lost, reconnecting"], 1)
    try:
        return look(mq)
    except OSError:
        return None


def draw(picture: list[str], height: int) -> None:
    sys.stdout.write(HOME + f"{REST_OF_LINE}\n".join(picture[:height]) + REST_OF_LINE + REST)
    sys.stdout.flush()


def wait(interval: float, keys: bool) -> bool:
    """Until it is time, or somebody wants to go."""
    end = time.monotonic() + interval
    while (left := end - time.monotonic()) > 0:
        if not keys:
            time.sleep(left)
        elif select.select([sys.stdin], [], [], left)[0]:
            pressed = os.read(sys.stdin.fileno(), 100)
            if not pressed or b"q" in pressed.lower():
                return True
    return False


COMMAND = Command("watch the queues and their rates, live", arguments, run, "mqks top --interval 2")
