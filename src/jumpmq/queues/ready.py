"""The ready messages of a queue in order, the head of them in memory and a long tail in the store.

A queue within its memory budget is one deque. What arrives beyond the budget goes to the *tail*: segments of messages
that went to the store together. As soon as a segment's batch is written its messages are dropped from memory, and they
are read back, a batch at a time, when the head runs dry. Messages that are not stored (transient ones) stay in memory.
"""

from collections import deque
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import accumulate, chain, groupby
from operator import attrgetter
from typing import Protocol

from jumpmq.amqp.messages import Message
from jumpmq.queues.memory import OVERHEAD
from jumpmq.queues.runs import body_octets
from jumpmq.store import Batch


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
        first_seq, last_seq: their range; other messages of the batch are not the segment's.
        delivered_seq: those up to this number count as redelivered when read back.
    """

    __slots__ = ("batch", "count", "delivered_seq", "first_seq", "last_seq", "messages", "size")

    def __init__(self, batch: Batch | None, messages: list[Message], size: int) -> None:
        self.batch = batch
        self.messages: list[Message] | None = messages
        self.count = len(messages)
        self.size = size
        self.first_seq = messages[0].seq if messages else 0
        self.last_seq = messages[-1].seq if messages else 0
        self.delivered_seq = 0

    @classmethod
    def stored(cls, batch: Batch, delivered_seq: int) -> "Segment":
        """What is left of a batch in the store."""
        segment = cls(batch, [], batch.bytes)
        segment.messages = None
        segment.count = batch.remaining
        segment.first_seq, segment.last_seq = batch.first_seq, batch.last_seq
        segment.delivered_seq = delivered_seq
        return segment

    def add(self, messages: list[Message], size: int) -> None:
        """Add messages that follow, while all are in memory."""
        assert self.messages is not None
        self.messages += messages
        self.count += len(messages)
        self.size += size
        self.last_seq = messages[-1].seq


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

    def restore(self, batch: Batch, delivered_seq: int) -> None:
        """Add a stored batch behind all others, without reading it; up to ``delivered_seq`` it was delivered before."""
        segment = Segment.stored(batch, delivered_seq)
        self._tail.append(segment)
        self.size += segment.size
        self._tail_count += segment.count

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
            last.add(messages, size)
        else:
            segment = Segment(batch, messages, size)
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

    def take_octets(self, count: int, octets: int) -> list[Message]:
        """As :meth:`take`, but as few as hold ``octets`` of bodies; some, if there are any."""
        head = self._head
        if not head and self._tail:
            self._load()
        pop = head.popleft
        taken = [pop() for _ in range(min(count, len(head)))]
        if body_octets(taken) > octets:
            reached = accumulate(len(message.body) for message in taken)
            enough = next(place for place, size in enumerate(reached, 1) if size >= octets)
            head.extendleft(reversed(taken[enough:]))
            del taken[enough:]
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
            sure = min(count - len(taken), len(head)) if head[-1].seq <= last_seq else 1
            taken += [head.popleft() for _ in range(sure)]
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

    def between(self, first_seq: int, last_seq: int) -> Iterator[Message]:
        """The messages numbered ``first_seq`` to ``last_seq``, in order; stored ones are read for the occasion."""
        parts = [segment for segment in self._tail if segment.last_seq >= first_seq and segment.first_seq <= last_seq]
        for messages in chain([list(self._head)], map(self._messages, parts)):
            for message in messages:
                if message.seq > last_seq:
                    return
                if message.seq >= first_seq:
                    yield message

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
        first_seq, last_seq = segment.first_seq, segment.last_seq
        messages = [one for one in self._reader.read(segment.batch) if first_seq <= one.seq <= last_seq]
        for message in messages:
            if message.seq <= segment.delivered_seq:
                message.redelivered = True
        self._prepare(messages)
        return messages
