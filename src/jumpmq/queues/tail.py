"""The tail of a queue's ready messages: segments in order, stored or about to be stored; see
:mod:`jumpmq.queues.ready`.

A segment is in one of these states::

    in no file      transient messages, to be stored for lack of memory
    in no commit    messages of a batch that is not written yet
    in the store    without messages in memory
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from itertools import groupby, islice
from operator import attrgetter

from jumpmq.amqp.messages import Message
from jumpmq.queues.bodies import BatchReader
from jumpmq.queues.runs import body_octets, persistent
from jumpmq.queues.segment import BatchSegment
from jumpmq.store import Batch

_last_seq = attrgetter("last_seq")

PAGED_AT_ONCE = 4096
"""Messages paged out per step, some milliseconds of work."""

SPILLED_COUNT, SPILLED_OCTETS = 1024, 1 << 20
"""Maximum number and octets of transient messages stored together; the last message may exceed the octets. They form
a batch, like the messages of a segment.
"""

NONE: deque[BatchSegment] = deque()
"""Shared empty segments. Most queues never have any, and an empty deque takes 600 octets."""


class Tail:
    """Segments in order.

    Attributes:
        segments: the segments; also read directly as a test for messages, which costs no call.
        count: number of messages.
        is_measured: True if the sizes of all segments are exact.
    """

    __slots__ = ("_inexact", "_unstored", "_unwritten", "count", "segments")

    def __init__(self, segments: deque[BatchSegment] | None = None) -> None:
        self.segments = deque[BatchSegment]() if segments is None else segments
        self.count = self._inexact = 0  # messages; segments with estimated sizes
        self._unwritten = self._unstored = NONE  # segments in no commit yet; segments in no file yet

    # --- coming ---

    def restore(self, segment: BatchSegment) -> None:
        """Add a stored segment at the end."""
        self.segments.append(segment)
        self.count += segment.count
        self._inexact += not segment.exact

    def extend(self, messages: list[Message]) -> None:
        """Add messages at the end."""
        batch = messages[0].batch
        if batch is not None and batch is messages[-1].batch and persistent(messages) is messages:
            self._extend_batch(batch, messages)
            return
        for batch, group in groupby(messages, key=attrgetter("batch")):
            if batch is None:
                self._extend_unstored(list(group))
            else:
                self._extend_batch(batch, list(group))

    def _extend_unstored(self, messages: list[Message]) -> None:
        """Add unstored messages, in segments of a batch's size. The last segment is filled first: otherwise single
        messages would have a segment and a batch each.
        """
        last = self.segments[-1] if self.segments else None
        if last is None or last.messages is None or last.batch is not None:
            last = None
        start = 0
        while start < len(messages):
            count, held = (last.count, last.held) if last is not None else (0, 0)
            end = start
            while end < len(messages) and count < SPILLED_COUNT and held < SPILLED_OCTETS:
                message = messages[end]
                held += len(message.body) + len(message.properties)
                count += 1
                end += 1
            run = messages[start:end]
            if last is None:
                segment = BatchSegment(None, run, body_octets(run))
                self.segments.append(segment)
                self._wait_for_file(segment)
            elif run:
                last.add(run, body_octets(run))
            self.count += len(run)
            last, start = None, end

    def _extend_batch(self, batch: Batch, messages: list[Message]) -> None:
        size, segments = body_octets(messages), self.segments
        last = segments[-1] if segments else None
        if last is not None and last.batch is batch and last.messages is not None:
            last.add(messages, size)
        else:
            if len(segments) > 1 and segments[-2].absorb(segments[-1]):
                segments.pop()
            segment = BatchSegment(batch, messages, size)
            segments.append(segment)
            self._wait_for_commit(segment)
        self.count += len(messages)

    def put_first(self, segments: list[BatchSegment]) -> None:
        """Add segments of stored messages in front, in order."""
        for segment in reversed(segments):
            self.segments.appendleft(segment)
            self.count += segment.count
            self._wait_for_commit(segment)

    def insert(self, place: int, batch: Batch | None, messages: list[Message], *, stored: bool) -> None:
        """Insert the rest of a removed segment at its position.

        Args:
            stored: True if the messages were read from the store.
        """
        segment = BatchSegment(batch, messages, body_octets(messages))
        self.segments.insert(place, segment)
        self.count += segment.count
        if stored:
            segment.forget_messages()
        elif batch is not None:
            self._wait_for_commit(segment)
        else:
            self._wait_for_file(segment)

    # --- leaving ---

    def remove(self, place: int = 0) -> BatchSegment:
        """Remove and return the segment at a position."""
        segment = self.segments[place]
        del self.segments[place]
        self.count -= segment.count
        return segment

    # --- looking ---

    def place_of(self, seq: int) -> int:
        """Return the position of the first segment with messages numbered ``seq`` or higher."""
        return bisect_left(self.segments, seq, key=_last_seq)

    @property
    def is_measured(self) -> bool:
        return not self._inexact

    def estimated(self, count: int) -> Iterable[BatchSegment]:
        """Return up to ``count`` segments with estimated sizes."""
        return list(islice((one for one in self.segments if not one.exact), count)) if self._inexact else ()

    def measured(self, segment: BatchSegment, size: int) -> int:
        """Set the exact size of a segment, possibly removed already; return the growth."""
        growth = size - segment.size
        self._inexact -= not segment.exact
        segment.size, segment.exact = size, True
        return growth

    def stored(self) -> tuple[int, int]:
        """Return number and octets of bodies of messages without bodies in memory."""
        stored = [segment for segment in self.segments if segment.messages is None]
        return sum([segment.count for segment in stored]), sum([segment.size for segment in stored])

    def spilled(self) -> tuple[int, int]:
        """Return number and octets of bodies of messages stored only for lack of memory."""
        spilled = [one for one in self.segments if one.messages is None and not one.persistent]
        return sum(one.count for one in spilled), sum(one.size for one in spilled)

    # --- memory ---

    def spill(self, reader: BatchReader) -> int:
        """Store one step of the unstored messages, and return the number stored."""
        count = 0
        while self._unstored and count < PAGED_AT_ONCE:
            segment = self._unstored.popleft()
            if segment.messages is not None:  # it may have left the tail meanwhile
                reader.spill(segment.messages)
                segment.batch = segment.messages[0].batch
                self._wait_for_commit(segment)
                count += segment.count
        return count

    def shed(self) -> tuple[int, int]:
        """Drop one step of safely stored messages from memory; return their number, and the freed octets."""
        waiting, count, freed = self._unwritten, 0, 0
        while waiting and count < PAGED_AT_ONCE:
            segment = waiting[0]
            if segment.messages is not None and segment.batch is not None:
                if not segment.batch.is_written(segment.last_seq):
                    break
                freed += segment.held
                segment.forget_messages()
                count += segment.count
            waiting.popleft()
        return count, freed

    def _wait_for_commit(self, segment: BatchSegment) -> None:
        """Drop a segment from memory once on disk."""
        if self._unwritten is NONE:
            self._unwritten = deque()
        self._unwritten.append(segment)

    def _wait_for_file(self, segment: BatchSegment) -> None:
        """Store a segment in a later step."""
        if self._unstored is NONE:
            self._unstored = deque()
        self._unstored.append(segment)


NO_TAIL = Tail(NONE)
"""Shared empty instance; never filled."""
