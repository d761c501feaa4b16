"""`mqks queues` and `mqks stats`: what the broker's `stats` tell, for people."""

import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import Any

from mqks.cli.command import Command, add_json
from mqks.cli.connection import add_url, broker
from mqks.cli.output import BOLD, RED, as_json, has_colours, paint, print_lines, queue_fields, table, visible
from mqks.formatting import counted, duration_in_two_units, size_in_tenths

FSYNC = {
    "memory": "memory only: nothing survives a restart",
    "always": "always: what is confirmed is on disk",
    "interval": "interval: the last moments may be lost with the power",
    "never": "never: the last moments may be lost with the power",
}

# ── queues ──


def add_queues(parser: ArgumentParser) -> None:
    add_url(parser)
    add_json(parser, "for programs: one JSON array")


def queues(args: Namespace) -> int:
    with broker(args) as mq:
        found = queue_fields(mq.stats())
    if args.json:
        print(as_json(found))
    else:
        # Cut where a terminal would wrap; whoever reads from a pipe gets all.
        widest = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
        print_lines(queue_lines(found, has_colours(sys.stdout), widest))
    return 0


def queue_lines(found: list[dict[str, Any]], colours: bool, widest: int) -> Iterator[str]:
    heads = ("queue", "ready", "unacked", "consumers", "delete when unused", "events")
    rows = [
        (one["queue"], one["ready"], one["unacked"], one["consumers"], unused(one["delete_when_unused"]), wants(one))
        for one in found
    ]
    if rows:
        yield from table([heads, *rows], colours, widest)
    yield totals(found)


def totals(found: list[dict[str, Any]]) -> str:
    ready, unacked, consumers = (sum(one[field] for one in found) for field in ("ready", "unacked", "consumers"))
    return f"{counted(len(found), 'queue')}, {ready:,} ready, {unacked:,} unacked, {counted(consumers, 'consumer')}"


def unused(seconds: float | None) -> str:
    return "-" if seconds is None else f"after {seconds:g} s" if seconds else "at once"


def wants(one: dict[str, Any]) -> str:
    """The events of a queue, and its SEVX pattern."""
    pattern = [] if one["pattern"] is None else [as_json(one["pattern"])]
    return " ".join([*one["events"], *pattern]) or "-"


# ── stats ──


def add_stats(parser: ArgumentParser) -> None:
    add_url(parser)
    add_json(parser, "for programs: the broker's own JSON")


def stats(args: Namespace) -> int:
    with broker(args) as mq:
        told = mq.stats()
        url = str(mq.address)
    print_lines([as_json(told)] if args.json else glance(told, url, has_colours(sys.stdout)))
    return 0


def glance(told: dict[str, Any], url: str, colours: bool) -> Iterator[str]:
    yield paint(f"mqksd {told['version']} at {url}, up {duration_in_two_units(told['uptime'])}", BOLD, colours)
    rows = [
        ("messages", ", ".join(f"{told[name]:,} {name}" for name in ("published", "delivered", "acked", "rejected"))),
        ("queues", totals(queue_fields(told))),
        ("clients", f"{counted(told['connections'], 'connection')}, {counted(told['errors'], 'request')} refused"),
        ("memory", size_in_tenths(told["memory"])),
        ("durability", FSYNC.get(told["durability"], told["durability"])),
    ]
    journal = told.get("journal")
    if journal:
        size = f"{size_in_tenths(journal['bytes'])} in {counted(journal['segments'], 'segment')}"
        rows.append(("journal", f"{size}, from {journal['earliest']} to {journal['written']}"))
        rows += [
            ("hold", f"{visible(name)} at {hold['position']}, for {duration_in_two_units(hold['seconds'])} more")
            for name, hold in sorted(journal["holds"].items())
        ]
        if journal["full"]:
            rows.append((paint("disk", RED, colours), f"nothing is taken: {visible(str(journal['full']))}"))
    yield from (f"{name:<10}  {text}" for name, text in rows)


QUEUES = Command("list the queues", add_queues, queues, "mqks queues --json | jq '.[] | select(.ready > 1000).queue'")
STATS = Command("show the broker at a glance", add_stats, stats, "mqks stats")
