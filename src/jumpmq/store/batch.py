"""Batches: neighbouring messages of a queue, the accounting unit of the store."""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator

from jumpmq.amqp.messages import Message
from jumpmq.store._kernel import BatchNumbers
from jumpmq.store.layout import join_batch, octets
from jumpmq.store.ranges import Ranges
from jumpmq.store.records import MAX_COUNT

MAX_BYTES = 4 << 20
"""Size limit of a batch, in octets: with so many octets of bodies, properties and routing keys, or in total on disk, a
batch takes no further message, so that reading a batch back stays cheap."""

NOTHING = Ranges()
"""Settled numbers of a batch without settlements."""


class Batch(BatchNumbers):
    """Consecutive persistent messages of a queue, from one or many commits.

    A message that is committed alone costs 20 octets here, not an object: the batch goes on growing, commit after
    commit, until it is full. Only the thread that owns the store (the broker's event loop) appends and settles.

    Attributes:
        id: where its first block lies in the log, unique in the store; -1 until it is written.
        queue_id: whose messages these are.
        first_seq, last_seq, count, bytes: the range of the messages' numbers (it may have gaps: transient messages are
            not stored), how many there are, and the octets of their bodies; settled ones included.
        remaining: how many are not settled.
        closed: whether it takes no further message, however few it has.
        messages: those that are not yet on disk, in order; None where all are.
        stored: octets of its blocks on disk.
        taken: octets that it took since it was made: bodies, properties and routing keys.
        positions, lengths, firsts: of each block on disk, in order, where it lies, its octets, and its lowest number.
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

    def settle(self, seq: int) -> None:
        """Message ``seq`` is gone for good."""
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
        """Add following messages, as many as fit.

        Returns:
            how many, and their octets: bodies, properties and routing keys; none where the first one needs another
            batch.
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
        """The first ``count`` messages that were not on disk are now, or never need be."""
        assert self.messages is not None
        if count == len(self.messages):
            self.messages = None
        else:
            del self.messages[:count]

    def leave_out(self, last: int, settled: Ranges) -> tuple[int, int]:
        """Forget settled messages among the ``last`` unwritten messages: no need to write these.

        Returns:
            how many, and their octets: bodies, properties and routing keys.
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
        """Note where messages were written."""
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
        """Forget all messages, as they are settled: the log goes on with more from number ``first`` on."""
        self.gone()
        self.first_seq, self.last_seq = first, first - 1
        self.count = self.remaining = self.bytes = 0
        self._settled = NOTHING

    def gone(self) -> None:
        """Record the loss of the location: the queue was deleted."""
        self.positions, self.lengths, self.firsts = array("Q"), array("I"), array("q")
        self.stored = 0

    def blocks(self, first: int | None, last: int | None) -> Iterator[tuple[int, int]]:
        """Position and length of the blocks that may hold messages ``first`` to ``last``."""
        positions, lengths, firsts = self.positions, self.lengths, self.firsts
        begin = 0 if first is None else max(bisect_right(firsts, first) - 1, 0)
        end = len(firsts) if last is None else bisect_right(firsts, last)
        return zip(positions[begin:end], lengths[begin:end], strict=True)

    def restore_settled(self, ranges: Ranges) -> None:
        """Set the settled numbers from an index."""
        self._settled = ranges
        self.remaining = max(self.count - ranges.count, 0)

    def replay_settled(self, first: int, last: int) -> None:
        """Settle numbers from the log: those of ``first`` to ``last`` within the batch."""
        if first <= self.first_seq and last >= self.last_seq:
            self.remaining, self._settled = 0, Ranges()
            self._settled.add(self.first_seq, self.last_seq)
        elif self.remaining:
            if self._settled is NOTHING:
                self._settled = Ranges()
            self.remaining -= self._settled.add(max(first, self.first_seq), min(last, self.last_seq))
