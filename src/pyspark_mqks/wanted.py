"""Which rows a query wants, as far as that saves reading: by its options, and by the filters that Spark pushes.

Filters only narrow what is read. Spark applies all of them again, so what is not understood here is left to it.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from mqks.names import Events
from pyspark_mqks.journal import END
from pyspark_mqks.options import SourceOptions

A_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Wanted:
    """Asked for each distinct event: is it wanted? All that is given must agree."""

    names: frozenset[str] | None = None
    pattern: re.Pattern[str] | None = None
    events: Events | None = None
    no_events: Events | None = None
    starts: tuple[str, ...] = ()

    def __call__(self, event: bytes) -> bool:
        name = event.decode("utf-8", "replace")  # as the column has it
        return (
            (self.names is None or name in self.names)
            and (self.pattern is None or self.pattern.fullmatch(name) is not None)
            and (self.events is None or event in self.events)
            and (self.no_events is None or event not in self.no_events)
            and all(map(name.startswith, self.starts))
        )

    @property
    def all(self) -> bool:
        return self == EVERYTHING

    def only(self, names: Iterable[str]) -> "Wanted":
        found = frozenset(names)
        return replace(self, names=found if self.names is None else found & self.names)


EVERYTHING = Wanted()


def wanted_by(options: SourceOptions) -> Wanted:
    return Wanted(
        names=frozenset(options.subscribe) or None,
        pattern=re.compile(options.subscribe_pattern) if options.subscribe_pattern is not None else None,
        events=_events(options.events),
        no_events=_events(options.except_events),
    )


def _events(masks: tuple[str, ...]) -> Events | None:
    return Events(mask.encode() for mask in masks) if masks else None


@dataclass(frozen=True)
class Bounds:
    """The positions and times that filters leave: from the first, before the second."""

    positions: tuple[int, int] = (0, END)
    since: datetime | None = None
    before: datetime | None = None

    def narrow(self, at: Callable[[datetime], int], start: int, stop: int) -> tuple[int, int]:
        """`at` tells where a time is."""
        start, stop = max(start, self.positions[0]), min(stop, self.positions[1])
        if self.since is not None:
            start = max(start, at(self.since))
        if self.before is not None:
            stop = min(stop, at(self.before))
        return start, stop

    def with_positions(self, start: int = 0, stop: int = END) -> "Bounds":
        return replace(self, positions=(max(start, self.positions[0]), min(stop, self.positions[1])))

    def with_times(self, since: datetime | None = None, before: datetime | None = None) -> "Bounds":
        return replace(
            self,
            since=max(filter(None, (since, self.since)), default=None),
            before=min(filter(None, (before, self.before)), default=None),
        )


def push(filters: Iterable[Filter], wanted: Wanted, bounds: Bounds) -> tuple[Wanted, Bounds]:
    """What is left when all these hold."""
    for each in filters:
        column = getattr(each, "attribute", None)
        value: Any = getattr(each, "value", None)
        if column == ("event",):
            wanted = _push_event(each, value, wanted)
        elif column == ("position",) and type(value) is int:
            bounds = _push_position(each, value, bounds)
        elif column == ("time",) and isinstance(value, datetime) and value.tzinfo is not None:
            bounds = _push_time(each, value, bounds)
    return wanted, bounds


def _push_event(one: Filter, value: Any, wanted: Wanted) -> Wanted:
    match one:
        case EqualTo() | EqualNullSafe() if isinstance(value, str):
            return wanted.only([value])
        case In():
            return wanted.only(name for name in value if isinstance(name, str))
        case StringStartsWith():
            return replace(wanted, starts=(*wanted.starts, value))
    return wanted


def _push_position(one: Filter, value: int, bounds: Bounds) -> Bounds:
    match one:
        case EqualTo() | EqualNullSafe():
            return bounds.with_positions(value, value + 1)
        case GreaterThan():
            return bounds.with_positions(value + 1)
        case GreaterThanOrEqual():
            return bounds.with_positions(value)
        case LessThan():
            return bounds.with_positions(stop=max(value, 0))
        case LessThanOrEqual():
            return bounds.with_positions(stop=max(value + 1, 0))
    return bounds


def _push_time(one: Filter, value: datetime, bounds: Bounds) -> Bounds:
    try:
        after = value + A_MICROSECOND
    except OverflowError:
        return bounds
    match one:
        case EqualTo() | EqualNullSafe():
            return bounds.with_times(value, after)
        case GreaterThan():
            return bounds.with_times(after)
        case GreaterThanOrEqual():
            return bounds.with_times(value)
        case LessThan():
            return bounds.with_times(before=value)
        case LessThanOrEqual():
            return bounds.with_times(before=after)
    return bounds
