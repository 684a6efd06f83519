"""The front of a queue in memory, in order. It consists of runs: finding a position in one long deque takes too
long.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import islice
from operator import attrgetter

from jumpmq.amqp.messages import Message
from jumpmq.queues.runs import untracked

RUN = 8192
"""Maximum number of messages of a run."""

_seq = attrgetter("seq")

NONE: deque[Message] = deque()
"""No messages."""


class Head:
    """Messages by ascending ``seq``, in non-empty runs. An empty head has no runs, because an empty run takes 760
    octets.

    Attributes:
        count: number of messages; an attribute, because reading it costs no call.
    """

    __slots__ = ("_runs", "count")

    def __init__(self) -> None:
        self._runs: list[deque[Message]] = untracked([])
        self.count = 0

    @property
    def first(self) -> Message:
        """Return the first message; the head must not be empty."""
        return self._runs[0][0]

    @property
    def last(self) -> Message:
        """Return the last message; the head must not be empty."""
        return self._runs[-1][-1]

    def extend(self, messages: list[Message]) -> None:
        """Add messages at the end."""
        last = self._runs[-1] if self._runs else self._begin()
        if len(last) + len(messages) <= RUN:
            last.extend(messages)
        else:
            room = RUN - len(last)
            last.extend(messages[:room])
            self._runs += _runs(messages[room:])
        self.count += len(messages)

    def put_first(self, messages: list[Message]) -> None:
        """Insert messages at the front."""
        first = self._runs[0] if self._runs else self._begin()
        if len(first) + len(messages) <= RUN:
            first.extendleft(reversed(messages))
        else:
            self._runs[:0] = _runs(messages)
            if not self.count:
                self._runs.pop()
        self.count += len(messages)

    def take(self, count: int) -> list[Message]:
        """Remove and return up to ``count`` messages from the front."""
        left = count = min(count, self.count)
        taken: list[Message] = []
        while left:
            front = self._runs[0]
            if left < len(front):
                pop = front.popleft
                taken += [pop() for _ in range(left)]
                break
            left -= len(front)
            taken += front
            self._drop_front()
        self.count -= count
        return taken

    def take_range(self, first_seq: int, last_seq: int, count: int) -> list[Message]:
        """Remove and return up to ``count`` messages numbered ``first_seq`` to ``last_seq``."""
        taken: list[Message] = []
        place = bisect_left(self._runs, first_seq, key=_last_seq) if self.count else len(self._runs)
        while len(taken) < count and place < len(self._runs) and self._runs[place][0].seq <= last_seq:
            messages = list(self._runs[place])
            first, end = bounds(messages, first_seq, last_seq)
            end = min(end, first + count - len(taken))
            taken += messages[first:end]
            self._runs[place] = _run(messages[:first] + messages[end:])
            if not self._runs[place] and len(self._runs) > 1:
                del self._runs[place]
            else:
                place += 1
        self.count -= len(taken)
        return taken

    def take_expired(self, now: float, count: int) -> list[Message]:
        """Remove and return up to ``count`` messages at the front that expire by ``now``."""
        taken: list[Message] = []
        front = self._runs[0] if self._runs else NONE
        while front and len(taken) < count and 0.0 < front[0].expires_at <= now:
            taken.append(front.popleft())
            if not front:
                self._drop_front()
                front = self._runs[0]
        self.count -= len(taken)
        return taken

    def take_last(self, count: int) -> list[Message]:
        """Remove and return up to ``count`` messages from the end, in order."""
        left = count = min(count, self.count)
        taken: list[Message] = []
        while left:
            last = self._runs[-1]
            if left < len(last):
                pop = last.pop
                taken += [pop() for _ in range(left)]
                break
            left -= len(last)
            taken += reversed(last)
            if len(self._runs) > 1:
                self._runs.pop()
            else:
                last.clear()
        self.count -= count
        taken.reverse()
        return taken

    def fitting(self, last_seq: int) -> int:
        """Return the number of messages up to ``last_seq`` available at once from the front; 0 only if
        there are none.
        """
        return bisect_right(self._runs[0], last_seq, key=_seq) if self._runs else 0

    def since(self, first_seq: int) -> list[Message]:
        """Return messages from ``first_seq`` on to the end of the run; at least one must exist."""
        run = self._runs[bisect_left(self._runs, first_seq, key=_last_seq)]
        return list(islice(run, bisect_left(run, first_seq, key=_seq), None))

    def _begin(self) -> deque[Message]:
        """Start the first run."""
        self._runs.append(_run([]))
        return self._runs[0]

    def _drop_front(self) -> None:
        if len(self._runs) > 1:
            del self._runs[0]
        else:
            self._runs[0].clear()


def bounds(messages: Sequence[Message], first_seq: int, last_seq: int) -> tuple[int, int]:
    """Return start and end index of messages numbered ``first_seq`` to ``last_seq``."""
    return bisect_left(messages, first_seq, key=_seq), bisect_right(messages, last_seq, key=_seq)


def _run(messages: list[Message]) -> deque[Message]:
    return untracked(deque(messages))


def _runs(messages: list[Message]) -> list[deque[Message]]:
    return [_run(messages[start : start + RUN]) for start in range(0, len(messages), RUN)]


def _last_seq(run: deque[Message]) -> int:
    return run[-1].seq
