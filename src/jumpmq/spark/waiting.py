"""Streaming reader of a query that starts while the broker, or a node with one of the queues, is away.

A query with a checkpoint waits for the broker, and meanwhile reads the queues at other nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow

from jumpmq.spark.client import Client
from jumpmq.spark.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from jumpmq.spark.stream import QueueStreamReader
    from jumpmq.spark.streams.reader import OffsetStreamReader

    Reader: TypeAlias = "QueueStreamReader | OffsetStreamReader"

Offset = dict[str, Any]


class WaitingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Delegates to a reader of queues or of streams, by the kind of the first offset.

    Spark asks for the initial offset only for a query without a checkpoint. Then an absent broker is an error at once,
    as the URL may be wrong. A query with a checkpoint waits for the broker, up to ``brokerRetrySeconds``.

    Args:
        options: the options of the query.
        make: returns the reader of streams, if called with True, or of queues.
    """

    def __init__(self, options: SourceOptions, make: Callable[[bool], Reader]) -> None:
        self._options = options  # the user's options
        self._make = make  # makes the reader
        self._reader: Reader | None = None  # the reader of queues or streams; None before the first offset
        self._available_now = False  # whether the trigger is availableNow

    def initialOffset(self) -> Offset:  # noqa: N802 (Spark's names, here and below)
        if self._reader is None:
            from jumpmq.spark.streams.kinds import reads_streams

            self._become(reads_streams(self._options))
        assert self._reader is not None
        return self._reader.initialOffset()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.max_octets
        return ReadMaxRows(self._options.max_messages) if most is None else ReadMaxBytes(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note the call, which precedes the first offset; the ends are requested once the broker is up."""
        self._available_now = True

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        return self._by(start).latestOffset(start, limit)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return None if self._reader is None else self._reader.reportLatestOffset()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        return list(self._by(end).partitions(start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from jumpmq.spark.streams.ranges import OffsetRanges

        return self._make(isinstance(partition, OffsetRanges)).read(partition)

    def _by(self, offset: Offset) -> Reader:
        """Return the reader for an offset, made on first use."""
        if self._reader is None:
            self._become(isinstance(offset, dict) and "streams" in offset)
        assert self._reader is not None
        return self._reader

    def _become(self, streams: bool) -> None:
        Client(self._options.broker, met=True).require_broker()
        reader = self._make(streams)
        if self._available_now:
            reader.prepareForTriggerAvailableNow()
        self._reader = reader
