"""Ready messages by priority (``x-max-priority``): the higher ones first, those of one priority in order.

Each priority in use has :class:`ReadyMessages` of its own, where all is as in a queue without priorities: paging,
returning to a place, expiry at the front. As in RabbitMQ the front of the queue is the highest priority's, so
that is also what a length limit drops first.
"""

from collections.abc import Callable, Iterable, Iterator

from jumpmq.amqp.messages import Message
from jumpmq.queues.bodies import BatchReader
from jumpmq.queues.leftovers import AllLeftovers
from jumpmq.queues.memory import MemoryAccount
from jumpmq.queues.ready import ReadyMessages, for_nobody, nobody_waits
from jumpmq.queues.runs import body_octets, by_priority, octets
from jumpmq.store import Batch


class PrioritizedMessages:
    """Ready messages, the highest priority first. See :class:`ReadyMessages` for what is done with them.

    Args:
        highest: the highest priority; a message with a higher one counts as this, one without any as 0.
    """

    def __init__(
        self,
        reader: BatchReader | None,
        prepare: Callable[[list[Message]], None],
        account: MemoryAccount,
        arrived: Callable[[], None],
        highest: int,
    ) -> None:
        self._reader = reader  # as of :class:`ReadyMessages`
        self._arrived = arrived  # the same
        self._prepare = prepare  # the same
        self._account = account  # the same
        self._highest = highest  # priority; those above count as this
        self._levels: dict[int, ReadyMessages] = {}  # by priority; those that were used

    def __len__(self) -> int:
        return sum(map(len, self._levels.values()))

    @property
    def size(self) -> int:
        return sum(level.size for level in self._levels.values())

    @property
    def memory(self) -> int:
        return sum(level.memory for level in self._levels.values())

    def counts(self) -> dict[int, int]:
        """How many messages there are of each priority in use."""
        return {priority: len(level) for priority, level in sorted(self._levels.items())}

    def _split(self, messages: list[Message]) -> Iterator[tuple[ReadyMessages, list[Message]]]:
        for priority, group in by_priority(messages, self._highest).items():
            level = self._levels.get(priority)
            if level is None:
                self._levels[priority] = level = ReadyMessages(
                    self._reader, self._prepare, self._account, self._arrived
                )
                self._levels = dict(sorted(self._levels.items(), reverse=True))
            yield level, group

    def restore(self, batch: Batch, delivered_seq: int) -> None:
        """Add a stored batch behind all others. It is read: its priorities are in its messages."""
        assert self._reader is not None
        messages = self._reader.read(batch)
        for message in messages:
            message.redelivered = message.seq <= delivered_seq
        self._prepare(messages)
        self.extend(messages, 0)

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
                    break  # what is left of it is being read, and comes first
        return taken

    def take_range(self, first_seq: int, last_seq: int, count: int) -> list[Message]:
        return self._take(count, lambda level, left: level.take_range(first_seq, last_seq, left))

    def take_expired(self, now: float, count: int) -> list[Message]:
        return self._take(count, lambda level, left: level.take_expired(now, left))

    def take_oldest(self, count: int) -> list[Message]:
        return self.take(count)

    def _take(self, count: int, take: Callable[[ReadyMessages, int], list[Message]]) -> list[Message]:
        taken: list[Message] = []
        for level in self._levels.values():
            if len(level) and len(taken) < count:
                taken += take(level, count - len(taken))
        return taken

    # --- looking ---

    def first_expiry(self) -> float:
        """When the first of the fronts of all priorities expires, 0 is never."""
        return min((at for level in self._levels.values() if len(level) and (at := level.first_expiry())), default=0.0)

    def between(self, first_seq: int, last_seq: int) -> Iterator[list[Message]]:
        for level in list(self._levels.values()):
            yield from level.between(first_seq, last_seq)

    def front(self) -> Message | None:
        """The first message of the highest priority, if it is in memory."""
        return next((level.front() for level in self._levels.values() if len(level)), None)

    def in_memory(self) -> tuple[int, int]:
        return _sums(level.in_memory() for level in self._levels.values())

    def spilled(self) -> tuple[int, int]:
        return _sums(level.spilled() for level in self._levels.values())

    def measure(self, segments: int) -> bool:
        return all(level.measure(segments) for level in self._levels.values())

    # --- leaving, and memory ---

    def leave(self) -> AllLeftovers:
        return AllLeftovers([level.leave() for level in self._levels.values()])

    def close(self) -> None:
        for level in self._levels.values():
            level.close()
        self._prepare, self._arrived = for_nobody, nobody_waits

    def page_out(self, kept: int) -> int:
        """As :meth:`ReadyMessages.page_out`, the lowest priority first."""
        for level in reversed(self._levels.values()):
            if done := level.page_out(kept):
                return done
        return 0


def _sums(pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
    found = list(pairs)
    return sum(first for first, _ in found), sum(second for _, second in found)
