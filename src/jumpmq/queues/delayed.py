"""Queue of an exchange of type ``x-delayed-message``: holds delayed messages until they are due.

The queue exists as long as its exchange; clients cannot declare, consume, bind or delete it. All messages are stored,
whatever their delivery mode. Due messages return to the exchange, as dead letters go to theirs.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from jumpmq.amqp.errors import AccessRefused
from jumpmq.amqp.messages import Message
from jumpmq.queues import argument_checks as checks
from jumpmq.queues import clock
from jumpmq.queues.arguments import BY_POLICY
from jumpmq.queues.classic import ClassicQueue
from jumpmq.queues.consumer import Consumer
from jumpmq.queues.delayed_messages import DelayedMessages
from jumpmq.queues.delays import delay_of
from jumpmq.queues.expiry import ExpiringQueue, Expiry
from jumpmq.queues.slots import Share

DUE = "due"
"""Reason for messages leaving the queue."""

DUE_AT_ONCE = 200
"""Maximum number of due messages leaving per step; each may have to be read from disk."""


class DueTimes(Expiry):
    """Due times as expiry: what expires is due, and leaves for the exchange."""

    __slots__ = ()

    def expect(self) -> None:
        """Do nothing: the due times of messages take the place of their expiry."""

    def drop(self, queue: ExpiringQueue, now: float, count: int) -> None:
        queue.discard(queue.ready.take_expired(now, min(count, DUE_AT_ONCE)), DUE)
        if first := queue.ready.first_expiry():
            queue.wake(max(first, now))

    def living(self, queue: ExpiringQueue, messages: list[Message], now: float) -> list[Message]:
        return messages  # messages that become due during a move are due at the new home


class DelayedQueue(ClassicQueue):
    """Messages ordered by due time."""

    __slots__ = ()

    type = "delayed"
    policy_target = ""
    holds_back = False
    is_internal = True
    argument_checks: ClassVar[Mapping[str, checks.Check]] = {
        "x-queue-type": checks.string,
        "x-dead-letter-exchange": checks.string,
    }
    refused_policy_keys = frozenset(BY_POLICY)
    always_durable = True

    def _own_expiry(self) -> Expiry:
        return DueTimes()

    def _ready_messages(self) -> DelayedMessages:
        return DelayedMessages(*self.around())

    def push(self, messages: list[Message], *, fitting: bool = False) -> list[Message]:
        if self.behind is not None:
            return self.behind.push(messages)
        now = clock.now()
        self._expiry.expected = True
        self._enter([due_at(message, now + delay_of(message) / 1000) for message in messages])
        return []

    def push_ahead(self, messages: list[Message]) -> None:
        self._expiry.expected = True
        super().push_ahead(messages)

    def status(self) -> dict[str, Any]:
        return {}

    def require_unshared(self) -> None:
        raise self._refusal()

    def require_reservable(self) -> None:
        raise self._refusal()

    def unshareable(self) -> str | None:
        return "it belongs to an exchange"

    def subscribe(self, consumer: Consumer, share: Share | None = None) -> None:
        raise self._refusal()

    def _refusal(self) -> AccessRefused:
        return AccessRefused(
            f"queue '{self.name}' in vhost '{self.vhost}' belongs to exchange "
            f"'{self.limits.dead_letter_exchange}': it cannot be consumed from"
        )


def due_at(message: Message, due: float) -> Message:
    """Return a copy of a message, due at that time. The message itself, with its own expiry, may be in other queues."""
    copy = message.copy()
    copy.expires_at = due
    return copy
