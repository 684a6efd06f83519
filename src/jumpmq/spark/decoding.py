"""Decoding of AMQP properties, as published, into the columns ``headers`` and ``properties``."""

from __future__ import annotations

import pyarrow as pa

from jumpmq.amqp.messages import decode_properties
from jumpmq.amqp.properties import HEADERS, Properties

Buffers = tuple[bytes | None, ...]
Columns = list[Buffers | None]


def decoded(octets: pa.BinaryArray, schema: pa.Schema) -> dict[str, pa.Array]:
    """Return the columns ``headers`` and ``properties`` from AMQP properties; only columns of the schema."""
    wanted = [name for name in ("headers", "properties") if name in schema.names]
    if not wanted:
        return {}
    flags = HEADERS if "headers" in wanted else 0
    if "properties" in wanted:
        flags |= sum(1 << (15 - Properties.place(field.name)) for field in schema.field("properties").type)
    offsets, values = (memoryview(one or b"").cast("B") for one in octets.buffers()[1:])
    rows = len(octets)
    readable, columns = decode_properties(offsets, values, octets.offset, rows, flags)
    present = None if readable is None else pa.py_buffer(readable)
    build = {"headers": _headers, "properties": _properties}
    return {name: build[name](columns, rows, present, schema.field(name).type) for name in wanted}


def _properties(columns: Columns, rows: int, present: pa.Buffer | None, type_: pa.StructType) -> pa.StructArray:
    children = [_property(columns[Properties.place(field.name)], rows, field.type) for field in type_]
    return pa.Array.from_buffers(type_, rows, [present], children=children)


def _property(buffers: Buffers | None, rows: int, type_: pa.DataType) -> pa.Array:
    if buffers is None:  # the usual case: most messages lack most properties
        return pa.nulls(rows, type_)
    held = [None if one is None else pa.py_buffer(one) for one in buffers]
    if type_ == pa.string():
        return pa.Array.from_buffers(type_, rows, held)
    numbers = pa.Array.from_buffers(pa.int64(), rows, held)
    return numbers.cast(pa.timestamp("s", "UTC")).cast(type_) if pa.types.is_timestamp(type_) else numbers.cast(type_)


def _headers(columns: Columns, rows: int, present: pa.Buffer | None, type_: pa.MapType) -> pa.MapArray:
    buffers = columns[Properties.place("headers")]
    assert buffers is not None, "asked for"
    held = [None if one is None else pa.py_buffer(one) for one in buffers]
    entries = pa.Array.from_buffers(pa.int32(), rows + 1, [None, held[0]])[-1].as_py()
    keys = pa.Array.from_buffers(type_.key_type, entries, [None, *held[1:3]])
    items = pa.Array.from_buffers(type_.item_type, entries, held[3:])
    table = pa.StructArray.from_arrays([keys, items], fields=[type_.key_field, type_.item_field])
    return pa.Array.from_buffers(type_, rows, [present, held[0]], children=[table])
