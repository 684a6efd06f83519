"""Messages returned to a queue out of order, singly or in runs, with positions between present ones."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush

from jumpmq.amqp.messages import Message
from jumpmq.queues.by_number import ByNumber
from jumpmq.queues.runs import untracked


class ReturnedMessages:
    """Messages by number: adding one, and taking the first, are heap operations.

    Attributes:
        seqs: the numbers, a heap; also read directly as a test for messages, which costs no call.
    """

    __slots__ = ("_looked_at", "_messages", "_sorted", "seqs")

    def __init__(self) -> None:
        self.seqs: list[int] = untracked([])
        self._messages = ByNumber[Message]()
        self._looked_at = 0
        self._sorted = True

    def __len__(self) -> int:
        return len(self.seqs)

    def __iter__(self) -> Iterator[Message]:
        """Yield the messages in order."""
        return map(self._messages.__getitem__, sorted(self.seqs))

    def add(self, messages: Iterable[Message]) -> None:
        self._sorted = False
        for message in messages:
            self._messages[message.seq] = message
            heappush(self.seqs, message.seq)

    @property
    def first_seq(self) -> int:
        """Return the lowest number; the collection must not be empty."""
        return self.seqs[0]

    @property
    def first(self) -> Message:
        """Return the message with the lowest number; the collection must not be empty."""
        return self._messages[self.seqs[0]]

    def pop(self) -> Message:
        """Remove and return the first message."""
        self._sorted = False
        return self._messages.take(heappop(self.seqs))

    def take_range(self, first_seq: int, last_seq: int, count: int) -> list[Message]:
        """Remove and return up to ``count`` messages numbered ``first_seq`` to ``last_seq``."""
        if not self._sorted:
            self.seqs.sort()  # a sorted list is a heap, too
            self._sorted = True
        first, end = bisect_left(self.seqs, first_seq), bisect_right(self.seqs, last_seq)
        end = min(end, first + count)
        taken = [*map(self._messages.take, self.seqs[first:end])]
        del self.seqs[first:end]
        return taken

    def page_out(self, count: int, drop_bodies: Callable[[list[Message]], None]) -> int:
        """Drop bodies of up to ``count`` messages; return the number examined, 0 at the end."""
        some = self.seqs[self._looked_at : self._looked_at + count]
        self._looked_at = self._looked_at + count if some else 0
        drop_bodies([self._messages[seq] for seq in some])
        return len(some)

    def take_any(self, count: int) -> list[Message]:
        """Take up to ``count`` messages in any order; to be repeated until there are none."""
        some = self.seqs[-count:]
        del self.seqs[-count:]
        return [*map(self._messages.take, some)]
