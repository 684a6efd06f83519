"""Messages as Arrow columns: how a batch lies in the file, and how Spark reads it.

A batch is one record batch in the Arrow IPC format, without the schema, which the file's version implies.
pyarrow is imported when the first batch is written or read: an idle broker need not pay its 0.2 s and 40 MB.
"""

from __future__ import annotations

from collections.abc import Container
from functools import cache
from typing import TYPE_CHECKING

from jumpmq.amqp.messages import Message
from jumpmq.store.layout import binary_column, seq_column, time_column

if TYPE_CHECKING:
    import pyarrow as pa


@cache
def schema() -> pa.Schema:
    """The columns of a batch."""
    import pyarrow as pa

    return pa.schema(
        [
            ("seq", pa.int64()),
            ("exchange", pa.string()),
            ("routing_key", pa.binary()),
            ("properties", pa.binary()),
            ("body", pa.binary()),
            ("published_at", pa.timestamp("us", "UTC")),
        ]
    )


def from_messages(messages: list[Message]) -> pa.RecordBatch:
    """Messages as columns: ``seq, exchange, routing_key, properties, body, published_at``."""
    import pyarrow as pa

    columns = [column(messages, name) for name in schema().names]
    return pa.RecordBatch.from_arrays(columns, schema=schema())


def column(messages: list[Message], name: str) -> pa.Array:
    """One column of messages, by its name in the :func:`schema`."""
    import pyarrow as pa

    if name in _INTEGERS:
        buffers = [None, pa.py_buffer(_INTEGERS[name](messages))]
    else:
        buffers = [None, *map(pa.py_buffer, binary_column(messages, name))]
    return pa.Array.from_buffers(schema().field(name).type, len(messages), buffers)


_INTEGERS = {"seq": seq_column, "published_at": time_column}


def to_messages(columns: pa.RecordBatch, without: Container[int] = ()) -> list[Message]:
    """The messages of a batch, persistent and with their seq, but for those whose seq is in ``without``."""
    import pyarrow as pa

    seqs, exchanges, routing_keys, properties, bodies = (column.to_pylist() for column in columns.columns[:5])
    times = columns.column(5).view(pa.int64()).to_pylist()
    names: dict[str, str] = {}
    messages = []
    for row, seq in enumerate(seqs):
        if seq in without:
            continue
        exchange = names.setdefault(exchanges[row], exchanges[row])  # one string, not one a message
        message = Message(exchange, routing_keys[row], properties[row], bodies[row], True, times[row] / 1e6)
        message.seq = seq
        messages.append(message)
    return messages


def encode(columns: pa.RecordBatch) -> pa.Buffer:
    """The octets of a record batch."""
    return columns.serialize()


def decode(octets: bytes) -> pa.RecordBatch:
    """The record batch in ``octets``, which it keeps and does not copy.

    Raises:
        pyarrow.ArrowInvalid: they are none.
    """
    import pyarrow as pa

    return pa.ipc.read_record_batch(pa.py_buffer(octets), schema())
