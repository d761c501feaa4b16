"""`mqks`, the command beside the broker: a table of commands, each with its arguments and what it does.

Exit codes: 0 done, 1 could not, or found something wrong; 2 the arguments are wrong; 130 stopped by Ctrl-C.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence

from mqks import __version__
from mqks.cli import journal
from mqks.cli.command import Command
from mqks.journal import JournalError

# A name is a command, or a family of commands with a help line of its own.
Table = Mapping[str, "Command | tuple[str, Table]"]

COMMANDS: Table = {
    "journal": ("read, check and repair a broker's journal", journal.COMMANDS),
}


def add_commands(parser: argparse.ArgumentParser, table: Table) -> None:
    names = parser.add_subparsers(metavar="command", required=True)
    for name, entry in table.items():
        if isinstance(entry, Command):
            added = names.add_parser(name, help=entry.help, description=entry.help)
            entry.arguments(added)
            added.set_defaults(run=entry.run, parser=added)
        else:
            about, commands = entry
            add_commands(names.add_parser(name, help=about, description=about), commands)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mqks", description="Look after the journal of a broker.")
    parser.add_argument("--version", action="version", version=f"mqks {__version__}")
    add_commands(parser, COMMANDS)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    args = build_parser().parse_args(arguments)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read has read enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains at its end
        return 0
    except KeyboardInterrupt:
        return 130
    except (JournalError, OSError) as error:
        print(f"mqks: {error}", file=sys.stderr)
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
