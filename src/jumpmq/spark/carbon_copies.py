"""The columns ``cc`` and ``bcc``: further routing keys of a message, in the headers that AMQP brokers route by."""

from __future__ import annotations

from itertools import repeat
from typing import Any

import pyarrow as pa

from jumpmq.amqp.errors import AMQPError
from jumpmq.amqp.fields import Field
from jumpmq.amqp.properties import Properties
from jumpmq.spark.errors import JumpMQError
from jumpmq.spark.lengths import require_short

COPIES = ("cc", "bcc")
"""Columns of type ``array<string>``. The broker keeps the header ``CC`` and removes ``BCC`` on routing."""


def with_copies(properties: pa.BinaryArray | None, batch: pa.RecordBatch) -> pa.BinaryArray | None:
    """Add the headers ``CC`` and ``BCC`` to encoded properties, for rows with such keys.

    Args:
        properties: encoded properties per row, null for a row without properties; None if no row has properties.

    Raises:
        JumpMQError: a key is null or longer than AMQP allows, or a row has such a header already.
    """
    columns = [name for name in COPIES if name in batch.schema.names and batch.column(name).null_count < len(batch)]
    if not columns:
        return properties
    for name in columns:
        _require_keys(batch.column(name), name)
    octets = repeat(None, len(batch)) if properties is None else properties.to_pylist()
    keys = zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
    found = [_with(one, dict(zip(columns, lists, strict=True))) for one, lists in zip(octets, keys, strict=True)]
    return pa.array(found, pa.binary())


def _require_keys(column: pa.ListArray, name: str) -> None:
    keys = column.flatten()
    if keys.null_count:
        raise JumpMQError(f"a row's '{name}' has a key that is null: leave the key out")
    require_short(keys, f"a key of a row's '{name}'")


def _with(octets: bytes | None, keys: dict[str, list[Any] | None]) -> bytes | None:
    wanted = {name.upper(): found for name, found in keys.items() if found}
    if not wanted:
        return octets
    try:
        made = Properties() if octets is None else Properties.parse(octets)
    except AMQPError as error:
        raise JumpMQError(f"a row's properties are malformed: {error}") from None
    headers = made.headers or []
    if twice := next((field.name for field in headers if field.name in wanted), None):
        raise JumpMQError(f"a row has the header '{twice}' already: leave it out, or the column '{twice.lower()}'")
    made.headers = [*headers, *(Field(name, "A", [("S", key) for key in found]) for name, found in wanted.items())]
    return made.encode()
