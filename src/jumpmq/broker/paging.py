"""Paging: while the account of memory is tight, what is on disk leaves memory, of the longest queue first."""

from collections.abc import Callable, Iterable, Iterator

from jumpmq.broker.upkeep import Upkeep
from jumpmq.queues import Queue
from jumpmq.queues.memory import MemoryAccount

WORTH_WHILE = 64 << 10
"""Octets that a queue holds at least before it is paged."""


class Paging:
    """Pages the queues of a broker.

    Args:
        queues: all of them.
    """

    def __init__(self, upkeep: Upkeep, account: MemoryAccount, queues: Callable[[], Iterable[Queue]]) -> None:
        self._upkeep = upkeep
        self._account = account
        self._queues = queues
        self._at_work = False

    def look(self) -> None:
        """Begin to page if that is due; to be called now and then."""
        if self._account.tight and not self._at_work:
            self._at_work = True
            self._upkeep.work("paging", self._steps())

    def _steps(self) -> Iterator[None]:
        try:
            held = [(queue.pageable, queue) for queue in self._queues()]
            yield
            held = [one for one in held if one[0] >= WORTH_WHILE] or held
            held.sort(key=lambda one: -one[0])
            for _, queue in held:
                while self._account.tight and queue.pageable:
                    before = queue.pageable
                    queue.page_out()
                    yield
                    if queue.pageable == before:
                        break  # the rest is not on disk yet
                if not self._account.tight:
                    break
        finally:
            self._at_work = False
