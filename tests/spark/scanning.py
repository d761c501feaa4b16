"""The source without Spark: the same readers, driven as Spark drives them, in this process."""

import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructField, StructType

from mqks.journal import Message, Reader
from pyspark_mqks.arrow import TYPES
from pyspark_mqks.options import SourceOptions
from pyspark_mqks.source import BatchReader, FilteringReader, StreamReader

ALL = tuple(TYPES)
Row = dict[str, Any]


def batch_reader(given: Mapping[str, object], columns: Iterable[str] = ALL) -> FilteringReader:
    return FilteringReader(SourceOptions.parse(texts(given)), schema(columns))


def stream_reader(given: Mapping[str, object], columns: Iterable[str] = ALL) -> StreamReader:
    return StreamReader(SourceOptions.parse(texts(given)), schema(columns))


def schema(columns: Iterable[str]) -> StructType:
    return StructType([StructField(name, TYPES[name][0]) for name in columns])


def texts(given: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in given.items()}


def rows(reader: BatchReader) -> list[Row]:
    """All that a batch gives, its partitions one after the other; each has gone through pickle, as to an executor."""
    return [row for part in reader.partitions() for row in read(reader, part)]


def read(reader: BatchReader | StreamReader, part: Any) -> list[Row]:
    there = pickle.loads(pickle.dumps(reader))
    return [row for batch in there.read(pickle.loads(pickle.dumps(part))) for row in batch.to_pylist()]


def scanned(given: Mapping[str, object], columns: Iterable[str] = ALL) -> list[Row]:
    return rows(batch_reader(given, columns))


def as_row(message: Message) -> Row:
    """What the source has to say of a message."""
    data = text(message.data)
    return {
        "position": message.position,
        "time": message.time,
        "id": text(message.id),
        "action": text(message.action),
        "event": text(message.event),
        "data": data,
        "raw": None if data.encode() == message.data else message.data,
    }


def text(came: bytes) -> str:
    return came.decode("utf-8", "replace")


def expected(folder: Path, **places: Any) -> list[Row]:
    return [as_row(message) for message in Reader(folder).messages(**places)]
