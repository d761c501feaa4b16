"""What a name may be, how it is shown, and which events names and masks mean. The broker and its readers share it.

With these rules nothing that a client sends can look like a flag, an --update or a retry.
"""

import re
from collections.abc import Iterable

_NAME = re.compile(rb"(?!--|\{|-\Z)[^ \t\0\r\n]+")
_LOOKS_RETRIED = re.compile(rb",retry=[0-9]+\Z")

# The same rules for engines without lookahead, such as Arrow's: what is no name, and a name that is no event's.
NO_NAME = rb"^$|^-$|^--|^\{|[ \t\r\n\x00]"
LOOKS_RETRIED = rb",retry=[0-9]+$"


def is_name(name: bytes) -> bool:
    return _NAME.fullmatch(name) is not None


def is_event(name: bytes) -> bool:
    return is_name(name) and _LOOKS_RETRIED.search(name) is None


def text(name: bytes) -> str:
    """A name to show; bytes that are not UTF-8 are escaped, and so is what looks as if it were: two names stay two."""
    shown = name.decode("utf-8", "backslashreplace")
    return shown if "\\x" not in shown else name.replace(b"\\", rb"\\").decode("utf-8", "backslashreplace")


def name_of(shown: str) -> bytes:
    """The reverse of `text`. KeyError: no name is shown so."""
    try:
        return shown.encode() if "\\x" not in shown else shown.encode().decode("unicode_escape").encode("latin-1")
    except (AttributeError, TypeError, UnicodeError):
        raise KeyError(shown) from None


class Mask:
    """A mask's * stands for any run of characters but the dot, and an event without a dot matches no mask."""

    def __init__(self, mask: bytes) -> None:
        self._parts = [re.sub(rb"\*+", b"*", part).split(b"*") for part in mask.split(b".")]
        self._least = [sum(map(len, pieces)) for pieces in self._parts]

    def matches(self, words: list[bytes]) -> bool:
        """Does it match the event that has these words between its dots?"""
        return len(self._parts) > 1 and self.covers(words)

    def covers(self, words: list[bytes]) -> bool:
        """As `matches`, for a mask that may have no dot, and so may match what has none."""
        return len(words) == len(self._parts) and all(map(_matches_part, self._parts, self._least, words))


def _matches_part(pieces: list[bytes], least: int, word: bytes) -> bool:
    """Taking each piece between stars at its first place is enough, and no mask can make it slow."""
    if len(pieces) == 1:
        return pieces[0] == word
    if least > len(word):
        return False
    first, *middle, last = pieces
    if not word.startswith(first) or not word.endswith(last):
        return False
    at, end = len(first), len(word) - len(last)
    for piece in middle:
        at = word.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


class Events:
    """The events that are wanted: names, and masks."""

    def __init__(self, wanted: Iterable[bytes]) -> None:
        given = list(wanted)
        self._names = {item for item in given if b"*" not in item}
        self._masks = [Mask(item) for item in given if b"*" in item]

    def __contains__(self, event: bytes) -> bool:
        if event in self._names or not self._masks:
            return event in self._names
        words = event.split(b".")
        return any(mask.matches(words) for mask in self._masks)
