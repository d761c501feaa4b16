"""`mqks doctor`: is this machine fit for a broker, and the broker on it well? Says what to do where not.

It works with a broker and without, and changes nothing; but where systemd has the broker's port, being asked starts the
broker. The checks are in checks.py, imported when they are wanted.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mqks.cli.command import Command, add_json
from mqks.cli.connection import access_of, add_url, warn_of
from mqks.cli.output import CYAN, RED, YELLOW, as_json, has_colours, paint, visible

if TYPE_CHECKING:
    from mqks.cli.case import Case, Finding

WIDTH = len("configuration")
COLOURS = {"ok": CYAN, "warn": YELLOW, "bad": RED}


def check_name(text: str) -> str:
    from mqks.cli.checks import CHECKS

    if text not in CHECKS:
        raise ArgumentTypeError(f"{text!r} is no check: {', '.join(CHECKS)}")
    return text


def arguments(parser: ArgumentParser) -> None:
    from mqks.cli.checks import CHECKS

    parser.add_argument("checks", metavar="CHECK", nargs="*", type=check_name, help=f"only these: {', '.join(CHECKS)}")
    about = "the data folder (default: the running broker's, or by MQKS_DATA and MQKS_CONFIG)"
    parser.add_argument("--data", metavar="DIR", type=Path, help=about)
    add_url(parser)
    add_json(parser, "for programs: one JSON array")


def case_of(args: Namespace) -> Case:
    from mqks.cli.case import Case
    from mqks.client.address import find_address
    from mqks.server.config import Config, ConfigError

    named = args.url or os.environ.get("MQKS_URL")
    access = access_of(args)
    try:
        asked = str(find_address(named)) if named else None
    except ValueError as error:
        args.parser.error(str(error))
    if asked:
        warn_of(access, asked)
    wrong = None
    try:
        config = Config.load([], os.environ)
    except ConfigError as error:
        config, wrong = Config(), str(error)
    return Case(config, wrong, asked, args.data, access)


def findings(case: Case, names: list[str]) -> Iterator[tuple[str, Finding]]:
    """What each check finds; without names, all of them."""
    from mqks.cli.case import warn
    from mqks.cli.checks import CHECKS

    for name in names or CHECKS:
        try:
            yield name, CHECKS[name](case)
        except (OSError, KeyError, ValueError) as error:  # a system that is not as others are
            yield name, warn(f"could not be checked: {error!r}", "look yourself")


def run(args: Namespace) -> int:
    colours = has_colours(sys.stdout)
    found: list[tuple[str, Finding]] = []
    for name, finding in findings(case_of(args), args.checks):
        found.append((name, finding))
        if not args.json:  # as they come: some take a second
            print(line(name, finding, colours), flush=True)
    levels = Counter(finding.level for _, finding in found)
    if args.json:
        print(as_json([{"check": name, **finding._asdict()} for name, finding in found]))
    else:
        print(", ".join(f"{levels[level]} {level}" for level in COLOURS))
    return 1 if levels["bad"] else 0


def line(name: str, finding: Finding, colours: bool) -> str:
    advice = f" → {finding.advice}" if finding.advice else ""
    level = paint(f"{finding.level:<4}", COLOURS[finding.level], colours)
    return f"{level}  {name:<{WIDTH}}  {visible(finding.text)}{visible(advice)}"


COMMAND = Command(
    "check this machine and its broker, and say what to do", arguments, run, "mqks doctor --data /var/lib/mqks"
)
