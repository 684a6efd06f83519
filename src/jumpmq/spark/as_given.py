"""Columns of headers and properties: allowed types, and their conversion to the types of AMQP.

Types with an obvious meaning are allowed. An integer column of any width is allowed for the priority, the delivery
mode, the expiration in milliseconds, and for ids, which are text in AMQP. Header values keep their types: a hash
exchange hashes an integer differently from text.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    IntegralType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.schema import PROPERTIES

OCTETS = ("delivery_mode", "priority")
"""Properties with integers of a single octet."""


class NumberBounds(NamedTuple):
    """Allowed range of a numeric property.

    Attributes:
        lowest, highest: the range, both ends included.
        text: description of the range in an error.
        unit: text after a number in an error.
    """

    lowest: int
    highest: int
    text: str
    unit: str = ""


AN_OCTET = NumberBounds(0, 255, "from 0 to 255")
A_MODE = NumberBounds(1, 2, "1 (transient) or 2 (persistent)")
MILLISECONDS = NumberBounds(0, (1 << 63) - 1, "not below 0", " milliseconds")

NUMBERS_AS_TEXT = ("expiration", "message_id", "correlation_id")
"""Text properties that also accept columns of integers."""

_KINDS: dict[DataType, str] = {
    StringType(): "S",
    BinaryType(): "S",
    BooleanType(): "t",
    ByteType(): "b",
    ShortType(): "s",
    IntegerType(): "I",
    LongType(): "l",
    FloatType(): "f",
    DoubleType(): "d",
    TimestampType(): "T",
}
"""Types of header values, with AMQP's field types; text and octets both become long strings."""

_ARROW_KINDS = {
    pa.string(): "S",
    pa.binary(): "S",
    pa.bool_(): "t",
    pa.int8(): "b",
    pa.int16(): "s",
    pa.int32(): "I",
    pa.int64(): "l",
    pa.float32(): "f",
    pa.float64(): "d",
}

EPOCH = datetime.fromtimestamp(0, UTC)


def expected_of(name: str, type_: DataType) -> str | None:
    """Describe the types allowed for a column of headers or of a property; None if ``type_`` is allowed."""
    if name == "headers":
        fits = _are_headers(type_)
        return None if fits else "map<string,V> or array<struct<key:string,value:V>>, V text, octets, a number or truth"
    if name == "properties":
        return _expected_of_struct(type_)
    if name in OCTETS:
        return None if isinstance(type_, IntegralType) else "int"
    if name in NUMBERS_AS_TEXT:
        return None if isinstance(type_, StringType | IntegralType) else "string or bigint"
    expected = PROPERTIES[name].dataType
    return None if type_ == expected else expected.simpleString()


def _expected_of_struct(type_: DataType) -> str | None:
    if not isinstance(type_, StructType):
        return "struct of some of " + ", ".join(PROPERTIES.names)
    for field in type_:
        if field.name not in PROPERTIES.names:
            return f"struct of some of {', '.join(PROPERTIES.names)} (there is no '{field.name}')"
        if (expected := expected_of(field.name, field.dataType)) is not None:
            return f"struct with '{field.name}' of type {expected}"
    return None


def _are_headers(type_: DataType) -> bool:
    if isinstance(type_, MapType):
        return type_.keyType == StringType() and type_.valueType in _KINDS
    if not isinstance(type_, ArrayType) or not isinstance(type_.elementType, StructType):
        return False
    fields = type_.elementType
    return fields.names == ["key", "value"] and fields[0].dataType == StringType() and fields[1].dataType in _KINDS


def kind_of_headers(type_: pa.DataType) -> str:
    """Return the AMQP field type of a column of headers, from the type of the values."""
    value = type_.item_type if pa.types.is_map(type_) else type_.value_type.field("value").type
    return "T" if pa.types.is_timestamp(value) else _ARROW_KINDS[value]


def as_read(schema: pa.Schema) -> pa.Schema:
    """Return the schema of the columns with the source's types: without ``headers`` unless a map of text to text."""
    place = schema.get_field_index("headers")
    if place < 0 or (pa.types.is_map(schema.field(place).type) and schema.field(place).type.item_type == pa.string()):
        return schema
    return schema.remove(place)


def as_encoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with properties in the types of :data:`PROPERTIES`.

    A delivery mode is 1 or 2. Rows with the column ``amqp_properties``, as read from a queue, may have any octet: the
    original publisher chose it, and brokers treat a message with any other number as transient.

    Raises:
        JumpMQError: a value is out of range.
    """
    columns = {name: batch.column(name) for name in batch.schema.names}
    modes = AN_OCTET if "amqp_properties" in columns else A_MODE
    for name, column in columns.items():
        if name in PROPERTIES.names:
            columns[name] = _plain(name, column, modes)
        elif name == "properties":
            fields = [column.type.field(place) for place in range(column.type.num_fields)]
            children = [_plain(field.name, pc.struct_field(column, field.name), modes) for field in fields]
            names = [pa.field(field.name, child.type) for field, child in zip(fields, children, strict=True)]
            columns[name] = pa.StructArray.from_arrays(children, fields=names, mask=column.is_null())
    return pa.record_batch(columns)


def _plain(name: str, column: pa.Array, modes: NumberBounds) -> pa.Array:
    """Return a column of a property with the property's type.

    Args:
        modes: bounds of delivery modes.

    Raises:
        JumpMQError: a value is out of range.
    """
    if name in OCTETS:
        _require_within(name, column, modes if name == "delivery_mode" else AN_OCTET)
        return column.cast(pa.int32())
    if name in NUMBERS_AS_TEXT and pa.types.is_integer(column.type):
        if name == "expiration":
            _require_within(name, column, MILLISECONDS)
        return column.cast(pa.string())
    if name == "timestamp":
        earliest = pc.min(column).as_py()
        if earliest is not None and earliest.replace(tzinfo=UTC) < EPOCH:
            raise JumpMQError(f"a row's 'timestamp' is {earliest}, and AMQP has none before 1970")
    return column


def _require_within(name: str, column: pa.Array, bounds: NumberBounds) -> None:
    found = pc.min_max(column).as_py()
    for value in found.values():
        if value is not None and not bounds.lowest <= value <= bounds.highest:
            raise JumpMQError(f"a row's '{name}' is {value}{bounds.unit}, and must be {bounds.text}")
