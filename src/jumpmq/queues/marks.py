"""Markers of a queue. Messages of moved keys wait in other queues until all messages before the marker are settled.

A marker is placed when keys move away from the queue (:mod:`jumpmq.queues.fences` has the theory). The marker counts
the messages before it, ready or taken, until none is left.
"""

from collections.abc import Callable
from typing import Protocol

from jumpmq.amqp.messages import Message
from jumpmq.queues.any_ready import AnyReady
from jumpmq.queues.slots import SlottedMessages


class Mark:
    """A marker behind a queue's messages at the time when keys moved away.

    Args:
        source: name of the queue.
        queue_id: id of the queue.
        seq: highest number of the queue at that time.
        left: number of messages up to ``seq`` that are ready or taken.
        ended: called when no message is left.

    Attributes:
        lifted_in: ids of queues that do not wait for the marker, by an operator's request.
    """

    __slots__ = ("_ended", "left", "lifted_in", "queue_id", "seq", "source")

    def __init__(self, source: str, queue_id: int, seq: int, left: int, ended: Callable[[], None]) -> None:
        self.source = source
        self.queue_id = queue_id
        self.seq = seq
        self.left = left
        self.lifted_in: set[int] = set()
        self._ended = ended

    def __repr__(self) -> str:
        return f"<Mark {self.source!r} {self.seq}: {self.left} left>"

    def leave(self, count: int) -> None:
        """Count departed messages."""
        if self.left > 0 and count > 0:
            self.left = max(0, self.left - count)
            if not self.left:
                self._ended()

    def end(self) -> None:
        """Count all remaining messages as departed."""
        self.leave(self.left)


class MarkedQueue(Protocol):
    """A queue, from the point of view of its markers; see :class:`~jumpmq.queues.classic.ClassicQueue`."""

    name: str
    id: int
    deleted: bool
    slots: SlottedMessages | None
    unacknowledged_count: int

    @property
    def ready(self) -> AnyReady: ...
    @property
    def next_seq(self) -> int: ...
    @property
    def message_count(self) -> int: ...


class Markers:
    """The markers of a queue.

    Attributes:
        placed: markers with messages in front. Test this before :meth:`passed`.
    """

    __slots__ = ("_queue", "placed")

    def __init__(self, queue: MarkedQueue) -> None:
        self._queue = queue
        self.placed: tuple[Mark, ...] = ()

    def place(self, ended: Callable[[], None]) -> Mark | None:
        """Place a marker behind the queue's messages when keys move away. Return None for an empty or deleted queue,
        and for a queue with priorities, where the order of messages is not that of their numbers.

        Args:
            ended: called when no message is left before the marker.
        """
        queue = self._queue
        if queue.deleted or self._in_order is None or not queue.message_count:
            return None
        mark = Mark(queue.name, queue.id, queue.next_seq - 1, queue.message_count, ended)
        self.placed = (*self.placed, mark)
        return mark

    def restore(self, mark: Mark) -> None:
        """Place a marker from before a restart: the remaining messages before it are counted."""
        self.placed = (*self.placed, mark)
        # One more than counted, and that one leaves at once, so that a marker without messages ends here.
        mark.left = self._count_upto(mark) + 1
        self._leave(lambda one: one is mark)

    def recount(self, mark: Mark) -> None:
        """End a marker without messages before it, even if some of these messages left without being counted."""
        ready = self._in_order
        if ready is None or self._queue.unacknowledged_count:
            return
        # Slots would keep track of their first message after a request for it.
        if not len(ready) or (self._queue.slots is None and ready.first_seq() > mark.seq):
            self._leave(lambda one: one.left if one is mark else 0)

    def passed(self, messages: list[Message]) -> None:
        """Count departed messages."""
        self._leave(lambda mark: sum(1 for message in messages if message.seq <= mark.seq))

    def ready_leave(self) -> None:
        """Count the departure of all ready messages; call this before they leave."""
        self._leave(self._count_upto)

    def all_leave(self) -> None:
        """End all markers: the queue is deleted."""
        self._leave(lambda mark: mark.left)

    @property
    def _in_order(self) -> AnyReady | None:
        """Return the ready messages; None with priorities, which do not keep the order of numbers."""
        ready = self._queue.ready
        return None if ready.by_priority else ready

    def _count_upto(self, mark: Mark) -> int:
        ready = self._in_order
        return 0 if ready is None else ready.count_upto(mark.seq)

    def _leave(self, gone: Callable[[Mark], int]) -> None:
        for mark in self.placed:
            mark.leave(gone(mark))
        self.placed = tuple(mark for mark in self.placed if mark.left)
