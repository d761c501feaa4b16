"""Masks: any text as a mask of events, and any as an event.

An input is masks, a newline, and an event; masks are parted by spaces. What must hold: an event is wanted exactly if a
plain matcher says so, letter by letter; and to find that out takes no more steps than mask and event have letters.
"""

from typing import Any, SupportsIndex

from mqks.names import Events, Mask


class Counted(bytes):
    """A word that counts the bytes which are looked at in it."""

    steps = 0

    def find(self, sub: Any, start: SupportsIndex | None = 0, end: SupportsIndex | None = None, /) -> int:
        found = super().find(sub, start, end)
        assert isinstance(start, int)
        assert isinstance(end, int)
        self.steps += 1 + (end if found < 0 else found + len(sub)) - start
        return found


def reference(mask: bytes, event: bytes) -> bool:
    """By a table: does this much of the mask match that much of the event?"""
    if b"." not in event or mask.count(b".") != event.count(b"."):
        return False
    row = [True] + [False] * len(event)
    for letter in mask:
        star = letter == ord("*")
        new = [row[0] and star]
        for at, seen in enumerate(event):
            if star:
                new.append(row[at + 1] or (new[at] and seen != ord(".")))
            else:
                new.append(row[at] and seen == letter)
        row = new
    return row[-1]


def masks(data: bytes) -> None:
    given, _, event = data.partition(b"\n")
    wanted = [mask for mask in given.split(b" ") if mask]
    expected = False
    for mask in wanted:
        words = [Counted(word) for word in event.split(b".")]
        found = Mask(mask).matches(list(words))
        assert found == reference(mask, event), (mask, event)
        assert sum(word.steps for word in words) <= len(mask) + 2 * len(event), "too many steps"
        expected |= mask == event if b"*" not in mask else found
    assert (event in Events(wanted)) == expected, (wanted, event)
