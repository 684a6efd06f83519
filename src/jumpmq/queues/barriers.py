"""Ordering barriers of one queue: fences wait for other queues, and markers are waited for by other queues.

:mod:`jumpmq.queues.fences` has the theory. A queue that got keys has *fences*, which hold its messages back; one that
lost keys has *markers*, which count the messages left before them.
"""

from collections.abc import Iterable
from typing import Protocol

from jumpmq.queues import clock
from jumpmq.queues.any_ready import AnyReady
from jumpmq.queues.fences import FencedMessages, FencingChange
from jumpmq.queues.marks import MarkedQueue, Markers
from jumpmq.queues.ready_kinds import Around


class BarredQueue(MarkedQueue, Protocol):
    """A queue, from the point of view of its barriers; see :class:`~jumpmq.queues.classic.ClassicQueue`."""

    ready: AnyReady
    fences: FencedMessages | None

    def around(self) -> Around: ...
    def wake(self, at: float) -> None: ...
    def dispatch(self) -> None: ...


class Barriers:
    """The ordering barriers of a queue, made when keys first move to it or away.

    Attributes:
        markers: markers awaited by other queues.
    """

    __slots__ = ("_queue", "markers")

    def __init__(self, queue: BarredQueue) -> None:
        self._queue = queue
        self.markers = Markers(queue)

    def hold(self, change: FencingChange, first_seq: int, own: str, lifted: Iterable[str] = ()) -> bool:
        """Hold messages from ``first_seq`` on until the previous queues of their keys have none left.

        Args:
            change: by which keys moved to the queue.
            own: the queue's name under the previous ring; keys that were here do not wait.
            lifted: queues that are not to be waited for.

        Returns:
            False for a queue with priorities, which has no order to keep, and for a deleted one.
        """
        queue = self._queue
        ready = queue.ready
        if queue.deleted or ready.by_priority:
            return False
        if not isinstance(ready, FencedMessages):
            queue.ready = queue.fences = ready = FencedMessages(ready, *queue.around())
        ready.add(change, first_seq, own, lifted)
        return True

    def release(self) -> None:
        """Move messages whose barriers are gone to the ready queue, in chunks."""
        queue, fences = self._queue, self._queue.fences
        if fences is None:
            return
        if fences.release():
            queue.wake(clock.now())
        if fences.over:
            queue.ready, queue.fences = fences.inner, None
        queue.dispatch()
