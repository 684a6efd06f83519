"""Hash keys of messages, from a header or property, as a binary column; and properties with a header to be hashed.

The first octet of a key is its type: ``t`` before text and octets, ``n`` before the decimal digits of a number
(:func:`jumpmq.hashing.header_key`). The key of a message without the header or property is empty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BooleanType, DataType, DecimalType, FractionalType, IntegralType, TimestampType

from jumpmq.amqp.fields import Field
from jumpmq.amqp.properties import Properties
from jumpmq.spark.router import Router

TEXT, NUMBER = b"t", b"n"


@dataclass(frozen=True)
class MessageRouter(Router):
    """The routing decision for keys from :func:`message_keys`."""

    @classmethod
    def like(cls, router: Router) -> MessageRouter:
        """Return the same decision for keys from :func:`message_keys`."""
        return cls(**{field.name: getattr(router, field.name) for field in fields(router)})

    def places(self, keys: pa.Array) -> pa.Array:
        return self.places_of([_read(key) for key in keys.to_pylist()])

    def shown(self, key: object) -> str:
        assert isinstance(key, bytes)
        return super().shown(key[1:]) if key else "(none)"


def message_keys(frame: DataFrame, router: Router, column: str = "key") -> DataFrame:
    """Add a column with the hash keys of messages; a :class:`MessageRouter` gives their destinations.

    Args:
        frame: messages, with the column ``amqp_properties``.
        router: the decision of an exchange that hashes a header or property.
    """

    def make(properties: pa.Array) -> pa.Array:
        return pa.array(map(_written, router.hashed_of(properties)), pa.binary())

    make.__annotations__ = {"properties": pa.Array, "return": pa.Array}
    function: Callable[..., Column] = arrow_udf(make, "binary")  # type: ignore[call-overload]
    return frame.withColumn(column, function(col("amqp_properties")))


def header(name: str, value: Column, type_: DataType) -> Column:
    """Return a column of encoded AMQP properties with one header; null values give properties without headers.

    Args:
        name: the header's name.
        value: the header's value; values of types without an AMQP field type become text.
        type_: the type of ``value``.
    """
    kind = _kind(type_)
    given = value.cast({"l": "bigint", "d": "double", "t": "boolean", "T": "bigint", "S": "string"}[kind])

    def make(values: pa.Array) -> pa.Array:
        made = (None if one is None else [Field(name, kind, one)] for one in values.to_pylist())
        return pa.array([Properties(headers=headers).encode() for headers in made], pa.binary())

    make.__annotations__ = {"values": pa.Array, "return": pa.Array}
    function: Callable[..., Column] = arrow_udf(make, "binary")  # type: ignore[call-overload]
    return function(given)


def _kind(type_: DataType) -> str:
    """Return the AMQP field type of a header for a Spark type."""
    if isinstance(type_, IntegralType):
        return "l"
    if isinstance(type_, FractionalType) and not isinstance(type_, DecimalType):
        return "d"
    if isinstance(type_, BooleanType):
        return "t"
    return "T" if isinstance(type_, TimestampType) else "S"


def _written(key: bytes | int | None) -> bytes:
    if key is None:
        return b""
    return NUMBER + b"%d" % key if isinstance(key, int) else TEXT + key


def _read(key: bytes) -> bytes | int | None:
    if not key:
        return None
    return int(key[1:]) if key[:1] == NUMBER else key[1:]
