"""SEVX patterns: which events they match, found by index and not by trying each.

A pattern is written as steps through an event, key by key in one order, and all patterns share a tree of such steps.
To find who wants an event, one goes through the tree as far as the event has the keys and values: a pattern costs
nothing from the first step on that the event has not. What names the event comes first, so that patterns of other
events cost nothing at all.
"""

import sys
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from mqks.broker.errors import BadRequest

Step = tuple[str | None, Hashable]  # a key, and the value that it has
Objects = tuple[dict[str, Any], ...]  # of an event, each inside of the one before
_OBJECT: Final = object()  # the value is an object, and the next steps are inside of it
_LIKE_NONE: Final = object()  # the value is one that no pattern has
_LEAVE: Final[Step] = (None, None)  # back to what is around the object

Wanter = TypeVar("Wanter", bound=Hashable)

MOST_NESTED = 100
MOST_VALUES = 100  # of a new pattern, all together: those in its lists and objects as well


class TooDeep(Exception):
    """A value is nested deeper than MOST_NESTED. Without such a limit the interpreter's own would be met, anywhere."""


def comparable(value: Any, room: int = MOST_NESTED) -> Hashable:
    """Equal exactly where two JSON values are: 1 equals 1.0; true, 1 and "1" are three; lists count as wholes.

    Numbers are told by their digits: the hash of a string has a secret seed, and that of a number has none, so that a
    client could choose numbers that collide."""
    if isinstance(value, bool):
        return (bool, value)
    if isinstance(value, float) and not value.is_integer():
        return (float, value.hex())
    if isinstance(value, int | float):
        return (int, f"{int(value):x}")
    if isinstance(value, list | dict) and not room:
        raise TooDeep
    if isinstance(value, list):
        return (list, tuple(comparable(item, room - 1) for item in value))
    if isinstance(value, dict):
        return (dict, frozenset((key, comparable(item, room - 1)) for key, item in value.items()))
    result: Hashable = value
    return result


def values_in(value: list[Any] | dict[str, Any], most: int = sys.maxsize - 1) -> int:
    """How many values it has in it, at any depth. One counts no further than to `most`, and answers more then."""
    found: list[Any] = [value]
    for each in found:  # which grows meanwhile
        if isinstance(each, list | dict):
            if len(found) + len(each) > most + 1:
                return most + 1
            found += each.values() if isinstance(each, dict) else each
    return len(found) - 1


class Pattern:
    """A pattern as it came, and its steps in an order that does not depend on how it was written."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content
        try:
            steps = list(_steps(content))
        except TooDeep:
            raise BadRequest("the pattern is nested too deeply") from None
        while steps and steps[-1] is _LEAVE:
            steps.pop()
        self.steps = tuple(steps)
        self.size = values_in(content)

    def same_as(self, other: "Pattern | None") -> bool:
        return other is not None and self.steps == other.steps


def _steps(content: dict[str, Any], room: int = MOST_NESTED) -> Iterator[Step]:
    for key in sorted(content, key=_order):
        value = content[key]
        if not isinstance(value, dict):
            yield key, comparable(value)
            continue
        if value and not room:
            raise TooDeep
        yield key, _OBJECT
        yield from _steps(value, room - 1)
        yield _LEAVE


def _order(key: str) -> tuple[bool, str]:
    return key != "event", key


@dataclass(slots=True)
class _Node(Generic[Wanter]):
    """Where the patterns are that have had the same steps so far."""

    wanters: dict[Wanter, None] = field(default_factory=dict)  # whose patterns end here
    after: "dict[str | None, dict[Hashable, _Node[Wanter]]]" = field(default_factory=dict)  # where the next step leads


def unheeded(_: int) -> None:
    """Nobody wants to know."""


class PatternIndex(Generic[Wanter]):
    """Who wants an event, by the patterns that were added."""

    def __init__(self, looked: Callable[[int], None] = unheeded) -> None:
        """`looked` is told at how many places in the tree, each time."""
        self._looked = looked
        self._root: _Node[Wanter] = _Node()
        self._largest = MOST_VALUES  # how many values any pattern has had

    def add(self, pattern: Pattern, wanter: Wanter) -> None:
        node = self._root
        for key, value in pattern.steps:
            following = node.after.setdefault(key, {})
            if value not in following:
                following[value] = _Node()
            node = following[value]
        node.wanters[wanter] = None
        self._largest = max(self._largest, pattern.size)

    def remove(self, pattern: Pattern, wanter: Wanter) -> None:
        way = [self._root]
        for key, value in pattern.steps:
            way.append(way[-1].after[key][value])
        del way[-1].wanters[wanter]
        for key, value in reversed(pattern.steps):
            node = way.pop()
            if node.wanters or node.after:
                break
            following = way[-1].after[key]
            del following[value]
            if not following:
                del way[-1].after[key]

    def wanting(self, content: dict[str, Any]) -> list[Wanter]:
        found: list[Wanter] = []
        lists: dict[int, Hashable] = {}  # by their ids: each is made comparable once, however many patterns ask for it
        places: list[tuple[_Node[Wanter], Objects]] = [(self._root, (content,))]
        looked_at = 0
        while places:
            looked_at += 1
            node, objects = places.pop()
            inside, after = objects[-1], node.after
            found += node.wanters
            if None in after:
                places.append((after[None][None], objects[:-1]))
            # At the cost of the smaller one; and in the same order in every run, which an intersection has not.
            for key in inside if len(inside) < len(after) else after:
                if key in after and key in inside:
                    value, then = inside[key], objects
                    if isinstance(value, dict):
                        then = (*objects, value)
                        value = _OBJECT
                    elif isinstance(value, list):
                        value = lists.get(id(value)) or lists.setdefault(id(value), _as_whole(value, self._largest))
                    elif not isinstance(value, str):  # which most are, and are as they are
                        value = comparable(value)
                    if value in after[key]:
                        places.append((after[key][value], then))
        self._looked(looked_at)
        return found


def _as_whole(value: list[Any], most: int) -> Hashable:
    """A list of an event, to be compared with those of patterns, none of which has more than so many values in it."""
    try:
        return comparable(value) if values_in(value, most) <= most else _LIKE_NONE
    except TooDeep:
        return _LIKE_NONE
