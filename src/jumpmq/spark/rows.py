"""Conversion of the broker's record batches to Spark's."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
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

from jumpmq.spark.schema import OWNER_EPOCH


def converter(schema: StructType) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Return a function that converts the broker's record batches to Spark's.

    Args:
        schema: the columns of the result.
    """
    arrow_schema = pa.schema([(field.name, arrow_type(field.dataType)) for field in schema])

    def convert(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = {name: batch.column(name) for name in batch.schema.names}
        if "properties" in columns:
            from jumpmq.spark.decoding import decoded  # not needed in the processes that plan queries

            octets = columns.pop("properties")
            columns |= {"amqp_properties": octets} | decoded(octets, arrow_schema)
        if OWNER_EPOCH in schema.names and OWNER_EPOCH not in columns:
            columns[OWNER_EPOCH] = pa.nulls(len(batch), pa.int64())
        return pa.record_batch(
            [_as(columns[name], arrow_schema.field(name).type) for name in schema.names], arrow_schema
        )

    return convert


def _as(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast a column of another type; a needless ``cast`` would import ``pyarrow.compute``, which takes 60 ms."""
    return column if column.type == type_ else column.cast(type_)


_ARROW_TYPES: dict[DataType, pa.DataType] = {
    StringType(): pa.string(),
    LongType(): pa.int64(),
    IntegerType(): pa.int32(),
    BinaryType(): pa.binary(),
    BooleanType(): pa.bool_(),
    TimestampType(): pa.timestamp("us", "UTC"),
}


def arrow_type(type_: DataType) -> pa.DataType:
    """Return the Arrow type of a Spark type; PySpark's own function is not public."""
    if isinstance(type_, StructType):
        return pa.struct([(field.name, arrow_type(field.dataType)) for field in type_])
    if isinstance(type_, MapType):
        return pa.map_(arrow_type(type_.keyType), arrow_type(type_.valueType))
    return _ARROW_TYPES[type_]
