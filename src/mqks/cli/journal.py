"""`mqks journal …`: a broker's journal, read, checked and repaired from its folder. Only `hold` asks a broker."""

import json
import sys
from argparse import ArgumentParser, Namespace
from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path

from mqks import values
from mqks.cli.command import Bar, Command, add_json, amount, name, place, seconds, typed
from mqks.cli.connection import add_url, broker
from mqks.cli.output import as_json, table, visible
from mqks.formatting import size_in_tenths, time_in_utc
from mqks.journal import Message, Reader, Segment
from mqks.journal.files import ASIDE
from mqks.journal.format import segment_name
from mqks.journal.queues import describe
from mqks.journal.salvage import salvage
from mqks.journal.verify import Report, verify

# ── arguments ──


def add_folder(parser: ArgumentParser) -> None:
    parser.add_argument(
        "folder", metavar="DIR", nargs="?", type=Path, default=Path("mqks-data"), help="the broker's --data"
    )


def add_info(parser: ArgumentParser) -> None:
    add_folder(parser)
    add_json(parser, "as JSON")


def add_cat(parser: ArgumentParser) -> None:
    add_folder(parser)
    where = "a position, a time in ISO form, earliest or latest"
    parser.add_argument("--from", dest="start", metavar="PLACE", type=place, default="earliest", help=where)
    parser.add_argument("--to", dest="stop", metavar="PLACE", type=place, help="where to stop: the same")
    parser.add_argument("--events", metavar="MASK,…", type=lambda text: text.split(","), help="only these: e1,order.*")
    parser.add_argument("--limit", metavar="N", type=amount, help="no more than so many messages")
    parser.add_argument("--follow", action="store_true", help="go on with what comes, until Ctrl-C")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--raw", action="store_true", help="whole batches, byte for byte")
    form.add_argument("--json", action="store_true", help="one JSON object per message")


# ── cat ──


def cat(args: Namespace) -> int:
    if args.raw and (args.events is not None or args.limit is not None):
        args.parser.error("--raw gives whole batches: it takes no --events and no --limit")
    reader = Reader(args.folder)
    out, on_terminal = sys.stdout.buffer, sys.stdout.isatty()
    for text in raw(reader, args) if args.raw else lines(reader, args):
        out.write(escaped(text) if on_terminal else text)
        if args.follow:
            out.flush()
    out.flush()
    return 0


def raw(reader: Reader, args: Namespace) -> Iterator[bytes]:
    return reader.raw(args.start, args.stop, follow=args.follow)


def lines(reader: Reader, args: Namespace) -> Iterator[bytes]:
    show = in_json if args.json else in_text
    messages = reader.messages(args.start, args.stop, args.events, follow=args.follow)
    return map(show, islice(messages, args.limit))


def in_text(message: Message) -> bytes:
    return b"%d %s %s\n" % (message.position, time_in_utc(message.time).encode(), message.line)


def in_json(message: Message) -> bytes:
    fields = {name: _plain(value) for name, value in message._asdict().items()}
    try:
        message.data.decode()
    except UnicodeDecodeError:
        del fields["data"]
        fields["data_base64"] = b64encode(message.data).decode()
    return as_json(fields).encode() + b"\n"


def escaped(lines: bytes) -> bytes:
    """As a terminal may have them."""
    text = lines.decode("utf-8", "surrogateescape")
    return "\n".join(map(visible, text.split("\n"))).encode()


def _plain(value: object) -> object:
    """As JSON can have it; bytes that are not UTF-8 are escaped."""
    match value:
        case bytes():
            return value.decode("utf-8", "backslashreplace")
        case datetime():
            return time_in_utc(value)
        case Path():
            return str(value)
    return value


# ── verify ──


def check(args: Namespace) -> int:
    bar = Bar(sys.stderr)
    try:
        report = verify(args.folder, bar)
    finally:
        bar.end()
    print(json.dumps(summary(report)) if args.json else "\n".join(summary_text(report)))
    return 0 if report.good else 1


def summary(report: Report) -> dict[str, object]:
    return {
        "good": report.good,
        "segments": report.segments,
        "batches": report.batches,
        "lines": report.lines,
        "bytes": report.bytes,
        "gaps": [gap._asdict() for gap in report.gaps],
        "problems": [problem._asdict() for problem in report.problems],
        "torn": report.torn._asdict() if report.torn else None,
    }


def summary_text(report: Report) -> Iterator[str]:
    for segment, offset, text in report.problems:
        yield f"{segment} at byte {offset}: {text}"
    for gap in report.gaps:
        yield f"nothing from {gap.start} to {gap.end}: removed by retention, or cut after a crash or by salvage"
    if report.torn:
        segment, offset, text = report.torn
        yield f"{segment} at byte {offset}: {text}; not finished, or torn by a crash: the broker cuts it when it starts"
    yield f"{report.segments} segments, {report.batches} batches, {report.lines} lines, {size_in_tenths(report.bytes)}"
    advice = "what is damaged can be salvaged: stop the broker, then `mqks journal salvage`"
    yield "good" if report.good else f"{len(report.problems)} problems; {advice}"


# ── info ──


@dataclass(frozen=True, slots=True)
class Info:
    earliest: int
    latest: int
    segments: list[Segment]
    aside: dict[str, int]  # name → size
    queues: list[dict[str, object]]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)


def info(args: Namespace) -> int:
    reader = Reader(args.folder)
    aside = args.folder / ASIDE
    found = Info(
        reader.earliest,
        reader.latest,
        reader.segments(),
        {path.name: path.stat().st_size for path in sorted(aside.iterdir())} if aside.is_dir() else {},
        describe(args.folder),
    )
    print(json.dumps(info_fields(found), default=_plain) if args.json else "\n".join(info_text(found)))
    return 0


def info_fields(found: Info) -> dict[str, object]:
    return {
        "earliest": found.earliest,
        "latest": found.latest,
        "bytes": found.size,
        "segments": [
            {"name": segment_name(segment.start), "end": segment.end, **asdict(segment)} for segment in found.segments
        ],
        "aside": found.aside,
        "queues": found.queues,
    }


def info_text(found: Info) -> Iterator[str]:
    rows: list[Iterable[str]] = [("start", "end", "size", "first", "last", "fsync", "")]
    for one in found.segments:
        times = time_in_utc(one.first), time_in_utc(one.last)
        state = "sealed" if one.sealed else "live"
        rows.append((str(one.start), str(one.end), size_in_tenths(one.size), *times, one.fsync or "-", state))
    yield from table(rows)
    yield f"earliest {found.earliest}, latest {found.latest}, {size_in_tenths(found.size)}"
    yield from (f"aside: {name}, {size_in_tenths(size)}" for name, size in found.aside.items())
    if found.queues:
        yield "queues at the last checkpoint (a running broker tells by `stats` how they are now):"
        yield from table([found.queues[0], *([str(_plain(value)) for value in one.values()] for one in found.queues)])


# ── salvage ──


def repair(args: Namespace) -> int:
    done = salvage(args.folder)
    for one in done:
        what = f"was damaged; as it was it is now {one.aside}" if one.aside else "is too short, and unchanged"
        print(f"{one.segment} {what}")
        for start, end in one.kept:
            print(f"  kept {start} to {end}, {size_in_tenths(end - start)}")
        for start, end, reason in one.lost:
            print(f"  lost {start} to {end}, {size_in_tenths(end - start)}: {reason}")
    print(f"{len(done)} segments salvaged: start the broker" if done else "no damage: nothing was changed")
    return 0


# ── hold ──


def add_hold(parser: ArgumentParser) -> None:
    place = typed(values.place(times=False), "a position, earliest or latest")
    parser.add_argument("name", metavar="NAME", type=name, help="of the hold; one that is there is replaced")
    where = "from where on nothing is removed: a position, earliest or latest (default: earliest)"
    parser.add_argument(
        "--from",
        dest="start",
        metavar="PLACE",
        type=place,
        default="earliest",
        help=where,
    )
    parser.add_argument(
        "--for", dest="seconds", metavar="S", type=seconds, required=True, help="for so many seconds; 0 ends it"
    )
    add_url(parser)


def hold(args: Namespace) -> int:
    with broker(args) as mq:
        mq.hold(args.name, args.start, args.seconds)
    return 0


COMMANDS = {
    "cat": Command("show the messages of a journal", add_cat, cat, "mqks journal cat --events='order.*' --limit 10"),
    "verify": Command("check every byte of a journal", add_info, check, "mqks journal verify /var/lib/mqks"),
    "info": Command("show segments, positions, times and sizes", add_info, info, "mqks journal info --json"),
    "salvage": Command(
        "keep what is valid of a damaged journal; with the broker stopped",
        add_folder,
        repair,
        "mqks journal salvage /var/lib/mqks",
    ),
    "hold": Command(
        "have a running broker keep its journal for a while, whatever retention says",
        add_hold,
        hold,
        "mqks journal hold backup --for 3600",
    ),
}
