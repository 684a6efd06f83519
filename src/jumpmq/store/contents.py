"""Contents of batches, on disk or on the way to disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumpmq.amqp.messages import Message
from jumpmq.store import columns
from jumpmq.store.background import Background
from jumpmq.store.batch import Batch
from jumpmq.store.column_layout import Layout, laid_out
from jumpmq.store.errors import StoreError
from jumpmq.store.reader import BlockReader

if TYPE_CHECKING:
    import pyarrow as pa


class BatchContents:
    """The messages of batches. Any thread may ask, but for :meth:`read_soon`.

    Args:
        reader: reads what is on disk.
        background: the thread that reads ahead.
        directory: of the log, to be named in errors.
    """

    def __init__(self, reader: BlockReader, background: Background, directory: Path) -> None:
        self._reader = reader
        self._background = background
        self._directory = directory

    def read(self, batch: Batch, first: int | None, last: int | None) -> list[Message]:
        """Return the unsettled messages of a batch, in order.

        Of those that are not yet written these are the very objects that were appended; others are new ones, without
        queue, consumer and ``redelivered``. What is damaged is left out, and named in the log of the broker.

        Args:
            first, last: the lowest and highest number wanted; None for all.

        Raises:
            StoreError: they are gone because their queue was dropped.
        """
        if not batch.remaining:
            return []
        return _unsettled(batch, self._read(batch, first, last))

    def layout(self, batch: Batch, first: int, last: int) -> Layout | None:
        """Return unsettled messages of a batch as columns; None where they are not stored as such, and :meth:`read` has
        to be asked.
        """
        if batch.messages is not None or (batch.settled.count and batch.settled.last >= first):
            return None
        try:
            return laid_out(batch, self._reader.contents(batch, first, last), first, last)
        except StoreError:  # moved in this moment, or gone
            return None

    def read_soon(
        self, ranges: list[tuple[Batch, int, int]], then: Callable[[list[list[Message]] | None], Any]
    ) -> None:
        """As :meth:`read`, by a thread: ``then`` gets the messages of each range later, in the owner's thread.

        None says that they cannot be read, and :meth:`read` why. All is as it is then, but for what was dropped or
        purged meanwhile: the caller must know of that.
        """

        def deliver(found: Any) -> None:
            if isinstance(found, Exception):
                then(None)
            else:
                then([_unsettled(batch, messages) for (batch, _, _), messages in zip(ranges, found, strict=True)])

        self._background.run(lambda: [self._read(*one) for one in ranges], deliver)

    def is_unread(self, batch: Batch) -> bool:
        """Return True if part of a batch was left out because of a read error: a later read may succeed."""
        return self._reader.is_unread(batch)

    def arrow(self, batch: Batch) -> pa.RecordBatch:
        """Return all messages of a batch, settled messages included, as Arrow columns.

        Returns:
            ``seq`` int64, ``exchange`` string, ``routing_key``, ``properties``, ``body`` binary, ``published_at``
            timestamp[us, UTC].

        Raises:
            StoreError: they are gone because they are all settled or their queue was dropped.
        """
        found = self._reader.messages(batch, None, None) if batch.positions else []
        return columns.from_messages(found + (batch.messages or []))

    def _read(self, batch: Batch, first: int | None, last: int | None) -> list[Message]:
        """As :meth:`read`, including settled messages."""
        staged = batch.messages
        unwritten = list(staged) if staged is not None else []
        found: list[Message] = []
        if batch.positions:
            found = self._reader.messages(batch, first, last)
        elif not unwritten:
            raise StoreError(
                f"messages {batch.first_seq} to {batch.last_seq} of queue number {batch.queue_id} are no longer in "
                f"{self._directory}"
            )
        if unwritten:
            begin = unwritten[0].seq
            found = [message for message in found if message.seq < begin]
            low, high = begin if first is None else first, unwritten[-1].seq if last is None else last
            found += [message for message in unwritten if low <= message.seq <= high]
        return found


def _unsettled(batch: Batch, messages: list[Message]) -> list[Message]:
    settled = batch.settled
    return [message for message in messages if message.seq not in settled] if settled.count else messages
