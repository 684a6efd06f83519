"""Messages from an Arrow stream: what the sink sends."""

from __future__ import annotations

import time
from itertools import repeat
from typing import TYPE_CHECKING, Any

from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import Properties
from jumpmq.broker.bulk.bulk_publishing import Addressed
from jumpmq.http.plumbing.errors import BadRequest

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = {
    "routing_key": "binary",
    "body": "binary",
    "properties": "binary",
    "exchange": "string",
    "queue": "string",
}
"""The columns that a stream may have, each with its type; only ``body`` must be there.

``properties`` are octets as AMQP encodes them. A row with a ``queue`` goes straight there, whatever its exchange.
"""


def messages_of(octets: bytes, exchange: str, queue: str | None, *, persistent: bool) -> list[Addressed]:
    """The messages of a stream.

    Args:
        exchange, queue: for rows that name none.
        persistent: for rows without properties.

    Raises:
        BadRequest: the stream cannot be read, or its columns are others.
    """
    import pyarrow as pa

    try:
        with pa.ipc.open_stream(pa.py_buffer(octets)) as stream:
            table = stream.read_all()
    except (pa.ArrowException, OSError) as error:
        raise BadRequest(f"the body is no Arrow stream: {error}") from None
    _require_columns(table.schema)
    plain = Properties(delivery_mode=2).encode() if persistent else Properties().encode()
    now = time.time()
    bodies, keys = _values(table, "body"), _values(table, "routing_key")
    rows = zip(
        bodies, keys, _values(table, "properties"), _values(table, "exchange"), _values(table, "queue"), strict=False
    )
    found = []
    for body, key, properties, exchange_of_row, queue_of_row in rows:
        target = queue_of_row if queue_of_row is not None else None if exchange_of_row is not None else queue
        if body is None:
            raise BadRequest("a row has no body")
        if key is None:
            if target is None:
                raise BadRequest("a row has no routing key")
            key = target.encode()
        if len(key) > 255:
            raise BadRequest("a routing key has more than 255 octets")
        named = exchange if exchange_of_row is None else exchange_of_row
        found.append(Addressed(target, Message(named, key, properties or plain, body, False, now)))
    return found


def _values(table: pa.Table, name: str) -> Any:
    """The values of a column; without end None where there is no such column."""
    return table[name].to_pylist() if name in table.schema.names else repeat(None)


def _require_columns(schema: pa.Schema) -> None:
    if "body" not in schema.names:
        raise BadRequest("the stream has no column 'body'")
    for field in schema:
        if str(field.type) != COLUMNS.get(field.name):
            expected = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())
            raise BadRequest(f"column '{field.name}' of type {field.type} is none of: {expected}")
