"""Encoding of Arrow columns as AMQP properties, without an object per row.

Rows that the kernel cannot encode are left to :mod:`jumpmq.spark.publishable`, which names the wrong value.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jumpmq.amqp.messages import encode_properties
from jumpmq.amqp.properties import Properties

Buffers = tuple[Any, ...]

NAMES = [field.name for field in fields(Properties)]
HEADERS = pa.map_(pa.string(), pa.string())


def encoded(columns: pa.RecordBatch) -> pa.BinaryArray | None:
    """Encode the properties of rows.

    Args:
        columns: ``headers`` (a map of text to text), ``properties`` (a structure), and columns of single properties,
            which take precedence over fields of the structure.

    Returns:
        encoded properties per row, null for a row without properties; None if a column has an unsupported type or a
        value is too large for its property.
    """
    rows = len(columns)
    if not rows:
        return pa.array([], pa.binary())
    single = _single(columns)
    headers = columns.column("headers") if "headers" in columns.schema.names else None
    if headers is not None and (headers.type != HEADERS or headers.offset):
        return None
    try:
        buffers = [_buffers(single[name], name) if name in single else None for name in NAMES]
        found = encode_properties(rows, None if headers is None else _map_buffers(headers), buffers)
    except (TypeError, ValueError, OverflowError, pa.ArrowException):
        return None
    return pa.Array.from_buffers(pa.binary(), rows, [None if one is None else pa.py_buffer(one) for one in found])


def _single(columns: pa.RecordBatch) -> dict[str, pa.Array]:
    """Return the columns of properties by name, without columns of nulls only."""
    found: dict[str, pa.Array] = {}
    if "properties" in columns.schema.names:
        column = columns.column("properties")
        found = {field.name: pc.struct_field(column, field.name) for field in column.type}
    for name in columns.schema.names:
        if name in NAMES and name != "headers":
            column = columns.column(name)
            found[name] = pc.coalesce(column, found[name]) if name in found else column
    return {name: column for name, column in found.items() if column.null_count < len(column)}


def _buffers(column: pa.Array, name: str) -> Buffers:
    """Return the buffers of a property's column, as text or as integers of 64 bits.

    Raises:
        TypeError: the column has an unsupported type.
    """
    if name == "timestamp":
        if not pa.types.is_timestamp(column.type):
            raise TypeError(name)
        column = pc.divide(column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()), 1_000_000)
    elif name in ("delivery_mode", "priority"):
        if not pa.types.is_integer(column.type):
            raise TypeError(name)
        column = column.cast(pa.int64())
    elif column.type != pa.string():
        raise TypeError(name)
    return _at_start(column)


def _at_start(column: pa.Array) -> Buffers:
    """Return a column's buffers; a column with an offset is copied first."""
    if column.offset:
        column = pa.concat_arrays([column, column.slice(0, 0)])
    validity, *others = column.buffers()
    return _view(validity), *(_view(one) or b"" for one in others)


def _view(buffer: pa.Buffer | None) -> memoryview | None:
    return None if buffer is None else memoryview(buffer).cast("B")


def _map_buffers(headers: pa.MapArray) -> tuple[Any, Any, int, Buffers, Buffers]:
    validity, offsets = headers.buffers()[:2]
    names, values = headers.keys, headers.items
    nothing = (None, bytes(4), b"")
    if not len(names):
        return _view(validity), _view(offsets), 0, nothing, nothing
    return _view(validity), _view(offsets), len(names), _at_start(names), _at_start(values)
