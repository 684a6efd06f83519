"""Taken messages that stay on disk: reservations of reader groups are read from the log at each use.

A reservation of a million stored messages would otherwise be read while its reader waits for the answer, and be held in
memory until the reader acknowledges it.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Protocol

from jumpmq.amqp.messages import Message
from jumpmq.queues.bodies import BatchReader
from jumpmq.queues.columns import Columns
from jumpmq.queues.memory import PAGED
from jumpmq.store import Batch

AT_LEAST = 64 << 10
"""Minimum octets of bodies for a run of fewer messages than columns need."""


class ReservingQueue(Protocol):
    """Queue of the messages."""

    def read_reserved(self, run: StoredRun) -> list[Message]: ...
    def load_reserved(self, run: StoredRun, messages: list[Message]) -> None: ...


class StoredRun:
    """Messages taken from a queue, numbered without gaps, of one batch on disk. None expires.

    Damaged or unreadable messages are found at a read, not when the messages are taken: a read returns the others.

    Attributes:
        queue: the queue, which sets this attribute when the messages are taken.
        batch: position of the messages in the store.
        first_seq, last_seq: numbers of the first and the last message.
        octets: octets of the bodies.
        persistent: True for persistent messages; False for messages stored for lack of memory.
        redelivered: True if the messages count as redelivered.
    """

    __slots__ = (
        "_is_dated", "_published_at", "_reader", "batch", "first_seq", "last_seq", "octets", "persistent", "queue",
        "redelivered",
    )  # fmt: skip

    def __init__(
        self,
        reader: BatchReader,
        batch: Batch,
        numbers: tuple[int, int],
        octets: int,
        persistent: bool,
        *,
        redelivered: bool,
    ) -> None:
        self._reader = reader
        self._published_at: float | None = None  # time of the first readable message; None if unknown
        self._is_dated = False  # True once the time was looked up
        self.queue: ReservingQueue
        self.batch = batch
        self.first_seq, self.last_seq = numbers
        self.octets = octets
        self.persistent, self.redelivered = persistent, redelivered

    @staticmethod
    def justified(count: int, octets: int) -> bool:
        """True if the number of messages, or the octets of their bodies, justify a run."""
        return octets >= AT_LEAST or Columns.justified(count)

    def __len__(self) -> int:
        return self.last_seq + 1 - self.first_seq

    @property
    def published_at(self) -> float | None:
        """Publishing time of the first readable message, in seconds since the epoch; None if no message is readable.
        The first use reads a block.
        """
        if not self._is_dated:
            self._is_dated = True
            columns = self._columns(self.first_seq, self.first_seq)
            first = columns[0] if columns else next(iter(self.messages()), None)
            self._published_at = None if first is None else first.published_at
        return self._published_at

    def cut(self, first: int, end: int) -> StoredRun:
        """Return a part for reading only, by positions; ``end`` may be beyond the end."""
        part = copy(self)
        part.first_seq, part.last_seq = self.first_seq + first, min(self.last_seq, self.first_seq + end - 1)
        part._is_dated = False
        return part

    def read(self) -> Iterator[Columns | list[Message]]:
        """Yield the readable messages, as columns if the log has columns."""
        columns = self._columns(self.first_seq, self.last_seq)
        if columns:
            yield from columns
        else:
            yield self.messages()

    def messages(self) -> list[Message]:
        """Return the readable messages as new objects, without queue.

        Raises:
            StoreError: the messages are gone, because their queue was dropped.
        """
        messages = self._reader.read(self.batch, self.first_seq, self.last_seq)
        for message in messages:
            message.persistent, message.redelivered = self.persistent, self.redelivered
        return messages

    def taken_back(self) -> list[Message]:
        """Return the readable messages of the reservation, and end the use of this object."""
        return self.queue.read_reserved(self)

    def without_bodies(self) -> list[Message]:
        """Return the messages of the reservation, unread and to be settled, and end the use of this object."""
        messages = [Message("", b"", b"", PAGED, self.persistent) for _ in range(len(self))]
        for seq, message in enumerate(messages, self.first_seq):
            message.seq, message.batch, message.queue = seq, self.batch, self.queue
        messages[0].paged = self.octets  # the sizes of the single bodies are unknown
        self.queue.load_reserved(self, messages)
        return messages

    def _columns(self, first: int, last: int) -> list[Columns]:
        """Return messages as columns; none if a message is unreadable, or the log has no columns."""
        found = [Columns(layout) for layout in self._reader.layouts(self.batch, first, last) or ()]
        for columns in found:
            columns.like.redelivered = self.redelivered
        return found
