"""What `foreachBatch` is given, with errors that Spark can read.

Spark looks through the text of an error for the names of interrupts, to tell a query that was stopped from one that
failed. Its way to look needs a stack as deep as the text is long, and a Java error's text has all frames of its own: so
stopping a query while it writes would end in a StackOverflowError. Without the frames it ends as it should.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LONGEST = 1000  # characters of an error's text
FRAMES = ("\tat ", "\t... ")

Write = Callable[["DataFrame", int], None]


class BatchFailed(Exception):
    """A batch could not be written; Spark does it again when the query is started again."""


def each(write: Write) -> Write:
    """The same, but for the text of its errors."""

    @wraps(write)
    def call(batch: DataFrame, number: int) -> None:
        try:
            write(batch, number)
        except Exception as error:
            raise BatchFailed(told(error)) from None

    return call


def told(error: Exception) -> str:
    """With the name of its class as Spark looks for it."""
    kind = type(error)
    lines = [line for line in str(error).splitlines() if not line.startswith(FRAMES)]
    return f"{kind.__module__}.{kind.__qualname__}: " + "\n".join(lines)[:LONGEST]
