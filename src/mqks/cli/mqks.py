"""`mqks`, the command beside the broker: a table of commands, each with its arguments and what it does.

Exit codes: 0 done, 1 could not, or found something wrong; 2 the arguments are wrong; 130 stopped by Ctrl-C.
"""

import os
import sys
from collections.abc import Sequence

from mqks.cli import bench, completion, consume, manage, publish, tables, top
from mqks.cli.command import Command, Family, Table, by_ctrl_c, parser_of, spell_out
from mqks.cli.output import complain


def journal() -> Table:
    from mqks.cli.journal import COMMANDS

    return COMMANDS


COMMANDS: Table = {
    "pub": publish.COMMAND,
    "sub": consume.SUB,
    "tail": consume.TAIL,
    "history": consume.HISTORY,
    "queues": tables.QUEUES,
    "top": top.COMMAND,
    "stats": tables.STATS,
    "rebind": manage.REBIND,
    "delete-queue": manage.DELETE,
    "ping": manage.PING,
    "eval": manage.EVAL,
    "bench": bench.COMMAND,
    "journal": Family("read, check and repair a broker's journal", journal),
    "completion": Command(
        completion.HELP, completion.arguments, lambda args: completion.run(args, COMMANDS), completion.EXAMPLE
    ),
}

ABOUT = "Talk to a broker, and look after its journal."
NOTES = """\
`mqks COMMAND --help` tells more, with an example; `mqks --version` the version.
The broker is the one at --url, at $MQKS_URL, or at mqks://127.0.0.1:25000.
The whole story with samples: docs/CLI.md"""


def help_text(path: str, about: str, table: Table) -> str:
    lines = [f"usage: {path} COMMAND …", "", about, ""]
    lines += [f"  {name:<12}  {entry.help}" for name, entry in table.items()]
    return "\n".join([*lines, "", NOTES])


def find(words: list[str]) -> tuple[str, Command]:
    """The command that the first words name, which are taken away; or the help, and an end."""
    path = "mqks"
    entry: Command | Family = Family(ABOUT, lambda: COMMANDS)
    while isinstance(entry, Family):
        table = entry.commands()
        if not words or words[0] in ("-h", "--help"):
            print(help_text(path, entry.help, table), file=sys.stdout if words else sys.stderr)
            sys.exit(0 if words else 2)
        if words == ["--version"]:
            from mqks import __version__

            print(f"mqks {__version__}")
            sys.exit(0)
        if words[0] not in table:
            print(f"usage: {path} COMMAND …", file=sys.stderr)
            complain(f"there is no command {words[0]!r}; `{path} --help` lists them")
            sys.exit(2)
        path, entry = f"{path} {words[0]}", table[words.pop(0)]
    return path, entry


def expected() -> tuple[type[BaseException], ...]:
    """Errors that are told in one line. They are looked up when one is there: to be quick, `--help` imports neither."""
    from mqks.client.errors import MqksError
    from mqks.journal import JournalError

    return MqksError, JournalError, OSError


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    path, command = find(words)
    args = parser_of(path, command).parse_intermixed_args(spell_out(words))
    try:
        try:
            code = command.run(args)
        except BaseException as error:
            if not by_ctrl_c(error):
                raise
            code = 130
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read has read enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains at its end
        return 0
    except expected() as error:
        complain(error)
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
