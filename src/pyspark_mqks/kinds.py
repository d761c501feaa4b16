"""How the values of options are written: from text to what the code works with. No I/O.

Each function raises a ValueError whose text says what would be right.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from mqks.client.access import Access
from mqks.client.address import find_address
from mqks.names import is_name


@dataclass(frozen=True)
class Kind:
    """A way to write a value, and the word for it in docs."""

    metavar: str
    parse: Callable[[str], Any]


Offsets = int | str  # a position, "earliest" or "latest"

UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
SIZE = re.compile(r"([0-9]{1,18})(?:([kmgt])(?:i?b)?)?", re.IGNORECASE | re.ASCII)
SPANS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
SPAN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([smhd]?)", re.IGNORECASE | re.ASCII)
TRUTH = {"true": True, "false": False}
DIGITS = re.compile(r"[0-9]{1,18}", re.ASCII)
LEAST_MILLISECONDS = 11  # digits; fewer are a date, or seconds, and would all be in the spring of 1970 or before
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def offsets(text: str) -> Offsets:
    place: object = text.strip().lower()
    if place in ("earliest", "latest"):
        return str(place)
    try:
        place = json.loads(text)
    except ValueError:
        place = None
    if isinstance(place, dict) and list(place) == ["position"]:
        place = place["position"]
    if type(place) is int and 0 <= place < 1 << 63:
        return place
    raise ValueError('give earliest, latest, a position such as 4711, or {"position": 4711}')


def timestamp(text: str) -> datetime:
    try:
        if DIGITS.fullmatch(text):
            if len(text) < LEAST_MILLISECONDS:
                raise ValueError
            return EPOCH + timedelta(milliseconds=int(text))
        time = datetime.fromisoformat(text)
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise ValueError(
            "give a time such as 2026-01-31T12:00:00Z (UTC if it names no zone), or milliseconds since 1970, "
            f"which have {LEAST_MILLISECONDS} digits or more"
        ) from None


def count(text: str) -> int:
    if DIGITS.fullmatch(text) and int(text):
        return int(text)
    raise ValueError("give a whole number from 1 on")


def size(text: str) -> int:
    match = SIZE.fullmatch(text)
    if match and int(match[1]):
        return int(match[1]) * UNITS[(match[2] or "").lower()]
    raise ValueError("give a size in bytes, or with a letter, such as 64m or 1g")


def span(text: str) -> float:
    match = SPAN.fullmatch(text)
    if match:
        return float(match[1]) * SPANS[match[2].lower()]
    raise ValueError("give a time in seconds, or with a letter, such as 90, 15m or 12h")


def rate(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if 0 < found < float("inf"):
        return found
    raise ValueError("give a number of rows per second that is more than 0")


def switch(text: str) -> bool:
    if text.lower() in TRUTH:
        return TRUTH[text.lower()]
    raise ValueError("give true or false")


def masks(text: str) -> tuple[str, ...]:
    found = tuple(mask.strip() for mask in text.split(","))
    if all(found):
        return found
    raise ValueError("give names and masks with a comma between them, such as order.new,user.*.connected")


def names(text: str) -> tuple[str, ...]:
    if "*" not in text:
        return masks(text)
    raise ValueError("give exact names, such as order.new,order.paid; masks are for the option events")


def pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"it is no regular expression: {error}") from None
    return text


def url(text: str) -> str:
    if not text:
        raise ValueError("give the broker's address, such as mqks://127.0.0.1:25000")
    return str(find_address(text))


def path(text: str) -> str:
    """Spark may make a URL of what it is given."""
    found = text.removeprefix("file://") if text.startswith("file:///") else text.removeprefix("file:")
    if found and "\0" not in found:
        return found
    raise ValueError("give the folder that the broker has as --data")


def scope(text: str) -> str:
    if is_name(text.encode()):
        return text
    raise ValueError("give one word")


def file(text: str) -> str:
    if text and "\0" not in text:
        return text
    raise ValueError("give the path of a file that the driver and all executors have")


def token(text: str) -> str:
    return Access(text.strip()).token or ""


OFFSETS = Kind("PLACE", offsets)
TIME = Kind("TIME", timestamp)
COUNT = Kind("N", count)
SIZE_IN_BYTES = Kind("SIZE", size)
SECONDS = Kind("SECONDS", span)
RATE = Kind("N", rate)
SWITCH = Kind("true|false", switch)
NAMES = Kind("NAMES", names)
MASKS = Kind("MASKS", masks)
PATTERN = Kind("REGEX", pattern)
URL = Kind("URL", url)
PATH = Kind("DIR", path)
SCOPE = Kind("NAME", scope)
FILE = Kind("FILE", file)
TOKEN = Kind("TOKEN", token)
