"""Reading messages back from the log, for any thread."""

import contextlib
from collections.abc import Callable, Iterator

from jumpmq.amqp.messages import Message
from jumpmq.store.batch import Batch
from jumpmq.store.block_format import BLOCK, EXPIRES
from jumpmq.store.definitions import numbered
from jumpmq.store.errors import StoreError
from jumpmq.store.log import OFFSET_BITS, Log
from jumpmq.store.records import Content, block_is_whole, head_at

GAP = 64 << 10
"""Maximum octets of foreign data between two blocks that are read in a single call."""

SPAN = 4 << 20
"""Maximum octets read per call, except for a longer block."""


PREFETCHED = 256 << 20
"""Maximum octets read into the system's cache for a reservation, except for the last batch."""

RETRIES = 2
"""Number of immediate retries of a failed read."""


class BlockReader:
    """Reads blocks. Damaged or unreadable blocks are left out, and reported once; their messages stay unsettled.

    Args:
        log: the segments.
        queue_name: returns the name of a queue for operators, by number.
        on_loss: called with a sentence about damaged or unreadable blocks, in the reading thread.
    """

    def __init__(
        self, log: Log, queue_name: Callable[[int], str] = numbered, *, on_loss: Callable[[str], None]
    ) -> None:
        self._queue_name = queue_name
        self._log = log
        self._on_loss = on_loss
        self._named: set[int] = set()  # positions of reported blocks
        self._unread: set[int] = set()  # positions of blocks whose last read failed

    def name_queues(self, queue_name: Callable[[int], str]) -> None:
        """Set the names of queues for reports of damage, by number."""
        self._queue_name = queue_name

    def contents(self, batch: Batch, first: int | None, last: int | None) -> Iterator[Content]:
        """Yield the readable blocks of a batch that may hold messages ``first`` to ``last``.

        Raises:
            StoreError: the segment was removed: the messages were moved, or are gone.
        """
        for span in _spans(batch.blocks(first, last)):
            start, length = _extent(span)
            try:
                salt, octets = self._log.salt(start), self._read(start, length)
            except FileNotFoundError:
                raise StoreError(
                    f"messages {batch.first_seq} to {batch.last_seq} of queue number {batch.queue_id} are no longer in "
                    f"{self._log.directory}"
                ) from None
            except OSError as error:
                self._unread.update(position for position, _ in span)
                self._name(batch, span, error.strerror or str(error), self._log.unreadable)
                continue
            for position, size in span:
                self._unread.discard(position)
                block = octets if size == length else octets[position - start : position - start + size]
                if len(block) == size and block_is_whole(block, salt):
                    yield Content(block)
                else:
                    self._name(batch, [(position, size)], "a checksum fails", self._log.damaged)

    def spans(self, ranges: list[tuple[Batch, int, int]]) -> list[tuple[int, int]]:
        """Return the places of messages in the log as position and octets, up to ``PREFETCHED`` octets.

        Args:
            ranges: batch, first and last number.
        """
        found: list[tuple[int, int]] = []
        left = PREFETCHED
        for batch, first, last in ranges:
            if left <= 0:
                break
            extents = [_extent(span) for span in _spans(batch.blocks(first, last))]
            left -= sum(length for _, length in extents)
            found += extents
        return found

    def prefetch(self, spans: list[tuple[int, int]]) -> None:
        """Request the octets of :meth:`spans` for the system's page cache. For any thread; may wait for the disk."""
        for position, length in spans:
            with contextlib.suppress(OSError):  # an unreadable or removed segment is noticed at the read
                self._log.prefetch(position, length)

    def may_expire(self, batch: Batch, first: int, last: int) -> bool:
        """Return False if no block that may hold messages ``first`` to ``last`` has expiring messages. Only the heads
        are read, without a check for damage; True if a head is unreadable.
        """
        for position, _ in batch.blocks(first, last):
            try:
                head = self._log.read(position, BLOCK.size)
            except OSError:
                return True
            if len(head) < BLOCK.size or head_at(head).flags & EXPIRES:
                return True
        return False

    def messages(self, batch: Batch, first: int | None, last: int | None) -> list[Message]:
        """Return the messages of a batch on disk, settled messages included, numbered ``first`` to ``last``.

        Raises:
            StoreError: the messages are gone.
        """
        while True:
            positions = batch.positions
            try:
                return self._messages(batch, first, last)
            except StoreError:
                if batch.positions is positions:  # else the batch was moved during the read: read again
                    raise

    def _messages(self, batch: Batch, first: int | None, last: int | None) -> list[Message]:
        found: list[Message] = []
        for content in self.contents(batch, first, last):
            messages = content.messages()
            if (first is not None and content.head.first < first) or (last is not None and content.last > last):
                low, high = first or 0, content.last if last is None else last
                messages = [message for message in messages if low <= message.seq <= high]
            found += messages
        for message in found:
            message.batch = batch
        return found

    def is_damaged(self, batch: Batch) -> bool:
        """Return True if part of the batch was found damaged, or could not be read."""
        return bool(self._named) and not self._named.isdisjoint(batch.positions)

    def is_unread(self, batch: Batch) -> bool:
        """Return True if the last read of a part of the batch has failed: a later read may succeed."""
        return bool(self._unread) and not self._unread.isdisjoint(batch.positions)

    def _read(self, position: int, length: int) -> bytes:
        for _ in range(RETRIES):
            with contextlib.suppress(OSError):
                return self._log.read(position, length)
        return self._log.read(position, length)

    def _name(
        self, batch: Batch, span: list[tuple[int, int]], what: str, error: Callable[[int, str], StoreError]
    ) -> None:
        """Report neighbouring blocks of a batch, once."""
        position = span[0][0]
        if position not in self._named:
            self._named.add(position)
            first, last = _numbers(batch, position, span[-1][0])
            self._on_loss(
                str(error(position, f"messages {first} to {last} of {self._queue_name(batch.queue_id)}: {what}"))
            )


def _numbers(batch: Batch, position: int, last_position: int) -> tuple[int, int]:
    """Return the lowest number of a batch's block, and the highest possible number of the last block."""
    positions, firsts = list(batch.positions), list(batch.firsts)
    if position not in positions or last_position not in positions:
        return batch.first_seq, batch.last_seq  # the batch was moved during the read
    ends = [first - 1 for first in firsts[1:]] + [batch.last_seq]
    return firsts[positions.index(position)], ends[positions.index(last_position)]


def _extent(span: list[tuple[int, int]]) -> tuple[int, int]:
    """Return position and octets of a run of blocks."""
    (start, _), (position, length) = span[0], span[-1]
    return start, position + length - start


def _spans(blocks: Iterator[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Yield runs of blocks, to be read in a single call."""
    span: list[tuple[int, int]] = []
    for position, length in blocks:
        if span:
            start, end = span[0][0], span[-1][0] + span[-1][1]
            other = position >> OFFSET_BITS != start >> OFFSET_BITS
            if other or position - end > GAP or position + length - start > SPAN:
                yield span
                span = []
        span.append((position, length))
    if span:
        yield span
