"""Expiry of a queue's ready messages.

Messages expire at the front: expired messages behind a living one are dropped when they reach the front. The queue
schedules its maintenance for the first expiry, so that messages without expiry cost nothing.
"""

from typing import Protocol

from jumpmq.amqp.messages import Message
from jumpmq.queues import clock
from jumpmq.queues.any_ready import AnyReady
from jumpmq.queues.arguments import Limits
from jumpmq.queues.slots import SlottedMessages


class ExpiringQueue(Protocol):
    """A queue, from the point of view of expiry; see :class:`~jumpmq.queues.classic.ClassicQueue`."""

    limits: Limits
    slots: SlottedMessages | None

    @property
    def ready(self) -> AnyReady: ...
    def discard(self, messages: list[Message], reason: str) -> None: ...
    def wake(self, at: float) -> None: ...


class Expiry:
    """Expiry in one queue. Methods take the queue: a reference to the queue would make a circle.

    Attributes:
        expected: True if ready messages may expire. Test this before all methods except :meth:`set_ttl` and
            :meth:`expect`.
    """

    __slots__ = ("expected",)

    def __init__(self) -> None:
        self.expected = False

    def expect(self) -> None:
        """Note that messages with an ``expires_at`` are coming."""
        self.expected = True

    def set_ttl(self, messages: list[Message], ttl: int) -> None:
        """Limit the lifetime of messages entering the queue to ``ttl`` milliseconds."""
        expires_at = clock.now() + ttl / 1000
        self.expected = True
        for message in messages:
            # The earlier expiry of message and queue counts (RabbitMQ, "Time-To-Live").
            if not 0.0 < message.expires_at < expires_at:
                message.expires_at = expires_at

    def drop(self, queue: ExpiringQueue, now: float, count: int) -> None:
        """Discard up to ``count`` expired messages at the front."""
        queue.discard(queue.ready.take_expired(now, count), "expired")
        self.look_ahead(queue, now)

    def look_ahead(self, queue: ExpiringQueue, now: float) -> None:
        """Schedule a wake-up of the queue for the expiry of the message at the front."""
        if not len(queue.ready):
            self.expected = queue.limits.message_ttl is not None
            return
        first = queue.ready.first_expiry()
        if first:
            queue.wake(max(first, now))

    def is_due(self, queue: ExpiringQueue, now: float) -> bool:
        """Return True if the message at the front has expired."""
        return 0.0 < queue.ready.first_expiry() <= now

    def living(self, queue: ExpiringQueue, messages: list[Message], now: float) -> list[Message]:
        """Return the unexpired ones of taken messages; the expired ones are discarded."""
        expired = [message for message in messages if 0.0 < message.expires_at <= now]
        if not expired:
            return messages
        alive = [message for message in messages if not 0.0 < message.expires_at <= now]
        # The taken messages count in their slots, and no consumer will settle the expired ones.
        if queue.slots is not None:
            queue.slots.settled(expired)
        queue.discard(expired, "expired")
        return alive
