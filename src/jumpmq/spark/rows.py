"""From the broker's record batches to Spark's: AMQP properties are decoded.

Properties arrive as the octets that were published. Most messages of an application carry the same ones, so each
distinct value of a batch is decoded once, and rows point at it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import datetime
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from jumpmq.amqp.errors import MethodSyntaxError
from jumpmq.amqp.fields import to_python
from jumpmq.amqp.properties import Properties

LAST_SECOND = 253402300799
"""The end of the year 9999, the last timestamp that Spark can show."""


def converter(schema: StructType) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A function that makes Spark's record batches of the broker's.

    Args:
        schema: the columns that Spark wants.
    """
    arrow_schema = pa.schema([(field.name, arrow_type(field.dataType)) for field in schema])

    def convert(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = {name: batch.column(name) for name in batch.schema.names}
        if "properties" in columns:
            columns |= decoded(columns["properties"], arrow_schema)
        return pa.record_batch(
            [columns[name].cast(arrow_schema.field(name).type) for name in schema.names], arrow_schema
        )

    return convert


_ARROW_TYPES: dict[DataType, pa.DataType] = {
    StringType(): pa.string(),
    LongType(): pa.int64(),
    IntegerType(): pa.int32(),
    BinaryType(): pa.binary(),
    BooleanType(): pa.bool_(),
    TimestampType(): pa.timestamp("us", "UTC"),
}


def arrow_type(type_: DataType) -> pa.DataType:
    """The Arrow type in which Spark wants a column; PySpark's own function for this is not part of its API."""
    if isinstance(type_, StructType):
        return pa.struct([(field.name, arrow_type(field.dataType)) for field in type_])
    if isinstance(type_, MapType):
        return pa.map_(arrow_type(type_.keyType), arrow_type(type_.valueType))
    return _ARROW_TYPES[type_]


def decoded(octets: pa.BinaryArray, schema: pa.Schema) -> dict[str, pa.Array]:
    """The columns ``headers`` and ``properties`` from AMQP properties, those of them that the schema has."""
    encoded = octets.dictionary_encode()
    parsed = [_parse(value) for value in encoded.dictionary.to_pylist()]
    build = {"headers": _headers, "properties": _properties}
    return {
        name: pc.take(build[name](parsed, schema.field(name).type), encoded.indices)
        for name in build
        if name in schema.names
    }


def _parse(octets: bytes) -> Properties | None:
    try:
        return Properties.parse(octets)
    except MethodSyntaxError:
        return None


def _properties(parsed: list[Properties | None], type_: pa.StructType) -> pa.StructArray:
    """A struct for each: built column by column, because most properties are absent from most messages."""
    known = [properties or Properties() for properties in parsed]
    columns = []
    for field in type_:
        values = [getattr(properties, field.name) for properties in known]
        if values.count(None) == len(values):
            columns.append(pa.nulls(len(values), field.type))
        elif field.name == "timestamp":
            columns.append(pa.array([_microseconds(value) for value in values], pa.int64()).cast(field.type))
        elif pa.types.is_integer(field.type):
            columns.append(pa.array(values, field.type))
        else:
            columns.append(pa.array([value and _clean(value) for value in values], field.type))
    return pa.StructArray.from_arrays(columns, fields=list(type_), mask=_absent(parsed))


def _headers(parsed: list[Properties | None], type_: pa.MapType) -> pa.MapArray:
    """A map for each; of a name that is there twice, the later value."""
    tables = [to_python(properties.headers) if properties and properties.headers else {} for properties in parsed]
    offsets = pa.array(accumulate(map(len, tables), initial=0), pa.int32())
    keys = pa.array([name for table in tables for name in table], type_.key_type)
    items = pa.array([_text(value) for table in tables for value in table.values()], type_.item_type)
    return pa.MapArray.from_arrays(offsets, keys, items, type=type_, mask=_absent(parsed))


def _absent(parsed: list[Properties | None]) -> pa.BooleanArray:
    return pa.array([properties is None for properties in parsed], pa.bool_())


def _microseconds(seconds: int | None) -> int | None:
    return None if seconds is None or seconds > LAST_SECOND else seconds * 1_000_000


def _text(value: Any) -> str | None:
    """A header's value as text."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, dict | list | bool):
        return json.dumps(value, default=_scalar, ensure_ascii=False)
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode("ascii")
    return str(value)


def _clean(text: str) -> str:
    """Text that Arrow can hold: octets that are not UTF-8 are replaced."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
