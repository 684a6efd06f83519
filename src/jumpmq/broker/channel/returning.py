"""Requeueing of deliveries, in steps if many.

The last deliveries return first, and a queue delivers nothing until all its deliveries have returned: so the missing
messages are always at the front, and no message is delivered before earlier messages.
"""

from collections.abc import Iterator
from typing import Protocol

from jumpmq.amqp.messages import Message
from jumpmq.broker.channel.deliveries import Deliveries
from jumpmq.broker.upkeep.upkeep import Upkeep
from jumpmq.queues import Outcome, Queue
from jumpmq.queues.memory import Held
from jumpmq.queues.runs import by_holder


class ServingChannel(Protocol):
    """The channel of a consumer whose deliveries go back."""

    def serve(self) -> None:
        """Offer freed capacity to waiting consumers."""


def give_back(upkeep: Upkeep, waiting: Deliveries, outcome: Outcome) -> None:
    """Return deliveries to their queues: a step's worth now, many in steps.

    Args:
        waiting: the deliveries; the caller must not use it any more.
        outcome: ``REQUEUED`` or ``CONSUMER_GONE``.
    """
    steps = _Return(outcome).steps(waiting)
    next(steps, None)
    if waiting:
        upkeep.work("returning deliveries to their queues", steps)
    else:
        next(steps, None)


AT_ONCE = 500
"""Messages requeued together."""


def put_back(queue: Queue, taken: list[Message], held: Held = Held.UNACKNOWLEDGED) -> Iterator[None]:
    """Requeue messages taken from a queue to their positions, in steps, last to first.

    Args:
        held: how the messages are held; reserved messages return to their positions in every kind of queue.
    """
    outcome = Outcome.REQUEUED if held is Held.UNACKNOWLEDGED else Outcome.CONSUMER_GONE
    if not queue.requeues_in_place and outcome is Outcome.REQUEUED:
        queue.settle(taken, outcome)
        return
    queue.begin_return()
    while taken:
        queue.settle(taken[-AT_ONCE:], outcome, held)
        del taken[-AT_ONCE:]
        yield
    queue.end_return()


class _Return:
    """Requeueing of a channel's deliveries."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._queues: dict[Queue, list[Message]] = {}
        self._channels: set[ServingChannel] = set()

    def steps(self, waiting: Deliveries) -> Iterator[None]:
        """Requeue the deliveries, then let the queues deliver again."""
        try:
            for messages in waiting.backwards():
                self._give_back(messages)
                yield
        finally:
            self._end()

    def _give_back(self, messages: list[Message]) -> None:
        for consumer, queue, share in by_holder(messages):
            if consumer is not None:
                consumer.release(len(share))
                self._channels.add(consumer.channel)
            if queue not in self._queues:
                self._queues[queue] = []
                queue.begin_return()
            self._queues[queue] += share
        for queue, shares in self._queues.items():
            # If requeued messages go to the end, :meth:`_end` puts all of them there, in order.
            if shares and (queue.requeues_in_place or self._outcome is not Outcome.REQUEUED):
                self._queues[queue] = []
                queue.settle(shares, self._outcome)

    def _end(self) -> None:
        queues, self._queues = self._queues, {}
        for queue, shares in queues.items():
            if shares:
                # The steps went from back to front, so the pieces are in reverse order.
                queue.settle(sorted(shares, key=lambda message: message.seq), self._outcome)
            queue.end_return()
        channels, self._channels = self._channels, set()
        for channel in channels:
            channel.serve()
