"""`format("mqks")` for PySpark: the journal of a broker as a source, and a broker as a sink, in batches and streams.

    spark.read.format("mqks").load("mqks-data")
    spark.readStream.format("mqks").option("url", "mqks://127.0.0.1:25000").load()

Spark finds this package by its name, on the driver and on executors: it only has to be installed. docs/SPARK.md has
every option. It imports mqks, mqks.journal and mqks.client; nothing in mqks imports it.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from pyspark_mqks.options import OptionError, SinkOptions, SourceOptions

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """What each method needs is imported in it: a process that plans a read needs no sink, and the other way round."""

    @classmethod
    def name(cls) -> str:
        return "mqks"

    def schema(self) -> StructType:
        from pyspark_mqks.arrow import DEFAULT

        SourceOptions.parse(self.options)  # so that a wrong option fails where it is given
        return DEFAULT

    def reader(self, schema: StructType) -> DataSourceReader:
        from pyspark_mqks.source import batch_reader

        return batch_reader(SourceOptions.parse(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from pyspark_mqks.source import StreamReader

        return StreamReader(SourceOptions.parse(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from pyspark_mqks.sink import Writer

        if overwrite:
            raise OptionError('what was published cannot be overwritten: write with mode("append")')
        return Writer(SinkOptions.parse(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: ARG002  # Spark's
        from pyspark_mqks.sink import StreamWriter

        return StreamWriter(SinkOptions.parse(self.options), schema)
