"""Decoding of the sink's Arrow streams to messages.

A stream is not trusted. Its IPC messages are validated one by one:

- The schema may have the columns of :data:`COLUMNS` only, so that no column is nested or a dictionary.
- Record batches must not be compressed, so that their values take no more memory than the body (except for columns
  that share octets).
- All values of a batch are validated before the first one is read, because pyarrow does not check offsets in reads.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import groupby, repeat
from typing import TYPE_CHECKING, Any

from jumpmq.amqp.messages import messages_of_rows
from jumpmq.amqp.properties import Properties
from jumpmq.amqp.protocol import MAX_PROPERTIES
from jumpmq.broker.bulk.bulk_publishing import Addressed
from jumpmq.http.plumbing.arrow_metadata import LITTLE_ENDIAN, batch_header, endianness
from jumpmq.http.plumbing.errors import BadRequest

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

COLUMNS = {
    "routing_key": "binary",
    "body": "binary",
    "properties": "binary",
    "exchange": "string",
    "queue": "string",
}
"""Columns of a stream, with their types; only ``body`` is required.

``properties`` are property flags and property list, as encoded by AMQP. A row with a ``queue`` goes directly to that
queue; its exchange is ignored.
"""

MAX_ROWS = 100_000
"""Maximum number of rows in a stream. Spark's sink sends 20,000."""

MAX_BATCHES = 10_000
"""Maximum number of record batches in a stream."""

MAX_METADATA = 256 << 10
"""Maximum octets of an IPC message's metadata: pyarrow makes objects for all fields of a schema at once."""

MAX_OCTETS = 136 << 20
"""Maximum octets of all values in a stream: enough for the largest message with all other columns."""

MAX_KEY = 255
"""Maximum octets of a routing key, and of the name of an exchange or queue."""


def read_batches(octets: Buffer) -> list[pa.RecordBatch]:
    """Return the validated record batches of a stream.

    The time is proportional to the octets. Call in a thread: most of the work does not hold the interpreter's lock.

    Raises:
        BadRequest: the stream is malformed, has other columns, or exceeds a limit.
    """
    import pyarrow as pa

    try:
        return _validated(pa.ipc.MessageReader.open_stream(pa.py_buffer(octets)))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadRequest(f"the body is no Arrow stream: {error}") from None


def _validated(messages: pa.MessageReader) -> list[pa.RecordBatch]:
    import pyarrow as pa

    schema = _schema(next(messages, None))
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    for number, message in enumerate(messages):
        if number == MAX_BATCHES:
            raise BadRequest(f"the stream has more than {MAX_BATCHES} record batches")
        if message.type != "record batch":
            raise BadRequest(f"the stream has a message of type {message.type} behind its schema")
        header = batch_header(_metadata(message))
        if header.compressed:
            raise BadRequest("the stream's buffers are compressed: write them without compression")
        rows += header.rows
        if not 0 <= header.rows <= rows <= MAX_ROWS:
            raise BadRequest(f"the stream has more than {MAX_ROWS} rows")
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
        size += batch.nbytes
        if size > MAX_OCTETS:
            raise BadRequest(f"the stream's values have more than {MAX_OCTETS} octets")
        if len(batch):
            batches.append(batch)
    return batches


def _schema(message: pa.Message | None) -> pa.Schema:
    import pyarrow as pa

    if message is None or message.type != "schema":
        raise BadRequest("the body is no Arrow stream: it does not begin with a schema")
    if endianness(_metadata(message)) != LITTLE_ENDIAN:
        raise BadRequest("the stream is not little-endian")
    schema = pa.ipc.read_schema(message)
    for field in schema:
        if str(field.type) != COLUMNS.get(field.name):
            expected = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())
            raise BadRequest(f"column '{field.name}' of type {field.type} is none of: {expected}")
        if schema.names.count(field.name) > 1:
            raise BadRequest(f"the stream has several columns '{field.name}'")
    if "body" not in schema.names:
        raise BadRequest("the stream has no column 'body'")
    return schema


def _metadata(message: pa.Message) -> memoryview:
    found = memoryview(message.metadata)
    if len(found) > MAX_METADATA:
        raise BadRequest(f"the metadata of a message of the stream has more than {MAX_METADATA} octets")
    return found


def messages_of(
    batches: list[pa.RecordBatch], exchange: str, queue: str | None, *, persistent: bool
) -> Iterator[Addressed]:
    """Yield the messages of record batches from :func:`read_batches`, in runs of some hundred microseconds.

    Args:
        exchange, queue: targets of rows without an exchange or queue.
        persistent: True to give rows without a delivery mode the delivery mode 2.

    Raises:
        BadRequest: a row is not a valid message.
    """
    plain = Properties(delivery_mode=2).encode() if persistent else Properties().encode()
    now = time.time()
    for batch in batches:
        _require_messages(batch)
        keys, properties, bodies = (_cells(batch, name) for name in ("routing_key", "properties", "body"))
        assert bodies is not None
        for target, named, first, end in _targets(batch, exchange, queue):
            if target is None and _lacks_keys(batch, first, end):
                raise BadRequest("a row has no routing key")
            key = None if target is None else target.encode()
            while first < end:
                count, most = min(AT_ONCE, end - first), AT_ONCE_OCTETS
                run = messages_of_rows(named, keys, key, properties, plain, bodies, first, count, most, persistent, now)
                yield Addressed(target, run)
                first += len(run)


AT_ONCE = 1024
AT_ONCE_OCTETS = 1 << 20
"""Maximum rows converted in one step, and maximum octets of their bodies."""


def _require_messages(batch: pa.RecordBatch) -> None:
    """
    Raises: BadRequest: a row has no body, or a key, a name or the properties are too long.
    """
    import pyarrow.compute as pc

    if batch.column("body").null_count:
        raise BadRequest("a row has no body")
    for name in ("routing_key", "exchange", "queue"):
        if name in batch.schema.names:
            longest = pc.max(pc.binary_length(batch.column(name))).as_py()
            if (longest or 0) > MAX_KEY:
                raise BadRequest(f"a row's {name.replace('_', ' ')} has more than {MAX_KEY} octets")
    if "properties" in batch.schema.names:
        longest = pc.max(pc.binary_length(batch.column("properties"))).as_py()
        require_room(longest or 0)


def require_room(octets: int) -> None:
    """Refuse headers and properties that do not fit into a frame.

    Raises:
        BadRequest: the encoded property list has too many octets.
    """
    if octets > MAX_PROPERTIES:
        raise BadRequest(
            f"a message's headers and properties have {octets} octets; AMQP sends them in one frame, with room for "
            f"{MAX_PROPERTIES}: put long values into the body"
        )


def _lacks_keys(batch: pa.RecordBatch, first: int, end: int) -> bool:
    if "routing_key" not in batch.schema.names:
        return True
    keys = batch.column("routing_key")
    return bool(keys.null_count and keys.slice(first, end - first).null_count)


def _cells(batch: pa.RecordBatch, name: str) -> tuple[Any, Any, Any] | None:
    """Return the buffers of a column without an offset; None if the column is missing."""
    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    assert not column.offset
    validity, offsets, octets = (None if one is None else memoryview(one).cast("B") for one in column.buffers())
    return validity, offsets, octets or b""


def _targets(batch: pa.RecordBatch, exchange: str, queue: str | None) -> Iterator[tuple[str | None, str, int, int]]:
    """Yield runs of rows with equal target: queue (None if the exchange decides), exchange, first row, and end."""
    columns = [batch.column(name).to_pylist() for name in ("queue", "exchange") if name in batch.schema.names]
    if not columns:
        yield queue, exchange, 0, len(batch)
        return
    nothing = repeat(None, len(batch))
    queues = columns[0] if "queue" in batch.schema.names else nothing
    exchanges = columns[-1] if "exchange" in batch.schema.names else nothing
    end = 0
    for (own_queue, own_exchange), run in groupby(zip(queues, exchanges, strict=True)):
        first, end = end, end + sum(1 for _ in run)
        target = queue if own_queue is None and own_exchange is None else own_queue
        yield target, exchange if own_exchange is None else own_exchange, first, end
