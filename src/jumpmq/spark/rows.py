"""From the broker's record batches to Spark's: the queue's name is added, AMQP properties are decoded.

Properties arrive as the octets that were published. Most messages of an application carry the same ones, so each
distinct value of a batch is decoded once, and rows point at it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from jumpmq.amqp.errors import MethodSyntaxError
from jumpmq.amqp.fields import to_python
from jumpmq.amqp.properties import Properties
from jumpmq.spark.schema import PROPERTIES

LAST_SECOND = 253402300799
"""The end of the year 9999, the last timestamp that Spark can show."""


def converter(schema: StructType, queue: str) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A function that makes Spark's record batches of the broker's.

    Args:
        schema: the columns that Spark wants.
        queue: the name for the column ``queue``.
    """
    arrow_schema = to_arrow_schema(schema, timezone="UTC")

    def convert(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = {name: batch.column(name) for name in batch.schema.names}
        if "queue" in schema.names:
            columns["queue"] = pa.repeat(queue, len(batch))
        if "properties" in columns:
            columns |= decoded(columns["properties"], arrow_schema)
        return pa.record_batch(
            [columns[name].cast(arrow_schema.field(name).type) for name in schema.names], arrow_schema
        )

    return convert


def decoded(octets: pa.BinaryArray, schema: pa.Schema) -> dict[str, pa.Array]:
    """The columns ``headers`` and ``properties`` from AMQP properties, those of them that the schema has."""
    encoded = octets.dictionary_encode()
    parsed = [_parse(value) for value in encoded.dictionary.to_pylist()]
    columns: dict[str, list[Any]] = {
        "headers": [_headers(properties) for properties in parsed],
        "properties": [_struct(properties) for properties in parsed],
    }
    return {
        name: pc.take(pa.array(values, schema.field(name).type), encoded.indices)
        for name, values in columns.items()
        if name in schema.names
    }


def _parse(octets: bytes) -> Properties | None:
    try:
        return Properties.parse(octets)
    except MethodSyntaxError:
        return None


def _struct(properties: Properties | None) -> dict[str, Any] | None:
    if properties is None:
        return None
    values = {name: getattr(properties, name) for name in PROPERTIES.names}
    values = {name: _clean(value) if isinstance(value, str) else value for name, value in values.items()}
    seconds = properties.timestamp
    values["timestamp"] = None if seconds is None or seconds > LAST_SECOND else seconds * 1_000_000
    return values


def _headers(properties: Properties | None) -> list[tuple[str, str | None]] | None:
    if properties is None:
        return None
    return [(name, _text(value)) for name, value in to_python(properties.headers or []).items()]


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
