"""What an expression may look into, and how its result is printed, within a budget.

`View` and `Table` are the broker as `_eval` sees it: read-only, and only what their tables name. `to_text` and
`to_json` print what an expression gave, which may be larger or more deeply nested than anything the broker has;
so printing is paid for like computing, and fails with an EvalError only. It knows no broker, and touches
nothing but what it is given.
"""

import math
from collections.abc import Callable, Generator, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

MAX_STEPS = 100_000  # unless the caller says otherwise; about a tenth of a second
MAX_SIZE = 1_000_000  # likewise: characters and elements
MAX_DEPTH = 100  # of nesting, in the source and in values: well before Python's own stack ends

T = TypeVar("T")


class EvalError(Exception):
    """The expression is refused, failed, or is over its budget; the message is one short line."""

    def __init__(self, reason: str) -> None:
        super().__init__(_one_line(reason[:300]))


class View:
    """Something an expression may look into: the attributes that `fields` names, and no others.

    `fields` maps each name to a line for the documentation; the first one, if it is text, names the view when
    it is printed: `<queue q1>`. The value of a field is None, a number, text, a list, tuple, set or dict of
    these, or a view; anything else (subclasses of these too) can be printed, but not worked with.
    `methods` maps names that may be called, without arguments, to the fields that they answer.
    """

    fields: ClassVar[Mapping[str, str]] = {}
    methods: ClassVar[Mapping[str, str]] = {}

    def __repr__(self) -> str:
        kind = type(self).__name__.removesuffix("View").lower()
        name = getattr(self, next(iter(self.fields)), None) if self.fields else None
        return f"<{kind} {name}>" if isinstance(name, str) else f"<{kind}>"


class Table(View, Mapping[str, object]):
    """A read-only mapping of names to views, each made by `wrap` when it is looked at."""

    def __init__(self, mapping: Mapping[str, T], wrap: Callable[[T], object]) -> None:
        self._mapping = mapping
        self._wrap = wrap

    def __len__(self) -> int:
        return len(self._mapping)

    def __iter__(self) -> Iterator[str]:
        return iter(self._mapping)

    def __contains__(self, key: object) -> bool:
        return key in self._mapping

    def __getitem__(self, key: str) -> object:
        return self._wrap(self._mapping[key])

    __eq__ = object.__eq__  # Mapping would compare all that is in it
    __hash__ = object.__hash__


class Rows(View):
    """A read-only list of views, each made by `wrap` when it is looked at; its length is known."""

    def __init__(self, count: int, items: Callable[[], Iterable[T]], wrap: Callable[[T], object]) -> None:
        self._count = count
        self._items = items
        self._wrap = wrap

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[object]:
        return map(self._wrap, self._items())


LISTS = frozenset({list, tuple, set, frozenset})
LAZY = (Table, Rows, KeysView, ValuesView, ItemsView)


def to_text(result: object, *, max_size: int = MAX_SIZE) -> str:
    """`str(result)` on one line that UTF-8 can carry; a view is named, a table shown as a dict."""
    with only_eval_errors():
        text = _one_line(str(_plain(result, Budget(MAX_STEPS, max_size), json=False)))
        Budget(0, max_size).take(len(text))
        return text


def to_json(result: object, *, max_size: int = MAX_SIZE) -> object:
    """The result as strict JSON can say it: a view is an object of its fields, what JSON lacks is text.

    A view inside a view is only named, so views may refer to each other.
    """
    with only_eval_errors():
        return _plain(result, Budget(MAX_STEPS, max_size), json=True)


@dataclass
class Budget:
    steps: int
    size: int

    def spend(self, steps: int = 1) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise EvalError("too many steps to compute or to print")

    def take(self, size: int) -> None:
        self.size -= max(size, 0)
        if self.size < 0:
            raise EvalError("too large: the result, or something on the way to it")


@contextmanager
def only_eval_errors() -> Iterator[None]:
    try:
        yield
    except EvalError:
        raise
    except (RecursionError, MemoryError) as error:
        raise EvalError("the expression is nested too deeply") from error
    except Exception as error:  # whatever fails inside an expression fails that expression only
        raise EvalError(f"{type(error).__name__}: {error}") from error


def _one_line(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def limit(value: int, most: int, what: str) -> None:
    if value > most:
        raise EvalError(f"more than {most} {what}")


def _plain(value: Any, budget: Budget, json: bool, depth: int = 0, inside: bool = False) -> Any:
    """A copy for `str` or JSON, of known size even if the original repeats one part many times."""
    limit(depth, MAX_DEPTH, "levels")
    budget.spend()
    budget.take(len(value) if isinstance(value, str) else 1)
    if value is None or type(value) in (bool, int):
        return value

    def down(item: object, opened: bool = inside) -> Any:
        return _plain(item, budget, json, depth + 1, opened)

    if isinstance(value, dict | Table):
        keep = str if json else object
        return {down(key if isinstance(key, keep) else to_text(key)): down(value[key]) for key in value}
    if type(value) in LISTS or isinstance(value, LAZY):
        kind = list if json or isinstance(value, LAZY) else type(value)
        return kind([down(item) for item in value])
    if isinstance(value, Generator):
        return "<generator>"
    if not json or (type(value) is float and math.isfinite(value)):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()  # a lone surrogate is not strict JSON
    if isinstance(value, View) and not inside:
        return {field: down(getattr(value, field), True) for field in value.fields if field[0] != "_"}
    return to_text(value, max_size=budget.size)
