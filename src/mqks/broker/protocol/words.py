"""The words of a request: names, flags, and lists that a flag opens. Each action states its flags in a table."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from mqks.broker.errors import BadRequest, show
from mqks.broker.protocol.names import check_name

AT_ONCE = 0.0
LONGEST = 1e15 - 1  # seconds
REJECT, DROP_OLDEST = b"reject", b"drop-oldest"
LENGTH, BYTES, OVERFLOW = b"--max-length", b"--max-bytes", b"--overflow"
PREFETCH = b"--prefetch"
UNUSED = b"--delete-queue-when-unused"
LONG = 4096  # bytes of words, which cost so much to read that others have their turn then
MOST_WORDS = 1000  # of a request that takes no events: so many are read before it is found wrong

FlagParser = Callable[[bytes | None], Any]


def switch(value: bytes | None) -> bool:
    if value is not None:
        raise BadRequest("this flag takes no value", show(value))
    return True


def seconds(value: bytes | None) -> float:
    """Seconds, or none for at once."""
    return AT_ONCE if value is None else number_of_seconds(value, show(value))


def number_of_seconds(value: bytes | float, shown: str) -> float:
    """A number, or a text in ASCII that Python's float() accepts, without underscores; finite and not negative."""
    try:
        number = inf if isinstance(value, bytes) and (b"_" in value or not value.isascii()) else float(value)
    except (ValueError, OverflowError):
        number = inf
    if not 0 <= number < inf:
        raise BadRequest("not a number of seconds", shown)
    return rounded(number)


def rounded(seconds: float) -> float:
    """To milliseconds, without a sign. Less than half of one is at once."""
    return abs(min(round(seconds, 3), LONGEST))


def count(value: bytes | None) -> int:
    if value is None or not value.isdigit() or len(value) > 15:
        raise BadRequest("not a count", show(value or b""))
    return int(value)


def policy(value: bytes | None) -> bytes:
    if value not in (REJECT, DROP_OLDEST):
        raise BadRequest("not a policy: reject or drop-oldest", show(value or b""))
    return value


def text(value: bytes | None) -> bytes:
    if not value:
        raise BadRequest("this flag needs a value")
    return value


def scope(value: bytes | None) -> bytes:
    """A name, or none for the scope without a name."""
    return b"" if value is None else check_name(value)


Flags = Mapping[bytes, FlagParser]
CONFIRM: Flags = {b"--confirm": switch}
BOUNDS: Flags = {LENGTH: count, BYTES: count, OVERFLOW: policy}
BIND: Flags = {**CONFIRM, **BOUNDS}
CONSUMER: Flags = {**BIND, PREFETCH: count}  # in both dialects
UPDATED = (PREFETCH, *sorted(BOUNDS))  # flags that an --update repeats where the consumer stated them, in this order
MESSAGE: Flags = {**CONFIRM, b"--once": scope}


@dataclass
class Words:
    """What stood on the line: plain words, then the words after each list flag, and the flags with their values."""

    plain: list[bytes] = field(default_factory=list)
    lists: dict[bytes, list[bytes]] = field(default_factory=dict)
    flags: dict[bytes, Any] = field(default_factory=dict)

    @property
    def confirm(self) -> bool:
        return b"--confirm" in self.flags

    @property
    def once(self) -> bytes | None:
        """The scope in which the id is to be taken once; None: it is not asked for."""
        return self.flags.get(b"--once")

    def exactly(self, number: int, what: str) -> list[bytes]:
        if len(self.plain) != number:
            raise BadRequest(f"expected {what}", f"not {len(self.plain)} words")
        return self.plain


def ignore(_: bytes) -> None:
    """Whatever it is called, it may go on."""


class TooManyWords(BadRequest):
    """More than a request may have: whoever asked for them may know a better reason."""


def parse(
    data: bytes,
    flags: Flags,
    lists: tuple[bytes, ...] = (),
    most: int = MOST_WORDS,
    first: Callable[[bytes], None] = ignore,
) -> Words:
    """At most so many words. `first` is told the first plain one as soon as it is found: it may refuse to go on, and
    then the others have cost nothing."""
    if data.count(b" ") > most:
        raise TooManyWords("too many words", f"{most} are read")
    words = Words()
    current = words.plain
    for word in data.split(b" "):
        if not word:
            continue
        if not word.startswith(b"--"):
            check_name(word)
            if not words.plain and current is words.plain:
                first(word)
            current.append(word)
            continue
        flag, equals, value = word.partition(b"=")
        if flag in words.flags:
            raise BadRequest("this flag stands there twice", show(flag))
        if flag in lists and not equals:
            current = words.lists.setdefault(flag, [])  # a list may be continued
        elif flag in flags:
            words.flags[flag] = flags[flag](value if equals else None)
        else:
            raise BadRequest("unknown flag", show(word))
    return words


def leading_flags(data: bytes, flags: Flags) -> tuple[Words, bytes]:
    """The flags that stand first, each once, and all that follows, untouched: data may look like a flag."""
    words = Words()
    while True:
        word, _, rest = data.partition(b" ")
        flag, equals, value = word.partition(b"=")
        if flag not in flags or flag in words.flags or (equals and flags[flag] is switch):
            return words, data
        words.flags[flag] = flags[flag](value if equals else None)
        data = rest


def before_json(data: bytes, flags: Flags) -> tuple[Words, bytes]:
    """The flags that stand before a JSON object, and its text without the spaces around it."""
    start = 0 if data.startswith(b"{") else data.find(b" {") + 1
    if not data.startswith(b"{", start):
        raise BadRequest("not a JSON object")
    words = parse(data[:start], flags)
    words.exactly(0, "only flags before the JSON object")
    return words, data[start:].strip(b" ")


def is_json(data: bytes) -> bool:
    """Does a JSON object stand here, after flags or at once?"""
    words = (word for word in data.split(b" ", 8) if word and not word.startswith(b"--"))
    return next(words, b"").startswith(b"{")
