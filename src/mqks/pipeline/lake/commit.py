"""The commit protocol: a micro-batch is in its table once, whatever was killed, and whoever else writes.

1. Take a new snapshot and look how far the table is. A batch that ends there or before is in it: skip it.
2. A batch that does not begin where the table ends is another archive's business: fail.
3. Write the files into a folder of this attempt alone. Nobody sees them.
4. Take their statistics from the footers; sync them.
5. Commit them together with how far the table is now, on top of the snapshot that was checked. If someone else has
   committed meanwhile (a compaction, another archive), begin again at 1, with the files that are there.
6. Sync the log. Only now the caller may let the journal go.

What an attempt leaves when it fails is never read, and removed by vacuum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mqks.pipeline.errors import PipelineError
from mqks.pipeline.lake.delta_table import File, Outrun, Table

POSITION = "mqks.position"  # the events table's progress: all before this position is in it
QUERY = "mqks.query."  # and the id of a streaming query: the last batch of it that is in the table

Write = Callable[[str], object]


class AnotherWriter(PipelineError):
    """The table is not where this run left it."""


@dataclass(frozen=True)
class Batch:
    key: str
    end: int  # how far the table is with it
    start: int | None = None  # how far it has to be before
    follows: bool = True  # False: batches need not follow each other, since those without rows are left out
    lineage: Mapping[str, object] = field(default_factory=dict)


def append(table: Table, batch: Batch, write: Write | None) -> bool:
    """`write` is given the URL of a folder to write to; None: there are no rows. False: the batch was there before."""
    table.refresh()
    if not is_missing(table, batch):
        return False
    files: list[File] = []
    if write is not None:
        folder = table.attempt()
        write((table.location / folder).spark)
        files = table.found(folder)
    while True:
        try:
            table.commit(files, progress={batch.key: batch.end}, lineage=batch.lineage)
            return True
        except Outrun:
            if not is_missing(table, batch):
                raise AnotherWriter(
                    f"{table.location.url}: another archive is writing, and has written this batch meanwhile. "
                    "Let only one run"
                ) from None


def is_missing(table: Table, batch: Batch) -> bool:
    """Is it the batch that comes next? False: it is in the table."""
    at = table.progress(batch.key)
    if at is not None and batch.end <= at:
        return False
    if batch.follows and at != batch.start:
        raise AnotherWriter(
            f"{table.location.url} ends at {'nothing' if at is None else at}, and this batch begins at "
            f"{'the beginning' if batch.start is None else batch.start}: another archive is writing, so let only one "
            "run; or the checkpoint is not as old as the table, so remove the checkpoint to go on from where the table "
            "ends"
        )
    return True
