"""The sink over AMQP: rows are published and confirmed; a repeated task publishes the rows again."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from jumpmq.amqp import methods as m
from jumpmq.amqp.client import publish_frames
from jumpmq.amqp.properties import NO_PROPERTIES, persistent_unless_said
from jumpmq.amqp.undelivered import FULL, UNROUTABLE, undelivered
from jumpmq.client import AMQPConnection
from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.patience import retried
from jumpmq.spark.publishable import check_publishable, publishable
from jumpmq.spark.rabbitmq.link import address_of, connect, converted_errors
from jumpmq.spark.sink import REFUSED, SinkOptions, Written, tell

WINDOW = 5_000
"""Maximum number of unconfirmed messages."""

AT_ONCE = 500
"""Number of messages sent at once."""

Row = tuple[str, bytes, bytes, bytes]
"""Exchange, routing key, properties and body."""


class AMQPWriter:
    """Base of the batch and the stream writer."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_publishable(schema, *options.names)
        if options.app is not None:
            raise JumpMQError("option 'txnAppId' is for a JumpMQ broker: over AMQP no record of batches is kept")
        self._options = options
        with converted_errors(address_of(options.broker)), connect(options.broker) as amqp:
            if options.queue is not None:
                amqp.declared(options.queue)
            elif options.exchange:
                amqp.call(m.ExchangeDeclare(exchange=options.exchange, passive=True), m.ExchangeDeclareOk)
            if options.undelivered_to:
                amqp.call(m.ExchangeDeclare(exchange=options.undelivered_to, passive=True), m.ExchangeDeclareOk)

    def _publish(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Publish a partition's rows.

        Raises:
            JumpMQError: the broker refused a row, or the row reached no queue; earlier rows are published.
        """
        written = Written()
        with converted_errors(address_of(self._options.broker)), self._connect() as amqp:
            amqp.call(m.ConfirmSelect(), m.ConfirmSelectOk)
            for batch in batches:
                rows = self._rows(publishable(batch, *self._options.names))
                for at in range(0, len(rows), AT_ONCE):
                    self._send(amqp, rows[at : at + AT_ONCE], written)
                written.published += len(rows)
            amqp.wait_for_confirms()
            self._check(amqp)
            written.dropped += len(amqp.returned)
            written.published -= written.dropped + written.undelivered
        return written

    def _send(self, amqp: AMQPConnection, rows: list[Row], written: Written) -> None:
        """Publish rows; returned and refused rows go to the exchange for undelivered messages, if one is given."""
        first, instead = amqp.published + 1, self._options.undelivered_to
        amqp.publish(_frames(row, amqp.frame_max) for row in rows)
        if instead is None:
            amqp.wait_for_confirms(WINDOW)
            self._check(amqp)
            written.dropped += len(amqp.returned)
            amqp.returned.clear()
            return
        amqp.wait_for_confirms()
        lost = [(rows[tag - first], FULL) for tag in amqp.refused]
        lost += [((one.exchange, one.routing_key, one.properties, one.body), UNROUTABLE) for one in amqp.returned]
        amqp.refused.clear()
        amqp.returned.clear()
        if lost:
            dead_letters = [
                (instead, key, undelivered(properties, exchange, reason), body)
                for (exchange, key, properties, body), reason in lost
            ]
            amqp.publish(_frames(row, amqp.frame_max) for row in dead_letters)
            amqp.wait_for_confirms()
            self._check(amqp)
            written.undelivered += len(dead_letters)

    def _connect(self) -> AMQPConnection:
        """Open a connection, with retries: the broker answered when the write was planned, and may be restarting."""
        return retried(self._options.broker.retry_seconds, lambda: connect(self._options.broker))

    def _check(self, amqp: AMQPConnection) -> None:
        if amqp.refused:
            raise JumpMQError(REFUSED)
        if amqp.returned and (self._options.on_unroutable == "fail" or self._options.undelivered_to is not None):
            lost = amqp.returned[0]
            key = lost.routing_key.decode("utf-8", "replace")
            raise JumpMQError(f"a message to exchange '{lost.exchange}' with routing key '{key}' reaches no queue")

    def _rows(self, batch: pa.RecordBatch) -> list[Row]:
        """Return rows with their targets; options give the target of rows without one."""
        persistent, nothing = self._options.persistent, [None] * len(batch)
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        names = ("queue", "exchange", "routing_key", "properties", "body")
        rows = []
        for queue, exchange, key, properties, body in zip(*(columns.get(name, nothing) for name in names), strict=True):
            target = queue if queue is not None or exchange is not None else self._options.queue
            where = exchange if exchange is not None else self._options.exchange or ""
            address = (where, key or b"") if target is None else ("", target.encode())
            said = properties or NO_PROPERTIES
            rows.append((*address, persistent_unless_said(said) if persistent else said, body))
        return rows


class AMQPBatchWriter(AMQPWriter, DataSourceArrowWriter):
    """Publishes a DataFrame."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._publish(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        tell(messages)


class AMQPStreamWriter(AMQPWriter, DataSourceStreamArrowWriter):
    """Publishes micro-batches; a repeated micro-batch is published again."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._publish(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        tell(messages)


def _frames(row: Row, frame_max: int) -> bytes:
    exchange, key, properties, body = row
    return publish_frames(exchange, key, properties, body, 1, frame_max, mandatory=True)
