"""What the broker can be told, in one place.

The fields of `Config` are the only list of options. Flags, environment variables, TOML keys, `--help` and the
table in docs/CONFIGURATION.md are made from them, so no option can be in one of these and missing in another.
Arguments and environment are handed in; the only thing touched from here is the TOML file that they name.
"""

import argparse
import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NoReturn

from mqks import __version__
from mqks.values import (
    OVERFLOW_POLICIES,
    PATH,
    SWITCH,
    ValueType,
    duration,
    listed,
    matching,
    number,
    show_size,
    size,
    word,
)


class ConfigError(Exception):
    """A mistake in the configuration; the text is one line and says what to do."""


# ---- How values are written


def _host_names(text: str) -> tuple[str, ...]:
    names: tuple[str, ...] = HOST_NAMES.parse(text) if text else ()
    return names


def parse_fsync(text: str) -> str:
    mode, given, milliseconds = text.lower().partition("=")
    if mode in ("always", "never") and not given:
        return mode
    if mode == "interval" and (not given or (re.fullmatch(r"[0-9]{1,9}", milliseconds) and int(milliseconds) > 0)):
        return text.lower()
    raise ValueError("give always, never, interval, or interval=500 for 500 milliseconds")


HOST_NAMES = listed(
    "NAME[,NAME]",
    re.compile(r"[A-Za-z0-9_.-]+").fullmatch,
    "give host names with commas between them, such as broker,broker.example.org",
)
PORT = number("PORT", 0, 65535)
COUNT = number("N", 1, 1_000_000)
COUNT_OR_NONE = number("N", 0, 1_000_000_000_000)
ID_COUNT = number("N", 0, 100_000_000)
HOST = matching("HOST", r"[^\s\0]+", "give a host name or an address, such as 127.0.0.1")
NAMES = replace(HOST_NAMES, parse=_host_names)
LEVEL = word("LEVEL", "debug", "info", "warning", "error")
LOG_FORMAT = word("FORMAT", "text", "json")
OVERFLOW = word("WHAT", *OVERFLOW_POLICIES)
LINE_SIZE = size(64, 1 << 30)
FSYNC = ValueType("MODE", parse_fsync)
DURATION = duration("TIME")
SEGMENT_SIZE = size(64 << 10, 1 << 40)
RETAINED_SIZE = size(0, 1 << 60)
MEMORY_SIZE = size(4 << 20, 1 << 50)  # with less, what the broker keeps at rest would fill it


# ---- The options


def about(kind: ValueType, help: str) -> dict[str, Any]:
    return {"kind": kind, "help": help}


@dataclass(frozen=True, slots=True)
class Config:
    """All that `mqksd` can be told: a new option is a field here and its row in docs/CONFIGURATION.md."""

    port: int = field(
        default=25000,
        metadata=about(PORT, "port to listen on; 0 for any free one"),
    )
    host: str = field(
        default="127.0.0.1",
        metadata=about(HOST, "address to listen on; 0.0.0.0 for every network"),
    )
    http: bool = field(
        default=True,
        metadata=about(SWITCH, "serve the dashboard, the metrics and an API over HTTP"),
    )
    http_port: int = field(
        default=25080,
        metadata=about(PORT, "port of the dashboard; 0 for any free one"),
    )
    http_host: str = field(
        default="127.0.0.1",
        metadata=about(HOST, "address of the dashboard; 0.0.0.0 for every network"),
    )
    http_name: tuple[str, ...] = field(
        default=(),
        metadata=about(
            NAMES, "names that the dashboard answers to, beside addresses, localhost and the host's own name"
        ),
    )
    tls_cert: Path | None = field(
        default=None,
        metadata=about(PATH, "certificate, with those that signed it, in PEM: then all is TLS, HTTP too"),
    )
    tls_key: Path | None = field(
        default=None,
        metadata=about(PATH, "key of the certificate, in PEM, if it is not in the same file"),
    )
    tls_ca: Path | None = field(
        default=None,
        metadata=about(PATH, "certificates in PEM: only clients with a certificate signed by one of them are let in"),
    )
    auth_file: Path | None = field(
        default=None,
        metadata=about(
            PATH, "TOML file with tokens and what each may do (mqks token new); then nobody is let in without"
        ),
    )
    insecure: bool = field(
        default=False,
        metadata=about(SWITCH, "without an --auth-file, let other hosts in too: whoever can reach it may do all"),
    )
    auth_timeout: float = field(
        default=10.0,
        metadata=about(DURATION, "time for a new connection to begin TLS and to say its token"),
    )
    data: Path = field(
        default=Path("mqks-data"),
        metadata=about(PATH, "folder for messages and queues"),
    )
    memory: bool = field(
        default=False,
        metadata=about(SWITCH, "keep messages in memory only: nothing survives a restart"),
    )
    fsync: str = field(
        default="always",
        metadata=about(FSYNC, "when messages are safe on disk: always (before each ok), interval[=ms], never"),
    )
    segment_size: int = field(
        default=64 << 20,
        metadata=about(SEGMENT_SIZE, "size of a file of the journal"),
    )
    retain_bytes: int = field(
        default=0,
        metadata=about(RETAINED_SIZE, "size of the journal beyond which old messages go; 0 for a fifth of the disk"),
    )
    retain_age: float = field(
        default=7 * 86400.0,
        metadata=about(DURATION, "age beyond which old messages go; those in a queue always stay"),
    )
    restart_grace: float = field(
        default=60.0,
        metadata=about(DURATION, "time after a start for consumers to come back before unused queues go"),
    )
    salvage: bool = field(
        default=False,
        metadata=about(SWITCH, "if the journal is damaged, put the damaged files aside and start with the rest"),
    )
    dedup_window: float = field(
        default=3600.0,
        metadata=about(DURATION, "how long the id of a publish --once is remembered, so that a second one is dropped"),
    )
    dedup_count: int = field(
        default=1_000_000,
        metadata=about(ID_COUNT, "most ids of publish --once remembered; beyond it the oldest go; 0 refuses --once"),
    )
    max_line: int = field(
        default=1 << 20,
        metadata=about(LINE_SIZE, "longest line that a client may send"),
    )
    max_connections: int = field(
        default=10_000,
        metadata=about(COUNT, "most connections at one time"),
    )
    max_connections_per_address: int = field(
        default=5_000,
        metadata=about(COUNT, "most connections of one address at one time"),
    )
    max_rate: int = field(
        default=0,
        metadata=about(COUNT_OR_NONE, "requests a second beyond which a client is slowed down; 0 for no limit"),
    )
    line_timeout: float = field(
        default=60.0,
        metadata=about(
            DURATION, "time for a line that was begun to end; beyond it the client is cut off; 0 for no limit"
        ),
    )
    max_queues: int = field(
        default=100_000,
        metadata=about(COUNT, "most queues"),
    )
    max_events: int = field(
        default=10_000,
        metadata=about(COUNT, "most events of one queue, or of one history"),
    )
    max_consumers: int = field(
        default=10_000,
        metadata=about(COUNT, "most consumers of one connection"),
    )
    max_unacked: int = field(
        default=0,
        metadata=about(COUNT_OR_NONE, "most unacked messages of one consumer, whatever its --prefetch; 0 for no limit"),
    )
    max_length: int = field(
        default=0,
        metadata=about(COUNT_OR_NONE, "most messages of a queue that has no --max-length of its own; 0 for no limit"),
    )
    max_bytes: int = field(
        default=0,
        metadata=about(RETAINED_SIZE, "most bytes of a queue that has no --max-bytes of its own; 0 for no limit"),
    )
    overflow: str = field(
        default="reject",
        metadata=about(OVERFLOW, "when a queue is full, unless it says itself: reject what comes, or drop-oldest"),
    )
    min_free_disk: int = field(
        default=64 << 20,
        metadata=about(RETAINED_SIZE, "space left on the disk below which nothing more is taken"),
    )
    max_memory: int = field(
        default=1 << 30,
        metadata=about(
            MEMORY_SIZE,
            "memory for all that clients create; near it publishers wait, at it what needs memory is refused",
        ),
    )
    log_level: str = field(
        default="info",
        metadata=about(LEVEL, "least that is logged: debug, info, warning, error"),
    )
    log_format: str = field(
        default="text",
        metadata=about(LOG_FORMAT, "how it is logged: text, or json, which is one object a line"),
    )
    config: Path | None = field(
        default=None,
        metadata=about(PATH, "TOML file with any of these options"),
    )

    @classmethod
    def load(cls, argv: Sequence[str], environ: Mapping[str, str]) -> "Config":
        """Flags win over the environment, which wins over the TOML file, which wins over the defaults."""
        flags = from_flags(argv)
        environment = from_environment(environ)
        path = (environment | flags).get("config")
        config = cls(**((from_file(path) if path else {}) | environment | flags))
        if config.max_line > config.max_memory:
            line, memory = show_size(config.max_line), show_size(config.max_memory)
            raise ConfigError(f"max_line ({line}) is above max_memory ({memory}); lower one or raise the other")
        return config


@dataclass(frozen=True, slots=True)
class Option:
    """A field of `Config`, by the name that each place gives it."""

    name: str
    default: object
    kind: ValueType
    help: str

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def env(self) -> str:
        return "MQKS_" + self.name.upper()

    @property
    def shown(self) -> str:
        """The default, as one would write it."""
        return "" if self.default is None else self.kind.show(self.default)

    def parse(self, text: str, where: str) -> object:
        try:
            return self.kind.parse(text)
        except ValueError as error:
            raise ConfigError(f"{where}: {text!r} will not do; {error}") from None


OPTIONS = [Option(each.name, each.default, **each.metadata) for each in fields(Config)]
IN_FILE = {option.name: option for option in OPTIONS if option.name != "config"}
IN_ENVIRONMENT = {option.env: option for option in OPTIONS}
IN_TOML = {str: "text in quotes", int: "a number, or text in quotes", bool: "true or false"}
# Read by clients, setup.py and tests.
OF_OTHERS = {
    "MQKS_URL", "MQKS_TOKEN", "MQKS_CA", "MQKS_CLIENT_CERT", "MQKS_CLIENT_KEY",
    "MQKS_SANITIZE", "MQKS_EXAMPLES", "MQKS_SEED",
}  # fmt: skip


# ---- The places that options come from


def unknown(
    what: str, name: str, known: Iterable[str], program: str = "mqksd", synonyms: Mapping[str, str] | None = None
) -> ConfigError:
    """Advises the known name that is nearest; a synonym stands for the known name that it maps to."""
    meant = {each: each for each in known} | dict(synonyms or {})
    near = difflib.get_close_matches(name, meant, 1, cutoff=0.8)
    advice = f"did you mean {meant[near[0]]}?" if near else f"remove it, or see {program} --help for all there are"
    return ConfigError(f"unknown {what} {name!r}; {advice}")


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see mqksd --help")


def from_flags(argv: Sequence[str]) -> dict[str, Any]:
    given, rest = parser().parse_known_args(argv)
    if rest:
        raise unknown("argument", rest[0].partition("=")[0], [option.flag for option in OPTIONS])
    texts = {name: str(value) for name, value in vars(given).items()}
    return {each.name: each.parse(texts[each.name], each.flag) for each in OPTIONS if each.name in texts}


def from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """A variable that is empty counts as not set: that is how compose files and units leave one out."""
    for name in environ:
        if name.startswith("MQKS_") and name not in IN_ENVIRONMENT and name not in OF_OTHERS:
            raise unknown("environment variable", name, IN_ENVIRONMENT)
    return {each.name: each.parse(environ[each.env], each.env) for each in OPTIONS if environ.get(each.env)}


def read_toml(path: Path, flag: str, advice: str) -> dict[str, Any]:
    """What is in the file that this flag names; `advice` is for one that is no TOML."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}; check {flag}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{str(path)!r} is not TOML: {error}; {advice}") from None


def from_file(path: Path) -> dict[str, Any]:
    values = read_toml(path, "--config", "write lines such as port = 25000")
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name not in IN_FILE:
            raise unknown(f"key in {str(path)!r}:", name, IN_FILE)
        option = IN_FILE[name]
        if type(value) not in (str, option.kind.toml):
            raise ConfigError(f"{str(path)!r}: {name}: write {IN_TOML[option.kind.toml]}")
        found[name] = option.parse(str(value), f"{str(path)!r}: {name}")
    return found


# ---- What people read


def parser() -> Parser:
    made = Parser(
        prog="mqksd",
        usage="mqksd [option ...]",
        description="The MQKS broker. Start it, then talk to it: nc localhost 25000",
        epilog="Every option may also be an environment variable (MQKS_MAX_LINE=64K) or a key in the "
        'TOML file (max_line = "64K"). A flag wins over the environment, the environment over the '
        "file. A SIZE is in bytes, or in K, M, G or T, each 1024 times the one before. A TIME is in seconds, "
        "or in m, h or d.",
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=26, width=79),
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
        add_help=False,
    )
    made.add_argument("--help", "-h", action="help", help="show this help and exit")
    made.add_argument("--version", action="version", version=f"mqksd {__version__}", help="show the version and exit")
    for option in OPTIONS:
        if option.kind is SWITCH:
            made.add_argument(option.flag, action=argparse.BooleanOptionalAction, help=option.help)
        else:
            default = f" [{option.shown}]" if option.shown else ""
            made.add_argument(option.flag, metavar=option.kind.metavar, help=option.help + default)
    return made


def table() -> str:
    """The table in docs/CONFIGURATION.md."""
    rows = [["Flag", "Environment", "TOML key", "Default", "Meaning"], ["---"] * 5]
    for option in OPTIONS:
        flag = f"`{option.flag} {option.kind.metavar}".rstrip() + "`"
        key = f"`{option.name}`" if option.name in IN_FILE else ""
        default = f"`{option.shown}`" if option.shown else ""
        rows.append([flag, f"`{option.env}`", key, default, option.help])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
