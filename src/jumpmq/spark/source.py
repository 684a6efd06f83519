"""The format ``jumpmq``: its readers, and the batch reader, a look at what is ready in the queues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from jumpmq.spark.client import Client
from jumpmq.spark.options import Options
from jumpmq.spark.rows import converter
from jumpmq.spark.schema import SCHEMA, check_schema, wire_columns
from jumpmq.spark.stream import QueueStreamReader, queues_of


class JumpMQDataSource(DataSource):
    """The format ``jumpmq``, with the options of :class:`Options` and the columns of :data:`SCHEMA`.

    Spark does not tell a Python source which columns a query needs. A user who needs few of them can say so with
    ``.schema("queue string, body binary")``: the others are then neither sent nor decoded.
    """

    @classmethod
    def name(cls) -> str:
        return "jumpmq"

    def schema(self) -> StructType:
        """All columns, once the options have been found to make sense."""
        Options.parse(self.options)
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        check_schema(schema)
        return QueueReader(Options.parse(self.options), schema)

    def streamReader(self, schema: StructType) -> QueueStreamReader:  # noqa: N802 (Spark's name)
        check_schema(schema)
        return QueueStreamReader(Options.parse(self.options), schema)


@dataclass
class QueueRange(InputPartition):
    """The messages of a queue up to a number."""

    queue: str
    last_seq: int


class QueueReader(DataSourceReader):
    """Reads what is ready, one partition a queue, and leaves it there.

    Messages that arrive after planning are not read; those that are consumed between planning and reading are missed.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._client = Client(options.url, options.vhost)

    def partitions(self) -> list[InputPartition]:
        queues = queues_of(self._client, self._options)
        return [QueueRange(queue, self._client.last_seq(queue)) for queue in queues]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, QueueRange):  # Spark's stand-in where there is no partition at all
            return
        convert = converter(self._schema, partition.queue)
        for batch in self._client.messages(partition.queue, partition.last_seq, wire_columns(self._schema)):
            yield convert(batch)
