"""The sink of `format("mqks")`: rows become messages, published with `--once` under ids that depend on the row alone.

So rows may be written again, by a task that is tried again or by a micro-batch that is replayed, and the broker drops
those that it has. The writers are pickled and sent to the executors; each task has a connection of its own. There is
nothing to commit and nothing to undo: when a task has ended, its rows are confirmed, and one that fails leaves some.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from mqks.client.access import Access
from mqks.client.address import find_address
from pyspark_mqks.lines import Columns, Lines
from pyspark_mqks.options import SinkOptions
from pyspark_mqks.publishing import Publisher

log = logging.getLogger(__name__)

SCOPE = "spark"  # of batches
QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"  # what Spark tells the tasks of a stream
STEPS = 10  # pieces that a second's rows are sent in, where the rate is limited


@dataclass
class Published(WriterCommitMessage):
    """What a task has published and seen confirmed."""

    rows: int


@dataclass(frozen=True)
class Task:
    """What a task is, as far as ids and scopes depend on it."""

    partition: int = 0
    query: str | None = None
    batch: str | None = None

    @classmethod
    def current(cls) -> "Task":
        context = TaskContext.get()
        if context is None:
            return cls()
        return cls(context.partitionId(), context.getLocalProperty(QUERY), context.getLocalProperty(BATCH))

    @property
    def place(self) -> str:
        """Equal rows of other micro-batches and of other partitions are other messages."""
        return str(self.partition) if self.batch is None else f"{self.batch}-{self.partition}"


def publish(
    options: SinkOptions, columns: Columns, batches: Iterable[Any], task: Task, access: Access | None = None
) -> Published:
    """Publish the rows of record batches; returns when all are confirmed."""
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return Published(0)
    rate = options.rate
    address = find_address(options.address)
    with Publisher(address, access=access, retry_for=options.retry_for, rate=rate) as publisher:
        lines = Lines(
            columns,
            scope=(options.scope or task.query or SCOPE) if options.once else None,
            place=task.place,
            max_line=publisher.max_line,
            most_rows=None if rate is None else max(1, int(rate / STEPS)),
        )
        for batch in chain([first], filled):
            for block in lines.blocks(batch):
                publisher.put(block)
        publisher.flush()
        return Published(publisher.confirmed)


class Writing:
    """What batches and streams share."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.options = options
        self.access = options.access  # as the driver's environment has it: tasks are sent it
        self.columns = Columns.of(schema)

    def write(self, iterator: Iterator[Any]) -> Published:
        return publish(self.options, self.columns, iterator, Task.current(), self.access)


class Writer(Writing, DataSourceArrowWriter):
    """Of a batch, also of one in `foreachBatch`."""

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        log.info("%d rows are published", _count(messages))


class StreamWriter(Writing, DataSourceStreamArrowWriter):
    """Of a streaming query."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        log.info("%d rows of micro-batch %d are published", _count(messages), batchId)


def _count(messages: Iterable[WriterCommitMessage | None]) -> int:
    return sum(message.rows for message in messages if isinstance(message, Published))
