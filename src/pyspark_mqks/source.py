"""The source of `format("mqks")`: what the driver plans, in batches and in streams, and what each task reads.

A position is an offset to Spark. The driver only looks up positions; all rows are read by tasks, each of which gets a
range of positions and opens the folder or the broker itself. Readers go to the tasks pickled: they hold what was asked
for, and open the journal when it is first needed.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from mqks.journal.columns import Columns
from pyspark_mqks import arrow
from pyspark_mqks.folder import Folder
from pyspark_mqks.journal import Journal
from pyspark_mqks.kinds import Offsets
from pyspark_mqks.loss import another, lost_by
from pyspark_mqks.options import SourceOptions, Use
from pyspark_mqks.remote import Remote
from pyspark_mqks.wanted import Bounds, push, wanted_by

Offset = dict[str, int]  # {"position": n, "crc": of the batch that ends there}

TAKE_BYTES = 1 << 20  # of a record batch, about
TAKE_ROWS = 1 << 14
QUIET_BYTES = 1 << 20  # of unwanted rows at which a stream moves on all the same: more would take long to look through
ASKS_FOR_FILTERS = "pyspark.sql.worker.data_source_pushdown_filters"


@dataclass
class Range(InputPartition):
    """What one task reads: of the batches that begin in a range, the rows within the query's own bounds."""

    start: int
    stop: int
    first: int
    last: int


class Reading:
    """What batches and streams share."""

    use: Use

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        arrow.check(schema)
        options.check_use(self.use)
        self.options = options
        self.access = options.access  # as the driver's environment has it: tasks are sent it
        self.schema = arrow.arrow_schema(schema)
        self.wanted = wanted_by(options)

    def journal(self) -> Journal:
        lost = lost_by(self.options.fail_on_data_loss)
        if self.options.url is not None:
            return Remote(self.options.url, self.options.retry_for, lost, self.access)
        assert self.options.path is not None
        return Folder(self.options.path, lost)

    def plan(self, journal: Journal, first: int, last: int) -> list[InputPartition]:
        """The rows from the first position on and before the last, in parts of about the same size."""
        if first >= last:
            return []
        begin = journal.begin(first)
        size = last - begin
        parts = min(max(-(-size // self.options.max_partition_bytes), self.options.min_partitions), max(size, 1))
        borders = [begin + size * part // parts for part in range(parts + 1)]
        return [Range(start, stop, first, last) for start, stop in pairwise(borders)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Range):
            return  # Spark's stand-in where there is nothing to read
        wants = None if self.wanted.all else self.wanted
        columns = Columns(self.schema.names, start=partition.first, stop=partition.last, wants=wants)
        for _ in self.journal().scan(columns, partition.start, partition.stop):
            if columns.size >= TAKE_BYTES or columns.rows >= TAKE_ROWS:
                yield arrow.take(columns, self.schema)
        if columns.rows:
            yield arrow.take(columns, self.schema)


def place(journal: Journal, offsets: Offsets | None, time: datetime | None, default: str) -> int:
    if time is not None:
        return journal.at(time)
    match default if offsets is None else offsets:
        case int(position):
            return position
        case "earliest":
            return journal.earliest()
    return journal.latest()


# ── batches ──


class BatchReader(Reading, DataSourceReader):
    use = Use.BATCH
    bounds = Bounds()

    def partitions(self) -> list[InputPartition]:
        options = self.options
        journal = self.journal()
        latest = journal.latest()
        start = place(journal, options.starting_offsets, options.starting_timestamp, "earliest")
        stop = place(journal, options.ending_offsets, options.ending_timestamp, "latest")
        if max(start, stop) > latest:
            journal.check(max(start, stop))  # which says that it is beyond the end
        start, stop = self.bounds.narrow(journal.at, start, min(stop, latest))
        return self.plan(journal, start, stop)


class FilteringReader(BatchReader):
    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """They only narrow what is read: Spark is to apply them all."""
        self.wanted, self.bounds = push(filters, self.wanted, self.bounds)
        return filters


def batch_reader(options: SourceOptions, schema: StructType) -> BatchReader:
    """One that takes filters only where Spark asks for them, and where that is safe.

    Where spark.sql.python.filterPushdown.enabled is off, Spark refuses to use a reader that could take filters. Where
    it is on, a worker process of its own asks for them, and only there a reader is seen that can.

    Spark 4.3 keeps what it has planned with one query's filters for the next query over the same DataFrame, which then
    misses rows. Later ones keep it to one scan; they are known by the method that came with that.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    asked = ASKS_FOR_FILTERS in sys.modules or getattr(main, "name", None) == ASKS_FOR_FILTERS
    safe = hasattr(DataSourceReader, "pushLimit")
    push = safe if options.push_filters is None else options.push_filters
    return (FilteringReader if asked and push else BatchReader)(options, schema)


# ── streams ──


class StreamReader(Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are ends of batches, or what the user gave as the first one."""

    use = Use.STREAM

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._journal: Journal | None = None
        self._first: int | None = None
        self._until: int | None = None  # where the stream ends, by Trigger.AvailableNow
        self._known = False  # is it the journal that the checkpoint is of?
        self._looked = 0  # before this position nothing is wanted, from where the stream stands

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_journal": None}  # a task opens its own

    @property
    def opened(self) -> Journal:
        """The same one for the whole stream: a folder remembers how far it was seen, a broker is reached already."""
        if self._journal is None:
            self._journal = self.journal()
        return self._journal

    def initialOffset(self) -> Offset:
        if self._first is None:
            options = self.options
            self._first = place(self.opened, options.starting_offsets, options.starting_timestamp, "latest")
        return {"position": self._first}

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        return ReadMaxBytes(self.options.max_bytes_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = self.opened.latest()

    def reportLatestOffset(self) -> Offset:
        return {"position": self.opened.latest()}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        now = self.opened.latest()
        latest = now if self._until is None else self._until
        at = start["position"]
        if at > now:
            return {"position": self.opened.check(at)}
        self._check_known(start)
        if at >= latest or self._is_quiet(at, latest):
            return start
        rows, size = self._limits(limit)
        return self._offset(self.opened.advance(self.opened.begin(at), latest, rows, size))

    def _is_quiet(self, at: int, latest: int) -> bool:
        """Is nothing wanted of what came? Then there is no batch, which would cost a second to write nothing."""
        if self.wanted.all or latest - at > QUIET_BYTES:
            return False
        looked = max(at, self._looked)
        if looked < latest:
            columns = Columns(["position"], start=at, stop=latest, wants=self.wanted)
            for _ in self.opened.scan(columns, self.opened.begin(looked), latest):
                if columns.rows:
                    return False
            if columns.rows:
                return False
            self._looked = latest
        return True

    def _offset(self, position: int) -> Offset:
        """With what the journal is known by again: a copy that is put back gives the same positions out anew."""
        header = self.opened.batch_with(position - 1)
        return {"position": position} | ({"crc": header.crc} if header and header.end == position else {})

    def _check_known(self, start: Offset) -> None:
        """Once in a run. What retention has removed cannot be compared."""
        if not self._known and "crc" in start:
            header = self.opened.batch_with(start["position"] - 1)
            if header is not None and (header.end, header.crc) != (start["position"], start["crc"]):
                another(start["position"], self.options.fail_on_data_loss)
        self._known = True

    def _limits(self, limit: ReadLimit) -> tuple[int | None, int | None]:
        """In rows and in bytes; Spark can only tell one of them."""
        match limit:
            case ReadAllAvailable():
                return None, None
            case ReadMaxRows(max_rows):
                return max_rows, self.options.max_bytes_per_trigger
            case ReadMaxBytes(max_bytes):
                return None, max_bytes
        return None, self.options.max_bytes_per_trigger

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        self._check_known(start)
        return self.plan(self.opened, start["position"], end["position"])
