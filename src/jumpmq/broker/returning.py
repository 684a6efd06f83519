"""Deliveries on their way back to their queues, many of them in steps.

The last go back first, and a queue that some have come back to delivers nothing until all have: so it is always the
front that is missing, and nobody gets a message before those that came before it.
"""

from collections.abc import Iterator

from jumpmq.amqp.messages import Message
from jumpmq.broker.upkeep import Upkeep
from jumpmq.queues import Outcome, Queue
from jumpmq.queues.memory import PAGED
from jumpmq.queues.reservations import exhaust
from jumpmq.queues.runs import by_holder

AT_ONCE = 4096
"""Deliveries that are settled in one step; a millisecond or two."""


PAGED_AT_ONCE = 32
"""The same where their bodies have to be read back, which may be large."""


def give_back(upkeep: Upkeep, waiting: dict[int, Message], outcome: Outcome) -> None:
    """Return deliveries to their queues: a few now, many in steps.

    Args:
        waiting: the deliveries by their tags, in order; nobody else may use it any more.
        outcome: ``REQUEUED`` or ``RETURNED``.
    """
    back = Return(waiting, outcome)
    if len(waiting) <= AT_ONCE and not _last_is_paged(waiting):
        exhaust(back.steps())
    else:
        upkeep.work("returning deliveries to their queues", back.steps())


class Return:
    """The return of deliveries of one channel."""

    def __init__(self, waiting: dict[int, Message], outcome: Outcome) -> None:
        self._waiting = waiting
        self._outcome = outcome
        self._queues: dict[Queue, list[Message]] = {}

    def steps(self) -> Iterator[None]:
        """Return them, and have the queues deliver again."""
        try:
            while self._waiting:
                self._step()
                yield
        finally:
            self._end()

    def _step(self) -> None:
        messages = pop_last(self._waiting, PAGED_AT_ONCE if _last_is_paged(self._waiting) else AT_ONCE)
        for consumer, queue, share in by_holder(messages):
            if consumer is not None:
                consumer.unacknowledged -= len(share)
            if queue not in self._queues:
                self._queues[queue] = []
                queue.begin_return()
            self._queues[queue] += share
        for queue, shares in self._queues.items():
            # Where what is put back goes to the end, all of it must go there in order.
            if shares and (queue.requeues_in_place or self._outcome is not Outcome.REQUEUED):
                self._queues[queue] = []
                queue.settle(shares, self._outcome)

    def _end(self) -> None:
        queues, self._queues = self._queues, {}
        for queue, shares in queues.items():
            if shares:
                queue.settle(sorted(shares, key=lambda message: message.seq), self._outcome)
            queue.end_return()


def _last_is_paged(waiting: dict[int, Message]) -> bool:
    return bool(waiting) and next(reversed(waiting.values())).body is PAGED


def pop_last(waiting: dict[int, Message], count: int) -> list[Message]:
    """Remove and return the last deliveries, in order."""
    pop = waiting.popitem
    return [pop()[1] for _ in range(min(count, len(waiting)))][::-1]
