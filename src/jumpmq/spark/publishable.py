"""From Spark's columns to what the broker publishes: keys, bodies, and AMQP properties as octets."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, DataType, MapType, StringType, StructType

from jumpmq.amqp.fields import Field
from jumpmq.amqp.properties import Properties
from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.schema import PROPERTIES

TEXTS = ("routing_key", "body", "exchange", "queue")
"""Columns of text or octets; text is UTF-8."""

IGNORED = ("seq", "published_at", "redelivered")
"""Columns of the source that mean nothing to the sink: what was read can be written as it is."""


def check_publishable(schema: StructType, has_exchange: bool, has_queue: bool) -> None:
    """Check the columns of a DataFrame that is to be published.

    Args:
        has_exchange, has_queue: whether an option names the exchange, or the queue.

    Raises:
        JumpMQError: one is missing, unknown, or of another type.
    """
    names = set(schema.names)
    if "body" not in names:
        raise JumpMQError(f"there is no column 'body'; there are {', '.join(schema.names)}")
    if not (has_exchange or has_queue or "exchange" in names or "queue" in names):
        raise JumpMQError("give option 'exchange' or 'queue', or a column of one of these names")
    if "routing_key" not in names and not (has_queue or "queue" in names):
        raise JumpMQError(f"there is no column 'routing_key'; there are {', '.join(schema.names)}")
    for field in schema:
        expected = _expected(field.name)
        if expected is None:
            raise JumpMQError(
                f"column '{field.name}' cannot be published; there are {', '.join(TEXTS)}, headers, properties, "
                f"{', '.join(PROPERTIES.names)}"
            )
        if field.dataType not in expected:
            words, found = (
                " or ".join(dict.fromkeys(one.simpleString() for one in expected)),
                field.dataType.simpleString(),
            )
            raise JumpMQError(f"column '{field.name}' must be of type {words}, not {found}: cast it")


def _expected(name: str) -> tuple[DataType, ...] | None:
    """The types that a column may have, none at all for one that is ignored; None where there is no such column."""
    if name in ("exchange", "queue"):
        return (StringType(),)
    if name in TEXTS:
        return StringType(), BinaryType()
    if name == "headers":
        return MapType(StringType(), StringType()), MapType(StringType(), StringType(), valueContainsNull=False)
    if name == "properties":
        return (PROPERTIES,)
    if name in PROPERTIES.names:
        return (PROPERTIES[name].dataType,)
    return _ANY if name in IGNORED else None


class _AnyType(tuple[DataType, ...]):
    def __contains__(self, type_: object) -> bool:
        return True


_ANY = _AnyType()


def publishable(batch: pa.RecordBatch, has_exchange: bool, has_queue: bool) -> pa.RecordBatch:
    """The columns that the broker wants, of Spark's.

    Args:
        has_exchange, has_queue: whether an option names the exchange, or the queue, of rows that name none.

    Raises:
        JumpMQError: a value cannot be published.
    """
    columns: dict[str, pa.Array] = {}
    for name in TEXTS:
        if name in batch.schema.names:
            kind = pa.string() if name in ("exchange", "queue") else pa.binary()
            columns[name] = batch.column(name).cast(kind)
    if columns["body"].null_count:
        raise JumpMQError("a row's 'body' is null: publish an empty one, or leave the row out")
    if not has_queue:
        _require_addresses(columns, has_exchange)
    keys = columns.get("routing_key")
    if keys is not None and (pc.max(pc.binary_length(keys)).as_py() or 0) > 255:
        raise JumpMQError("a row's 'routing_key' has more than 255 octets, which is the most that AMQP allows")
    properties = _properties(batch)
    if properties is not None:
        columns["properties"] = properties
    return pa.record_batch(columns)


def _require_addresses(columns: dict[str, pa.Array], has_exchange: bool) -> None:
    """Refuse unless each row names a queue, or has a routing key and an exchange."""

    def given(name: str) -> pa.Array:
        column = columns.get(name)
        return pa.repeat(False, len(columns["body"])) if column is None else column.is_valid()

    if not has_exchange and not pc.all(pc.or_(given("exchange"), given("queue"))).as_py():
        raise JumpMQError("a row's 'exchange' or 'queue' is null, and no option of that name stands for it: give one")
    if not pc.all(pc.or_(given("routing_key"), given("queue"))).as_py():
        raise JumpMQError("a row's 'routing_key' is null: publish an empty one, or leave the row out")


def _properties(batch: pa.RecordBatch) -> pa.BinaryArray | None:
    """AMQP's octets of the rows' headers and properties; None where there are no such columns."""
    names = [name for name in ("headers", "properties", *PROPERTIES.names) if name in batch.schema.names]
    if not names:
        return None
    rows = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
    return pa.array(list(_encoded(names, rows)), pa.binary())


def _encoded(names: list[str], rows: Iterator[tuple[Any, ...]]) -> Iterator[bytes | None]:
    for row in rows:
        values = dict(zip(names, row, strict=True))
        found: dict[str, Any] = dict(values.pop("properties", None) or {})
        headers = values.pop("headers", None)
        found |= {name: value for name, value in values.items() if value is not None}
        if isinstance(found.get("timestamp"), datetime):
            found["timestamp"] = int(found["timestamp"].timestamp())
        if headers:
            found["headers"] = [_header(name, value) for name, value in headers]
        try:
            yield Properties(**found).encode() if any(value is not None for value in found.values()) else None
        except (ValueError, OverflowError) as error:
            raise JumpMQError(f"a row's properties cannot be encoded: {error}") from None


def _header(name: str, value: str | None) -> Field:
    return Field(name, "V", None) if value is None else Field(name, "S", value)
