"""Deliveries as record batches, in the columns of a JumpMQ broker."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from jumpmq.amqp.client import ClientDelivery, as_published, stream_offset

AT_ONCE = 8192
"""Maximum number of messages of a record batch."""


def batch_of(queue: str, deliveries: Sequence[ClientDelivery], columns: Sequence[str]) -> pa.RecordBatch:
    """Return deliveries of a queue as a record batch.

    ``seq`` is the offset in a stream, and null for other queues. ``published_at`` is null. RabbitMQ delivers neither a
    message number nor the time of publishing.
    """
    made = [_column(name, queue, deliveries) for name in columns]
    return pa.record_batch(made, list(columns))


def _column(name: str, queue: str, deliveries: Sequence[ClientDelivery]) -> pa.Array:
    match name:
        case "queue":
            return pa.repeat(queue, len(deliveries))
        case "seq":
            return pa.array([stream_offset(one) for one in deliveries], pa.int64())
        case "exchange":
            return pa.array([one.exchange for one in deliveries], pa.string())
        case "routing_key":
            return pa.array([one.routing_key for one in deliveries], pa.binary())
        case "body":
            return pa.array([one.body for one in deliveries], pa.binary())
        case "properties":
            return pa.array([as_published(one.properties) for one in deliveries], pa.binary())
        case "redelivered":
            return pa.array([one.redelivered for one in deliveries], pa.bool_())
    return pa.nulls(len(deliveries))
