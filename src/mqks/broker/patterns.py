"""SEVX patterns: which events they match, found by index and not by trying each.

A pattern is flattened to paths with a value at each. All patterns with the same paths share one table, from the
values at those paths to whoever wants them, so an event costs one look-up per different set of paths, however many
receivers there are.
"""

from collections.abc import Hashable, Iterator
from typing import Any, Final, Generic, TypeVar

from mqks.broker.errors import BadRequest

Path = tuple[str | None, ...]  # None at the end: only that there is an object counts
_MISSING: Final = object()
_OBJECT: Final = object()

Wanter = TypeVar("Wanter", bound=Hashable)


MOST_NESTED = 100


class TooDeep(Exception):
    """A value is nested deeper than MOST_NESTED. Without such a limit the interpreter's own would be met, anywhere."""


def comparable(value: Any, room: int = MOST_NESTED) -> Hashable:
    """Equal exactly where two JSON values are: 1 equals 1.0; true, 1 and "1" are three; lists count as wholes."""
    if isinstance(value, bool):
        return (bool, value)
    if isinstance(value, list | dict) and not room:
        raise TooDeep
    if isinstance(value, list):
        return (list, tuple(comparable(item, room - 1) for item in value))
    if isinstance(value, dict):
        return (dict, frozenset((key, comparable(item, room - 1)) for key, item in value.items()))
    result: Hashable = value
    return result


class Pattern:
    """A pattern as it came, with its paths and values in an order that does not depend on how it was written."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content
        try:
            flat = dict(_flatten(content, ()))
        except TooDeep:
            raise BadRequest("the pattern is nested too deeply") from None
        self.paths = tuple(sorted(flat, key=_path_order))
        self.values = tuple(flat[path] for path in self.paths)

    def same_as(self, other: "Pattern | None") -> bool:
        return other is not None and (self.paths, self.values) == (other.paths, other.values)


def _path_order(path: Path) -> tuple[tuple[bool, str], ...]:
    return tuple((key is None, key or "") for key in path)


def _flatten(content: dict[str, Any], above: Path) -> Iterator[tuple[Path, Hashable]]:
    if len(above) > MOST_NESTED:
        raise TooDeep
    for key, value in content.items():
        path = (*above, key)
        if isinstance(value, dict):
            if value:
                yield from _flatten(value, path)
            else:
                yield (*path, None), _OBJECT
        else:
            yield path, comparable(value)


def _at(content: Any, path: Path) -> Hashable:
    for key in path:
        if not isinstance(content, dict):
            return _MISSING
        if key is None:
            return _OBJECT
        content = content.get(key, _MISSING)
    if isinstance(content, dict):
        return _MISSING
    try:
        return comparable(content)
    except TooDeep:  # no pattern is
        return _MISSING


class PatternIndex(Generic[Wanter]):
    """Who wants an event, by the patterns that were added."""

    def __init__(self) -> None:
        self._tables: dict[tuple[Path, ...], dict[tuple[Hashable, ...], dict[Wanter, None]]] = {}

    def add(self, pattern: Pattern, wanter: Wanter) -> None:
        self._tables.setdefault(pattern.paths, {}).setdefault(pattern.values, {})[wanter] = None

    def remove(self, pattern: Pattern, wanter: Wanter) -> None:
        table = self._tables[pattern.paths]
        wanters = table[pattern.values]
        del wanters[wanter]
        if not wanters:
            del table[pattern.values]
        if not table:
            del self._tables[pattern.paths]

    def wanting(self, content: dict[str, Any]) -> list[Wanter]:
        found: list[Wanter] = []
        for paths, table in self._tables.items():
            found += table.get(tuple(_at(content, path) for path in paths), ())
        return found
