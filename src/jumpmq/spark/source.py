"""The format ``jumpmq``: readers and writers, and the batch reader: ready messages of queues, and ranges of streams."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from jumpmq.spark.clients import client_of
from jumpmq.spark.errors import APPEND, APPEND_STREAM, BrokerAway, JumpMQError, MessagesGone
from jumpmq.spark.nothing_read import warn, without_queues
from jumpmq.spark.options import RESERVED, TRIGGERED, SourceOptions
from jumpmq.spark.origin import Origin
from jumpmq.spark.partitions import Division, QueueRange, QueueSlices, in_order, pieces
from jumpmq.spark.rows import converter
from jumpmq.spark.schema import COLUMNS, SCHEMA, check_schema, wire_columns
from jumpmq.spark.streams import batch
from jumpmq.spark.streams.kinds import STREAM, queue_names, reads_streams, require_meant
from jumpmq.spark.streams.ranges import OffsetRanges, read_ranges

if TYPE_CHECKING:
    from jumpmq.spark.rabbitmq.sink import AMQPBatchWriter, AMQPStreamWriter
    from jumpmq.spark.sink import BatchWriter, StreamWriter
    from jumpmq.spark.waiting import Reader


URL_VARIABLE = "JUMPMQ_URL"
"""Environment variable with the URL, for queries and sessions without one."""


class JumpMQDataSource(DataSource):
    """The format ``jumpmq``, with the options of :class:`SourceOptions` and the columns of :data:`COLUMNS`.

    Spark does not tell a Python source which columns a query needs. Users can name them with the option ``columns``, or
    with ``.schema("queue string, body binary")``: other columns are then neither sent nor decoded.

    Readers and writers are imported on use: a query waits for imports, and needs one of them.

    Attributes:
        parallelism: number of tasks that run at once; None if unknown.
        session: the broker's options in the session's configuration, for queries without ``url``.
    """

    parallelism: int | None = None
    session: Mapping[str, str] = {}

    @classmethod
    def name(cls) -> str:
        return "jumpmq"

    @property
    def given(self) -> Mapping[str, str]:
        """The query's options; without ``url``, also the session's options or, if the session has none, the URL in
        ``JUMPMQ_URL``.
        """
        options = dict(self.options)
        if "url" in (name.lower() for name in options):
            return options
        defaults = self.session or ({"url": os.environ[URL_VARIABLE]} if URL_VARIABLE in os.environ else {})
        return {**defaults, **options}

    def schema(self) -> StructType:
        """Return the columns of the option ``columns``, or :data:`SCHEMA`; validates the options."""
        columns = SourceOptions.parse(self.given).columns
        return SCHEMA if columns is None else StructType([COLUMNS[name] for name in columns])

    def reader(self, schema: StructType) -> DataSourceReader:
        check_schema(schema)
        return QueueReader(SourceOptions.parse(self.given), schema, self.parallelism)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter | AMQPBatchWriter:
        if overwrite:
            raise JumpMQError(f"messages cannot be overwritten: {APPEND}")
        from jumpmq.spark.rabbitmq.sink import AMQPBatchWriter
        from jumpmq.spark.sink import BatchWriter, SinkOptions

        options = SinkOptions.parse(self.given)
        return (AMQPBatchWriter if options.broker.speaks_amqp else BatchWriter)(options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter | AMQPStreamWriter:  # noqa: N802
        if overwrite:
            raise JumpMQError(f"messages cannot be overwritten: {APPEND_STREAM}")
        from jumpmq.spark.rabbitmq.sink import AMQPStreamWriter
        from jumpmq.spark.sink import SinkOptions, StreamWriter

        options = SinkOptions.parse(self.given)
        return (AMQPStreamWriter if options.broker.speaks_amqp else StreamWriter)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        check_schema(schema)
        options = SourceOptions.parse(self.given)
        if options.broker.speaks_amqp:
            if reads_streams(options):
                return self._reader_of(True, options, schema)
            from jumpmq.spark.rabbitmq.reader import ConsumingStreamReader

            return ConsumingStreamReader(options, schema, self.parallelism)
        try:
            return self._reader_of(reads_streams(options, patient=False), options, schema)
        except BrokerAway:
            from jumpmq.spark.waiting import WaitingReader

            return WaitingReader(options, partial(self._reader_of, options=options, schema=schema))

    def _reader_of(self, streams: bool, options: SourceOptions, schema: StructType) -> Reader:
        """Return the streaming reader of streams, or of other queues, which reserves messages."""
        if streams:
            from jumpmq.spark.streams.reader import OffsetStreamReader

            return OffsetStreamReader(options, schema, self.parallelism)
        from jumpmq.spark.stream import QueueStreamReader

        return QueueStreamReader(options, schema, self.parallelism)


@dataclass
class ReadySlices(QueueSlices):
    """Ranges ``[queue, first_seq, last_seq]``."""

    origin: Origin


class QueueReader(DataSourceReader):
    """Reads ready messages of queues without consuming them, and messages of streams between two offsets.

    The ready messages of a queue are fixed by planning: messages that arrive later are not read, and messages consumed
    between planning and reading are missing. A partition has messages in the order of delivery. A queue with priorities
    is one partition.

    The reader accepts no filters: Spark shares one plan between all scans of a DataFrame, so that a filter pushed down
    by one query would remove rows from all others.
    """

    def __init__(self, options: SourceOptions, schema: StructType, parallelism: int | None) -> None:
        options.refuse((*TRIGGERED, *RESERVED), "for streaming queries, not for tables")
        self._options = options
        self._schema = schema
        self._parallelism = parallelism

    def partitions(self) -> list[InputPartition]:
        client, options = client_of(self._options.broker), self._options
        client.require_broker()
        starts = options.starting_offsets
        found = client.ranges(
            options.exchange, queue_names(client, options), timestamp=None if starts is None else starts.timestamp
        )
        require_meant({name: at["type"] for name, at in found.items()}, options)
        if not found:
            warn(without_queues(options))
        streams = {name: at for name, at in found.items() if at["type"] == STREAM}
        ranges = {name: at for name, at in found.items() if name not in streams}
        if ranges and not streams:
            options.refuse(["failOnDataLoss"], "for streams, and for streaming queries")
        counts = {name: at["messages"] for name, at in ranges.items()}
        whole = options.keep_order or options.broker.speaks_amqp  # AMQP reads from the front
        cut = Division.of(replace(options, keep_order=whole), self._parallelism)
        by_priority = {name for name, at in ranges.items() if at.get("by_priority")}
        groups = in_order(pieces(counts, cut, by_priority)) if ranges else []
        origin = Origin.of(client.identity, ranges)
        ready = [
            ReadySlices(
                [_by_seq(piece, ranges[piece.queue]) for piece in group], origin.only({piece.queue for piece in group})
            )
            for group in groups
        ]
        return [*ready, *batch.plan(client, options, streams, self._parallelism)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, OffsetRanges):
            yield from read_ranges(partition, self._options, self._schema)
        if not isinstance(partition, ReadySlices):  # Spark's placeholder for a plan without partitions
            return
        columns, convert = wire_columns(self._schema), converter(self._schema)
        client = client_of(self._options.broker, met=True)
        try:
            for found in client.ready(partition.slices, columns, partition.origin):
                yield convert(found)
        except MessagesGone as error:
            raise JumpMQError(f"{error}: load the table again") from None


def _by_seq(piece: QueueRange, found: dict[str, int]) -> list[str | int]:
    """Return a piece as a range of ``seq``, as if the message numbers of the queue were evenly spaced."""
    first, span = found["first_seq"], found["last_seq"] + 1 - found["first_seq"]
    start, end = (first + span * place // found["messages"] for place in (piece.first, piece.first + piece.count))
    return [piece.queue, start, end - 1]
