"""Messages returned to a queue out of order, singly or in runs, with positions between present ones."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush

from jumpmq.amqp.messages import Message
from jumpmq.queues.runs import untracked


class ReturnedMessages:
    """Messages by number: adding one, and taking the first, are heap operations.

    Attributes:
        messages: by number; whether there are any is read directly, which costs no call.
    """

    __slots__ = ("_looked_at", "_seqs", "_sorted", "messages")

    def __init__(self) -> None:
        self._seqs: list[int] = untracked([])
        self.messages: dict[int, Message] = {}
        self._looked_at = 0
        self._sorted = True

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[Message]:
        """In order."""
        return (self.messages[seq] for seq in sorted(self._seqs))

    def add(self, messages: Iterable[Message]) -> None:
        self._sorted = False
        for message in messages:
            self.messages[message.seq] = message
            heappush(self._seqs, message.seq)

    @property
    def first_seq(self) -> int:
        """Return the lowest number; the collection must not be empty."""
        return self._seqs[0]

    @property
    def first(self) -> Message:
        """Return the message with the lowest number; the collection must not be empty."""
        return self.messages[self._seqs[0]]

    def pop(self) -> Message:
        """Remove and return the first."""
        self._sorted = False
        return self.messages.pop(heappop(self._seqs))

    def take_range(self, first_seq: int, last_seq: int, count: int) -> list[Message]:
        """Remove and return up to ``count`` messages numbered ``first_seq`` to ``last_seq``."""
        if not self._sorted:
            self._seqs.sort()  # what is sorted is a heap, too
            self._sorted = True
        first, end = bisect_left(self._seqs, first_seq), bisect_right(self._seqs, last_seq)
        end = min(end, first + count)
        taken = [self.messages.pop(seq) for seq in self._seqs[first:end]]
        del self._seqs[first:end]
        return taken

    def page_out(self, count: int, drop_bodies: Callable[[list[Message]], None]) -> int:
        """Drop bodies of up to ``count`` messages; return the number examined, 0 at the end."""
        some = self._seqs[self._looked_at : self._looked_at + count]
        self._looked_at = self._looked_at + count if some else 0
        drop_bodies([self.messages[seq] for seq in some])
        return len(some)

    def take_any(self, count: int) -> list[Message]:
        """Take up to ``count`` messages in any order: to be repeated until empty."""
        self._seqs.clear()
        pop = self.messages.popitem
        return [pop()[1] for _ in range(min(count, len(self.messages)))]
