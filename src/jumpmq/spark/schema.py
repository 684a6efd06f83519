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
"""AMQP's properties; null if the publisher did not set them. ``expiration`` is in milliseconds, as in AMQP."""

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
"""The columns of a message, by default. ``seq`` orders the messages of a queue, and a number is never reused.

Headers are text: numbers in decimal, booleans as ``true`` or ``false``, octets that are not UTF-8 in base64, tables and
arrays as JSON. Both ``headers`` and ``properties`` are null for a message with malformed properties.
``amqp_properties`` has headers and properties as published: flags and list of AMQP 0-9-1, section 4.2.6.1.
"""

OWNER_EPOCH = "owner_epoch"

COLUMNS = StructType([*SCHEMA, StructField(OWNER_EPOCH, LongType())])
"""All columns that a query may name: those of :data:`SCHEMA`, and the owner epoch.

The owner epoch of a queue increases with each new owner (:mod:`jumpmq.queues.epochs`): rows of a superseded query have
a lower epoch than rows of its successor. The epoch is null in batch reads, for streams, which have no owner, and for
queues that several queries share.
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
    """Return the broker's columns to request; other columns are neither sent nor decoded."""
    wanted = {"properties" if name in OF_PROPERTIES else name for name in schema.names if name != OWNER_EPOCH}
    return sorted(wanted) or ["seq"]
