"""The streaming reader: a query as a consumer whose prefetch is the micro-batch.

How it works. Spark's *offset* is ``{"group": NAME, "queues": {QUEUE: RESERVATION, ...}}``: up to which reservation the
query's group has got in each queue. Spark keeps offsets in the query's checkpoint, and its order of events is

1. ``latestOffset(start)``: the micro-batch that ended at ``start`` is complete, sink included, or this would not be
   asked. So the broker acknowledges everything up to ``start``, and reserves more.
2. Spark writes the new end to the checkpoint's offset log, asks for ``partitions(start, end)``, and its tasks ``read``
   them. The broker answers the same rows however often.
3. Spark notes in the checkpoint's commit log that the micro-batch is complete.

A query that dies between 2 and 3 is restarted at 2, with the same offsets; one that dies elsewhere goes on at 1. What
was reserved but never got into an offset log is outstanding still, and goes into the next micro-batch. A query leaves
nothing unacknowledged if it ends with a 1 that finds nothing more, as ``availableNow`` does.

Spark's ``commit`` comes too late to be of use: for a micro-batch it is called when the next one has been planned, and
for the last one never.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from jumpmq.spark.client import Client
from jumpmq.spark.errors import JumpMQError, NotThere
from jumpmq.spark.options import Options
from jumpmq.spark.rows import converter
from jumpmq.spark.schema import wire_columns

IDLE_PAUSE = 0.1
"""Seconds to wait before saying that there is nothing new: without a trigger, Spark asks again at once."""

Offset = dict[str, Any]


@dataclass
class ReservedMessages(InputPartition):
    """Reservations of a group in a queue: those behind ``after`` (None: behind what is acknowledged) up to ``upto``."""

    group: str
    queue: str
    after: int | None
    upto: int


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads queues in reservations, one partition a queue."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._client = Client(options.url, options.vhost)
        self._last_seqs: dict[str, int] | None = None
        self._heartbeat: Heartbeat | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 (Spark's names, here and below)
        return {"group": self._options.group or f"spark-{uuid.uuid4().hex}", "queues": {}}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note where the queues end: what arrives later is for the next query."""
        self._last_seqs = {queue: self._client.last_seq(queue) for queue in self._queues()}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        group, done = self._group(start), start["queues"]
        self._beat(group)
        queues = sorted(set(self._queues() if self._last_seqs is None else self._last_seqs) | set(done))
        try:
            reserved = self._client.reserve(
                group,
                {queue: done.get(queue) for queue in queues},
                limit.max_rows if isinstance(limit, ReadMaxRows) else None,
                self._bounds(queues),
                self._options.lease,
            )
        except NotThere as error:
            raise self._deleted(error) from None
        end = {queue: at["offset"] for queue, at in sorted(reserved.items()) if queue in done or at["messages"]}
        if end == done:
            time.sleep(IDLE_PAUSE if self._last_seqs is None else 0)
            return start
        return {"group": group, "queues": end}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        group, done = self._group(end), start["queues"]
        self._beat(group)
        return [
            ReservedMessages(group, queue, done.get(queue), upto)
            for queue, upto in end["queues"].items()
            if upto != done.get(queue)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ReservedMessages)
        group, queue = partition.group, partition.queue
        convert = converter(self._schema, queue)
        try:
            for batch in self._client.reserved(
                group, queue, partition.after, partition.upto, wire_columns(self._schema)
            ):
                yield convert(batch)
        except NotThere as error:
            raise self._deleted(error) from None

    def stop(self) -> None:
        """Fall silent. What is reserved stays so for the lease, and a restarted query finds it."""
        if self._heartbeat is not None:
            self._heartbeat.stop()

    def _queues(self) -> list[str]:
        return queues_of(self._client, self._options)

    def _bounds(self, queues: list[str]) -> dict[str, int]:
        """The last message to read of each queue, noted when a queue is first seen."""
        if self._last_seqs is None:
            return {}
        for queue in queues:
            if queue not in self._last_seqs:
                self._last_seqs[queue] = self._client.last_seq(queue)
        return self._last_seqs

    def _group(self, offset: Offset) -> str:
        group: str = offset["group"]
        if self._options.group not in (None, group):
            raise JumpMQError(
                f"the query's checkpoint belongs to group '{group}', but option 'group' is '{self._options.group}'"
            )
        return group

    def _beat(self, group: str) -> None:
        if self._heartbeat is None:
            self._heartbeat = Heartbeat(self._client, group, self._options.lease)
            self._heartbeat.start()

    @staticmethod
    def _deleted(error: NotThere) -> JumpMQError:
        return JumpMQError(
            f"{error}: it was deleted while the query used it, or between two runs; start with a new checkpoint"
        )


class Heartbeat(threading.Thread):
    """Keeps a group's leases from running out as long as the query lives, however long a micro-batch takes."""

    def __init__(self, client: Client, group: str, lease: float) -> None:
        super().__init__(name=f"heartbeat of {group}", daemon=True)
        self._client = client
        self._group = group
        self._interval = lease / 3
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(self._interval):
            try:
                self._client.renew(self._group)
            except JumpMQError:
                continue  # whoever needs the broker next will say what is wrong

    def stop(self) -> None:
        self._stopped.set()


def queues_of(client: Client, options: Options) -> list[str]:
    """The queues to read."""
    if options.queue is not None:
        return [options.queue]
    assert options.exchange is not None
    return client.bound_queues(options.exchange)
