"""The ready messages of a queue in order, the head of them in memory and a long tail in the store.

A queue within its memory budget is one deque. What arrives beyond the budget goes to the *tail*: segments of messages
that went to the store together. As soon as a segment's batch is written its messages are dropped from memory, and they
are read back, a batch at a time, when the head runs dry. Messages that are not stored (transient ones) stay in memory.
"""

from collections import deque
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import groupby
from operator import attrgetter
from typing import Protocol

from jumpmq.amqp.messages import Message, body_octets
from jumpmq.store import Batch


OVERHEAD = 256
"""Octets that a message in memory takes beside its body (measured: an object, routing key and headers of its own)."""


class BatchReader(Protocol):
    """Reads a stored batch back."""

    def read(self, batch: Batch) -> list[Message]: ...


class Segment:
    """Neighbouring messages of the tail.

    Attributes:
        batch: where they are stored, None where they are not.
        messages: None once they are only in the store.
        count: how many messages.
        size: octets of their bodies.
        first_seq: the lowest of them; earlier messages of the batch are not the segment's.
        redelivered: whether they count as redelivered when read back.
    """

    __slots__ = ("batch", "count", "first_seq", "messages", "redelivered", "size")

    def __init__(
        self, batch: Batch | None, messages: list[Message] | None, count: int, size: int, first_seq: int
    ) -> None:
        self.batch = batch
        self.messages = messages
        self.count = count
        self.size = size
        self.first_seq = first_seq
        self.redelivered = False


class ReadyMessages:
    """Ready messages, lowest ``seq`` first.

    Args:
        reader: where batches are read back from; None where nothing is stored.
        prepare: called with messages that were read back, before anybody sees them.
        budget: octets of memory to use before a tail begins.

    Attributes:
        size: octets of all ready bodies.
        memory: octets of memory that messages take here, roughly: their bodies and ``OVERHEAD`` each.
    """

    def __init__(self, reader: BatchReader | None, prepare: Callable[[list[Message]], None], budget: int) -> None:
        self._reader = reader
        self._prepare = prepare
        self._budget = budget
        self._head: deque[Message] = deque()
        self._tail: deque[Segment] = deque()
        self._tail_count = 0
        self._pending: deque[Segment] = deque()
        self.memory = self.size = 0

    def __len__(self) -> int:
        return len(self._head) + self._tail_count

    def restore(self, batch: Batch, count: int, redelivered: bool) -> None:
        """Add a stored batch behind all others, without reading it."""
        segment = Segment(batch, None, count, batch.bytes, batch.first_seq)
        segment.redelivered = redelivered
        self._tail.append(segment)
        self.size += batch.bytes
        self._tail_count += count

    def extend(self, messages: list[Message], size: int) -> None:
        """Add messages at the end; ``size`` is the octets of their bodies."""
        self.memory += size + OVERHEAD * len(messages)
        self.size += size
        if not self._tail and self.memory <= self._budget:
            self._head.extend(messages)
            return
        self._shed()
        for batch, group in groupby(messages, key=attrgetter("batch")):
            self._extend_tail(batch, list(group))

    def _extend_tail(self, batch: Batch | None, messages: list[Message]) -> None:
        size = body_octets(messages)
        last = self._tail[-1] if self._tail else None
        if last is not None and last.batch is batch and last.messages is not None:
            last.messages += messages
            last.count += len(messages)
            last.size += size
        else:
            segment = Segment(batch, messages, len(messages), size, messages[0].seq)
            self._tail.append(segment)
            if batch is not None:
                self._pending.append(segment)
        self._tail_count += len(messages)

    def take(self, count: int) -> list[Message]:
        """Remove and return up to ``count`` messages from the front."""
        head = self._head
        while len(head) < count and self._tail:
            self._load()
        if count >= len(head):
            taken = list(head)
            head.clear()
        else:
            pop = head.popleft
            taken = [pop() for _ in range(count)]
        self._note_gone(taken)
        return taken

    def take_range(self, first_seq: int, last_seq: int, count: int) -> list[Message]:
        """Remove and return up to ``count`` messages numbered ``first_seq`` to ``last_seq``."""
        before = self._take_until(first_seq - 1, len(self))
        taken = self._take_until(last_seq, count)
        if before:
            self.put_back(before)
        return taken

    def _take_until(self, last_seq: int, count: int) -> list[Message]:
        taken: list[Message] = []
        head = self._head
        while len(taken) < count:
            while not head and self._tail:
                self._load()
            if not head or head[0].seq > last_seq:
                break
            taken.append(head.popleft())
        self._note_gone(taken)
        return taken

    def _note_gone(self, taken: list[Message]) -> None:
        size = body_octets(taken)
        self.memory -= size + OVERHEAD * len(taken)
        self.size -= size

    def put_back(self, messages: list[Message]) -> None:
        """Return messages to their places."""
        messages = sorted(messages, key=attrgetter("seq"))
        size = body_octets(messages)
        self.memory += size + OVERHEAD * len(messages)
        self.size += size
        if not self._head or messages[-1].seq < self._head[0].seq:
            self._head.extendleft(reversed(messages))
        else:
            self._head = deque(merge(self._head, messages, key=attrgetter("seq")))

    def first(self) -> Message | None:
        """The message at the front, still in the queue."""
        if not self._head and self._tail:
            self._load()
        return self._head[0] if self._head else None

    def __iter__(self) -> Iterator[Message]:
        """All messages in order; stored ones are read for the occasion."""
        yield from list(self._head)
        for segment in list(self._tail):
            yield from self._messages(segment)

    def drop_all(self) -> tuple[list[Message], list[Batch]]:
        """Forget everything; returns it as messages, and as batches of which the queue had every message ready."""
        messages, batches = list(self._head), []
        for segment in self._tail:
            if segment.messages is None and segment.batch is not None and segment.count == segment.batch.remaining:
                batches.append(segment.batch)
            else:
                messages += self._messages(segment)
        self._head.clear()
        self._tail.clear()
        self._pending.clear()
        self._tail_count = self.memory = self.size = 0
        return messages, batches

    def _shed(self) -> None:
        """Drop from memory what is safely in the store."""
        while self._pending and (batch := self._pending[0].batch) is not None and batch.messages is None:
            segment = self._pending.popleft()
            if segment.messages is not None:
                self.memory -= segment.size + OVERHEAD * segment.count
                segment.messages = None

    def _load(self) -> None:
        """Make the first segment of the tail the head."""
        segment = self._tail.popleft()
        self._tail_count -= segment.count
        stored = segment.messages is None
        messages = self._messages(segment)
        if stored:
            size = body_octets(messages)
            self.memory += size + OVERHEAD * len(messages)
            self.size += size - segment.size  # a batch that was settled in part counted whole
        elif segment in self._pending:
            self._pending.remove(segment)
        self._head.extend(messages)

    def _messages(self, segment: Segment) -> list[Message]:
        if segment.messages is not None:
            return segment.messages
        assert self._reader is not None and segment.batch is not None
        messages = [message for message in self._reader.read(segment.batch) if message.seq >= segment.first_seq]
        if segment.redelivered:
            for message in messages:
                message.redelivered = True
        self._prepare(messages)
        return messages
