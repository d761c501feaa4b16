"""Tables in the lake: Delta tables that any reader of Delta can read, each batch in them once.

`location` is where one is, `delta_table` its log, `commit` the protocol that batches are written by, `statistics` and
`schema` what the log tells of files and columns, `durable` what a local disk needs. `writing` and `reading` are Spark's
sides;
`compaction` and `forget` change files that are there; `adopt` takes over what 0.1.0 has left.
"""

from mqks.pipeline.lake.reading import NoSuchTable, archived, events, table, tables
from mqks.pipeline.lake.writing import Writer, dated

__all__ = ["NoSuchTable", "Writer", "archived", "dated", "events", "table", "tables"]
