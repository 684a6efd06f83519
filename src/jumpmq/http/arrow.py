"""Messages as an Arrow IPC stream: what Spark reads from the management port.

The columns are ``seq int64, exchange string, routing_key binary, properties binary, body binary, published_at
timestamp[us, UTC], redelivered bool``; ``properties`` are the octets that were published (property flags and property
list), decoded by whoever needs them. A reader may ask for some of the columns only.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from jumpmq.amqp.messages import Message

if TYPE_CHECKING:
    import pyarrow as pa

MEDIA_TYPE = "application/vnd.apache.arrow.stream"
BATCH_ROWS = 8192
BATCH_OCTETS = 4 << 20
"""Bounds of a record batch: building one holds up the event loop, by some milliseconds at most."""


class ArrowEncoder:
    """Turns lists of messages into the octets of one IPC stream.

    These are :meth:`head`, then :meth:`batch` any number of times, then :meth:`tail`.

    Args:
        columns: which of :data:`COLUMNS`, in the order in which they shall come; None for all of them.
    """

    def __init__(self, columns: Iterable[str] | None = None) -> None:
        import pyarrow as pa  # here, so that a broker nobody reads from with Spark does not spend the memory

        self._pa = pa
        self._builders = [_BUILDERS[column] for column in columns or COLUMNS]
        types = {
            "seq": pa.int64(),
            "exchange": pa.string(),
            "redelivered": pa.bool_(),
            "published_at": pa.timestamp("us", "UTC"),
        }
        self._schema = pa.schema([(column, types.get(column, pa.binary())) for column in columns or COLUMNS])

    def head(self) -> bytes:
        """The stream's schema message."""
        schema: bytes = self._schema.serialize().to_pybytes()
        return schema

    def batch(self, messages: list[Message]) -> bytes:
        """One record batch message."""
        arrays = [build(self._pa, messages) for build in self._builders]
        octets: bytes = self._pa.record_batch(arrays, schema=self._schema).serialize().to_pybytes()
        return octets

    @staticmethod
    def tail() -> bytes:
        """The end-of-stream marker; a stream without it was cut off."""
        return b"\xff\xff\xff\xff\x00\x00\x00\x00"


def bounded(messages: list[Message]) -> Iterator[list[Message]]:
    """Cut a list of messages into lists that make record batches of bounded size."""
    for start in range(0, len(messages), BATCH_ROWS):
        yield from _halved(messages[start : start + BATCH_ROWS])


def _halved(messages: list[Message]) -> Iterator[list[Message]]:
    if len(messages) == 1 or sum([len(message.body) for message in messages]) <= BATCH_OCTETS:
        yield messages
        return
    middle = len(messages) // 2
    yield from _halved(messages[:middle])
    yield from _halved(messages[middle:])


def load_pyarrow() -> None:
    """Import pyarrow, and what its first conversion of a list imports in turn: too long for the event loop."""
    import pyarrow as pa
    import pyarrow.compute

    pa.array([b""], pa.binary())


def _seq(pa: Any, messages: list[Message]) -> pa.Array:
    return _numbers(pa, "q", pa.int64(), [message.seq for message in messages])


def _exchange(pa: Any, messages: list[Message]) -> pa.Array:
    names = [message.exchange for message in messages]
    return _column(pa, names if all(map(str.isascii, names)) else list(map(_text, names)), pa.string())


def _text(name: str) -> str:
    """A name as Arrow can hold it: octets that are not UTF-8 are replaced."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _routing_key(pa: Any, messages: list[Message]) -> pa.Array:
    return pa.array([message.routing_key for message in messages], pa.binary())


def _properties(pa: Any, messages: list[Message]) -> pa.Array:
    return _column(pa, [message.properties for message in messages], pa.binary())


def _body(pa: Any, messages: list[Message]) -> pa.Array:
    return pa.array([message.body for message in messages], pa.binary())


def _published_at(pa: Any, messages: list[Message]) -> pa.Array:
    """Rounded as the store does it, so that a message has the same time before and after a restart."""
    import pyarrow.compute as pc

    seconds = _numbers(pa, "d", pa.float64(), [message.published_at for message in messages])
    return pc.floor(pc.add(pc.multiply(seconds, 1e6), 0.5)).cast(pa.int64()).view(pa.timestamp("us", "UTC"))


def _redelivered(pa: Any, messages: list[Message]) -> pa.Array:
    return _column(pa, [message.redelivered for message in messages], pa.bool_())


def _column(pa: Any, values: list[Any], type: pa.DataType) -> pa.Array:
    """A column that very often holds one value all along, which is then told to Arrow once."""
    if values.count(values[0]) == len(values):
        return pa.repeat(pa.scalar(values[0], type), len(values))
    return pa.array(values, type)


def _numbers(pa: Any, code: str, type: pa.DataType, values: list[Any]) -> pa.Array:
    return pa.Array.from_buffers(type, len(values), [None, pa.py_buffer(array(code, values))])


_BUILDERS: dict[str, Callable[[Any, list[Message]], Any]] = {
    "seq": _seq,
    "exchange": _exchange,
    "routing_key": _routing_key,
    "properties": _properties,
    "body": _body,
    "published_at": _published_at,
    "redelivered": _redelivered,
}
COLUMNS = tuple(_BUILDERS)
