"""Reading ahead: the next messages are read back from the store by a thread, before consumers need them.

One request is in progress at a time. The queue may change meanwhile: the caller uses those messages of the answer that
are still next, and drops the others.
"""

from collections.abc import Callable, Iterable

from jumpmq.amqp.messages import Message
from jumpmq.queues.bodies import BatchReader
from jumpmq.queues.segment import BatchSegment

AHEAD_COUNT, AHEAD_OCTETS = 4096, 2 << 20
"""Maximum messages and octets (of bodies, or on disk) read at once; the last segment may exceed them."""


class ReadAhead:
    """Reads in progress for a queue.

    Args:
        arrived: called with segments and their messages.

    Attributes:
        low: number of messages at the front below which the next read should start.
    """

    __slots__ = ("_arrived", "_asked", "_failed", "low")

    def __init__(self, arrived: Callable[[Iterable[tuple[BatchSegment, list[Message]]]], None]) -> None:
        self._arrived = arrived
        self._asked: list[tuple[BatchSegment, int]] = []
        self._failed = False
        self.low = 0

    def ask(self, reader: BatchReader | None, tail: Iterable[BatchSegment]) -> bool:
        """Start reading the first segments; return True if reads are in progress."""
        if self._asked:
            return True
        if self._failed:
            self._failed = False
            return False
        count = size = 0
        for segment in tail:
            if segment.messages is not None or count >= AHEAD_COUNT or size >= AHEAD_OCTETS:
                break
            self._asked.append((segment, segment.last_seq))
            count += segment.count
            size += max(segment.size, segment.stored_octets)
        if reader is None or not self._asked:
            return False
        ranges = [(one.batch, one.first_seq, last) for one, last in self._asked if one.batch is not None]
        reader.read_soon(ranges, self._on_read)
        return True

    def _on_read(self, found: list[list[Message]] | None) -> None:
        """Handle messages read; None on failure: the caller then reads again, and reports the error."""
        asked, self._asked = self._asked, []
        self._failed = found is None
        self.low = sum(map(len, found or ())) // 2
        # A segment that has absorbed others since the request was read in part: it is read again.
        read = zip(asked, found or [], strict=False)
        self._arrived((segment, messages) for (segment, last), messages in read if segment.last_seq == last)
