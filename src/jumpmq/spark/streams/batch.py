"""A range of each stream as a table."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import InputPartition

from jumpmq.spark.clients import ReadingClient
from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.nothing_read import beyond_the_end, require_past, warn
from jumpmq.spark.options import SourceOptions
from jumpmq.spark.origin import Origin
from jumpmq.spark.partitions import Division
from jumpmq.spark.streams.places import EARLIEST, LATEST
from jumpmq.spark.streams.ranges import GO_ON, partitions_of


def plan(
    client: ReadingClient, options: SourceOptions, streams: dict[str, dict[str, Any]], parallelism: int | None
) -> list[InputPartition]:
    """Plan the partitions of a batch read: messages from ``startingOffsets`` to before ``endingOffsets``.

    Args:
        streams: the broker's description of each stream, with ``seq_at`` if ``startingOffsets`` is a time.

    Raises:
        JumpMQError: retention has deleted the first message to read, and ``failOnDataLoss`` is not false.
    """
    start, end = options.starting_offsets or EARLIEST, options.ending_offsets or LATEST
    require_past(start.timestamp)
    for place in (start, end):
        place.require_read(streams)
    at_end = streams if end.timestamp is None else client.ranges(None, list(streams), timestamp=end.timestamp)
    starts = {name: start.offset_in(name, found) for name, found in streams.items()}
    if beyond := beyond_the_end(starts, streams):
        if len(beyond) == len(streams) and options.fail_on_data_loss:
            raise JumpMQError(beyond[0])
        for sentence in beyond:
            warn(sentence)
    ends = {name: end.offset_in(name, found) for name, found in at_end.items()}
    _require_forwards(starts, ends, options)
    ranges = {}
    for name, found in streams.items():
        first = starting(name, starts[name], found, options)
        ranges[name] = first, min(ends[name], found["last_seq"] + 1)
    partitions = partitions_of(ranges, Division.of(options, parallelism), Origin.of(client.identity, streams))
    partitions.sort(key=lambda one: (one.ranges[0].stream, one.ranges[0].first))
    return [*partitions]


def _require_forwards(starts: dict[str, int], ends: dict[str, int], options: SourceOptions) -> None:
    """Refuse a start after the end, unless ``failOnDataLoss`` is false, when retention may be the reason.

    Raises:
        JumpMQError: the start is after the end, for one of the streams.
    """
    if options.starting_offsets is None or options.ending_offsets is None or not options.fail_on_data_loss:
        return
    for name, first in starts.items():
        if first > ends[name]:
            raise JumpMQError(
                f"options 'startingOffsets' and 'endingOffsets' leave nothing of stream '{name}': it would be read "
                f"from offset {first} to before {ends[name]}"
            )


def starting(name: str, offset: int, found: dict[str, Any], options: SourceOptions) -> int:
    """Return the first offset to read for a start at ``offset``: at least the lowest offset of the stream.

    Raises:
        JumpMQError: the lowest offset is higher than ``offset``, and ``failOnDataLoss`` is not false.
    """
    lowest = int(found["first_seq"])
    if offset < lowest and options.fail_on_data_loss:
        raise JumpMQError(
            f"stream '{name}' begins with offset {lowest}, retention has deleted {offset} to {lowest - 1}; {GO_ON}"
        )
    return max(offset, lowest)
