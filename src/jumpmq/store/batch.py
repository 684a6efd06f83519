"""Batches: consecutive messages of a queue. The store locates, counts and settles messages by batch."""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator

from jumpmq.amqp.messages import Message
from jumpmq.store._kernel import BatchNumbers
from jumpmq.store.layout import join_batch, octets
from jumpmq.store.ranges import Ranges
from jumpmq.store.records import MAX_COUNT

MAX_BYTES = 4 << 20
"""Size limit of a batch, in octets: of bodies, properties and routing keys, or of the blocks on disk. A batch at the
limit takes no further message, so that reading a batch back stays cheap.
"""

SPILLED = 1 << 62
"""First of the invented queue numbers for spilled messages: transient messages written to disk to free memory."""

NOTHING = Ranges()
"""Settled numbers of a batch without settlements."""


class Batch(BatchNumbers):
    """Consecutive persistent messages of a queue, from one or many commits.

    A batch grows commit after commit until it is full. A message committed alone therefore takes 20 octets of memory
    here, and no object of its own. Only the store's thread (the broker's event loop) appends and settles.

    Attributes:
        id: position of the batch's first block in the log, unique in the store; -1 until the block is written.
        queue_id: number of the queue.
        first_seq: lowest number of a message, settled messages included.
        last_seq: highest number of a message. The range may have gaps, because transient messages are not stored.
        count: number of messages, settled messages included.
        bytes: octets of the messages' bodies, settled messages included.
        remaining: number of messages not settled.
        closed: True if the batch takes no further message, however few the batch has.
        messages: messages not yet on disk, in order; None if all are on disk.
        stored: octets of the blocks on disk.
        taken: octets taken so far: bodies, properties and routing keys.
        positions: position of each block on disk, in order.
        lengths: octets of each block.
        firsts: lowest message number of each block.
    """

    __slots__ = ("_note", "_settled", "firsts", "lengths", "messages", "positions")

    def __init__(self, queue_id: int, note: Callable[[tuple["Batch", int, int]], object]) -> None:
        self.id = -1
        self.queue_id = queue_id
        self.messages: list[Message] | None = None
        self.positions = array("Q")
        self.lengths = array("I")
        self.firsts = array("q")
        self._settled = NOTHING
        self._note = note

    def __repr__(self) -> str:
        return f"<Batch {self.id} of queue {self.queue_id}: {self.first_seq}-{self.last_seq}, {self.remaining} left>"

    @property
    def settled(self) -> Ranges:
        """Numbers of permanently removed messages."""
        return self._settled

    def is_written(self, seq: int) -> bool:
        """Return True if message ``seq`` and all earlier messages are on disk; later messages may have followed."""
        messages = self.messages
        return not messages or messages[0].seq > seq

    def is_stored_from(self, seq: int) -> bool:
        """Return True if all messages of the batch are on disk, and none from ``seq`` on is settled."""
        return self.messages is None and not (self._settled.count and self._settled.last >= seq)

    def settle(self, seq: int) -> None:
        """Settle message ``seq`` permanently."""
        self.settle_range(seq, seq)

    def settle_range(self, first: int, last: int) -> None:
        """Settle messages ``first`` to ``last`` permanently; all these numbers are messages of the batch."""
        if self._settled is NOTHING:
            self._settled = Ranges()
        self.remaining -= self._settled.add(first, last)
        self._note((self, first, last))

    def settle_all(self) -> None:
        """Settle all messages permanently, without checking the individual numbers."""
        if self.remaining:
            self.remaining, self.closed = 0, True
            self._settled = Ranges()
            self._settled.add(self.first_seq, self.last_seq)
            self._note((self, self.first_seq, self.last_seq))

    def take(self, messages: list[Message]) -> tuple[int, int]:
        """Add as many of the following messages as fit.

        Returns:
            The number of messages added, and their octets: bodies, properties and routing keys. Zeros if the first
                message needs another batch.
        """
        if self.closed or self.stored >= MAX_BYTES:
            return 0, 0
        taken, bodies, octets = join_batch(messages, self, MAX_COUNT - self.count, MAX_BYTES - self.taken)
        if taken < len(messages):
            if not taken:
                return 0, 0
            messages = messages[:taken]
        if not self.count:
            self.first_seq = messages[0].seq
        self.last_seq = messages[-1].seq
        self.count += taken
        self.remaining += taken
        self.bytes += bodies
        self.taken += octets
        if self.messages is None:
            self.messages = messages.copy()
        else:
            self.messages += messages
        return taken, octets

    def written(self, count: int) -> None:
        """Remove the first ``count`` messages from :attr:`messages`: written, or settled before the write."""
        assert self.messages is not None
        if count == len(self.messages):
            self.messages = None
        else:
            del self.messages[:count]

    def leave_out(self, last: int, settled: Ranges) -> tuple[int, int]:
        """Forget settled messages among the ``last`` unwritten messages: settled messages are not written.

        Returns:
            The number of forgotten messages, and their octets: bodies, properties and routing keys.
        """
        assert self.messages is not None
        begin = len(self.messages) - last
        some = self.messages[begin:]
        kept = [message for message in some if message.seq not in settled] if some[0].seq <= settled.last else some
        if len(kept) == last:
            return 0, 0
        left_out = octets(some)[1] - octets(kept)[1]
        self.messages[begin:] = kept
        if not self.messages:
            self.messages = None
        return last - len(kept), left_out

    def add_block(self, position: int, length: int, first: int) -> None:
        """Note the location of a written block."""
        if self.id < 0:
            self.id = position
        self.positions.append(position)
        self.lengths.append(length)
        self.stored += length
        self.firsts.append(first)

    def move(self, position: int, length: int, first: int) -> None:
        """Record the new location of the remaining messages. A reader keeps the old positions."""
        self.positions, self.lengths, self.firsts = array("Q", (position,)), array("I", (length,)), array("q", (first,))
        self.stored = length

    def begin_again(self, first: int) -> None:
        """Forget all messages, because all are settled. Messages from number ``first`` on follow in the log."""
        self.gone()
        self.first_seq, self.last_seq = first, first - 1
        self.count = self.remaining = self.bytes = 0
        self._settled = NOTHING

    def gone(self) -> None:
        """Forget the location: the queue was deleted."""
        self.positions, self.lengths, self.firsts = array("Q"), array("I"), array("q")
        self.stored = 0

    def blocks(self, first: int | None, last: int | None) -> Iterator[tuple[int, int]]:
        """Yield position and length of the blocks that may hold messages ``first`` to ``last``."""
        positions, lengths, firsts = self.positions, self.lengths, self.firsts
        begin = 0 if first is None else max(bisect_right(firsts, first) - 1, 0)
        end = len(firsts) if last is None else bisect_right(firsts, last)
        return zip(positions[begin:end], lengths[begin:end], strict=True)

    def restore_settled(self, ranges: Ranges) -> None:
        """Set the settled numbers from an index."""
        self._settled = ranges
        self.remaining = max(self.count - ranges.count, 0)

    def replay_settled(self, first: int, last: int) -> None:
        """Settle the batch's numbers from ``first`` to ``last``, as found in the log at a start."""
        if first <= self.first_seq and last >= self.last_seq:
            self.remaining, self._settled = 0, Ranges()
            self._settled.add(self.first_seq, self.last_seq)
        elif self.remaining:
            if self._settled is NOTHING:
                self._settled = Ranges()
            self.remaining -= self._settled.add(max(first, self.first_seq), min(last, self.last_seq))
