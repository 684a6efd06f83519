"""Decoding of binary columns by a schema, in Python: no jar is needed."""

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
"""Decodes octets to a value for Arrow; raises any exception if they do not follow the schema."""


def decoded(data: Column | str, type_: DataType, make: Callable[[], Decoder]) -> Column:
    """Return a column of decoded values; null where the octets do not follow the schema.

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
    """Return the decoded values of a binary column; null where a value is null or cannot be decoded."""
    values = [_value(octets, decode) for octets in column.to_pylist()]
    try:
        return pa.array(values, arrow_type)
    except (pa.ArrowException, ValueError, OverflowError):  # a value is too large for the type
        return pa.concat_arrays([_array(value, arrow_type) for value in values])


def refuse_itself(name: str, around: tuple[str, ...]) -> None:
    """Refuse a recursive type: Spark has none.

    Raises:
        JumpMQError: the type contains itself.
    """
    if name in around:
        raise JumpMQError(f"type '{name}' contains itself, and Spark has no such type")


def _value(octets: bytes | None, decode: Decoder) -> Any:
    try:
        return None if octets is None else decode(octets)
    except Exception:  # decoders raise errors of any type for a malformed row
        return None


def _array(value: Any, arrow_type: pa.DataType) -> pa.Array:
    try:
        return pa.array([value], arrow_type)
    except (pa.ArrowException, ValueError, OverflowError):
        return pa.nulls(1, arrow_type)
