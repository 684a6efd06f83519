"""Delivery counts of a queue's messages: the number of returns of each message.

A message's ``attempts`` is the number of its deliveries, including the current one. For returned messages the journal
has a record each, until the message is settled. Returns by lost consumers are also counted separately, in memory only:
in a queue without a delivery limit, only these returns are limited.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from jumpmq.amqp.messages import Message
from jumpmq.queues.by_number import ByNumber
from jumpmq.queues.journal import RecordJournal
from jumpmq.store.kinds import ATTEMPTS

FORGOTTEN = 1024
"""Delivery counts of purged or deleted messages forgotten per step: about a millisecond."""


class DeliveryCounts:
    """Delivery counts of a queue.

    Args:
        queue_id: number of the queue, for the keys of records.
        notes: records the counts; None for a queue without a journal, whose counts are in the messages alone.

    Attributes:
        in_use: True if messages that leave the queue have to be forgotten here.
    """

    __slots__ = ("_lost", "_notes", "_queue_id", "_recorded", "in_use")

    def __init__(self, queue_id: int, notes: RecordJournal | None) -> None:
        self._queue_id = queue_id
        self._notes = notes
        self._recorded = ByNumber[int]()  # number of deliveries of returned messages, as recorded in the journal
        self._lost = ByNumber[int]()  # returns by lost consumers since the start
        self.in_use = False

    def restore(self, attempts: dict[int, int]) -> None:
        """Load recorded counts, by message number."""
        for seq, count in attempts.items():
            self._recorded[seq] = count
        self.in_use = bool(attempts)

    def apply(self, messages: list[Message]) -> None:
        """Set the counts of messages read from the store."""
        for message in messages:
            message.attempts = 1
        if self._recorded:
            for message in messages:
                message.attempts = self._recorded.get(message.seq) or 1

    def record(self, seq: int, attempts: int) -> None:
        """Record the number of deliveries of a returned message."""
        if self._notes is not None:
            self._recorded[seq] = attempts
            self.in_use = True
            self._notes.put(ATTEMPTS, f"{self._queue_id} {seq}", attempts)

    def count_lost(self, messages: list[Message]) -> None:
        """Count the return of messages by a lost consumer."""
        for message in messages:
            self._lost[message.seq] = self.lost(message.seq) + 1
        self.in_use = True

    def lost(self, seq: int) -> int:
        """Return the number of returns of a message by lost consumers."""
        return self._lost.get(seq) or 0

    def move(self, seqs: Sequence[int], messages: list[Message], first_seq: int) -> None:
        """Move the counts of messages that get new numbers.

        Args:
            seqs: previous numbers, in the order of the messages.
            messages: the messages, with their attempts.
            first_seq: number of the first message; the others follow.
        """
        lost = [self._lost.get(seq) for seq in seqs]
        self.forget_numbers(seqs)
        for seq, (message, count) in enumerate(zip(messages, lost, strict=True), first_seq):
            if count is not None:
                self._lost[seq] = count
                self.in_use = True
            self.record(seq, message.attempts)

    def forget(self, messages: list[Message]) -> None:
        """Forget messages that left the queue."""
        if self.in_use:
            self.forget_numbers([message.seq for message in messages])

    def forget_numbers(self, seqs: Sequence[int]) -> None:
        """As :meth:`forget`, by number."""
        for seq in seqs:
            self._lost.pop(seq)
            if self._recorded.pop(seq) is not None and self._notes is not None:
                self._notes.delete(ATTEMPTS, f"{self._queue_id} {seq}")
        self.in_use = bool(self._recorded or self._lost)

    def forgetting(self, seqs: Sequence[int]) -> Iterator[None]:
        """As :meth:`forget_numbers`, in steps."""
        for first in range(0, len(seqs), FORGOTTEN):
            self.forget_numbers(seqs[first : first + FORGOTTEN])
            yield

    def forgetting_all(self) -> Iterator[None]:
        """Forget all messages of a deleted queue, in steps."""
        for seqs in chain(self._recorded.tables(), self._lost.tables()):
            yield from self.forgetting(seqs)
