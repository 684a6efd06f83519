"""Ranges of offsets: a task's input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from jumpmq.spark.clients import ReadingClient, client_of
from jumpmq.spark.errors import JumpMQError, MessagesGone, NotThere
from jumpmq.spark.options import SourceOptions
from jumpmq.spark.origin import Origin
from jumpmq.spark.partitions import Division, pieces
from jumpmq.spark.rows import converter
from jumpmq.spark.schema import wire_columns

GO_ON = "set option 'failOnDataLoss' to false to go on without"


@dataclass(frozen=True)
class OffsetRange:
    """Messages of a stream from offset ``first`` to before ``end``."""

    stream: str
    first: int
    end: int


@dataclass
class OffsetRanges(InputPartition):
    """Ranges read by a single task, in order."""

    ranges: list[OffsetRange]
    origin: Origin


def partitions_of(ranges: dict[str, tuple[int, int]], cut: Division, origin: Origin) -> list[OffsetRanges]:
    """Divide ranges, ``(first, end)`` by stream, into partitions; long ranges are divided."""
    counts = {name: end - first for name, (first, end) in ranges.items() if end > first}
    if not counts:
        return []
    return [
        OffsetRanges(
            [OffsetRange(one.queue, start := ranges[one.queue][0] + one.first, start + one.count) for one in group],
            origin.only({one.queue for one in group}),
        )
        for group in pieces(counts, cut)
    ]


def read_ranges(partition: OffsetRanges, options: SourceOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a partition in Spark's columns.

    Raises:
        JumpMQError: messages were deleted since planning, and ``failOnDataLoss`` is not false.
    """
    convert = converter(schema)
    columns = sorted({"seq", *wire_columns(schema)})
    client, accept_loss = client_of(options.broker, met=True), not options.fail_on_data_loss
    for one in partition.ranges:
        for batch in _messages(client, one, columns, partition.origin, accept_loss):
            yield convert(batch)


def _messages(
    client: ReadingClient, one: OffsetRange, columns: list[str], origin: Origin, accept_loss: bool
) -> Iterator[pa.RecordBatch]:
    try:
        yield from client.cut(one.stream, one.first, one.end - 1, columns, origin, whole=not accept_loss)
    except NotThere as error:
        if not accept_loss:
            raise JumpMQError(f"{error}: it was deleted while the query used it; {GO_ON}") from None
    except MessagesGone as error:
        if not accept_loss:
            raise JumpMQError(f"{error}; {GO_ON}") from None
