"""`mqks`, the command beside the broker: a table of commands, each with its arguments and what it does.

Exit codes: 0 done, 1 could not, or found something wrong; 2 the arguments are wrong; 130 stopped by Ctrl-C.
"""

import io
import os
import sys
from collections.abc import Sequence

from mqks.cli import bench, completion, consume, doctor, manage, publish, tables, top, up
from mqks.cli.command import Command, Family, Table, by_ctrl_c, parser_of, refuse
from mqks.cli.connection import ACCESS, client_log
from mqks.cli.output import PLAIN, complain, has_colours


def journal() -> Table:
    from mqks.cli.journal import COMMANDS

    return COMMANDS


def token() -> Table:
    from mqks.cli.token import COMMANDS

    return COMMANDS


def pipeline() -> Table:
    from mqks.cli.pipeline import COMMANDS

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
    "token": Family("make, list and revoke the tokens of an auth file", token),
    "doctor": doctor.COMMAND,
    "bench": bench.COMMAND,
    "journal": Family("read, check and repair a broker's journal", journal),
    "pipeline": Family("archive, count, query and replay events, with Spark", pipeline),
    "up": up.COMMAND,
    "completion": Command(
        completion.HELP, completion.arguments, lambda args: completion.run(args, COMMANDS), completion.EXAMPLE
    ),
}

# Words that other tools and the protocol use, by the command after which they stand, and what they are here.
SYNONYMS = {
    "mqks": {
        "publish": "pub", "send": "pub", "produce": "pub",
        "subscribe": "sub", "consume": "sub", "recv": "sub", "receive": "sub", "read": "sub",
        "follow": "tail", "watch": "tail", "replay": "history",
        "list": "queues", "ls": "queues", "list-queues": "queues",
        "monitor": "top", "status": "stats", "info": "stats",
        "bind": "rebind", "unbind": "rebind",
        "delete": "delete-queue", "delete_queue": "delete-queue", "remove": "delete-queue", "rm": "delete-queue",
        "auth": "token", "check": "doctor", "start": "up", "serve": "up", "run": "up",
        "verify": "journal verify", "salvage": "journal salvage", "archive": "pipeline archive", "sql": "pipeline sql",
    },
    "mqks token": {"create": "new", "add": "new", "ls": "list", "delete": "revoke", "remove": "revoke", "rm": "revoke"},
    "mqks journal": {"read": "cat", "show": "cat", "check": "verify", "repair": "salvage", "stats": "info"},
}  # fmt: skip

ABOUT = "Talk to a broker, and look after its journal."
NOTES = "More: `mqks COMMAND --help`, docs/CLI.md. Broker: --url, $MQKS_URL or this host."


def help_text(path: str, about: str, table: Table) -> str:
    lines = [f"usage: {path} COMMAND …", "", about, ""]
    lines += [f"  {name:<12}  {entry.help}" for name, entry in table.items()]
    return "\n".join([*lines, "", NOTES])


FOR_ALL = {"--json": 1, "--url": 2, **dict.fromkeys(ACCESS, 2)}  # may stand before the command too, of so many words


def find(words: list[str]) -> tuple[str, Command]:
    """The command that the first words name, which are taken away; or the help, and an end."""
    path = "mqks"
    entry: Command | Family = Family(ABOUT, lambda: COMMANDS)
    early: list[str] = []
    while isinstance(entry, Family):
        table = entry.commands()
        while words and words[0].partition("=")[0] in FOR_ALL:
            length = FOR_ALL.get(words[0], 1)
            early += words[:length]
            del words[:length]
        if not words or words[0] in ("-h", "--help"):
            print(help_text(path, entry.help, table), file=sys.stdout if words else sys.stderr)
            sys.exit(0 if words else 2)
        if words == ["--version"]:
            from mqks import __version__

            print(f"mqks {__version__}")
            sys.exit(0)
        if words[0] not in table:
            refuse("command", words[0].partition("=")[0], table, path, SYNONYMS.get(path))
        path, entry = f"{path} {words[0]}", table[words.pop(0)]
    words[:0] = early
    return path, entry


def expected() -> tuple[type[BaseException], ...]:
    """Errors that are told in one line. They are looked up when one is there: to be quick, `--help` imports neither."""
    from mqks.client.errors import MqksError
    from mqks.journal import JournalError
    from mqks.pipeline.errors import PipelineError

    return MqksError, JournalError, PipelineError, OSError


def main(arguments: Sequence[str] | None = None) -> int:
    for name in ("stderr", "stdout", "stdin"):
        if getattr(sys, name) is None:  # a file or a connection could get its number
            if sys.stderr:
                complain(f"{name} is closed")
            return 1
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    code = 0
    try:
        with client_log():
            code = run(list(sys.argv[1:] if arguments is None else arguments))
        if code == 130 and has_colours(sys.stdout):  # the terminal throws away what it did not show yet
            print(PLAIN, end="")
        sys.stdout.flush()
    except KeyboardInterrupt:  # a second one, in what the first one led to
        os._exit(130)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains at its end
        if not isinstance(error, BrokenPipeError):  # whose reader has read enough, as `head` does
            if not code:
                complain(error)
            code = code or 1
    return code


def run(words: list[str]) -> int:
    """The command that they are, to its end. What is wrong with stdout is not for here."""
    try:
        path, command = find(words)
        return command.run(parser_of(path, command).parse(words))
    except BrokenPipeError:
        raise
    except BaseException as error:
        if by_ctrl_c(error):
            return 130
        if isinstance(error, SystemExit) and isinstance(error.code, int):
            return error.code
        if not isinstance(error, expected()):
            raise
        complain(error)
        return 1


if __name__ == "__main__":
    sys.exit(main())
