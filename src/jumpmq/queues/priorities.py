"""Ready messages by priority, ordered within a priority.

Each used priority has its own :class:`ReadyMessages`, which works as in a queue without priorities: paging, return to a
position, expiry at the front. As in RabbitMQ, a length limit drops the messages that would be delivered next.

Two rules choose between priorities. A classic queue (``x-max-priority``) takes higher priorities first. A quorum queue
has two priorities, and lets neither wait for long.
"""

from collections.abc import Callable, Collection, Iterator
from heapq import merge
from itertools import chain, islice
from operator import attrgetter

from jumpmq.amqp.messages import Message
from jumpmq.queues.any_ready import DividedMessages
from jumpmq.queues.bodies import BatchReader
from jumpmq.queues.head import RUN
from jumpmq.queues.memory import MemoryAccount
from jumpmq.queues.ready import ReadyMessages
from jumpmq.queues.runs import body_octets, by_priority
from jumpmq.store.layout import octets

LAST_NORMAL = 4
"""Highest priority in the lower of a quorum queue's two classes."""

_NORMAL, HIGH, _BACK = range(3)
_OF_HIGH = 2
"""Messages of the higher priority taken per older one."""


class PrioritizedMessages(DividedMessages):
    """Ready messages, highest priority first.

    Args:
        highest: maximum priority; higher ones count as this, and messages without a priority as 0.
    """

    by_priority = True

    def __init__(
        self,
        reader: BatchReader | None,
        prepare: Callable[[list[Message]], None],
        account: MemoryAccount,
        arrived: Callable[[], None],
        highest: int,
    ) -> None:
        self._reader = reader  # as for :class:`ReadyMessages`
        self._arrived = arrived  # as for :class:`ReadyMessages`
        self._prepare = prepare  # as for :class:`ReadyMessages`
        self._account = account  # as for :class:`ReadyMessages`
        self._highest = highest  # maximum priority
        self._levels: dict[int, ReadyMessages] = {}  # by priority; only used priorities

    def __len__(self) -> int:
        return sum(map(len, self._levels.values()))

    @property
    def _parts(self) -> Collection[ReadyMessages]:
        return self._levels.values()

    @property
    def size(self) -> int:
        return sum(level.size for level in self._levels.values())

    @property
    def memory(self) -> int:
        return sum(level.memory for level in self._levels.values())

    def counts(self) -> dict[int, int]:
        """Return the number of messages by priority."""
        return {priority: len(level) for priority, level in sorted(self._levels.items())}

    def _split(self, messages: list[Message]) -> Iterator[tuple[ReadyMessages, list[Message]]]:
        for priority, group in by_priority(messages, self._highest).items():
            yield self._level(priority), group

    def _level(self, priority: int) -> ReadyMessages:
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = ReadyMessages(self._reader, self._prepare, self._account, self._arrived)
            self._levels = dict(sorted(self._levels.items(), reverse=True))
        return level

    def extend(self, messages: list[Message], size: int) -> None:
        for level, group in self._split(messages):
            level.extend(group, body_octets(group))

    def put_back(self, messages: list[Message]) -> None:
        for level, group in self._split(messages):
            level.put_back(group)

    # --- taking ---

    def take(self, count: int) -> list[Message]:
        return self._take(count, lambda level, left: level.take(left))

    def take_octets(self, count: int, most: int) -> list[Message]:
        taken: list[Message] = []
        for level in self._levels.values():
            if len(level) and len(taken) < count and most > 0:
                more = level.take_octets(count - len(taken), most)
                most -= octets(more)[1]
                taken += more
                if len(level):
                    break  # its next messages are being read, and come first
        return taken

    def take_range(self, first_seq: int, last_seq: int, count: int) -> list[Message]:
        return self._take(count, lambda level, left: level.take_range(first_seq, last_seq, left))

    def take_expired(self, now: float, count: int) -> list[Message]:
        return self._take(count, lambda level, left: level.take_expired(now, left))

    def _take(self, count: int, take: Callable[[ReadyMessages, int], list[Message]]) -> list[Message]:
        taken: list[Message] = []
        for level in self._levels.values():
            if len(level) and len(taken) < count:
                taken += take(level, count - len(taken))
        return taken

    # --- looking ---

    def first_expiry(self) -> float:
        return min((at for level in self._levels.values() if len(level) and (at := level.first_expiry())), default=0.0)

    def between(self, first_seq: int, last_seq: int) -> Iterator[list[Message]]:
        for level in list(self._levels.values()):
            yield from level.between(first_seq, last_seq)

    def in_sequence(self, first_seq: int, last_seq: int) -> Iterator[list[Message]]:
        levels = (chain.from_iterable(level.between(first_seq, last_seq)) for level in list(self._levels.values()))
        merged = merge(*levels, key=attrgetter("seq"))
        return iter(lambda: list(islice(merged, RUN)), [])

    def front(self) -> Message | None:
        return next((level.front() for level in self._levels.values() if len(level)), None)

    def page_out(self, kept: int) -> int:
        # The lowest priority first.
        for level in reversed(self._levels.values()):
            if done := level.page_out(kept):
                return done
        return 0


class WeightedMessages(PrioritizedMessages):
    """Ready messages of two priorities, as in RabbitMQ 4.0's quorum queues: above 4, and the rest.

    Two of three taken messages have the higher priority, if there are any; the third is the older one of both fronts.
    Returned messages come before all others, in order.

    Args:
        normal: the present messages, all of the lower priority.

    Attributes:
        normal, high: messages of the lower and the higher priority, without returned ones.
    """

    def __init__(
        self,
        reader: BatchReader | None,
        prepare: Callable[[list[Message]], None],
        account: MemoryAccount,
        arrived: Callable[[], None],
        normal: ReadyMessages,
    ) -> None:
        super().__init__(reader, prepare, account, arrived, HIGH)
        self._levels[_NORMAL] = normal
        self.normal, self.high, self._back = normal, self._level(HIGH), self._level(_BACK)
        self._turn = 0  # position in the cycle of three: 0 to 2

    def _split(self, messages: list[Message]) -> Iterator[tuple[ReadyMessages, list[Message]]]:
        for priority, group in by_priority(messages, HIGH, LAST_NORMAL).items():
            yield self._level(priority), group

    def put_back(self, messages: list[Message]) -> None:
        self._back.put_back(messages)

    def take(self, count: int) -> list[Message]:
        taken = self._back.take(count)
        while len(taken) < count and (next_ones := self._next(count - len(taken))) is not None:
            level, most = next_ones
            taken += self._turned(level.take(most))
        return taken

    def take_octets(self, count: int, most: int) -> list[Message]:
        taken: list[Message] = []
        while len(taken) < count and most > 0:
            if len(self._back):
                level, fitting = self._back, count - len(taken)
            elif (next_ones := self._next(count - len(taken))) is not None:
                level, fitting = next_ones
            else:
                break
            more = level.take_octets(fitting, most)
            if not more:
                break  # its next messages are being read, and come first
            most -= octets(more)[1]
            taken += more if level is self._back else self._turned(more)
        return taken

    def take_range(self, first_seq: int, last_seq: int, count: int) -> list[Message]:
        taken = self._back.take_range(first_seq, last_seq, count)
        while len(taken) < count and (next_ones := self._next(count - len(taken))) is not None:
            level, most = next_ones
            more = level.take_range(first_seq, last_seq, most)
            if not more:  # only one list has messages left
                other = self.normal if level is self.high else self.high
                return taken + self._turned(other.take_range(first_seq, last_seq, count - len(taken)))
            taken += self._turned(more)
        return taken

    def between(self, first_seq: int, last_seq: int) -> Iterator[list[Message]]:
        yield from self._back.between(first_seq, last_seq)
        woven = self._woven(
            *(chain.from_iterable(one.between(first_seq, last_seq)) for one in (self.high, self.normal))
        )
        yield from iter(lambda: list(islice(woven, RUN)), [])

    def _woven(self, high: Iterator[Message], normal: Iterator[Message]) -> Iterator[Message]:
        """Yield messages of both priorities in the order of :meth:`take`."""
        turn, higher, lower = self._turn, next(high, None), next(normal, None)
        while higher is not None and lower is not None:
            if turn < _OF_HIGH or higher.seq < lower.seq:
                yield higher
                higher = next(high, None)
            else:
                yield lower
                lower = next(normal, None)
            turn = (turn + 1) % (_OF_HIGH + 1)
        if higher is not None:
            yield higher
        elif lower is not None:
            yield lower
        yield from chain(high, normal)

    def _next(self, count: int) -> tuple[ReadyMessages, int] | None:
        """Return the list of the next message, and the maximum number taken from it; None if empty."""
        normal, high = self.normal, self.high
        if not (len(normal) and len(high)):
            level = high if len(high) else normal
            return (level, count) if len(level) else None
        if self._turn < _OF_HIGH:
            return high, min(count, _OF_HIGH - self._turn)
        return (high if high.first_seq() < normal.first_seq() else normal), 1

    def _turned(self, taken: list[Message]) -> list[Message]:
        self._turn = (self._turn + len(taken)) % (_OF_HIGH + 1)
        return taken

    def front(self) -> Message | None:
        if len(self._back):
            return self._back.front()
        next_ones = self._next(1)
        return None if next_ones is None else next_ones[0].front()
