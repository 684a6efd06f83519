"""Division of messages into Spark partitions.

A partition of a Python source costs Spark some 50 milliseconds, however few messages are in it. So several queues share
a partition, and a small batch is one partition. Long queues are divided, so that no single queue delays a batch.
"""

from __future__ import annotations

import os
from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass
from heapq import heapify, heapreplace
from itertools import pairwise
from math import ceil
from typing import Any, TypeVar

from pyspark.sql.datasource import InputPartition

from jumpmq.spark.client import SliceFields
from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.options import SourceOptions

T = TypeVar("T")

WORTHWHILE = 25_000
"""Number of messages that justifies a further partition."""


@dataclass
class QueueSlices(InputPartition):
    """Parts of queues read by a single task."""

    slices: list[SliceFields]


@dataclass(frozen=True)
class QueueRange:
    """``count`` messages of a queue from position ``first``."""

    queue: str
    first: int
    count: int

    def of(self, messages: list[T]) -> list[T]:
        """Return the messages of this range, given all messages of the queue."""
        return messages[self.first : self.first + self.count]


@dataclass(frozen=True)
class Division:
    """Parameters of the division into partitions: equal parameters and messages give equal partitions.

    Attributes:
        most: maximum number of partitions, unless ``longest`` needs more.
        least: minimum number of partitions, if there are as many messages.
        longest: maximum number of messages of a partition; None for any number.
        whole: True to keep the messages of a queue in one partition.
    """

    most: int
    least: int
    longest: int | None
    whole: bool

    @classmethod
    def of(cls, options: SourceOptions, parallelism: int | None) -> Division:
        """Return the division given by options.

        Args:
            parallelism: number of tasks that run at once; None for the number of processors of this machine.
        """
        least = options.min_partitions
        most = options.max_partitions or max(parallelism or os.cpu_count() or 1, least)
        return cls(most, least, options.max_messages_per_partition, options.keep_order)

    def noted(self) -> dict[str, Any]:
        """Return the division for a checkpoint, so that a repeated micro-batch is divided as before, on any number of
        cores.
        """
        return asdict(self)

    @classmethod
    def noted_in(cls, offset: Mapping[str, Any]) -> Division | None:
        """Return the division in a checkpoint; None for an older checkpoint without one.

        Raises:
            JumpMQError: the division has unknown fields, as from another version.
        """
        if "cut" not in offset:
            return None
        try:
            return cls(**offset["cut"])
        except TypeError:
            raise JumpMQError(f"the query's checkpoint has an unknown cut: {offset['cut']!r}") from None


def pieces(counts: Mapping[str, int], cut: Division, whole: Container[str] = ()) -> list[list[QueueRange]]:
    """Divide the messages of some queues into partitions.

    Args:
        counts: number of messages by queue.
        whole: queues with all messages in one partition.
    """
    total = sum(counts.values())
    wanted = _wanted(total, cut)
    limit = max(1, ceil(total / wanted))
    if cut.longest is not None:
        limit = min(limit, cut.longest)
    parts = [
        piece
        for queue in sorted(counts)
        for piece in _parts(queue, counts[queue], limit, whole=cut.whole or queue in whole)
    ]
    return _packed(parts, wanted)


def in_order(groups: list[list[QueueRange]]) -> list[list[QueueRange]]:
    """Sort partitions by their first message, so that partitions of a queue are in the queue's order."""
    return sorted(groups, key=lambda group: (group[0].queue, group[0].first))


def _wanted(total: int, cut: Division) -> int:
    """Return the number of partitions to make."""
    if not total:
        return 1
    wanted = max(min(cut.least, total), min(cut.most, ceil(total / WORTHWHILE)))
    return wanted if cut.longest is None else max(wanted, ceil(total / cut.longest))


def _parts(queue: str, count: int, limit: int, *, whole: bool) -> list[QueueRange]:
    parts = 1 if whole else max(1, ceil(count / limit))
    bounds = [count * part // parts for part in range(parts + 1)]
    return [QueueRange(queue, first, last - first) for first, last in pairwise(bounds) if last > first]


def _packed(parts: list[QueueRange], partitions: int) -> list[list[QueueRange]]:
    """Distribute ranges over partitions: the largest range first, each to the partition with the fewest messages."""
    loads = [(0, place) for place in range(min(partitions, len(parts)))]
    heapify(loads)
    packed: list[list[QueueRange]] = [[] for _ in loads]
    for piece in sorted(parts, key=lambda one: -one.count):
        load, place = loads[0]
        packed[place].append(piece)
        heapreplace(loads, (load + piece.count, place))
    return [sorted(group, key=lambda one: (one.queue, one.first)) for group in packed]
