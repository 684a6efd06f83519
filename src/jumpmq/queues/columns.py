"""Taken messages as columns: what a group of readers holds, laid out as it is read.

Each pass over messages waits for memory, as they lie apart. Many that are alike are laid out once, when they are
reserved, and are then read, acknowledged and freed as a whole.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from jumpmq.amqp.messages import Message
from jumpmq.queues.memory import PAGED
from jumpmq.queues.runs import from_layout, lay_out
from jumpmq.store.columns import array_of

if TYPE_CHECKING:
    import pyarrow as pa

    from jumpmq.store.column_layout import Layout

AT_LEAST = 64
"""Number of messages that justifies columns."""

AT_MOST = 16 << 20
"""Maximum octets of bodies, routing keys and properties in columns: they are copied at once."""

BINARY = ("body", "routing_key", "properties")


class Columns:
    """Messages taken from a queue, numbered without a gap, with all in common but times and :data:`BINARY`.

    Attributes:
        like: a message with what they have in common, and the first number and time of publication.
        first, count: the position of the first in the layout, and how many they are.
        octets: octets of :data:`BINARY`.
        batches: runs of stored messages: batch, first and last number.
    """

    __slots__ = ("_binary", "_expiries", "_seqs", "_times", "batches", "count", "first", "like", "octets")

    def __init__(self, layout: Layout) -> None:
        self.first = 0
        self.like, self.count, self.octets, self._seqs, self._times, self._expiries, self._binary, self.batches = layout

    @classmethod
    def of(cls, messages: list[Message]) -> Columns | None:
        """Take from the front of a list what is alike; None if that is little."""
        layout = lay_out(messages, PAGED, AT_LEAST, AT_MOST)
        return None if layout is None else cls(layout)

    @staticmethod
    def justified(count: int) -> bool:
        """True if messages are many enough."""
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
    def last_seq(self) -> int:
        """Number of the last message."""
        return self.like.seq + self.count - 1

    @property
    def published_at(self) -> float:
        """When the first message was published, in seconds since the epoch."""
        return self.like.published_at

    def messages(self) -> list[Message]:
        """Return the messages, made anew."""
        return from_layout(self.like, self.count, self._times, self._expiries, self._binary, self.batches)

    def taken_back(self) -> list[Message]:
        """Return the messages of the reservation, and end the use of this object."""
        found: list[Message] = self.like.queue.taken.as_messages(self)
        return found

    def cut(self, first: int, end: int) -> Columns:
        """Return a part for :meth:`record_batch` only; ``end`` may be beyond the end."""
        part = copy(self)
        part.first, part.count = first, min(end, self.count) - first
        return part

    def record_batch(self) -> pa.RecordBatch:
        """Return the rows as :func:`~jumpmq.store.columns.schema` has them, and ``redelivered``, without a copy."""
        import pyarrow as pa

        buffers = {"seq": (self._seqs,), "published_at": (self._times,)} | dict(zip(BINARY, self._binary, strict=True))
        end, like = self.first + self.count, self.like
        columns = {name: array_of(name, end, *of_name).slice(self.first) for name, of_name in buffers.items()}
        columns["exchange"] = pa.repeat(like.exchange, self.count)
        columns["redelivered"] = pa.repeat(like.redelivered, self.count)
        return pa.RecordBatch.from_pydict(columns)
