"""`mqks pipeline …`: the jobs on Spark as commands. What they do is in `mqks.pipeline`, for Python programs too."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from mqks.cli.command import Bar, Command, Table, add_conf, by_ctrl_c, event, name, place, queue, seconds, some
from mqks.cli.connection import access_of, add_url
from mqks.cli.output import complain
from mqks.pipeline.place import LAKE, Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mqks.pipeline.watching import Job

BUILT_IN = ("archive", "stats")
MOST_ROWS = 1000  # in a table for people

# ── arguments ──


def add_place(parser: ArgumentParser) -> None:
    add_url(parser)
    parser.add_argument("--data", metavar="DIR", help="the broker's --data, if it can be read here (default: by --url)")
    parser.add_argument("--lake", metavar="DIR", default=LAKE, help=f"folder or URL of the lake (default: {LAKE})")
    parser.add_argument("--master", metavar="URL", default="local[*]", help="the Spark cluster (default: local[*])")
    add_conf(parser)


def place_of(args: Namespace) -> Place:
    from mqks.client.access import ENVIRONMENT
    from mqks.client.address import find_address

    try:
        url = str(find_address(args.url))
    except ValueError as error:
        args.parser.error(str(error))
    # All that the jobs start, also Spark's processes on this machine, have it from here, and nothing else: the key that
    # the environment has is not that of a certificate which was given without one.
    given = access_of(args).given
    for each, variable in ENVIRONMENT.items():
        if each in given:
            os.environ[variable] = given[each]
        else:
            os.environ.pop(variable, None)
    return Place(broker=url, data=args.data, lake=args.lake)


def add_archive(parser: ArgumentParser) -> None:
    add_place(parser)
    parser.add_argument(
        "--every", metavar="SECONDS", type=seconds, default=10.0, help="a part in the lake so often (default: 10)"
    )
    add_available_now(parser)
    parser.add_argument(
        "--compact-after", metavar="N", type=some, default=32, help="merge so many small files of a day (default: 32)"
    )
    parser.add_argument("--retain-days", metavar="N", type=some, help="keep so many days, today too (default: all)")
    parser.add_argument(
        "--no-variant",
        dest="variant",
        action="store_false",
        help="a new lake without the column data, for readers that do not know VARIANT; text is there all the same",
    )
    parser.add_argument(
        "--hold",
        metavar="NAME",
        type=name,
        default="archive",
        help="what the broker keeps the journal for it as; another for a second archive (default: archive)",
    )


def add_stats(parser: ArgumentParser) -> None:
    add_place(parser)
    add_available_now(parser)


def add_available_now(parser: ArgumentParser) -> None:
    parser.add_argument("--available-now", action="store_true", help="do what is there now, then end")


def add_run(parser: ArgumentParser) -> None:
    add_place(parser)
    parser.add_argument("jobs", metavar="JOB", nargs="+", help="archive, stats, or a FILE.py with functions of yours")


def add_replay(parser: ArgumentParser) -> None:
    add_place(parser)
    where = "a position, a time in ISO form, earliest or latest"
    parser.add_argument("--where", metavar="SQL", help="only those for which this holds: \"event LIKE 'order.%%'\"")
    parser.add_argument("--from", dest="start", metavar="PLACE", type=place, default="earliest", help=where)
    parser.add_argument("--to", dest="stop", metavar="PLACE", type=place, default="latest", help="where to stop")
    to = parser.add_mutually_exclusive_group()
    to.add_argument("--to-event", metavar="EVENT", type=event, help="publish all as this event, not as their own")
    to.add_argument("--queue", metavar="QUEUE", type=queue, help="only to this queue, as mqks.replay.QUEUE.EVENT")
    parser.add_argument("--rate", metavar="N", type=some, help="so many a second at most")
    ids = parser.add_mutually_exclusive_group()
    ids.add_argument("--new-ids", action="store_true", help="as new messages: a second run publishes them again")
    ids.add_argument(
        "--scope",
        metavar="NAME",
        type=name,
        help="the old ids count once in this scope (default: replay, and where to)",
    )
    parser.add_argument("--dry-run", action="store_true", help="only tell what would be published")


def add_sql(parser: ArgumentParser) -> None:
    add_place(parser)
    parser.add_argument("text", metavar="SELECT …", help="tables: events, stats_minute, and those of your own jobs")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="as CSV, with a first line of names")
    form.add_argument("--json", action="store_true", help="one JSON object per row")
    form.add_argument("--plot", metavar="FILE.png", type=Path, help="draw it")
    parser.add_argument(
        "--as-of", metavar="TIME", type=time_in_utc, help="the lake as it was then, without the journal; hours at most"
    )


def add_forget(parser: ArgumentParser) -> None:
    add_place(parser)
    parser.add_argument("--where", metavar="SQL", required=True, help="the rows to remove: \"event LIKE 'user.17.%%'\"")


def time_in_utc(text: str) -> datetime:
    found = place(text)
    if not isinstance(found, datetime):
        raise ArgumentTypeError(f"{text!r} is no time such as 2026-01-31T12:00")
    return found


def add_init(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.py", nargs="?", type=Path, default=Path("pipeline.py"))


# ── running ──


@contextmanager
def spark_for(args: Namespace) -> Iterator[SparkSession]:
    from mqks.pipeline.session import session
    from mqks.pipeline.sql import plainly

    bar = Bar(sys.stderr)
    bar.say("starting Spark …")
    by_sigint = signal.getsignal(signal.SIGINT)
    with plainly(), ended_with_us():
        try:
            spark = session(args.master, **dict(args.conf))
        finally:
            bar.end()
        signal.signal(signal.SIGINT, by_sigint)  # pyspark's own talks to Spark amid another talk
        try:
            yield spark
        finally:
            if not by_ctrl_c(sys.exception()):
                spark.stop()


@contextmanager
def ended_with_us() -> Iterator[None]:
    """Spark's process. After Ctrl-C no more is said to it, which may be busy, and no more is heard of it."""
    from mqks.pipeline import process

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was begun is cleaned up
    logging.getLogger().addFilter(is_not_of_py4j)
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    try:
        yield
    except BaseException as error:
        if by_ctrl_c(error):
            process.hush()
        raise
    finally:
        process.kill()


def is_not_of_py4j(record: logging.LogRecord) -> bool:
    """It logs each call that is interrupted, with its stack."""
    return "py4j" not in Path(record.pathname).parts


def watched(args: Namespace, start: Callable[[SparkSession, Place], list[Job]]) -> int:
    from mqks.pipeline.watching import watch

    where = place_of(args)
    began = time.monotonic()
    complain("Spark is starting, which takes some seconds")
    with spark_for(args) as spark:
        jobs = start(spark, where)
        names = ", ".join(job.name for job in jobs)
        complain(f"Spark is ready after {time.monotonic() - began:.0f} s, and runs {names}")
        watch(spark, where, jobs)
    return 0


def archive(args: Namespace) -> int:
    def start(spark: SparkSession, where: Place) -> list[Job]:
        from mqks.pipeline.archive import archive

        return [
            archive(
                spark,
                where,
                every=args.every,
                available_now=args.available_now,
                compact_after=args.compact_after,
                retain_days=args.retain_days,
                variant=args.variant,
                hold=args.hold,
            )
        ]

    return watched(args, start)


def stats(args: Namespace) -> int:
    def start(spark: SparkSession, where: Place) -> list[Job]:
        from mqks.pipeline.stats import stats

        return [stats(spark, where, available_now=args.available_now)]

    return watched(args, start)


def run(args: Namespace) -> int:
    from mqks.pipeline.run import check

    for file in set(args.jobs) - set(BUILT_IN):
        check(Path(file))  # before Spark is started, which takes a while
    return watched(args, lambda spark, where: jobs_named(args.jobs, spark, where))


def jobs_named(names: list[str], spark: SparkSession, where: Place) -> list[Job]:
    from mqks.pipeline.archive import archive
    from mqks.pipeline.run import run
    from mqks.pipeline.stats import stats

    built_in: dict[str, Callable[[SparkSession, Place], Job]] = {"archive": archive, "stats": stats}
    jobs: list[Job] = []
    for one in names:
        jobs += [built_in[one](spark, where)] if one in built_in else run(spark, where, one)
    return jobs


# ── asking and writing ──


def sql(args: Namespace) -> int:
    from mqks.pipeline import plot, tables
    from mqks.pipeline.sql import answer, write

    if args.plot:
        plot.require(args.plot)
    where = place_of(args)
    with spark_for(args) as spark:
        bar = Bar(sys.stderr)
        bar.say("asking …")
        try:
            if args.plot:
                answer(spark, where, args.text, lambda frame: plot.plot(frame, args.plot, args.text), as_of=args.as_of)
                return 0
            render = tables.csv if args.csv else tables.json if args.json else as_table

            def rendered(frame: DataFrame) -> Iterator[str]:
                yield from render(frame)
                bar.end()

            write(spark, where, args.text, rendered, sys.stdout, as_of=args.as_of)
        finally:
            bar.end()
    return 0


def as_table(frame: DataFrame) -> Iterator[str]:
    from mqks.pipeline import tables

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return tables.table(frame, limit=MOST_ROWS, width=width)


def replay(args: Namespace) -> int:
    from mqks.pipeline.progress import Publishing, simply
    from mqks.pipeline.replay import replay

    where = place_of(args)
    bar, began, publishing = Bar(sys.stderr), time.monotonic(), Publishing(where)
    last = simply("replay", "running", 0, 0.0)

    def told(done: int, total: int) -> None:
        nonlocal last
        speed = done / max(time.monotonic() - began, 1e-9)
        bar(done, total, f"{done:,} of {total:,}, {speed:,.0f} rows/s")
        last = simply("replay", "running", done, speed)
        publishing.publish(last)

    ended = "failed"
    try:
        with spark_for(args) as spark:
            began = time.monotonic()
            found = replay(
                spark,
                where,
                where=args.where,
                start=args.start,
                stop=args.stop,
                to_event=args.to_event,
                queue=args.queue,
                rate=args.rate,
                scope=args.scope,
                new_ids=args.new_ids,
                dry_run=args.dry_run,
                progress=told,
            )
            ended = "stopped"
    finally:
        bar.end()
        if not args.dry_run:
            publishing.publish(replace(last, state=ended))
        publishing.close()
    if args.dry_run:
        print("\n".join(found.lines()))
    else:
        known = "" if args.new_ids else "; those that it had taken in this scope before are not published again"
        print(f"the broker has confirmed {found.rows - found.repeated:,} messages{known}")
    return 0


def forget(args: Namespace) -> int:
    from mqks.pipeline.lake.delta_table import LOG_HOURS
    from mqks.pipeline.lake.forget import Forgotten, forget

    def tell(one: Forgotten) -> None:
        done = f"{one.rows:,} rows removed, {one.files} files written again, {one.removed} removed from the disk"
        print(f"{one.table}: " + (f"nothing removed: {one.skipped}" if one.skipped else done), flush=True)

    where = place_of(args)
    with spark_for(args) as spark:
        forget(spark, where, args.where, progress=tell)
    print("\n".join(what_is_left(LOG_HOURS)))
    return 0


def what_is_left(hours: int) -> list[str]:
    """What still has the rows, and until when."""
    return [
        "The journal still has these messages, and gives them to history and replay, until the broker's --retain-age",
        "or --retain-bytes removes them (7 days, unless told otherwise).",
        "What is not archived yet is archived later: ask again when the archive is beyond it.",
        f"The log of a table names values of files that are gone for up to {hours} hours. Files of a batch that failed",
        "within the last hour go with a vacuum of the archive.",
        "Backups of the journal and of the lake have them for as long as you keep those.",
    ]


def init(args: Namespace) -> int:
    from mqks.pipeline.template import TEMPLATE

    try:
        with args.file.open("x", encoding="utf-8") as out:
            out.write(TEMPLATE)
    except FileExistsError:
        complain(f"{args.file} is there already: choose another name")
        return 1
    print(f"{args.file} is written. Run it: mqks pipeline run {args.file}")
    return 0


COMMANDS: Table = {
    "archive": Command(
        "copy the journal to a lake of Delta tables, each event once",
        add_archive,
        archive,
        "mqks pipeline archive --data=mqks-data --lake=mqks-lake",
    ),
    "stats": Command("count events per minute", add_stats, stats, "mqks pipeline stats --lake=mqks-lake"),
    "run": Command(
        "run several jobs in one session: archive, stats, yours",
        add_run,
        run,
        "mqks pipeline run archive stats pipeline.py",
    ),
    "init": Command("write a pipeline of your own to begin with", add_init, init, "mqks pipeline init pipeline.py"),
    "sql": Command(
        "ask lake and journal", add_sql, sql, 'mqks pipeline sql "SELECT event, count(*) FROM events GROUP BY event"'
    ),
    "forget": Command(
        "remove rows from all tables of the lake",
        add_forget,
        forget,
        "mqks pipeline forget --where \"event LIKE 'user.17.%'\"",
    ),
    "replay": Command(
        "publish events again, from lake and journal",
        add_replay,
        replay,
        "mqks pipeline replay --where \"event = 'order.new'\" --from 2026-01-31T12:00 --queue mail",
    ),
}
