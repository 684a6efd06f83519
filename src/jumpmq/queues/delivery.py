"""Delivery in turn: who of a queue's consumers gets its messages, and in which order.

Consumers of a higher priority are served first, as long as they have room; those of one priority take turns, in a ring:
who was served goes to its end, and so does who comes, and who has room again after its turn was passed over for want of
it. Where one consumer is served at a time (``x-single-active-consumer``), the first to come is, until it leaves.

It is a thing of its own that a queue has: the queue says what is ready, and this decides for whom.
"""

from typing import Protocol

from jumpmq.amqp.errors import AccessRefused
from jumpmq.amqp.messages import Message
from jumpmq.queues.consumer import Consumer
from jumpmq.queues.runs import body_octets

CHUNK = 1000
"""The most messages handed to consumers before their capacity is asked again."""

STEP = 8000
"""Messages, and kilobytes of bodies, handed over before others have their turn: a few milliseconds' work. A consumer
without a prefetch that reads as fast as it is sent to would else have millions at one stretch."""


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


class _Gone:
    """In place of a queue that is gone, so that nothing refers to it in a circle."""

    ready_count = 0

    def take_for_delivery(self, count: int) -> list[Message]:
        return []

    def delivered_unacknowledged(self, messages: list[Message]) -> None:
        """Nothing was."""


GONE = _Gone()


def _precedence(consumer: Consumer) -> int:
    return -consumer.priority


class Delivery:
    """The consumers of one queue.

    Attributes:
        consumers: by priority, then the first to come.
        active: the consumer that is served, where one is at a time.
    """

    def __init__(self, source: Source, subject: str, exclusive: bool = True) -> None:
        """
        Args:
            source: where messages come from.
            subject: what refusals call the queue.
            exclusive: whether a consumer may ask to be the only one; else that is ignored.
        """
        self.consumers: list[Consumer] = []
        self.active: Consumer | None = None
        self._source: Source = source
        self._subject = subject
        self._exclusive = exclusive
        self._single = False
        self._ring: list[Consumer] = []
        self._passed_over: list[Consumer] = []

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
        if self._exclusive and (wanted_alone or any(other.exclusive for other in self.consumers)):
            raise AccessRefused(f"{self._subject} in exclusive use")
        self.consumers.append(consumer)
        self.consumers.sort(key=_precedence)
        self._ring.append(consumer)
        self._ring.sort(key=_precedence)
        self._choose_active()

    def remove(self, consumer: Consumer) -> bool:
        """Serve it no longer; returns whether it was served. Another one may be active then, and is to be served."""
        if consumer not in self.consumers:
            return False
        self.consumers.remove(consumer)
        (self._ring if consumer in self._ring else self._passed_over).remove(consumer)
        self._choose_active()
        return True

    def cancel_all(self) -> None:
        """Tell all consumers that the queue is gone."""
        consumers, self.consumers, self._ring, self._passed_over = self.consumers, [], [], []
        self.active = None
        self._source = GONE
        for consumer in consumers:
            consumer.cancelled()

    def dispatch(self) -> bool:
        """Deliver ready messages to consumers with room, in turn; returns whether to go on soon, as there are more."""
        source, left = self._source, STEP
        while source.ready_count:
            eligible = self._eligible()
            if not eligible:
                return False
            if left <= 0:
                return True
            at_once = len(eligible) * min(capacity for _, capacity in eligible)
            if len(eligible) > 1 and any(consumer.shares_capacity for consumer, _ in eligible):
                at_once = 1
            taken = source.take_for_delivery(min(at_once, CHUNK))
            if not taken:
                return False
            left -= len(taken) + (body_octets(taken) >> 10)
            if len(self._ring) > 1 and self.active is None:
                self._turn(eligible, len(taken))
            if len(eligible) == 1:
                self._hand(eligible[0][0], taken)
                continue
            for place, (consumer, _) in enumerate(eligible):
                self._hand(consumer, taken[place :: len(eligible)])
        return False

    def _choose_active(self) -> None:
        if not self._single or not self.consumers:
            self.active = None
        elif self.active not in self.consumers:
            self.active = self.consumers[0]

    def _eligible(self) -> list[tuple[Consumer, int]]:
        """The consumers of the highest priority that have room, next in turn first."""
        if self._passed_over:
            self._readmit()
        found: list[tuple[Consumer, int]] = []
        for consumer in self._ring if self.active is None else (self.active,):
            if found and consumer.priority < found[0][0].priority:
                break
            capacity = consumer.capacity()
            if capacity > 0:
                found.append((consumer, capacity))
        return found

    def _turn(self, eligible: list[tuple[Consumer, int]], count: int) -> None:
        """Turn the ring: ``count`` messages go to the consumers with room, one after the other."""
        last = eligible[(count - 1) % len(eligible)][0]
        served = {id(consumer) for consumer, _ in eligible[:count]}
        level = [consumer for consumer in self._ring if consumer.priority == last.priority]
        reached = level if count >= len(eligible) else level[: level.index(last) + 1]
        passed = [consumer for consumer in self._ring if consumer.priority > last.priority]
        passed += [consumer for consumer in reached if id(consumer) not in served]
        turn = level.index(last) + 1
        level = [consumer for consumer in level[turn:] + level[:turn] if consumer not in passed]
        self._ring = level + [consumer for consumer in self._ring if consumer.priority < last.priority]
        self._passed_over += passed

    def _readmit(self) -> None:
        """Put those that have room again at the end of the ring."""
        ready = [consumer for consumer in self._passed_over if consumer.capacity() > 0]
        if ready:
            self._passed_over = [consumer for consumer in self._passed_over if consumer not in ready]
            self._ring = sorted(self._ring + ready, key=_precedence)

    def _hand(self, consumer: Consumer, messages: list[Message]) -> None:
        if not messages:
            return
        consumer.deliver(messages)
        if consumer.no_ack:
            self._source.delivered_unacknowledged(messages)
