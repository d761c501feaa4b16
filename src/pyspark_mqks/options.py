"""What `format("mqks")` can be told, in one place.

The fields of `SourceOptions` and `SinkOptions` are the only lists of options; what Spark calls `startingOffsets` is
the field `starting_offsets`. `OPTIONS` is all of them as a table, for docs and messages. Names are taken in any case,
as Spark does. Nothing here does I/O, and all of it can be pickled.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple, Self

from mqks.client.access import Access
from mqks.values import OFFSET, REGEX, TIME, ValueType
from pyspark_mqks.kinds import (
    COUNT,
    FILE,
    MASKS,
    NAMES,
    PATH,
    RATE,
    SCOPE,
    SECONDS,
    SIZE_IN_BYTES,
    SWITCH,
    TOKEN,
    URL,
    Offsets,
)


class OptionError(ValueError):
    """An option that will not do; the text is one line and says what to give."""


class Use(Enum):
    """What a source is used for."""

    BATCH = "batch"
    STREAM = "stream"


def about(kind: ValueType, help: str, only: Use | None = None) -> dict[str, Any]:
    return {"kind": kind, "help": help, "only": only}


@dataclass(frozen=True, kw_only=True)
class Parsing:
    """What the two groups of options share."""

    token: str | None = field(
        default=None,
        repr=False,
        metadata=about(TOKEN, "who we are to the broker; by default what MQKS_TOKEN has where the driver runs"),
    )
    ca: str | None = field(
        default=None,
        metadata=about(FILE, "whose certificates are trusted with `mqkss://`; by default MQKS_CA, else the system's"),
    )
    cert: str | None = field(
        default=None,
        metadata=about(FILE, "a certificate to show to a broker that wants one; by default MQKS_CLIENT_CERT"),
    )
    key: str | None = field(
        default=None,
        metadata=about(FILE, "its key, if it is in another file; by default MQKS_CLIENT_KEY"),
    )

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """From what Spark hands over: names in any case, values as text."""
        known = {option.name.lower(): option for option in options_of(cls)}
        found: dict[str, Any] = {}
        for name, text in given.items():
            if name.lower() in OF_SPARK[cls]:
                continue
            option = known.get(name.lower())
            if option is None:
                raise OptionError(f"unknown option {name!r} of {WHAT[cls]}; there are {listed(known.values())}")
            try:
                found[option.field] = option.kind.parse(text)
            except ValueError as error:
                shown = "what it has" if option.kind is TOKEN else repr(text)
                raise OptionError(f"option {option.name}: {shown} will not do; {error}") from None
        made = cls(**found)
        made.check()
        return made

    def check(self) -> None:
        """What goes together, and what does not."""

    @property
    def access(self) -> Access:
        """By these options, and by the environment of the process that asks: the driver's."""
        try:
            return Access(self.token, self.ca, self.cert, self.key).found()
        except ValueError as error:
            raise OptionError(str(error)) from None


@dataclass(frozen=True)
class SourceOptions(Parsing):
    """All that a reader can be told."""

    path: str | None = field(
        default=None,
        metadata=about(PATH, "the data folder of a broker, which this machine and all executors can see"),
    )
    url: str | None = field(
        default=None,
        metadata=about(URL, "a running broker; executors read from it by `history --raw`"),
    )
    starting_offsets: Offsets | None = field(
        default=None,
        metadata=about(
            OFFSET,
            "where to begin: earliest, latest, or a position; by default a batch begins at earliest and a new stream "
            "at latest; a stream that goes on from its checkpoint begins there",
        ),
    )
    ending_offsets: Offsets | None = field(
        default=None,
        metadata=about(OFFSET, "where to end, in a batch: before this position; by default latest", Use.BATCH),
    )
    starting_timestamp: datetime | None = field(
        default=None,
        metadata=about(TIME, "begin with what came at this time or later, instead of startingOffsets"),
    )
    ending_timestamp: datetime | None = field(
        default=None,
        metadata=about(
            TIME, "end before what came at this time or later, in a batch, instead of endingOffsets", Use.BATCH
        ),
    )
    max_offsets_per_trigger: int | None = field(
        default=None,
        metadata=about(COUNT, "most rows that a stream takes at once, at least one batch of the journal", Use.STREAM),
    )
    max_bytes_per_trigger: int = field(
        default=256 << 20,
        metadata=about(
            SIZE_IN_BYTES, "most bytes that a stream takes at once, at least one batch of the journal", Use.STREAM
        ),
    )
    min_partitions: int = field(
        default=1,
        metadata=about(COUNT, "at least so many tasks, where there is so much to read"),
    )
    max_partition_bytes: int = field(
        default=64 << 20,
        metadata=about(SIZE_IN_BYTES, "most bytes of the journal that one task reads"),
    )
    fail_on_data_loss: bool = field(
        default=True,
        metadata=about(SWITCH, "fail where something is missing or damaged; false: warn in the log and go on after it"),
    )
    subscribe: tuple[str, ...] = field(
        default=(),
        metadata=about(NAMES, "only these events, by their exact names"),
    )
    subscribe_pattern: str | None = field(
        default=None,
        metadata=about(REGEX, "only events whose whole name this regular expression matches"),
    )
    events: tuple[str, ...] = field(
        default=(),
        metadata=about(MASKS, "only events of these names and masks, as in `history --events`"),
    )
    except_events: tuple[str, ...] = field(
        default=(),
        metadata=about(MASKS, "no events of these names and masks"),
    )
    push_filters: bool | None = field(
        default=None,
        metadata=about(
            SWITCH,
            "let Spark's filters on event, time and position narrow what a batch reads; by default only with a Spark "
            "that forgets them after the query: with 4.3, set it to true for a DataFrame that is used once",
            Use.BATCH,
        ),
    )
    retry_for: float = field(
        default=300.0,
        metadata=about(SECONDS, "how long a reader by url goes on trying to reach its broker"),
    )

    def check(self) -> None:
        if (self.path is None) == (self.url is None):
            raise OptionError("give either path, the data folder of a broker, or url, where a broker runs")
        for first, second in (("starting_offsets", "starting_timestamp"), ("ending_offsets", "ending_timestamp")):
            if getattr(self, first) is not None and getattr(self, second) is not None:
                raise OptionError(f"give either {spark_name(first)} or {spark_name(second)}, not both")

    def check_use(self, use: Use) -> None:
        """What would do nothing there is refused."""
        for option in options_of(SourceOptions):
            if option.only not in (None, use) and getattr(self, option.field) != option.default:
                raise OptionError(f"option {option.name} is for a {option.only.value}, and this is a {use.value}")


@dataclass(frozen=True)
class SinkOptions(Parsing):
    """All that a writer can be told."""

    url: str | None = field(
        default=None,
        metadata=about(URL, "the broker, as all executors can reach it"),
    )
    scope: str | None = field(
        default=None,
        metadata=about(SCOPE, "where ids are taken once; by default the streaming query's id, and spark in batches"),
    )
    once: bool = field(
        default=True,
        metadata=about(SWITCH, "publish with --once, so that a row that is written again is dropped by its id"),
    )
    rate: float | None = field(
        default=None,
        metadata=about(RATE, "most rows per second that each task publishes"),
    )
    retry_for: float = field(
        default=300.0,
        metadata=about(SECONDS, "how long a task goes on trying to reach its broker"),
    )

    def check(self) -> None:
        if self.url is None:
            raise OptionError("give url, where the broker runs, such as mqks://127.0.0.1:25000")

    @property
    def address(self) -> str:
        """The url, which `check` has seen to be there."""
        assert self.url is not None
        return self.url


# ---- As a table


class Option(NamedTuple):
    name: str  # as Spark's users write it
    field: str
    kind: ValueType
    default: object
    help: str
    only: Use | None


def spark_name(field: str) -> str:
    """`starting_offsets` → `startingOffsets`."""
    first, *rest = field.split("_")
    return first + "".join(map(str.title, rest))


def options_of(group: type) -> list[Option]:
    """Its own first: those that both groups have are about the connection, and come last."""
    shared = {each.name for each in fields(Parsing)}
    own_first = sorted(fields(group), key=lambda each: each.name in shared)
    return [Option(spark_name(each.name), each.name, default=each.default, **each.metadata) for each in own_first]


def listed(options: Iterable[Option]) -> str:
    return ", ".join(option.name for option in options)


WHAT = {SourceOptions: "the mqks source", SinkOptions: "the mqks sink"}
OPTIONS = {what: options_of(group) for group, what in WHAT.items()}
OF_SPARK: dict[type, set[str]] = {  # Spark's own options, which it passes on too; in lower case
    SourceOptions: set(),
    SinkOptions: {"checkpointlocation", "queryname"},
}
