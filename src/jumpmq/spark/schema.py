"""The columns of a message in Spark, and their origin in the broker's columns."""

from __future__ import annotations

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from jumpmq.spark.errors import JumpMQError

PROPERTIES = (
    StructType()
    .add("content_type", StringType())
    .add("content_encoding", StringType())
    .add("delivery_mode", IntegerType())
    .add("priority", IntegerType())
    .add("correlation_id", StringType())
    .add("reply_to", StringType())
    .add("expiration", StringType())
    .add("message_id", StringType())
    .add("timestamp", TimestampType())
    .add("type", StringType())
    .add("user_id", StringType())
    .add("app_id", StringType())
)
"""Properties set by the publisher, else null. ``expiration`` is in milliseconds, as in AMQP."""

SCHEMA = (
    StructType()
    .add("queue", StringType())
    .add("seq", LongType())
    .add("exchange", StringType())
    .add("routing_key", BinaryType())
    .add("body", BinaryType())
    .add("headers", MapType(StringType(), StringType()))
    .add("properties", PROPERTIES)
    .add("published_at", TimestampType())
    .add("redelivered", BooleanType())
    .add("amqp_properties", BinaryType())
)
"""The columns of a message, unless a query names others. ``seq`` orders the messages of a queue and is never reused.

Headers are text: numbers in decimal, truth as ``true`` or ``false``, octets that are not UTF-8 in base64, tables and
arrays as JSON. Both ``headers`` and ``properties`` are null where a publisher sent octets that cannot be read. In
``amqp_properties`` both are as they were published: flags and list of AMQP 0-9-1, section 4.2.6.1.
"""

OWNER_EPOCH = "owner_epoch"

COLUMNS = StructType([*SCHEMA, StructField(OWNER_EPOCH, LongType())])
"""All columns that a query may name: those of :data:`SCHEMA`, and the number under which a streaming query reads.

The number is higher than those of the queue's earlier owners (:mod:`jumpmq.queues.epochs`): what a query has read that
was superseded meanwhile has a lower one than what its successor reads. It is null in tables and of streams, which have
no owner, and of queues that several queries share.
"""


OF_PROPERTIES = ("headers", "properties", "amqp_properties")
"""Columns made from encoded AMQP properties."""


def check_schema(schema: StructType) -> None:
    """Validate a schema given with ``.schema(...)``: some of :data:`COLUMNS` with equal types.

    Raises:
        JumpMQError: a column does not exist, has another type, or is named twice.
    """
    for field in schema:
        if schema.names.count(field.name) > 1:
            raise JumpMQError(f"column '{field.name}' is named twice")
        if field.name not in COLUMNS.names:
            raise JumpMQError(f"there is no column '{field.name}'; there are {', '.join(COLUMNS.names)}")
        if field.dataType != COLUMNS[field.name].dataType:
            type_, asked = COLUMNS[field.name].dataType.simpleString(), field.dataType.simpleString()
            raise JumpMQError(f"column '{field.name}' is of type {type_}, not {asked}")


def wire_columns(schema: StructType) -> list[str]:
    """Return the columns to request from the broker: unneeded ones are neither sent nor decoded."""
    wanted = {"properties" if name in OF_PROPERTIES else name for name in schema.names if name != OWNER_EPOCH}
    return sorted(wanted) or ["seq"]
