"""The columns of the source, in Spark's types and in Arrow's, and record batches of them: no bytes are copied."""

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from mqks.journal.columns import Columns

TYPES: dict[str, tuple[DataType, pa.DataType]] = {
    "position": (LongType(), pa.int64()),
    "time": (TimestampType(), pa.timestamp("us", tz="UTC")),
    "id": (StringType(), pa.string()),
    "action": (StringType(), pa.string()),
    "event": (StringType(), pa.string()),
    "data": (StringType(), pa.string()),
    "raw": (BinaryType(), pa.binary()),  # only by .schema(...): the data as it came, where it is no UTF-8
}
DEFAULT = StructType([StructField(name, types[0]) for name, types in TYPES.items() if name != "raw"])


class SchemaError(ValueError):
    """A column that the source does not have."""


def check(schema: StructType) -> None:
    """Any of the columns in any order, each once."""
    there_are = ", ".join(f"{name} {types[0].simpleString()}" for name, types in TYPES.items())
    for field in schema:
        if field.name not in TYPES or field.dataType != TYPES[field.name][0]:
            given = f"{field.name} {field.dataType.simpleString()}"
            raise SchemaError(f"the mqks source has no column {given!r}; there are {there_are}")
    if len(set(schema.names)) < len(schema.names):
        raise SchemaError("a column is named twice in the schema")
    if not schema.names:
        raise SchemaError(f"the schema names no column; there are {there_are}")


def arrow_schema(schema: StructType) -> pa.Schema:
    return pa.schema([pa.field(field.name, TYPES[field.name][1], field.nullable) for field in schema])


def take(columns: Columns, schema: pa.Schema) -> pa.RecordBatch:
    """All rows that wait."""
    rows = columns.rows
    arrays = [
        pa.Array.from_buffers(field.type, rows, _buffers(field.name, parts))
        for field, parts in zip(schema, columns.take(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _buffers(name: str, parts: tuple[bytes, ...]) -> list[pa.Buffer | None]:
    """Arrow has the validity first; only raw can be null."""
    buffers: list[pa.Buffer | None] = [pa.py_buffer(part) for part in parts]
    return buffers if name == "raw" else [None, *buffers]
