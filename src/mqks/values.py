"""Types of option values: how a value is read from text, shown again, and described.

`mqksd`'s configuration, the arguments of `mqks`, HTTP parameters and Spark's options are all declared with these. A
`parse` raises a ValueError whose text says what would be right; each place adds the option's name and the text given.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mqks.names import is_event, is_name

SIZES = {"T": 1 << 40, "G": 1 << 30, "M": 1 << 20, "K": 1 << 10, "": 1}
SIZE = re.compile(r"([0-9]{1,18})(?:([KMGT])(iB|B)?)?", re.IGNORECASE | re.ASCII)
DURATIONS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
DURATION = re.compile(r"([0-9]{1,9}(?:\.([0-9]{1,6}))?)([dhms]?)", re.IGNORECASE | re.ASCII)
DIGITS = re.compile(r"[0-9]{1,1000}", re.ASCII)
TRUTH = dict.fromkeys(("true", "yes", "on", "1"), True) | dict.fromkeys(("false", "no", "off", "0"), False)
PLACES = ("earliest", "latest")
MOST_POSITION = (1 << 63) - 1
LEAST_MILLISECONDS = 11  # digits; fewer are a date, or seconds, and would all be in the spring of 1970 or before
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OVERFLOW_POLICIES = ("reject", "drop-oldest")

Place = int | str | datetime  # a position, earliest or latest, a time
Schema = Mapping[str, Any]
TEXT: Schema = {"type": "string"}


@dataclass(frozen=True, slots=True)
class ValueType:
    metavar: str  # in help and docs
    parse: Callable[[str], Any]
    show: Callable[[Any], str] = str  # as `parse` reads it
    toml: type = str  # what a TOML file may hold, besides text
    schema: Schema = field(default_factory=lambda: TEXT, hash=False)  # as JSON Schema, for OpenAPI


# ── numbers ──


def number(metavar: str, at_least: int, at_most: int | None = None, advice: str = "") -> ValueType:
    to = "on" if at_most is None else f"to {at_most}"
    most = {} if at_most is None else {"maximum": at_most}

    def parse(text: str) -> int:
        if DIGITS.fullmatch(text) and at_least <= (value := int(text)) and (at_most is None or value <= at_most):
            return value
        raise ValueError(advice or f"give a number from {at_least} {to}")

    return ValueType(metavar, parse, toml=int, schema={"type": "integer", "minimum": at_least, **most})


def rate(metavar: str, unit: str = "") -> ValueType:
    """A number a second, which is more than 0; it may be written with the unit."""

    def parse(text: str) -> float:
        try:
            value = float(text.removesuffix(unit))
        except ValueError:
            value = 0.0
        if 0 < value < float("inf"):
            return value
        raise ValueError("give a number per second that is more than 0")

    return ValueType(metavar, parse)


# ── sizes and durations ──


def size(at_least: int, at_most: int = 1 << 60, *, with_b: bool = False, advice: str = "") -> ValueType:
    """In bytes, or with K, M, G or T. `with_b`: MB is taken too, and means MiB."""
    example = max(at_least, 64 << 10)

    def parse(text: str) -> int:
        if (match := SIZE.fullmatch(text)) and (with_b or (match[3] or "").lower() != "b"):
            value = int(match[1]) * SIZES[(match[2] or "").upper()]
            if at_least <= value <= at_most:
                return value
        bounds = f"from {show_size(at_least)} to {show_size(at_most)}"
        raise ValueError(advice or f"give a size {bounds}, such as {example} or {show_size(example)}")

    return ValueType("SIZE", parse, show_size, toml=int)


def show_size(size: int) -> str:
    """In the largest unit that leaves no rest: 64K, 1G."""
    if not size:
        return "0"
    return next(f"{size // unit}{letter}" for letter, unit in SIZES.items() if size % unit == 0)


def duration(metavar: str, *, decimals: int = 3, any_float: bool = False) -> ValueType:
    """In seconds, or with m, h or d. `any_float`: all that Python reads as a number, such as 1e3."""

    def parse(text: str) -> float:
        if (match := DURATION.fullmatch(text)) and len(match[2] or "") <= decimals:
            return float(match[1]) * DURATIONS[match[3].lower() or "s"]
        if any_float and 0 <= (value := _float(text)) < float("inf"):
            return value
        raise ValueError("give a time in seconds, or with a letter, such as 90, 15m, 12h or 7d")

    return ValueType(metavar, parse, show_duration, toml=int)


def show_duration(duration: float) -> str:
    """In the largest unit that leaves no rest: 90s, 7d."""
    return next(
        f"{duration / unit:g}{letter}"
        for letter, unit in DURATIONS.items()
        if (duration % unit == 0 and duration >= unit) or unit == 1
    )


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0


# ── words ──


def word(metavar: str, *words: str, any_case: bool = True) -> ValueType:
    def parse(text: str) -> str:
        found = text.lower() if any_case else text
        if found in words:
            return found
        raise ValueError(f"give one of {', '.join(words)}")

    return ValueType(metavar, parse, schema={"type": "string", "enum": list(words)})


def _switch(text: str) -> bool:
    if text.lower() in TRUTH:
        return TRUTH[text.lower()]
    raise ValueError("give true or false")


def matching(metavar: str, pattern: str, advice: str) -> ValueType:
    """Text that is as the pattern says."""
    compiled = re.compile(pattern)

    def parse(text: str) -> str:
        if compiled.fullmatch(text):
            return text
        raise ValueError(advice)

    return ValueType(metavar, parse)


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"it is no regular expression: {error}") from None
    return text


# ── names of the protocol ──


def name(metavar: str, is_good: Callable[[bytes], bool] = is_name) -> ValueType:
    def parse(text: str) -> str:
        if is_good(text.encode("utf-8", "surrogateescape")):
            return text
        raise ValueError("give one word, without spaces and TABs, and no -- or { in front")

    return ValueType(metavar, parse)


def listed(metavar: str, item: Callable[[str], object], advice: str, *, strip: bool = False) -> ValueType:
    """Items with a comma between them, each of which the test `item` takes."""

    def parse(text: str) -> tuple[str, ...]:
        found = tuple(each.strip() if strip else each for each in text.split(","))
        if all(map(item, found)):
            return found
        raise ValueError(advice)

    return ValueType(metavar, parse, ",".join)


def masks(at_most: int) -> ValueType:
    """Names and masks of events with a comma between them, as bytes. None means all, as an empty text or a * does."""

    def parse(text: str) -> list[bytes]:
        given = text.split(",")
        if len(given) > at_most:
            raise ValueError(f"give at most {at_most} names or masks")
        if not any(given) or "*" in given:
            return []
        found = [mask.encode("utf-8", "replace") for mask in given if mask]
        if all(map(is_name, found)):
            return found
        raise ValueError("give names or masks of events, such as user.*.connected")

    items = {"type": "string", "pattern": "^[A-Za-z0-9_.*-]*$"}
    return ValueType("MASKS", parse, schema={"type": "array", "items": items, "maxItems": at_most})


# ── places in the journal ──


def _offset(text: str) -> int | str:
    """As Spark's users write it: also a JSON object, as Spark itself does."""
    found: object = text.strip().lower()
    if found in PLACES:
        return str(found)
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if isinstance(found, dict) and list(found) == ["position"]:
        found = found["position"]
    if type(found) is int and 0 <= found <= MOST_POSITION:
        return found
    raise ValueError('give earliest, latest, a position such as 4711, or {"position": 4711}')


def _time(text: str) -> datetime:
    try:
        if DIGITS.fullmatch(text):
            if len(text) < LEAST_MILLISECONDS:
                raise ValueError
            return EPOCH + timedelta(milliseconds=int(text))
        return _iso_time(text)
    except (ValueError, OverflowError):
        raise ValueError(
            "give a time such as 2026-01-31T12:00:00Z (UTC if it names no zone), or milliseconds since 1970, "
            f"which have {LEAST_MILLISECONDS} digits or more"
        ) from None


def _iso_time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def place(*, times: bool = True) -> ValueType:
    """A position in the journal, as digits, however many; earliest or latest; or a time."""
    time = "2026-01-31T12:00 (UTC if it names no zone), " if times else ""

    def parse(text: str) -> Place:
        if text in PLACES:
            return text
        if DIGITS.fullmatch(text):
            return int(text)
        try:
            if times:
                return _iso_time(text)
        except ValueError:
            pass
        raise ValueError(f"give a place such as 4711, {time}earliest or latest")

    return ValueType("PLACE", parse)


# ── files ──


def file(metavar: str, advice: str) -> ValueType:
    """A path as text."""
    return matching(metavar, r"[^\0]+", advice)


def _path(text: str) -> Path:
    if text and "\0" not in text:
        return Path(text)
    raise ValueError("give a path")


SWITCH = ValueType("", _switch, lambda value: str(value).lower(), toml=bool, schema={"type": "boolean"})
PATH = ValueType("PATH", _path)
REGEX = ValueType("REGEX", _regex)
TIME = ValueType("TIME", _time)
OFFSET = ValueType("PLACE", _offset)
PLACE = place()
POSITION = number("POSITION", 0, MOST_POSITION, "give a position: the number that a message is listed with")
COUNT = number("N", 0)
EVENT = name("EVENT", is_event)
NAME = name("NAME")
