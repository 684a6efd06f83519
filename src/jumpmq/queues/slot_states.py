"""States and statistics of a queue's slots (:mod:`jumpmq.queues.slots`), for the management API."""

from collections.abc import Iterator, Mapping, Set
from enum import Enum
from itertools import takewhile
from typing import NamedTuple

from jumpmq.amqp.messages import Message
from jumpmq.queues._lanes import Lanes
from jumpmq.queues.ready import ReadyMessages


class SlotState(Enum):
    """State of a slot."""

    IDLE = "idle"
    BLOCKED = "blocked"
    READING = "reading"
    WITHHELD = "withheld"
    WAITING = "waiting"


class SlotFigures(NamedTuple):
    """Statistics of a slot.

    Attributes:
        slot: number of the slot.
        ready, unacknowledged: number of messages.
        oldest: publishing time of the first ready message, in seconds since the epoch; None if that is not in memory,
            or without one.
        state: state, as listed in :mod:`jumpmq.queues.slots`.
    """

    slot: int
    ready: int
    unacknowledged: int
    oldest: float | None
    state: SlotState


class SlotStates:
    """The slots of a queue, to be looked at. Shares the collections of :class:`~jumpmq.queues.slots.SlottedMessages`.

    Args:
        lanes: the slots.
        apart: messages of slots that are apart.
        reading: slots whose next messages are being read.
    """

    __slots__ = ("_apart", "_lanes", "_reading")

    def __init__(self, lanes: Lanes, apart: Mapping[int, ReadyMessages], reading: Set[int]) -> None:
        self._lanes = lanes
        self._apart = apart
        self._reading = reading

    def ready(self, slot: int) -> int:
        """Return the number of ready messages of a slot."""
        return len(self._apart[slot]) if self._lanes.is_apart(slot) else self._lanes.length(slot)

    def front(self, slot: int) -> Message | None:
        """Return the first message of a slot, if in memory."""
        return self._apart[slot].front() if self._lanes.is_apart(slot) else self._lanes.front(slot)

    def figures(self) -> Iterator[SlotFigures]:
        """Yield statistics of slots with ready or unacknowledged messages, by number."""
        for slot in range(self._lanes.slots):
            if self._lanes.held_of(slot) or self.ready(slot):
                yield self.figures_of(slot)

    def figures_of(self, slot: int) -> SlotFigures:
        """Return the statistics of a slot."""
        front = self.front(slot)
        oldest = None if front is None else front.published_at
        return SlotFigures(slot, self.ready(slot), self._lanes.held_of(slot), oldest, self._state(slot))

    def _state(self, slot: int) -> SlotState:
        if not self.ready(slot):
            return SlotState.IDLE
        if self._lanes.limit and self._lanes.held_of(slot) >= self._lanes.limit:
            return SlotState.BLOCKED
        if self._lanes.given_to(slot) is None:
            return SlotState.WITHHELD
        return SlotState.READING if slot in self._reading else SlotState.WAITING

    def before(self, slot: int) -> int:
        """Return the number of slots ahead of a slot in its ring."""
        share = self._lanes.given_to(slot)
        return 0 if share is None else sum(1 for _ in takewhile(slot.__ne__, self._lanes.ring(share)))
