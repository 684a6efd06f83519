"""Messages as an Arrow IPC stream, for Spark's reads from the management port.

The columns are ``queue string, seq int64, exchange string, routing_key binary, properties binary, body binary,
published_at timestamp[us, UTC], redelivered bool``. ``properties`` are the published octets (property flags and
property list); the reader decodes them. A reader may request some of the columns only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from jumpmq.amqp.messages import Message
from jumpmq.queues.memory import PAGED
from jumpmq.queues.runs import body_octets, of_body
from jumpmq.store import columns as store_columns

if TYPE_CHECKING:
    import pyarrow as pa

    Rows = TypeVar("Rows", list[Message], pa.RecordBatch)

COLUMNS = ("queue", "seq", "exchange", "routing_key", "properties", "body", "published_at", "redelivered")
MEDIA_TYPE = "application/vnd.apache.arrow.stream"
BATCH_ROWS = 8192
BATCH_OCTETS = 4 << 20
"""Bounds of a record batch, in messages and octets: making a batch blocks the event loop for some milliseconds at
most.
"""


QueueMessages = tuple[str, list[Message]]
"""Messages of a queue, with the queue's name."""

ColumnPart: TypeAlias = "tuple[str, pa.RecordBatch]"
"""Messages of a stream, or reserved messages, as columns, with the name of the stream or queue."""


class PagedMeanwhile(Exception):
    """Bodies were paged out between two batches of an answer, which ends early: the reader requests the rest again."""


class ArrowEncoder:
    """Encodes messages as an IPC stream.

    A stream consists of :meth:`head`, any number of :meth:`batch` or :meth:`column_batch`, and :meth:`tail`.

    Args:
        columns: names in :data:`COLUMNS`, in the order of the answer; None for all columns.
    """

    def __init__(self, columns: Iterable[str] | None = None) -> None:
        import pyarrow as pa  # imported here to save the memory in a broker without Spark

        self._pa = pa
        known = {field.name: field for field in store_columns.schema()}
        known |= {"queue": pa.field("queue", pa.string()), "redelivered": pa.field("redelivered", pa.bool_())}
        self._schema = pa.schema([known[name] for name in columns or COLUMNS])
        self._repeated: tuple[str, pa.Array] | None = None  # a queue and its name, many times

    def head(self) -> bytes:
        """Return the stream's schema message."""
        schema: bytes = self._schema.serialize().to_pybytes()
        return schema

    def batch(self, parts: list[QueueMessages]) -> memoryview:
        """Encode a record batch message.

        Raises:
            PagedMeanwhile: a body was paged out since the request chose the messages.
        """
        messages = parts[0][1] if len(parts) == 1 else [*chain.from_iterable(part for _, part in parts)]
        if of_body(messages, PAGED):
            raise PagedMeanwhile
        return self._encoded([self._column(parts, messages, name) for name in self._schema.names])

    def column_batch(self, parts: list[ColumnPart]) -> memoryview:
        """Encode messages in columns as a record batch message: copies whole columns, without work per message."""
        return self._encoded([self._cut_column(parts, name) for name in self._schema.names])

    def _encoded(self, arrays: list[pa.Array]) -> memoryview:
        return memoryview(self._pa.record_batch(arrays, schema=self._schema).serialize())

    def _column(self, parts: list[QueueMessages], messages: list[Message], name: str) -> pa.Array:
        if name == "queue":
            return self._names(parts)
        if name == "redelivered":
            return self._pa.array([message.redelivered for message in messages], self._pa.bool_())
        return store_columns.column(messages, name)

    def _cut_column(self, parts: list[ColumnPart], name: str) -> pa.Array:
        if name == "queue":
            return self._names(parts)
        if name == "redelivered" and name not in parts[0][1].schema.names:  # a stream: False for all messages
            return self._pa.repeat(False, sum(len(part) for _, part in parts))
        arrays = [part.column(name) for _, part in parts]
        return arrays[0] if len(arrays) == 1 else self._pa.concat_arrays(arrays)

    def _names(self, parts: Sequence[QueueMessages | ColumnPart]) -> pa.Array:
        """Return the queue's name for each message."""
        runs = [(queue, sum(len(part) for _, part in run)) for queue, run in groupby(parts, key=itemgetter(0))]
        arrays = [self._repeat(queue, count) for queue, count in runs]
        return arrays[0] if len(arrays) == 1 else self._pa.concat_arrays(arrays)

    def _repeat(self, queue: str, count: int) -> pa.Array:
        if self._repeated is None or self._repeated[0] != queue or len(self._repeated[1]) < count:
            self._repeated = queue, self._pa.repeat(queue, max(count, BATCH_ROWS))
        return self._repeated[1].slice(0, count)

    @staticmethod
    def tail() -> bytes:
        """Return the end-of-stream marker; a stream without it was cut off."""
        return b"\xff\xff\xff\xff\x00\x00\x00\x00"


def bounded(parts: Iterable[tuple[str, Rows]]) -> Iterator[list[tuple[str, Rows]]]:
    """Cut and join messages into record batches of bounded size, as few as possible."""
    gathered: list[tuple[str, Rows]] = []
    rows = octets = 0
    for queue, messages in parts:
        for piece, size in _cut(messages):
            if gathered and (rows + len(piece) > BATCH_ROWS or octets + size > BATCH_OCTETS):
                yield gathered
                gathered, rows, octets = [], 0, 0
            gathered.append((queue, piece))
            rows += len(piece)
            octets += size
    if gathered:
        yield gathered


def _cut(messages: Rows) -> Iterator[tuple[Rows, int]]:
    """Yield pieces within the bounds, with the octets of each piece."""
    if len(messages) <= BATCH_ROWS:
        yield from _halved(messages)
        return
    for start in range(0, len(messages), BATCH_ROWS):
        yield from _halved(messages[start : start + BATCH_ROWS])


def _octets(messages: list[Message] | pa.RecordBatch) -> int:
    return body_octets(messages) if isinstance(messages, list) else int(messages.nbytes)


def _halved(messages: Rows) -> Iterator[tuple[Rows, int]]:
    octets = _octets(messages)
    if len(messages) <= 1 or octets <= BATCH_OCTETS:
        yield messages, octets
        return
    middle = len(messages) // 2
    yield from _halved(messages[:middle])
    yield from _halved(messages[middle:])


def load_pyarrow() -> None:
    """Import pyarrow, and convert a list once, which imports more modules. Too slow for the event loop."""
    import pyarrow as pa

    pa.array([False], pa.bool_())
