"""`mqks token`: the tokens of an auth file, which is the only thing that is touched.

A file that is changed is a new one in its place, whole or not at all, and two commands at once wait for each other: the
folder is locked meanwhile. What somebody wrote into the file by hand stays as it was, comments too.
"""

import fcntl
import os
import re
import secrets
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mqks.cli.command import Command, Table, add_json, typed
from mqks.cli.output import as_json, complain, has_colours, print_lines, table
from mqks.server import tokens
from mqks.server.config import ConfigError
from mqks.values import matching

MASKS = {
    "publish": "events that it may publish",
    "queues": "queues that it may consume",
    "events": "events that it may subscribe queues to",
    "manage": "queues that it may rebind, purge and delete",
    "history": "events that it may read in the log",
}
SWITCHES = {"eval": "it may use _eval", "admin": "it sees all figures: stats, the dashboard, metrics"}
WRONG_NAME = {  # by whether it has to be known
    True: "there is no token {}",
    False: "there is a token {} already; revoke it first, or choose another name",
}
PRIVATE = 0o600
KEPT = 0o640  # of who may read the file: its group, if somebody has said so
ANY_HEADER = re.compile(r"^[ \t]*\[[\w \t.'\"-]+\][ \t]*(?:#.*)?$", re.MULTILINE)
REMARKS = re.compile(r"(?:^[ \t]*(?:#.*)?\n)+\Z", re.MULTILINE)


# ── arguments ──


NAME = matching("NAME", tokens.NAME.pattern, "give letters, digits, - and _, and at most 64 of them")
name = typed(NAME, "a name")


def add_file(parser: ArgumentParser) -> None:
    known = os.environ.get("MQKS_AUTH_FILE")
    about = "the auth file of the broker (default $MQKS_AUTH_FILE)"
    parser.add_argument("--auth-file", metavar="PATH", type=Path, default=known, required=not known, help=about)


def add_new(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", type=name, help="whose token it is")
    for key, about in MASKS.items():
        parser.add_argument(f"--{key}", metavar="MASK", nargs="+", action="extend", default=[], help=about)
    for key, about in SWITCHES.items():
        parser.add_argument(f"--{key}", action="store_true", help=about)
    parser.add_argument("--all", action="store_true", help="it may do all that there is")
    add_file(parser)


def add_list(parser: ArgumentParser) -> None:
    add_file(parser)
    add_json(parser)


def add_revoke(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", type=name)
    add_file(parser)


# ── commands ──


def new(args: Namespace) -> int:
    made = tokens.new_token(args.name)
    return changed(
        args, "in", lambda text: with_entry(text, args.name, entry_of(args, made)), is_known=False, printed=made
    )


def entry_of(args: Namespace, made: str) -> dict[str, Any]:
    """As the file has it, with the rights that were asked for."""
    keys = (*MASKS, *SWITCHES)
    asked = {key: getattr(args, key) for key in keys}
    if args.all == any(asked.values()):
        args.parser.error("what may it do? Say --all, or " + ", ".join(f"--{key}" for key in keys))
    if args.all:
        asked = {key: [tokens.EVERY_NAME] for key in MASKS} | dict.fromkeys(SWITCHES, True)
    consume = {key: asked.pop(key) for key in tokens.OF_CONSUME}
    try:
        rights = tokens.rights_of(args.name, {**asked, "consume": consume})
    except ValueError as error:
        args.parser.error(str(error))
    return {"hash": str(tokens.Hash.of(made)), **tokens.entry_of(rights)}


def revoke(args: Namespace) -> int:
    return changed(args, "gone from", lambda text: without_entry(text, args.name), is_known=True)


def show(args: Namespace) -> int:
    try:
        found = tokens.read(args.auth_file)
    except ConfigError as error:
        complain(error)
        return 1
    rows = [(key, each.rights) for key, each in sorted(found.items())]
    if args.json:
        keys = (*MASKS, *SWITCHES)
        print_lines(as_json({"name": key, **{each: getattr(may, each) for each in keys}}) for key, may in rows)
    else:
        heads = ["name", *MASKS, *SWITCHES]
        cells = [
            [key, *(" ".join(getattr(may, each)) for each in MASKS), *("yes" * getattr(may, each) for each in SWITCHES)]
            for key, may in rows
        ]
        print_lines(table([heads, *([cell or "-" for cell in row] for row in cells)], has_colours(sys.stdout)))
    return 0


# ── the file ──


class Refusal(Exception):
    """What was asked for cannot be done; the text is one line."""


def changed(args: Namespace, done: str, change: Callable[[str], str], *, is_known: bool, printed: str = "") -> int:
    """Change the text of the file, which has to know the name or not, and say how the broker gets to know; answers the
    exit code."""
    path = args.auth_file.resolve()
    try:
        with locked(path.parent):
            others = tokens.read(path) if path.exists() else {}
            if (others.pop(args.name, None) is not None) != is_known:
                raise Refusal(WRONG_NAME[is_known].format(args.name))
            text = change(path.read_text(encoding="utf-8") if path.exists() else "")
            replace(path, text, args.name, not is_known, others)
    except (ConfigError, Refusal) as error:
        complain(error)
        return 1
    except OSError as error:
        complain(f"cannot write {args.auth_file}: {error.strerror or error}")
        return 1
    if printed:
        try:
            print(printed, flush=True)
        except OSError:
            complain(f"{args.name} is in {args.auth_file}, but its token could not be printed: revoke it")
            raise
        complain("that is the token; nobody can show it again")
    complain(f"{args.name} is {done} {args.auth_file}; a running broker reads it on SIGHUP: systemctl reload mqksd")
    return 0


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The folder, since the file itself is replaced by another."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
        os.fsync(held)
    finally:
        os.close(held)


def replace(path: Path, text: str, name: str, is_known: bool, others: dict[str, tokens.Token]) -> None:
    """Put this text in the place of the file, if it then knows the name or not, and of all others what it knew. Its
    owner stays, so that a broker of another user can read it still."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "w", encoding="utf-8") as file:
            if path.exists():
                known = path.stat()
                os.fchmod(file.fileno(), known.st_mode & KEPT | PRIVATE)
                if (known.st_uid, known.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(file.fileno(), known.st_uid, known.st_gid)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if not _has(draft, name, is_known, others):
            raise Refusal(f"{path} is written in a way that cannot be changed here; do it by hand")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _has(draft: Path, name: str, is_known: bool, others: dict[str, tokens.Token]) -> bool:
    try:
        found = tokens.read(draft)
    except ConfigError:
        return False
    return (found.pop(name, None) is not None) == is_known and found == others


def with_entry(text: str, name: str, entry: dict[str, Any]) -> str:
    import tomlkit

    made = tomlkit.table()
    for key, value in entry.items():
        made[key] = tomlkit.inline_table() if isinstance(value, dict) else value
        if isinstance(value, dict):
            made[key].update(value)
    added = tomlkit.dumps({"tokens": {name: made}})
    return f"{text.rstrip()}\n\n{added}" if text.strip() else added


def without_entry(text: str, name: str) -> str:
    """What is about the token goes, up to the next one; remarks before that one stay, and all if it is not found."""
    found = _header(name).search(text)
    if found is None:
        return text
    following = ANY_HEADER.search(text, found.end())
    while following and _header(name).match(text, following.start()):
        following = ANY_HEADER.search(text, following.end())
    rest = text[following.start() :] if following else ""
    remarks = REMARKS.search(text, found.start(), following.start() if following else len(text))
    return (text[: found.start()] + (remarks[0] if remarks else "") + rest).lstrip("\n")


def _header(name: str) -> re.Pattern[str]:
    """Of the token's table, or of one in it."""
    return re.compile(rf"^[ \t]*\[[ \t]*tokens[ \t]*\.[ \t]*(['\"]?){name}\1[ \t]*[\].].*\n?", re.MULTILINE)


COMMANDS: Table = {
    "new": Command(
        "make a token, and print it: the file has only its hash",
        add_new,
        new,
        "mqks token new worker --auth-file tokens.toml --publish 'order.*' --queues mail --events 'order.**'",
    ),
    "list": Command(
        "the tokens of a file, and what each may do", add_list, show, "mqks token list --auth-file tokens.toml"
    ),
    "revoke": Command("take a token away", add_revoke, revoke, "mqks token revoke worker --auth-file tokens.toml"),
}
