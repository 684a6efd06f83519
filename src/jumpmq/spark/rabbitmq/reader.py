"""Streaming reader of queues over AMQP: every message at least once.

How it works. AMQP accepts an acknowledgement only on the channel that delivered the message, so the process that plans
the query is the consumer. It takes the delivered messages, passes them to the tasks in their partitions, and
acknowledges them when Spark asks for the next micro-batch: then this micro-batch is complete, sink included.

If the query dies, its unacknowledged messages return to the queues, and are read again in a later micro-batch. A
micro-batch that Spark repeats after the restart is empty. So a row can be twice in the sink, and no row is missing.

Spark's *offset* is ``{"source": TEXT, "run": ID, "batch": N}``: the N-th micro-batch of a run of the query.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from jumpmq.amqp.client import ClientDelivery
from jumpmq.client import AMQPConnection
from jumpmq.spark.errors import BrokerAway, JumpMQError, QueueInUse
from jumpmq.spark.ipc import ipc_stream
from jumpmq.spark.options import HELD_BACK, RESERVED, SourceOptions
from jumpmq.spark.partitions import Division, pieces
from jumpmq.spark.patience import Patience
from jumpmq.spark.rabbitmq.client import MOST_PREFETCH
from jumpmq.spark.rabbitmq.columns import batch_of
from jumpmq.spark.rabbitmq.link import address_of, connect, converted_errors
from jumpmq.spark.rows import converter
from jumpmq.spark.schema import wire_columns

IDLE_PAUSE = 0.05
"""Seconds to wait for a message before an answer without new messages."""

BREATH = 0.01
"""Seconds without a message after which a micro-batch ends."""

ON_THEIR_WAY = 5.0
"""Seconds to wait for messages while the queue's count of messages is not 0."""

TAKEOVER = 4.0
"""Seconds to wait for consumers of a query's queues to leave, such as a query just stopped."""

IN_USE = (
    "so that the two would divide its messages, as the sources of a stream that is joined with itself do: bind a queue "
    "for each to the exchange, or read a stream; to divide the messages, set option 'shareQueues' to true"
)

Offset = dict[str, Any]


@dataclass
class Taken(InputPartition):
    """Messages delivered to the query's planner, as an Arrow stream per queue."""

    pieces: list[bytes]


class ConsumingStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads queues as a consumer; a micro-batch is the prefetch."""

    def __init__(self, options: SourceOptions, schema: StructType, parallelism: int | None) -> None:
        reserved = [name for name in RESERVED if name != "shareQueues"]
        only = (*reserved, "maxBytesPerTrigger", "checkpointLocation", "failOnDataLoss")
        options.refuse((*only, *HELD_BACK), "for a JumpMQ broker, not for queues that are read over AMQP")
        self._options = options
        self._schema = schema
        self._parallelism = parallelism
        self._run = uuid.uuid4().hex
        self._amqp: AMQPConnection | None = None
        self._queues: dict[str, str] = {}
        self._taken: list[ClientDelivery] = []
        self._end: Offset | None = None
        self._left: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 (Spark's names, here and below)
        return {"source": self._options.subject, "run": self._run, "batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note the number of messages: later messages belong to the next query."""
        with converted_errors(address_of(self._options.broker)), connect(self._options.broker) as amqp:
            self._left = sum(amqp.declared(queue).message_count for queue in self._options.queues)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        self._require_own(start)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_messages
        patience = Patience(self._options.broker.retry_seconds)
        takeover = Patience(TAKEOVER)
        while True:
            try:
                with converted_errors(address_of(self._options.broker)):
                    return self._next(start, most)
            except BrokerAway as error:
                self._amqp = None
                patience.pause(error)
            except QueueInUse as error:
                takeover.pause(error)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        self._require_own(end)
        if end != self._end or start == end:
            return []  # a micro-batch of an earlier run: its messages are in the queues again
        columns = wire_columns(self._schema)
        by_queue: dict[str, list[ClientDelivery]] = {}
        for one in self._taken:
            by_queue.setdefault(self._queues[one.consumer], []).append(one)
        counts = {queue: len(found) for queue, found in by_queue.items()}
        return [
            Taken([ipc_stream(batch_of(one.queue, one.of(by_queue[one.queue]), columns)) for one in group])
            for group in pieces(counts, Division.of(self._options, self._parallelism))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Taken)
        convert = converter(self._schema)
        for octets in partition.pieces:
            with pa.ipc.open_stream(octets) as stream:
                for batch in stream:
                    yield convert(batch)

    def _next(self, start: Offset, most: int) -> Offset:
        """Acknowledge the micro-batch ended at ``start``, and take the next micro-batch."""
        amqp = self._consuming(most)
        if self._end is not None and start == self._end:
            amqp.ack(self._taken[-1].tag)
            self._left = None if self._left is None else self._left - len(self._taken)
            self._end = None
        if self._end is None:
            self._taken = self._take(amqp, most if self._left is None else min(most, self._left))
        if not self._taken:
            return start
        self._end = start | {"run": self._run, "batch": start["batch"] + 1}
        return self._end

    def _consuming(self, most: int) -> AMQPConnection:
        """Return the consuming connection, opened on first use and after a break; the broker then delivers again."""
        if self._amqp is None:
            amqp = connect(self._options.broker)
            try:
                self._queues = {
                    self._consumer(amqp, queue, min(most, MOST_PREFETCH)): queue for queue in self._options.queues
                }
            except BaseException:
                amqp.close()
                raise
            self._amqp, self._taken, self._end = amqp, [], None
        return self._amqp

    def _consumer(self, amqp: AMQPConnection, queue: str, prefetch: int) -> str:
        """Begin to consume, as the only consumer unless the queue is shared; return the consumer's tag.

        Raises:
            QueueInUse: the queue has another consumer.
        """
        alone = not self._options.share_queues
        in_use = QueueInUse(f"queue '{queue}' has another consumer, {IN_USE}")
        if alone and amqp.declared(queue).consumer_count:
            raise in_use
        tag = amqp.consume(queue, prefetch)
        if alone and amqp.declared(queue).consumer_count > 1:  # a concurrent consumer
            raise in_use
        return tag

    def _take(self, amqp: AMQPConnection, most: int) -> list[ClientDelivery]:
        """Return messages as they are delivered, at most ``most``, until a pause of :data:`BREATH`."""
        taken: list[ClientDelivery] = []
        deliveries = amqp.deliveries
        while len(taken) < most and (deliveries or amqp.wait(BREATH if taken else self._patience(amqp))):
            taken += [deliveries.popleft() for _ in range(min(len(deliveries), most - len(taken)))]
        return taken

    def _patience(self, amqp: AMQPConnection) -> float:
        """Return the maximum wait for the first message of a micro-batch, in seconds."""
        if self._left is None:
            return IDLE_PAUSE
        waiting = any(amqp.declared(queue).message_count for queue in self._options.queues)
        return ON_THEIR_WAY if waiting else IDLE_PAUSE

    def _require_own(self, offset: Offset) -> None:
        """Refuse the checkpoint of a different query."""
        source = offset.get("source") if isinstance(offset, dict) and "run" in offset else None
        if source != self._options.subject:
            raise JumpMQError(
                f"the query's checkpoint is of {source or 'another source'}, but the query reads "
                f"{self._options.subject} over AMQP: give it a checkpoint of its own"
            )
