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
    """The messages of batches. Any thread may call the methods, except :meth:`read_soon`.

    Args:
        reader: reads blocks from disk.
        background: the thread for :meth:`read_soon`.
        directory: directory of the log, for error messages.
    """

    def __init__(self, reader: BlockReader, background: Background, directory: Path) -> None:
        self._reader = reader
        self._background = background
        self._directory = directory

    def read(self, batch: Batch, first: int | None, last: int | None) -> list[Message]:
        """Return the unsettled messages of a batch, in order.

        Unwritten messages are the appended objects themselves. Messages read from disk are new objects, without queue,
        consumer and ``redelivered``. Damaged messages are left out, and reported in the broker's log.

        Args:
            first, last: lowest and highest number to return; None for no bound.

        Raises:
            StoreError: the messages are gone, because their queue was dropped.
        """
        if not batch.remaining:
            return []
        return _unsettled(batch, self._read(batch, first, last))

    def layouts(self, batch: Batch, first: int, last: int) -> list[Layout] | None:
        """Return unsettled messages of a batch as columns. None if the blocks cannot be joined as columns: use
        :meth:`read` instead.
        """
        if not batch.is_stored_from(first):
            return None
        try:
            return laid_out(batch, self._reader.contents(batch, first, last), first, last)
        except StoreError:  # the blocks have just been moved or removed
            return None

    def read_soon(
        self, ranges: list[tuple[Batch, int, int]], then: Callable[[list[list[Message]] | None], Any]
    ) -> None:
        """Like :meth:`read`, in a background thread: ``then`` gets the messages of each range later, in the store's
        thread.

        None means a failed read; a call of :meth:`read` then raises the error. Messages settled before the call of
        ``then`` are left out. Dropped and purged queues are the exception: the caller must discard their messages.
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
            StoreError: the messages are gone, because all are settled or their queue was dropped.
        """
        found = self._reader.messages(batch, None, None) if batch.positions else []
        return columns.from_messages(found + (batch.messages or []))

    def _read(self, batch: Batch, first: int | None, last: int | None) -> list[Message]:
        """Like :meth:`read`, including settled messages."""
        # Before the positions: a commit that ends during the read moves messages from memory to disk, and a later look
        # at both would miss them.
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
            # The commit of the unwritten messages may have ended meanwhile: they must not come twice.
            found = [message for message in found if message.seq < begin]
            low, high = begin if first is None else first, unwritten[-1].seq if last is None else last
            found += [message for message in unwritten if low <= message.seq <= high]
        return found


def _unsettled(batch: Batch, messages: list[Message]) -> list[Message]:
    settled = batch.settled
    return [message for message in messages if message.seq not in settled] if settled.count else messages
