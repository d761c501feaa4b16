"""What a command of `mqks` is, and what several of them share: arguments, a progress bar."""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TextIO, cast

from mqks.cli.output import complain
from mqks.values import COUNT, EVENT, NAME, OVERFLOW_POLICIES, PLACE, ValueType, duration

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

    from mqks.client.limits import QueueLimits

# Flags that stand alone or have a value after `=`, as the protocol writes them. A value of its own word would be
# ambiguous: in `pub --once e1 d1` the word e1 is the event.
WITH_OR_WITHOUT_VALUE = {"--once", "--delete-when-unused", "--when-unused"}
AS_IT_IS = "\0"  # in front of a word that is no flag, whatever it looks like; no word of a command line can have it


class Command(NamedTuple):
    help: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    example: str = ""


class Family(NamedTuple):
    """Commands behind one word. They are imported by who needs them: the help of `mqks` does not."""

    help: str
    commands: Callable[[], "Table"]


Table = Mapping[str, Command | Family]


class Parser(argparse.ArgumentParser):
    """Flags and words in any order, and after `--` words only: argparse can have either, but not both."""

    def parse(self, words: list[str]) -> argparse.Namespace:
        given, rest = self.parse_known_intermixed_args(spell_out(words))
        if rest:
            refuse("argument", rest[0].removeprefix(AS_IT_IS).partition("=")[0], self._option_string_actions, self.prog)
        return given

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        return super()._get_value(action, arg_string.removeprefix(AS_IT_IS))

    def _print_message(self, message: str, file: "SupportsWrite[str] | None" = None) -> None:
        print(message, end="", file=file or sys.stderr)  # if that fails, it is not kept quiet

    def error(self, message: str) -> NoReturn:
        complain(f"{message.replace(AS_IT_IS, '')}; see {self.prog} --help")
        sys.exit(2)


def refuse(
    what: str, name: str, known: Iterable[str], path: str, synonyms: Mapping[str, str] | None = None
) -> NoReturn:
    """A word that is not known here, as mqksd does it."""
    from mqks.server.config import unknown

    complain(unknown(what, name, known, path, synonyms))
    sys.exit(2)


def parser_of(path: str, command: Command) -> Parser:
    parser = Parser(
        prog=path,
        description=command.help,
        epilog=f"example:\n  {command.example}" if command.example else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.arguments(parser)
    parser.set_defaults(parser=parser)
    return parser


def by_ctrl_c(error: BaseException | None) -> bool:
    """Is it Ctrl-C, or did that lead to it? Whatever it interrupts may fail on its own while it cleans up."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


# ── arguments ──


def add_json(parser: argparse.ArgumentParser, about: str = "for programs: one JSON object per line") -> None:
    parser.add_argument("--json", action="store_true", help=about)


def add_limits(parser: argparse.ArgumentParser) -> None:
    for flag, about in (("--max-length", "most messages of the queue"), ("--max-bytes", "most bytes of its messages")):
        parser.add_argument(flag, metavar="N", type=amount, help=f"{about}; 0: as the broker says")
    about = "when it is full: reject what comes, or drop-oldest"
    parser.add_argument("--overflow", choices=OVERFLOW_POLICIES, help=about)


def limits_of(args: argparse.Namespace) -> "QueueLimits":
    """What the command says about how long a queue may be."""
    given = {name: getattr(args, name) for name in ("max_length", "max_bytes", "overflow")}
    return cast("QueueLimits", {name: value for name, value in given.items() if value is not None})


def add_conf(parser: argparse.ArgumentParser) -> None:
    about = "a setting for Spark"
    parser.add_argument("--conf", metavar="NAME=VALUE", type=setting, action="append", default=[], help=about)


def setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key.startswith("spark.") and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not spark.NAME=VALUE")
    return key, value


def typed(value: ValueType, what: str) -> Callable[[str], Any]:
    """The value type for argparse, whose errors begin with what the text is not."""

    def parse(text: str) -> Any:
        try:
            return value.parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}: {error}") from None

    return parse


place = typed(PLACE, "a position, a time, earliest or latest")
amount = typed(COUNT, "a count")
seconds = typed(duration("S", decimals=6, any_float=True), "a number of seconds")
queue = typed(NAME, "a queue")
event = typed(EVENT, "an event")
name = typed(NAME, "a name")


def some(text: str) -> int:
    count: int = amount(text)
    if count == 0:
        raise argparse.ArgumentTypeError("0 is too few")
    return count


def perhaps_seconds(text: str) -> bool | float:
    """What stands after a flag's `=`, if it has one."""
    return seconds(text) if text else True


def name_or_nothing(text: str) -> str:
    """What stands after a flag's `=`, if it has one."""
    return text and name(text)


def data(text: str) -> str:
    if wrong := wrong_with(text.encode("utf-8", "surrogateescape")):
        raise argparse.ArgumentTypeError(wrong)
    return text


def wrong_with(content: bytes) -> str | None:
    """Why a line of the protocol cannot carry this as data."""
    for byte, what in ((b"\t", "a TAB"), (b"\0", "a NUL"), (b"\n", "a newline")):
        if byte in content:
            return f"data cannot have {what} in it: JSON can say it another way"
    return "data cannot end in a carriage return" if content.endswith(b"\r") else None


def events(text: str) -> list[str]:
    """With a comma between them."""
    return [event(one) for one in text.split(",")]


def note_masks(names: Iterable[str]) -> None:
    """Whoever writes a mask where only names are understood shall hear of it."""
    for one in names:
        if "*" in one:
            complain(f"note: {one!r} is taken as a name; masks work with `mqks tail` and `mqks rebind --remove-mask`")


def spell_out(words: list[str]) -> list[str]:
    """For argparse: the flags that may have a value, `--once` → `--once=`, and what stands after `--`."""
    end = words.index("--") if "--" in words else len(words)
    flags = [f"{word}=" if word in WITH_OR_WITHOUT_VALUE else word for word in words[:end]]
    return flags + words[end : end + 1] + [AS_IT_IS + word for word in words[end + 1 :]]


class Bar:
    """A progress bar on stderr, where that is a terminal."""

    WIDTH = 40

    def __init__(self, out: TextIO) -> None:
        self._out = out if out.isatty() else None
        self._shown = ""

    def __call__(self, done: int, total: int, note: str = "") -> None:
        percent = 100 * done // max(total, 1)
        done_text = "#" * (percent * self.WIDTH // 100)
        self.say(f"[{done_text:{self.WIDTH}}] {percent} %{note and ' '}{note}")

    def say(self, text: str) -> None:
        """This line instead of the one before."""
        if self._out and text != self._shown:
            print(f"\r{text:{len(self._shown)}}", end="", file=self._out, flush=True)
            self._shown = text

    def end(self) -> None:
        if self._shown:
            print(f"\r{'':{len(self._shown)}}\r", end="", file=self._out, flush=True)
            self._shown = ""
