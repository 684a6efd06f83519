"""Which messages go into which Spark partition.

A Python partition costs Spark some 50 milliseconds, whatever is in it, so several queues share one, and a batch of few
messages is one partition. Long queues are cut, so that one deep shard does not hold a batch up.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import pairwise
from math import ceil
from typing import TypeVar

from pyspark.sql.datasource import InputPartition

from jumpmq.spark.client import Slice
from jumpmq.spark.options import SourceOptions

T = TypeVar("T")

WORTHWHILE = 25_000
"""Messages for which another partition is worth its price."""


@dataclass
class Slices(InputPartition):
    """Parts of queues that one task reads."""

    slices: list[Slice]


@dataclass(frozen=True)
class Piece:
    """Messages of a queue: ``count`` of them, from position ``first``."""

    queue: str
    first: int
    count: int

    def of(self, messages: list[T]) -> list[T]:
        """These messages, of all of the queue's."""
        return messages[self.first : self.first + self.count]


def pieces(counts: Mapping[str, int], options: SourceOptions, parallelism: int | None) -> list[list[Piece]]:
    """Divide the messages of some queues into partitions.

    Args:
        counts: how many messages there are, by queue.
        parallelism: tasks that run at once; None for the processors of this machine.
    """
    total = sum(counts.values())
    wanted = _wanted(total, options, parallelism or os.cpu_count() or 1)
    limit = max(1, ceil(total / wanted))
    if options.max_messages_per_partition is not None:
        limit = min(limit, options.max_messages_per_partition)
    cut = [piece for queue in sorted(counts) for piece in _cut(queue, counts[queue], limit, options.keep_order)]
    return _packed(cut, wanted)


def _wanted(total: int, options: SourceOptions, parallelism: int) -> int:
    """How many partitions there should be."""
    if not total:
        return 1
    most = options.max_partitions or max(parallelism, options.min_partitions)
    least = min(options.min_partitions, total)
    wanted = max(least, min(most, ceil(total / WORTHWHILE)))
    if options.max_messages_per_partition is not None:
        wanted = max(wanted, ceil(total / options.max_messages_per_partition))
    return wanted


def _cut(queue: str, count: int, limit: int, whole: bool) -> list[Piece]:
    parts = 1 if whole else max(1, ceil(count / limit))
    bounds = [count * part // parts for part in range(parts + 1)]
    return [Piece(queue, first, last - first) for first, last in pairwise(bounds) if last > first]


def _packed(cut: list[Piece], partitions: int) -> list[list[Piece]]:
    """Put the largest piece where least is, and so on."""
    loads = [(0, place) for place in range(min(partitions, len(cut)))]
    heapify(loads)
    packed: list[list[Piece]] = [[] for _ in loads]
    for piece in sorted(cut, key=lambda one: -one.count):
        load, place = loads[0]
        packed[place].append(piece)
        heapreplace(loads, (load + piece.count, place))
    return [sorted(group, key=lambda one: (one.queue, one.first)) for group in packed]
