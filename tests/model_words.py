"""The words that the model reads: names, argument lists, JSON, patterns and masks.

Pure functions of bytes and JSON values; each raises Bad for what the broker must refuse.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

Words = dict[bytes, list[bytes]]
Flags = dict[bytes, Any]


class Bad(Exception):
    """The request is answered with an error and changes nothing."""


def name(word: bytes) -> bytes:
    if not word or word == b"-" or word.startswith((b"--", b"{")) or re.search(rb"[ \t\0\r\n]", word):
        raise Bad
    return word


def event_name(word: bytes) -> bytes:
    if re.search(rb",retry=[0-9]+\Z", word):
        raise Bad
    return name(word)


def is_legal(check: Callable[[bytes], bytes], word: bytes) -> bool:
    try:
        return check(word) == word
    except Bad:
        return False


def no_value(value: bytes | None) -> None:
    if value is not None:
        raise Bad


def whole_number(value: bytes | None) -> float:
    if value is None or not re.fullmatch(rb"[0-9]+", value):
        raise Bad
    return int(value)


def policy(value: bytes | None) -> bytes:
    if value not in (b"reject", b"drop-oldest"):
        raise Bad
    return value


LONGEST = 10.0**15 - 1  # seconds

NUMBER = rb"[+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"


def seconds(value: bytes | None) -> float:
    if value is not None and not (re.fullmatch(NUMBER, value) and isfinite(float(value))):
        raise Bad
    return min(round(float(value or 0), 3), LONGEST)


def leading_flags(data: bytes) -> tuple[bool, bytes | None, bytes]:
    """The flags before an event: is there a --confirm, the scope of --once (b"" for the one without a name) if it is
    there, and what follows. Each may stand there once."""
    confirm, scope = False, None
    while True:
        word, _, rest = data.partition(b" ")
        flag, equals, value = word.partition(b"=")
        if word == b"--confirm" and not confirm:
            confirm = True
        elif flag == b"--once" and scope is None:
            scope = name(value) if equals else b""
        else:
            return confirm, scope, data
        data = rest


def scope_of(value: bytes | None) -> bytes:
    return b"" if value is None else name(value)


LIMITS = (b"--max-length", b"--max-bytes", b"--overflow")
LISTS = (b"--add", b"--remove", b"--remove-mask")
FLAGS: dict[bytes, Callable[[bytes | None], Any]] = {
    b"--confirm": no_value,
    b"--manual-ack": no_value,
    b"--all": no_value,
    b"--prefetch": whole_number,
    b"--max-length": whole_number,
    b"--max-bytes": whole_number,
    b"--overflow": policy,
    b"--delete-queue-when-unused": seconds,
    b"--when-unused": seconds,
    b"--once": scope_of,
}


def arguments(data: bytes, *allowed: bytes) -> tuple[Words, Flags]:
    """Words by the list flag they stand after (b"" before any), and the other flags with their values."""
    words: Words = {b"": []}
    flags: Flags = {}
    opened = b""
    for word in filter(None, data.split(b" ")):
        flag, equals, value = word.partition(b"=")
        if not word.startswith(b"--"):
            words[opened].append(name(word) if opened in (b"", b"--remove-mask") else event_name(word))
        elif flag not in (*allowed, b"--confirm") or flag in flags:
            raise Bad
        elif flag not in LISTS:
            flags[flag] = FLAGS[flag](value if equals else None)
        elif equals:
            raise Bad
        else:
            opened = flag
            words.setdefault(flag, [])
    return words, flags


EARLY = {  # requests of the early spec: W is a plain word
    b"subscribe": rb"W( W)+",
    b"consume": rb"W( --manual-ack)?",
    b"delete_consumer": rb"W",
    b"delete_queue": rb"W( --when-unused)?",
    b"ack": rb"W (W|--all)",
    b"reject": rb"W (W|--all)",
}


def is_early(action: bytes, data: bytes) -> bool:
    """Does the early spec have such a request? ping and auth do not count."""
    if action in (b"ping", b"auth", b"publish"):
        return action != b"publish" or not data.startswith(b"--")
    words = [
        re.sub(rb"\A--when-unused=.+", b"--when-unused", word, flags=re.DOTALL) for word in data.split(b" ") if word
    ]
    form = b" ".join(word if word.startswith((b"--", b"{")) else b"W" for word in words)
    return action in EARLY and re.fullmatch(EARLY[action], form) is not None


def queue_and_events(words: Words) -> tuple[bytes, list[bytes]]:
    if not words[b""]:
        raise Bad
    return words[b""][0], [event_name(word) for word in words[b""][1:]]


def finite(number: str) -> float:
    if not isfinite(float(number)):
        raise ValueError
    return float(number)


def load(text: bytes) -> Any:
    """Strict JSON, with finite numbers only; ValueError if it is not."""
    return json.loads(text.decode(), parse_constant=finite, parse_float=finite)


def sevx_data(data: bytes, *allowed: bytes) -> tuple[bytes, dict[str, Any], Flags]:
    """The JSON text, its object, and the flags before it."""
    start = (b" " + data).find(b" {")
    head, text = data[:start], data[start:].strip(b" ")
    words, flags = arguments(head, *allowed)
    if start < 0 or words[b""]:
        raise Bad
    try:
        content = load(text)
    except ValueError:
        raise Bad from None
    return text, content, flags  # what starts with "{" and is JSON is an object


def fields(content: dict[str, Any], required: Sequence[str], optional: Sequence[str] = ()) -> None:
    if not set(required) <= set(content) <= {*required, *optional}:
        raise Bad


def json_name(value: Any) -> bytes:
    try:
        return name(value.encode())
    except (AttributeError, UnicodeEncodeError):
        raise Bad from None


def json_seconds(value: Any) -> float | None:
    if value is None or value is False:
        return None
    if value is True:
        return 0.0
    if not isinstance(value, int | float):
        raise Bad
    return seconds(str(value).encode())


# Patterns and masks

MOST_VALUES = 100  # of a pattern


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def values_in(value: Any) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return sum(1 + values_in(each) for each in inside)


def matches(pattern: Any, value: Any) -> bool:
    if isinstance(pattern, dict) and isinstance(value, dict):
        return all(key in value and matches(pattern[key], value[key]) for key in pattern)
    return equal(pattern, value)


def mask_matches(mask: bytes, event: bytes) -> bool:
    regex = re.escape(mask).replace(rb"\*", rb"[^.]*")
    return b"." in event and re.fullmatch(regex, event, re.DOTALL) is not None
