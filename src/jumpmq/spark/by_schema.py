"""Columns of octets that are decoded by a schema, in Python: no jar is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.functions import col
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType

from jumpmq.spark.errors import JumpMQError

Decoder = Callable[[bytes], Any]
"""What octets stand for, as values that Arrow takes; it raises anything where they are not what the schema says."""


def decoded(data: Column | str, type_: DataType, make: Callable[[], Decoder]) -> Column:
    """A column of what another one's octets stand for; null where they are not what the schema says.

    Args:
        make: makes the decoder, in each task.
    """
    arrow_type = to_arrow_type(type_, timezone="UTC")

    def decode(column: pa.Array) -> pa.Array:
        one = make()
        return values_of(column, one, arrow_type)

    decode.__annotations__ = {"column": pa.Array, "return": pa.Array}
    function: Callable[..., Column] = arrow_udf(decode, type_)  # type: ignore[call-overload]
    return function(col(data) if isinstance(data, str) else data)


def values_of(column: pa.Array, decode: Decoder, arrow_type: pa.DataType) -> pa.Array:
    """The values of a column of octets; null where there are none, or not such."""
    values = [_value(octets, decode) for octets in column.to_pylist()]
    try:
        return pa.array(values, arrow_type)
    except (pa.ArrowException, ValueError, OverflowError):  # one of them is too large for its type
        return pa.concat_arrays([_array(value, arrow_type) for value in values])


def refuse_itself(name: str, around: tuple[str, ...]) -> None:
    """Refuse a type that is within itself: Spark knows no such.

    Raises:
        JumpMQError: it is.
    """
    if name in around:
        raise JumpMQError(f"type '{name}' contains itself, and Spark has no such type")


def _value(octets: bytes | None, decode: Decoder) -> Any:
    try:
        return None if octets is None else decode(octets)
    except Exception:  # what a decoder raises is its own affair: the row is bad
        return None


def _array(value: Any, arrow_type: pa.DataType) -> pa.Array:
    try:
        return pa.array([value], arrow_type)
    except (pa.ArrowException, ValueError, OverflowError):
        return pa.nulls(1, arrow_type)
