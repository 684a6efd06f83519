"""Messages of a purged or deleted queue, dropped in steps: a million messages would block the event
loop.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from jumpmq.amqp.messages import Message
from jumpmq.queues._lanes import Lane
from jumpmq.queues.head import Head
from jumpmq.queues.memory import MemoryAccount, held_octets
from jumpmq.queues.returned import ReturnedMessages
from jumpmq.queues.runs import body_octets, settle_stored
from jumpmq.queues.segment import BatchSegment

STEP = 4096
"""Number of messages dropped per step: about a millisecond."""

SEGMENT = 8
"""Cost of dropping a segment, in messages."""


def settle_spilled(messages: list[Message]) -> None:
    """Settle messages stored only for lack of memory."""
    settle_stored([message for message in messages if not message.persistent])


Forget = Callable[[Sequence[int]], Iterator[None]]
"""Deletes a queue's records of the given message numbers, in steps."""


class Leftovers:
    """Messages removed from the ready messages at once.

    Args:
        messages, returned: messages in memory.
        tail: the segments on disk.
        read: reads a segment's messages.
        account: memory account of the messages in memory, as ``staged``.
    """

    def __init__(
        self,
        messages: Head | Lane,
        returned: ReturnedMessages,
        tail: deque[BatchSegment],
        read: Callable[[BatchSegment], list[Message]],
        account: MemoryAccount,
    ) -> None:
        self._messages = messages
        self._returned = returned
        self._tail = tail
        self._read = read
        self._account = account

    def settle(self, transient_gone: Callable[[int, int], None], forget: Forget | None = None) -> Iterator[None]:
        """Settle the messages for good; a step settles about :data:`STEP` messages at most.

        Args:
            transient_gone: called with the number of transient messages, and the octets of their bodies.
            forget: called with the messages' numbers, including some settled before.
        """
        for messages in self._steps():
            if forget is not None:
                yield from forget([message.seq for message in messages])
            settle_stored(messages)
            transient = [message for message in messages if not message.persistent]
            transient_gone(len(transient), body_octets(transient))
            if len(messages) == STEP:
                yield
        count = 0
        for segment in self._segments():
            if forget is not None:
                yield from forget(_numbers(segment))
            if not segment.persistent:
                transient_gone(segment.count, segment.size)
            # All messages of the batch leave, so they need not be read.
            if segment.whole and segment.batch is not None:
                segment.batch.settle_all()
            else:
                settle_stored(self._read(segment))
                count += segment.count
            count += SEGMENT
            if count >= STEP:
                count = 0
                yield

    def forget(self) -> Iterator[None]:
        """Drop the messages: the store has dropped their queue, except for spilled messages."""
        for messages in self._steps():
            settle_spilled(messages)
            if len(messages) == STEP:
                yield
        for place, segment in enumerate(self._segments(), 1):
            if not segment.persistent and segment.batch is not None:
                settle_stored(self._read(segment))
            if place % (STEP // SEGMENT) == 0:
                yield

    def _steps(self) -> Iterator[list[Message]]:
        while messages := self._messages.take(STEP) or self._returned.take_any(STEP):
            self._release(messages)
            yield messages

    def _segments(self) -> Iterator[BatchSegment]:
        while self._tail:
            segment = self._tail.popleft()
            self._release(segment.messages or [])
            yield segment

    def _release(self, messages: list[Message]) -> None:
        self._account.charge("staged", -held_octets(messages))


def _numbers(segment: BatchSegment) -> Sequence[int]:
    if segment.messages is not None:
        return [message.seq for message in segment.messages]
    return segment.seqs or range(segment.first_seq, segment.last_seq + 1)


class AllLeftovers:
    """Leftovers of several lists of a queue."""

    def __init__(self, parts: "list[Leftovers | AllLeftovers]") -> None:
        self._parts = parts

    def settle(self, transient_gone: Callable[[int, int], None], forget: Forget | None = None) -> Iterator[None]:
        for part in self._parts:
            yield from part.settle(transient_gone, forget)

    def forget(self) -> Iterator[None]:
        for part in self._parts:
            yield from part.forget()
