"""Settings of a queue as values: ``x-`` arguments and policies in force (RabbitMQ, "Queues")."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from jumpmq.queues.settings import SETTINGS


def lower(one: int, other: int) -> int:
    """Return the stricter of two limits; a delivery limit below 0 means unlimited."""
    return max(one, other) if min(one, other) < 0 else min(one, other)


NO_POLICY: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Limits:
    """The optional settings in force on a queue, by argument or policy; None for a missing setting.

    Attributes:
        message_ttl: maximum milliseconds for which a message stays ready.
        expires: milliseconds without use after which the queue is deleted.
        max_length: maximum number of ready messages.
        max_length_bytes: maximum octets of ready bodies.
        overflow: ``drop-head``, ``reject-publish`` or ``reject-publish-dlx``.
        dead_letter_strategy: ``at-most-once`` or ``at-least-once``.
        dead_letter_exchange, dead_letter_routing_key: destination of messages that expire, overflow or are rejected.
        single_active_consumer: True for one consumer at a time.
        delivery_limit: number of returns after which a message is dead-lettered; None if not set, below 0 for no limit.
        max_age: seconds for which a stream keeps messages.
        segment_bytes: octets of a stream's segment.
        consumer_timeout: milliseconds for the acknowledgement of a delivery.
        delayed_retry_type: returned messages that rest first: ``disabled``, ``all``, ``failed`` or ``returned``.
        delayed_retry_min, delayed_retry_max: initial and maximum milliseconds of the rest.
        delayed_retry_multiplier: factor of the delay's growth; None for linear growth.
        ordered_retries: True if the routing key of a resting message rests, too, in a queue without slots.
    """

    message_ttl: int | None = None
    expires: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: str = "drop-head"
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    dead_letter_strategy: str = "at-most-once"
    single_active_consumer: bool = False
    delivery_limit: int | None = None
    max_age: int | None = None
    segment_bytes: int | None = None
    consumer_timeout: int | None = None
    delayed_retry_type: str = "disabled"
    delayed_retry_min: int | None = None
    delayed_retry_max: int | None = None
    delayed_retry_multiplier: int | None = None
    ordered_retries: bool = False

    @classmethod
    def of(cls, arguments: Mapping[str, Any], policy: Mapping[str, Any] = NO_POLICY, kind: str = "") -> "Limits":
        """Return the settings in force, from validated arguments of a declaration and a policy definition.

        If argument and policy have the same setting, the setting's row decides which value counts: the argument
        (default), the lower value (``lowest``; a negative delivery limit is the highest), or the policy
        (``policy_first``).

        Args:
            kind: queue type.
        """
        if not (arguments or policy):
            return NO_LIMITS
        known = {row.limit: row.read(policy[key]) for key in policy if (row := BY_POLICY.get(key)) is not None}
        for key in arguments:
            row = BY_ARGUMENT.get(key)
            if row is None or (kind in row.policy_first and row.limit in known):
                continue
            if (declared := row.read(arguments[key])) is not None:
                known[row.limit] = lower(declared, known[row.limit]) if row.lowest and row.limit in known else declared
        return cls(**known)

    @property
    def delays_retries(self) -> bool:
        """True if returned messages may have to rest before the next try."""
        return self.delayed_retry_type != "disabled" and self.delayed_retry_min is not None

    def rests(self, *, requeued: bool) -> bool:
        """Return True if a returned message rests, in a queue with delayed retries.

        Args:
            requeued: True if the consumer requeued the message; False if the consumer failed or was lost.
        """
        return self.delayed_retry_type == "all" or (self.delayed_retry_type == "returned") == requeued

    def retry_delay(self, count: int) -> float:
        """Rest of a message after the ``count``-th return, in seconds; for queues with delayed retries."""
        lowest = self.delayed_retry_min or 0
        multiplier = self.delayed_retry_multiplier
        factor = count if multiplier is None else multiplier ** min(count - 1, MOST_DOUBLINGS)
        highest = LONGEST_RETRY if self.delayed_retry_max is None else self.delayed_retry_max
        return min(lowest * factor, highest, LONGEST_RETRY) / 1000

    @property
    def dead_letters_at_least_once(self) -> bool:
        """True if a dead-lettered message must reach all its queues, however long delivery takes. As in RabbitMQ, not
        with an overflow behaviour that drops messages."""
        return self.dead_letter_strategy == "at-least-once" and self.overflow == "reject-publish"

    def unbounded(self) -> "Limits":
        """Return the limits for messages waiting to enter the queue: unlimited number and time, no consumers."""
        return replace(self, max_length=None, max_length_bytes=None, expires=None, single_active_consumer=False)

    def serving_one(self) -> "Limits":
        """Return the limits with a single active consumer."""
        return replace(self, single_active_consumer=True)


BY_ARGUMENT = {row.argument: row for row in SETTINGS if row.limit}
"""Settings with an attribute of ``Limits``, by argument."""

BY_POLICY = {row.name: row for row in BY_ARGUMENT.values() if row.policy is not None}
"""Of these, the settings with a policy key, by key. As in RabbitMQ, no queue policy sets the single active consumer."""

LONGEST_RETRY = 10 * 365 * 24 * 3600 * 1000
"""Maximum rest of a message, in milliseconds."""

MOST_DOUBLINGS = 64
"""Maximum number of multiplications of a delay: the delay is at the maximum by then."""

NO_LIMITS = Limits()
"""Limits of most queues, as a shared object."""


CONSUMER_TIMEOUT = "x-consumer-timeout"
