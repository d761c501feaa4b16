"""What a name may be. With these rules nothing that a client sends can look like a flag, an --update or a retry."""

import re

from mqks.broker.errors import BadRequest, show

_NAME = re.compile(rb"(?!--|\{|-\Z)[^ \t\0\r\n]+")
_LOOKS_RETRIED = re.compile(rb",retry=[0-9]+\Z")


def is_name(name: bytes) -> bool:
    return _NAME.fullmatch(name) is not None


def is_event(name: bytes) -> bool:
    return is_name(name) and _LOOKS_RETRIED.search(name) is None


def check_name(name: bytes) -> bytes:
    if not is_name(name):
        raise BadRequest("not a legal name", show(name))
    return name


def check_event(name: bytes) -> bytes:
    if not is_event(name):
        raise BadRequest("not a legal event", show(name))
    return name


def matches_mask(mask: bytes, event: bytes) -> bool:
    """A mask's * stands for any run of characters but the dot, and an event without a dot matches no mask."""
    masks = mask.split(b".")
    words = event.split(b".")
    return len(words) > 1 and len(masks) == len(words) and all(map(_matches_part, masks, words))


def _matches_part(mask: bytes, word: bytes) -> bool:
    """Taking each piece between stars at its first place is enough, and no mask can make it slow."""
    first, *middle = mask.split(b"*")
    if not middle:
        return first == word
    last = middle.pop()
    if len(word) < len(first) + len(last) or not word.startswith(first) or not word.endswith(last):
        return False
    at, end = len(first), len(word) - len(last)
    for piece in middle:
        at = word.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True
