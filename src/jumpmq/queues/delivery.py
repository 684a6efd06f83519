"""Delivery in turn: who of a queue's consumers gets its messages, and in which order.

Consumers of a higher priority are served first, as long as they have room; those of one priority take turns. Where one
consumer is served at a time (``x-single-active-consumer``), the first to come is, until it leaves.

It is a thing of its own that a queue has: the queue says what is ready, and this decides for whom.
"""

from typing import Protocol

from jumpmq.amqp.errors import AccessRefused
from jumpmq.amqp.messages import Message
from jumpmq.queues.consumer import Consumer

CHUNK = 1000
"""The most messages handed to consumers before their capacity is asked again."""


class Source(Protocol):
    """What a queue is to delivery."""

    @property
    def ready_count(self) -> int: ...

    def take_for_delivery(self, count: int) -> list[Message]:
        """Remove up to ``count`` messages from the front, no more than should be handed over at once.

        Where there are none although some are ready, the queue dispatches again by itself.
        """

    def delivered_unacknowledged(self, messages: list[Message]) -> None:
        """These were delivered to a consumer that does not acknowledge, and are done with."""


class Delivery:
    """The consumers of one queue.

    Attributes:
        consumers: in the order in which they are served: by priority, then the first to come.
        active: the consumer that is served, where one is at a time.
    """

    def __init__(self, source: Source, subject: str) -> None:
        """
        Args:
            source: where messages come from.
            subject: what refusals call the queue.
        """
        self.consumers: list[Consumer] = []
        self.active: Consumer | None = None
        self._source = source
        self._subject = subject
        self._single = False
        self._turn = 0

    def serve_one(self, single: bool) -> None:
        """From now on serve one consumer at a time, or (``single`` is false) all."""
        self._single = single
        self._choose_active()

    def add(self, consumer: Consumer) -> None:
        """Serve a consumer from now on.

        Raises:
            AccessRefused: it, or one that is here, wants the queue for itself.
        """
        wanted_alone = consumer.exclusive and (self.consumers or self._single)
        if wanted_alone or any(other.exclusive for other in self.consumers):
            raise AccessRefused(f"{self._subject} in exclusive use")
        self.consumers.append(consumer)
        self.consumers.sort(key=lambda one: -one.priority)
        self._choose_active()

    def remove(self, consumer: Consumer) -> bool:
        """Serve it no longer; returns whether it was served."""
        if consumer not in self.consumers:
            return False
        self.consumers.remove(consumer)
        if self._single:
            self._choose_active()
            self.dispatch()
        return True

    def cancel_all(self) -> None:
        """Tell all consumers that the queue is gone."""
        consumers, self.consumers = self.consumers, []
        self.active = None
        for consumer in consumers:
            consumer.cancelled()

    def dispatch(self) -> None:
        """Deliver ready messages to consumers with room, in turn."""
        source = self._source
        while source.ready_count:
            eligible = self._eligible()
            if not eligible:
                return
            room = min(capacity for _, capacity in eligible)
            if len(eligible) > 1 and any(consumer.shares_capacity for consumer, _ in eligible):
                del eligible[1:]
                room = 1
            taken = source.take_for_delivery(min(room * len(eligible), CHUNK))
            if not taken:
                return
            self._turn += len(taken)
            if len(eligible) == 1:
                self._hand(eligible[0][0], taken)
                continue
            for place, (consumer, _) in enumerate(eligible):
                self._hand(consumer, taken[place :: len(eligible)])

    def _choose_active(self) -> None:
        if not self._single or not self.consumers:
            self.active = None
        elif self.active not in self.consumers:
            self.active = self.consumers[0]

    def _eligible(self) -> list[tuple[Consumer, int]]:
        """The consumers of the highest priority that have room, next in turn first."""
        found: list[tuple[Consumer, int]] = []
        for consumer in self.consumers if self.active is None else (self.active,):
            if found and consumer.priority < found[0][0].priority:
                break
            capacity = consumer.capacity()
            if capacity > 0:
                found.append((consumer, capacity))
        if len(found) > 1:
            start = self._turn % len(found)
            return found[start:] + found[:start]
        return found

    def _hand(self, consumer: Consumer, messages: list[Message]) -> None:
        if not messages:
            return
        consumer.deliver(messages)
        if consumer.no_ack:
            self._source.delivered_unacknowledged(messages)
