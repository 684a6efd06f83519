"""Taken messages as columns: reservations of reader groups, in the layout for reading.

Each pass over message objects waits for memory, because the objects are scattered. Many similar messages are therefore
laid out once, at the reservation, and then read, acknowledged and freed together.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import TYPE_CHECKING

from jumpmq.amqp.messages import Message
from jumpmq.queues.memory import PAGED
from jumpmq.queues.runs import from_layout, lay_out
from jumpmq.store.column_layout import Octets
from jumpmq.store.columns import array_of
from jumpmq.store.layout import numbers

if TYPE_CHECKING:
    import pyarrow as pa

    from jumpmq.store.column_layout import Layout

AT_LEAST = 64
"""Minimum number of messages for columns."""

AT_MOST = 16 << 20
"""Maximum octets of bodies, routing keys and properties in columns: they are copied at once."""

BINARY = ("body", "routing_key", "properties")


class Columns:
    """Messages taken from a queue, numbered without gaps, that differ only in times and :data:`BINARY`.

    Attributes:
        like: a message with the common values, and with the first number and publishing time.
        first, count: position of the first message in the layout, and number of messages.
        octets: octets of :data:`BINARY`.
        batches: runs of stored messages: batch, first and last number.
    """

    __slots__ = ("_binary", "_expiries", "_times", "batches", "count", "first", "like", "octets")

    def __init__(self, layout: Layout) -> None:
        self.first = 0
        self.like, self.count, self.octets, self._times, self._expiries, self._binary, self.batches = layout

    @classmethod
    def of(cls, messages: list[Message]) -> Columns | None:
        """Take similar messages from the front of a list as columns; None if there are few."""
        layout = lay_out(messages, PAGED, AT_LEAST, AT_MOST)
        return None if layout is None else cls(layout)

    @staticmethod
    def justified(count: int) -> bool:
        """True if the number of messages justifies columns."""
        return count >= AT_LEAST

    def __len__(self) -> int:
        return self.count

    @property
    def bodies(self) -> int:
        """Octets of bodies."""
        return len(self._binary[0][1])

    @property
    def expires(self) -> bool:
        """True if a message has an expiry."""
        return len(self._expiries) > 0

    @property
    def first_seq(self) -> int:
        """Number of the first message."""
        return self.like.seq + self.first

    @property
    def redelivered(self) -> bool:
        """True if the messages count as redelivered."""
        return self.like.redelivered

    @property
    def last_seq(self) -> int:
        """Number of the last message."""
        return self.first_seq + self.count - 1

    @property
    def published_at(self) -> float:
        """Publishing time of the first message, in seconds since the epoch."""
        return self.like.published_at

    def messages(self) -> list[Message]:
        """Return the messages as new objects."""
        assert not self.first
        (times,), binary = self._buffers("published_at"), [self._buffers(name) for name in BINARY]
        mutable = [(bytearray(offsets), bytearray(values)) for offsets, values in binary]
        return from_layout(self.like, self.count, bytearray(times), self._expiries, mutable, self.batches)

    def taken_back(self) -> list[Message]:
        """Return the messages of the reservation, and end the use of this object."""
        found: list[Message] = self.like.queue.taken.as_messages(self)
        return found

    def cut(self, first: int, end: int) -> Columns:
        """Return a part for :meth:`record_batch` only; ``end`` may be beyond the end."""
        part = copy(self)
        part.first, part.count = first, min(end, self.count) - first
        return part

    def record_batch(self, names: Iterable[str]) -> pa.RecordBatch:
        """Return the rows with some columns of :func:`~jumpmq.store.columns.schema`, or ``redelivered``, without a copy
        of the octets of :data:`BINARY`.
        """
        import pyarrow as pa

        columns = {}
        for name in names:
            if name in ("exchange", "redelivered"):
                columns[name] = pa.repeat(getattr(self.like, name), self.count)
            else:
                columns[name] = array_of(name, self.count, *self._buffers(name), offset=self.first)
        return pa.RecordBatch.from_pydict(columns)

    def _buffers(self, name: str) -> tuple[Octets, ...]:
        """Return the buffers of a column, for as many rows as are needed."""
        end = self.first + self.count
        if name == "seq":
            return (numbers(self.like.seq, 1, end),)
        if name == "published_at":
            return (self._times if len(self._times) > 8 else bytes(self._times) * end,)
        offsets, values = self._binary[BINARY.index(name)]
        if len(offsets) > 8:
            return offsets, values
        return numbers(0, len(values), end + 1, short=True), bytes(values) * end
