"""Messages as Arrow columns: how a batch lies in the file, and how Spark reads it.

A batch is one record batch in the Arrow IPC format, without the schema, which the file's version implies.
pyarrow is imported when the first batch is written or read: an idle broker need not pay its 0.2 s and 40 MB.
"""

from __future__ import annotations

from collections.abc import Container
from functools import cache
from typing import TYPE_CHECKING, Any

from jumpmq.amqp.messages import Message, binary_column, seq_column

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

    columns = [
        pa.Array.from_buffers(pa.int64(), len(messages), [None, pa.py_buffer(seq_column(messages))]),
        _column([message.exchange for message in messages], pa.string()),
        _binaries(messages, "routing_key"),
        _binaries(messages, "properties"),
        _binaries(messages, "body"),
        _timestamps([message.published_at for message in messages]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema())


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


def _binaries(messages: list[Message], name: str) -> pa.Array:
    import pyarrow as pa

    offsets, octets = binary_column(messages, name)
    return pa.Array.from_buffers(pa.binary(), len(messages), [None, pa.py_buffer(offsets), pa.py_buffer(octets)])


def _column(values: list[Any], type: pa.DataType) -> pa.Array:
    """A column that very often holds one value all along, which is then told to Arrow once."""
    import pyarrow as pa

    if values.count(values[0]) == len(values):
        return pa.repeat(pa.scalar(values[0], type), len(values))
    return pa.array(values, type)


def _timestamps(seconds: list[float]) -> pa.Array:
    import pyarrow as pa

    if seconds.count(seconds[0]) == len(seconds):
        return pa.repeat(pa.scalar(_microseconds(seconds[0]), pa.int64()), len(seconds)).view(pa.timestamp("us", "UTC"))
    return pa.array([_microseconds(time) for time in seconds], pa.int64()).view(pa.timestamp("us", "UTC"))


def _microseconds(seconds: float) -> int:
    return int(seconds * 1e6 + 0.5)
