"""Paging: bodies already on disk leave memory.

If memory is short, the bodies of the longest queue are paged first, and then those of deliveries. Without a shortage,
queues at rest are paged if they hold much: their messages are needed later, if ever. A queue with publishers or
consumers keeps its bodies in memory, because paging and reading back take time. The exception is a rate so low that
messages wait long in any case.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from jumpmq.amqp.messages import Message
from jumpmq.broker.memory.heap import SLACK, FreedMemory, empty_free_lists
from jumpmq.broker.upkeep.upkeep import Upkeep
from jumpmq.queues import Queue
from jumpmq.queues.memory import MemoryAccount
from jumpmq.queues.reservations import Reservations
from jumpmq.queues.runs import by_holder

KEPT, LEAST_KEPT = 256 << 10, 16 << 10
"""Octets at the front of a queue initially kept in memory, as next deliveries; fewer with many resting queues."""

RESTING = 24 << 20
"""Octets of ready messages from which on resting queues are paged."""

REST = 2.0
"""Seconds between checks for resting queues."""

RESTING_SHARE = 16
"""Share of a resting queue's messages that may be published or delivered in the interval: at this rate messages wait
for half a minute.
"""

HELD_AT_ONCE = 500
"""Number of deliveries checked per step."""


LOOKED_AT_ONCE = 2000
"""Number of queues checked for held octets per step."""


class PageableDeliveries(Protocol):
    """The unacknowledged deliveries of a channel."""

    def unparked(self, count: int) -> Iterator[list[Message]]:
        """Yield all deliveries not parked, up to ``count`` at once; deliveries may come and go meanwhile."""

    def park(self) -> Iterator[None]:
        """Park deliveries, a batch at a time; deliveries may come and go meanwhile."""


class Paging:
    """Pages the queues of a broker.

    Args:
        queues: returns all queues.
        deliveries: returns the unacknowledged deliveries of each channel.
        places: returns the reservations of groups of readers.
    """

    def __init__(
        self,
        upkeep: Upkeep,
        account: MemoryAccount,
        queues: Callable[[], Iterable[Queue]],
        deliveries: Callable[[], Iterable[PageableDeliveries]],
        places: Callable[[], Iterable[Reservations]],
    ) -> None:
        self._places = places
        self._deliveries = deliveries
        self._upkeep = upkeep  # runs the steps
        self._account = account  # held memory, and the limit
        self._queues = queues
        self._freed = FreedMemory(account)  # returns freed memory to the system
        self._at_work = False  # True while steps are running
        self._rested_at = time.monotonic()  # time of the last check for resting queues
        # Published and delivered messages, at the last check, of the queues with much memory.
        self._seen: dict[Queue, int] = {}
        # True if the last pass over resting queues freed much. Messages published meanwhile are scattered between freed
        # memory, and each may keep a megabyte from being returned: the next pass pages them, too.
        self._freed_much = False
        # The maximum of held memory in the current interval, and in the interval before.
        self._most = self._most_before = 0

    def look(self) -> None:
        """Begin paging if it is due; to be called at intervals."""
        if self._account.tight and not self._at_work:
            self._at_work = True
            self._upkeep.work("paging", self._steps(self._page()))
        self._most = max(self._most, self._account.total)
        if time.monotonic() >= self._rested_at + REST and not self._at_work:
            self._rested_at = time.monotonic()
            most = max(self._most, self._most_before)
            self._freed.return_at_intervals(most)
            self._most, self._most_before = self._account.total, self._most
            # Messages published while others were freed lie scattered between the freed ones, and each may keep a
            # megabyte from being returned: the passes after a fall page these messages, too.
            fell = self._account.total < most - SLACK
            if self._account.by_kind["ready"] > RESTING or fell:
                self._at_work = True
                self._upkeep.work("paging queues that rest", self._steps(self._page_resting(fell)))
            else:
                self._seen = {}

    def _steps(self, pages: Iterator[None]) -> Iterator[None]:
        try:
            for _ in pages:
                self._freed.look()
                yield
            self._freed.look()
        finally:
            self._at_work = False

    def _page(self) -> Iterator[None]:
        yield from self._page_queues(KEPT)
        yield from self._page_deliveries()
        yield from self._page_reservations()
        yield from self._page_queues(0)

    def _page_queues(self, kept: int) -> Iterator[None]:
        held = [(queue.memory, queue) for queue in self._queues()]
        yield
        held.sort(key=lambda one: -one[0])
        for octets, queue in held:
            if octets <= kept or not self._account.tight:
                return
            while self._account.tight and queue.page_out(kept):
                yield

    def _page_resting(self, fell: bool) -> Iterator[None]:
        seen, self._seen = self._seen, {}
        before = self._account.total
        found: list[Queue] = []
        for place, queue in enumerate(list(self._queues())):
            if place % LOOKED_AT_ONCE == LOOKED_AT_ONCE - 1:
                yield
            if queue.memory > LEAST_KEPT:
                found.append(queue)
                self._seen[queue] = _done(queue)
        kept = max(LEAST_KEPT, min(KEPT, RESTING // max(len(found), 1)))
        for place, queue in enumerate(found):
            if place % LOOKED_AT_ONCE == LOOKED_AT_ONCE - 1:
                yield
            while queue.memory > kept and _rests(queue, seen) and queue.page_out(kept):
                yield
        if fell or self._account.total < before - SLACK:
            empty_free_lists()

    def _page_deliveries(self) -> Iterator[None]:
        for deliveries in list(self._deliveries()):
            for messages in deliveries.unparked(HELD_AT_ONCE):
                if not self._account.tight:
                    return
                for _, queue, share in by_holder(messages):
                    if queue.taken is not None:
                        queue.taken.page(share)
                yield
            for _ in deliveries.park():
                yield

    def _page_reservations(self) -> Iterator[None]:
        for place in self._places():
            for _ in place.page():
                yield
                if not self._account.tight:
                    return


def _done(queue: Queue) -> int:
    return queue.published + queue.delivered


def _rests(queue: Queue, seen: dict[Queue, int]) -> bool:
    """Return True if a queue had little traffic since the previous check."""
    return queue in seen and _done(queue) - seen[queue] <= queue.ready_count // RESTING_SHARE and not queue.deleted
