"""Paging: while the account of memory is tight, what is on disk leaves memory: of the longest queue first, and where
that is not enough the bodies of deliveries, too."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from jumpmq.amqp.messages import Message
from jumpmq.broker.memory.heap import FreedMemory
from jumpmq.broker.upkeep.upkeep import Upkeep
from jumpmq.queues import Queue
from jumpmq.queues.memory import MemoryAccount
from jumpmq.queues.reservations import Reservations
from jumpmq.queues.runs import by_holder

KEPT = 256 << 10
"""Octets at the front of a queue that stay in memory at first, as they are next."""

HELD_AT_ONCE = 500
"""Deliveries that are looked at in one step."""


class Deliveries(Protocol):
    """The unacknowledged deliveries of a channel."""

    def look_at(self, count: int) -> Iterator[list[Message]]:
        """All that are not parked, up to ``count`` at once; others may come and go meanwhile."""

    def park(self) -> Iterator[None]:
        """Park what can be, a piece at a time; others may come and go meanwhile."""


class Paging:
    """Pages the queues of a broker.

    Args:
        queues: all of them.
        deliveries: those of each channel.
        places: what groups of readers have reserved.
    """

    def __init__(
        self,
        upkeep: Upkeep,
        account: MemoryAccount,
        queues: Callable[[], Iterable[Queue]],
        deliveries: Callable[[], Iterable[Deliveries]],
        places: Callable[[], Iterable[Reservations]],
    ) -> None:
        self._places = places
        self._deliveries = deliveries
        self._upkeep = upkeep
        self._account = account
        self._queues = queues
        self._freed = FreedMemory(account)
        self._at_work = False

    def look(self) -> None:
        """Begin to page if that is due; to be called now and then."""
        if self._account.tight and not self._at_work:
            self._at_work = True
            self._upkeep.work("paging", self._steps())

    def _steps(self) -> Iterator[None]:
        try:
            for _ in self._page():
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

    def _page_deliveries(self) -> Iterator[None]:
        for deliveries in list(self._deliveries()):
            for messages in deliveries.look_at(HELD_AT_ONCE):
                if not self._account.tight:
                    return
                for _, queue, share in by_holder(messages):
                    queue.page_held(share)
                yield
            for _ in deliveries.park():
                yield

    def _page_reservations(self) -> Iterator[None]:
        for place in self._places():
            for _ in place.page():
                yield
                if not self._account.tight:
                    return
