"""Consecutive ready messages that are, or will soon be, in the store only."""

from array import array

from jumpmq.amqp.messages import Message
from jumpmq.queues._kernel import SegmentNumbers
from jumpmq.queues.memory import held_octets
from jumpmq.queues.runs import body_octets, ends_of_runs, last_redelivered
from jumpmq.store import Batch

ABSORBED_OCTETS, ABSORBED_STORED = 64 << 10, 1 << 20
"""Maximum octets of bodies, and on disk, up to which small segments are merged: a segment is read as a whole."""


NEVER = 0.0
"""Expiry of most segments, as a shared object."""


class BatchSegment(SegmentNumbers):
    """Consecutive messages of a batch.

    Attributes:
        batch: position of the messages in the store; None for unstored messages.
        messages: the messages; None once they are in the store only.
        count: number of messages.
        size: octets of their bodies.
        held: memory of the messages in octets, by the memory account; 0 once they are in the store only.
        exact: True if ``size`` is exact. The size of a partly settled, restored batch is an estimate until it is read.
        first_seq, last_seq: range of numbers; the batch's other messages do not belong to the segment.
        seqs: numbers of the messages, if the range includes other messages of the batch; otherwise None.
        delivered_seq: messages up to this number count as redelivered when read.
        persistent: True for persistent messages; False for messages stored for lack of memory.
        expires_at: time of the first expiry; 0 for never, None if not known yet.
    """

    __slots__ = ("batch", "expires_at", "messages", "seqs")

    def __init__(self, batch: Batch | None, messages: list[Message], size: int) -> None:
        self.batch = batch
        self.messages: list[Message] | None = messages
        self.count = len(messages)
        self.size = size
        self.held = held_octets(messages)
        self.exact = True
        self.seqs: array[int] | None = None
        self.persistent = True
        self.expires_at: float | None = None
        if messages:
            first = messages[0]
            self.first_seq, self.last_seq = first.seq, messages[-1].seq
            self.persistent = first.persistent
            self.expires_at = first.expires_at or NEVER

    @classmethod
    def stored(cls, batch: Batch, delivered_seq: int) -> "BatchSegment":
        """Return the remaining part of a stored batch."""
        segment = cls(batch, [], batch.bytes * batch.remaining // batch.count)
        segment.messages = None
        segment.count = batch.remaining
        segment.exact = batch.remaining == batch.count
        segment.first_seq, segment.last_seq = batch.first_seq, batch.last_seq
        segment.delivered_seq = delivered_seq
        return segment

    @property
    def stored_octets(self) -> int:
        """Octets on disk with headers: the segment's share of its batch."""
        batch = self.batch
        return batch.stored * self.count // batch.count if batch is not None and batch.count else 0

    @property
    def is_on_disk(self) -> bool:
        """True if the segment has all numbers from ``first_seq`` to ``last_seq``, on disk and unsettled."""
        if self.batch is None or self.messages is not None or self.count != self.last_seq + 1 - self.first_seq:
            return False
        return self.batch.is_stored_from(self.first_seq)

    @property
    def whole(self) -> bool:
        """True if the segment is the whole remaining batch."""
        return self.messages is None and self.batch is not None and self.count == self.batch.remaining

    def add(self, messages: list[Message], size: int) -> None:
        """Append messages, while all are in memory."""
        assert self.messages is not None
        self.messages += messages
        self.count += len(messages)
        self.size += size
        self.held += held_octets(messages)
        self.last_seq = messages[-1].seq

    def absorb(self, following: "BatchSegment") -> bool:
        """Merge with the next segment, if both are only in the store and adjacent in one batch.

        Otherwise each message of a queue whose messages are committed one by one would keep a segment of its own.
        """
        if (
            self.messages is not None
            or following.messages is not None
            or self.batch is not following.batch
            or self.last_seq + 1 != following.first_seq
            or self.seqs is not None
            or following.seqs is not None
            or self.delivered_seq
            or following.delivered_seq
            or not (self.exact and following.exact)
            or self.size + following.size > ABSORBED_OCTETS
            or self.stored_octets + following.stored_octets > ABSORBED_STORED
        ):
            return False
        self.last_seq = following.last_seq
        self.count += following.count
        self.size += following.size
        return True

    def forgotten(self) -> "BatchSegment":
        """Return the segment reduced to messages in the store."""
        self.forget_messages()
        return self

    def forget_messages(self) -> None:
        """Drop messages in the store, keeping the data to read them back."""
        assert self.messages is not None
        if self.last_seq - self.first_seq + 1 != self.count:
            self.seqs = array("q", [message.seq for message in self.messages])
        self.delivered_seq = last_redelivered(self.messages)
        self.messages = None
        self.held = 0

    def of(self, messages: list[Message]) -> list[Message]:
        """Return the segment's messages among those of a batch."""
        if self.seqs is not None:
            own = set(self.seqs)
            return [message for message in messages if message.seq in own]
        first, last = self.first_seq, self.last_seq
        if messages and messages[0].seq >= first and messages[-1].seq <= last:
            return messages
        return [message for message in messages if first <= message.seq <= last]


def segments_of(messages: list[Message]) -> list[BatchSegment]:
    """Group ordered messages into segments by batch and ``redelivered``."""
    found: list[BatchSegment] = []
    start = 0
    for end in ends_of_runs(messages):
        run = messages[start:end]
        found.append(BatchSegment(run[0].batch, run, body_octets(run)))
        start = end
    return found
