"""What a query asks of `events`: which columns, times, positions and names. It touches Spark's planner only.

Spark knows by itself which filters and columns a Parquet file can do without. It does not know that the folders
`date=…` of the lake are the days of the column `time`. And it tells a source in Python nothing about columns, and of
filters only in ways that do not hold for a DataFrame that is used twice. So a query is planned over a stand-in of
`events` first, and what Spark's optimizer leaves of it is read here: bounds that all rows of the answer are within,
however often `events` is read for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from mqks.pipeline.place import COLUMNS, schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COMMANDS = "org.apache.spark.sql.catalyst.plans.logical.Command"

Range = tuple[float, float]  # both ends included
ALL: Range = (-math.inf, math.inf)
NONE: Range = (math.inf, -math.inf)


def hull(one: Range, other: Range) -> Range:
    return min(one[0], other[0]), max(one[1], other[1])


def common(one: Range, other: Range) -> Range:
    return max(one[0], other[0]), min(one[1], other[1])


@dataclass(frozen=True)
class Bounds:
    """What holds for all rows that are wanted, and perhaps for some others."""

    times: Range = ALL  # µs since 1970
    positions: Range = ALL
    days: Range = ALL  # since 1970
    events: frozenset[str] | None = None  # regular expressions: one of them matches the whole name; None: any name

    def __and__(self, other: Bounds) -> Bounds:
        known = [events for events in (self.events, other.events) if events is not None]
        return Bounds(
            common(self.times, other.times),
            common(self.positions, other.positions),
            common(self.days, other.days),
            min(known, key=len, default=None),
        )

    def __or__(self, other: Bounds) -> Bounds:
        unknown = self.events is None or other.events is None
        return Bounds(
            hull(self.times, other.times),
            hull(self.positions, other.positions),
            hull(self.days, other.days),
            None if unknown else frozenset(self.events or ()) | frozenset(other.events or ()),
        )


ANY = ".*"


def literal(pattern: str) -> tuple[str, bool]:
    """Of a bound on events: the name, and whether it is only what a name begins with."""
    is_prefix = pattern.endswith(ANY)
    return re.sub(r"\\(.)", r"\1", pattern.removesuffix(ANY), flags=re.DOTALL), is_prefix


NO_BOUNDS = Bounds()
IMPOSSIBLE = Bounds(NONE, NONE, NONE, frozenset())


@dataclass(frozen=True)
class Asked:
    columns: frozenset[str] | None = None  # None: `events` is not read at all
    bounds: Bounds = NO_BOUNDS

    def __or__(self, other: Asked) -> Asked:
        """What either of them asks for."""
        if self.columns is None or other.columns is None:
            return other if self.columns is None else self
        return Asked(self.columns | other.columns, self.bounds | other.bounds)


NOTHING = Asked()
EVERYTHING = Asked(frozenset(COLUMNS))


def moment(micros: float) -> datetime | None:
    """None for what is infinite, or beyond all calendars."""
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return None


def stand_in(spark: SparkSession) -> DataFrame:
    """`events` without rows, which Spark does not know, so that it optimizes nothing away."""
    from pyspark.sql import DataFrame

    jvm: Any = spark._jvm
    schema = jvm.org.apache.spark.sql.types.StructType.fromDDL(schema_of(COLUMNS))
    rows = spark.sparkContext._jsc.emptyRDD()
    return DataFrame(spark._jsparkSession.createDataFrame(rows, schema), spark)


def asked(spark: SparkSession, text: str) -> Asked:
    """What the query asks of `events`, which must be the stand-in by now. Raises what Spark says of a wrong query."""
    jvm: Any = spark._jvm
    state: Any = spark._jsparkSession.sessionState()
    plan = state.sqlParser().parsePlan(text)
    if kind(plan) == "ExplainCommand":
        plan = plan.logicalPlan()
    unexecuted = jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
    optimized = state.executePlan(plan, unexecuted).optimizedPlan()
    if jvm.java.lang.Class.forName(COMMANDS).isInstance(optimized):
        return EVERYTHING  # it may keep what it reads, as CREATE VIEW does
    found = NOTHING
    for root in [optimized, *each(optimized.subqueriesAll())]:
        for one in scans(root, None, NO_BOUNDS):
            found |= one
    return found


def is_steady(spark: SparkSession, text: str) -> bool:
    """Does the query mean the same whenever it is asked? One with now() or rand() does not."""
    jvm: Any = spark._jvm
    state: Any = spark._jsparkSession.sessionState()
    unexecuted = jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
    plan = state.executePlan(state.sqlParser().parsePlan(text), unexecuted).analyzed()
    timeless = jvm.org.apache.spark.sql.catalyst.optimizer.ComputeCurrentTime.apply(plan).fastEquals(plan)
    return bool(timeless and plan.deterministic())


def scans(plan: Any, columns: frozenset[str] | None, bounds: Bounds) -> Iterator[Asked]:
    """One for each time that `events` is read; `columns` and `bounds` are what the nodes right above it let through."""
    name = kind(plan)
    children = list(each(plan.children()))
    if name == "LogicalRDD" and [one.name() for one in each(plan.output())] == list(COLUMNS):
        yield Asked(frozenset(COLUMNS) if columns is None else columns, bounds)
    elif name == "Project":
        yield from scans(children[0], references(plan), NO_BOUNDS)  # a `time` above it may be another one
    elif name == "Filter":
        wanted = None if columns is None else columns | references(plan)
        yield from scans(children[0], wanted, bounds & bounds_of(plan.condition()))
    else:
        for child in children:
            yield from scans(child, None, NO_BOUNDS)


def references(plan: Any) -> frozenset[str]:
    return frozenset(one.name() for one in each(plan.references().toSeq()))


def bounds_of(condition: Any) -> Bounds:
    """What holds where the condition does."""
    name, children = kind(condition), list(each(condition.children()))
    if name == "And":
        return bounds_of(children[0]) & bounds_of(children[1])
    if name == "Or":
        return bounds_of(children[0]) | bounds_of(children[1])
    if name == "In" and all(kind(one) == "Literal" for one in children[1:]):
        return reduce(or_, (compared("EqualTo", children[0], one.value()) for one in children[1:]), IMPOSSIBLE)
    if name == "InSet":
        values = each(condition.hset().toSeq())
        return reduce(or_, (compared("EqualTo", children[0], value) for value in values), IMPOSSIBLE)
    if name in RANGES or name == "StartsWith":
        column, literal = children
        if kind(literal) == "Literal":
            return compared(name, column, literal.value())
        if kind(column) == "Literal" and name in RANGES:
            return compared(MIRRORED.get(name, name), literal, column.value())
    return NO_BOUNDS


def compared(name: str, column: Any, value: Any) -> Bounds:
    """Of a column and a constant."""
    if kind(column) != "AttributeReference":
        return NO_BOUNDS
    if value is None:
        return IMPOSSIBLE
    match column.name():
        case "time" if name in RANGES:
            return Bounds(times=RANGES[name](value))
        case "position" if name in RANGES:
            return Bounds(positions=RANGES[name](value))
        case "date" if name in RANGES:
            return Bounds(days=RANGES[name](value))
        case "event" if name == "EqualTo":
            return Bounds(events=frozenset({re.escape(str(value.toString()))}))
        case "event" if name == "StartsWith":
            return Bounds(events=frozenset({re.escape(str(value.toString())) + ANY}))
    return NO_BOUNDS


RANGES: dict[str, Callable[[int], Range]] = {
    "EqualTo": lambda value: (value, value),
    "LessThan": lambda value: (-math.inf, value),
    "LessThanOrEqual": lambda value: (-math.inf, value),
    "GreaterThan": lambda value: (value, math.inf),
    "GreaterThanOrEqual": lambda value: (value, math.inf),
}
MIRRORED = {
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
}


def kind(node: Any) -> str:
    name: str = node.getClass().getSimpleName()
    return name


def each(sequence: Any) -> Iterator[Any]:
    """The items of a sequence of Scala's."""
    return (sequence.apply(index) for index in range(sequence.size()))
