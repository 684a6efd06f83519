"""Round-robin delivery: choice of consumers and order.

Consumers of a higher priority are served first, as long as they have capacity. Consumers of one priority form a ring:
the consumer at the front is next, and moves to the end after a delivery. A consumer without capacity at its turn leaves
the ring, and is notified. It rejoins at the end when it reports capacity (:meth:`QueueDelivery.admit`). A delivery thus
costs the same with one consumer as with many thousands without capacity. With ``x-single-active-consumer``, the first
consumer is served until it leaves.

The queue knows the ready messages; delivery chooses their consumers.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from typing import Protocol

from jumpmq.amqp.errors import AccessRefused
from jumpmq.amqp.messages import Message
from jumpmq.queues.consumer import Consumer
from jumpmq.queues.runs import body_octets

CHUNK = 1000
"""Maximum number of messages handed to consumers before their capacity is checked again."""

STEP = 8000
"""Messages, and kilobytes of bodies, delivered per time slice: a few milliseconds of work. A fast consumer without
prefetch would otherwise take millions at once."""


class DeliverySource(Protocol):
    """The queue as seen by delivery."""

    @property
    def subject(self) -> str:
        """Name of the queue in refusals."""

    @property
    def ready_count(self) -> int: ...

    def draw_epoch(self) -> int:
        """Draw an epoch for the consumer that becomes active."""

    def take_for_delivery(self, count: int) -> list[Message]:
        """Remove up to ``count`` messages from the front, no more than should be handed over at once.

        If there are ready messages but the result is empty, the queue itself dispatches again later.
        """

    def delivered_no_ack(self, messages: list[Message]) -> None:
        """Account for messages delivered to a consumer without acknowledgements."""


class _Gone:
    """Replacement for a deleted queue, to avoid reference cycles."""

    subject, ready_count = "the queue", 0

    def draw_epoch(self) -> int:
        return 0

    def take_for_delivery(self, count: int) -> list[Message]:
        return []

    def delivered_no_ack(self, messages: list[Message]) -> None:
        """Do nothing: there were no deliveries."""


GONE = _Gone()

NO_CONSUMERS: list[Consumer] = []
NO_RANKS: dict[Consumer, tuple[int, int]] = {}
NO_RINGS: dict[int, OrderedDict[Consumer, None]] = {}
NO_LEVELS: list[int] = []
"""Shared empty levels of queues without consumers: own lists would take 270 octets per queue."""


class QueueDelivery:
    """The consumers of a queue.

    Attributes:
        consumers: by descending priority, then in the order of arrival.
        active: the single active consumer, if the queue has one.
    """

    __slots__ = (
        "_arrivals", "_exclusive", "_levels", "_ranks", "_rings", "_single", "_source", "active", "consumers",
    )  # fmt: skip

    def __init__(self, source: DeliverySource, exclusive: bool = True) -> None:
        """
        Args: source: source of messages. exclusive: if False, requests for exclusive consumption are
        ignored.
        """
        self.consumers = NO_CONSUMERS
        self.active: Consumer | None = None
        self._source: DeliverySource = source  # the queue
        self._exclusive = exclusive  # True if a consumer may request exclusive use
        self._single = False  # True for a single active consumer
        # Rank of each consumer among ``consumers``: its negative priority, and its number in the order of arrival.
        self._ranks = NO_RANKS
        self._arrivals = 0  # number of consumers that have arrived
        # Consumers with possible capacity per priority, next in turn first; no ring is empty.
        self._rings = NO_RINGS
        # Priorities with a ring, ascending.
        self._levels = NO_LEVELS

    def serve_one(self, single: bool) -> None:
        """Serve a single active consumer from now on, or (``single`` is False) all consumers."""
        self._single = single
        self._choose_active()

    def add(self, consumer: Consumer) -> None:
        """Serve a consumer from now on.

        Raises:
            AccessRefused: the consumer, or another one, has requested exclusive use.
        """
        if self._exclusive and (
            (consumer.exclusive and (self.consumers or self._single))
            or (self.consumers and self.consumers[0].exclusive)  # the only consumer in that case
        ):
            raise AccessRefused(f"{self._source.subject} in exclusive use")
        if not self._arrivals:
            self.consumers, self._ranks, self._rings, self._levels = [], {}, {}, []
        self._arrivals += 1
        self._ranks[consumer] = (-consumer.priority, self._arrivals)
        insort(self.consumers, consumer, key=self._ranks.__getitem__)
        self._enter_ring(consumer)
        self._choose_active()

    def remove(self, consumer: Consumer) -> bool:
        """Remove a consumer; return False if unknown. A new active consumer may have to be served then."""
        rank = self._ranks.get(consumer)
        if rank is None:
            return False
        del self.consumers[bisect_left(self.consumers, rank, key=self._ranks.__getitem__)]
        del self._ranks[consumer]
        self._leave_ring(consumer)
        self._choose_active()
        return True

    def admit(self, consumer: Consumer) -> None:
        """Readmit a skipped consumer with new capacity."""
        if consumer in self._ranks:
            self._enter_ring(consumer)

    def cancel_all(self) -> None:
        """Notify all consumers of the queue's deletion."""
        consumers, self.consumers, self._ranks, self._rings, self._levels = self.consumers, [], {}, {}, []
        self.active = None
        self._source = GONE
        for consumer in consumers:
            consumer.cancelled()

    def dispatch(self) -> bool:
        """Deliver ready messages to consumers with capacity, in turn; return True if there is more to deliver soon."""
        source, left = self._source, STEP
        while ready := source.ready_count:
            eligible, at_once = self._eligible(min(ready, CHUNK))
            if not eligible:
                return False
            if left <= 0:
                return True
            taken = source.take_for_delivery(min(at_once, CHUNK))
            if not taken:
                return False
            # 1,024 octets of bodies count as a message, because they take time, too.
            left -= len(taken) + (body_octets(taken) >> 10)
            if self.active is None:
                self._turn(eligible, len(taken))
            if len(eligible) == 1:
                self._hand(eligible[0], taken)
                continue
            # As in RabbitMQ: round robin, message by message.
            for place, consumer in enumerate(eligible[: len(taken)]):
                self._hand(consumer, taken[place :: len(eligible)])
        return False

    def _choose_active(self) -> None:
        if not self._single or not self.consumers:
            self.active = None
        elif self.active not in self._ranks:
            self.active = self.consumers[0]
            self.renew_epoch()

    def renew_epoch(self) -> None:
        """Give deliveries to the active consumer, if any, a new owner epoch."""
        if self.active is not None:
            self.active.owns(self._source.draw_epoch())

    def _enter_ring(self, consumer: Consumer) -> None:
        ring = self._rings.get(consumer.priority)
        if ring is None:
            ring = self._rings[consumer.priority] = OrderedDict()
            insort(self._levels, consumer.priority)
        ring[consumer] = None

    def _leave_ring(self, consumer: Consumer) -> None:
        ring = self._rings.get(consumer.priority)
        if ring is not None and consumer in ring:
            del ring[consumer]
            if not ring:
                del self._rings[consumer.priority]
                del self._levels[bisect_left(self._levels, consumer.priority)]

    def _eligible(self, count: int) -> tuple[list[Consumer], int]:
        """Return up to ``count`` consumers of the highest priority with capacity, next in turn first, and the number of
        messages that they take together in equal parts."""
        if self.active is not None:
            capacity = self.active.capacity()
            if capacity > 0:
                return [self.active], capacity
            self.active.passed_over()
            return [], 0
        while self._levels:
            found, least = self._with_room(self._rings[self._levels[-1]], count)
            if found:
                return found, len(found) * least
        return [], 0

    def _with_room(self, ring: "OrderedDict[Consumer, None]", count: int) -> tuple[list[Consumer], int]:
        """Return the first consumers of a ring with capacity, and the smallest capacity; full ones are removed from the
        ring.

        A consumer that shares capacity with others is returned alone, and takes one message if there are others.
        """
        found: list[Consumer] = []
        full: list[Consumer] = []
        least, alone = CHUNK, len(ring) == 1
        for consumer in ring:
            capacity = consumer.capacity()
            if capacity <= 0:
                full.append(consumer)
                continue
            shares = not alone and consumer.shares_capacity
            if shares and found:
                break
            found.append(consumer)
            least = 1 if shares else min(least, capacity)
            if shares or len(found) == count:
                break
        # Full consumers leave the ring until `admit`, so that messages of other consumers do not pass over them each
        # time.
        for consumer in full:
            self._leave_ring(consumer)
            consumer.passed_over()
        return found, least

    def _turn(self, eligible: list[Consumer], count: int) -> None:
        """Advance the ring by ``count`` messages, given to the eligible consumers in turn."""
        ring = self._rings[eligible[0].priority]
        if len(ring) == 1:
            return
        if count >= len(eligible) and len(eligible) < len(ring):
            for consumer in eligible:
                ring.move_to_end(consumer)
        for consumer in eligible[: count % len(eligible)]:
            ring.move_to_end(consumer)

    def _hand(self, consumer: Consumer, messages: list[Message]) -> None:
        consumer.deliver(messages)
        if consumer.no_ack:
            self._source.delivered_no_ack(messages)
