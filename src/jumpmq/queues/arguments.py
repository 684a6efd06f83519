"""Settings of a queue as values: ``x-`` arguments and policies in force (RabbitMQ, "Queues")."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

NO_POLICY: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Limits:
    """The optional arguments in force on a queue, declared or by policy; None where one is absent.

    Attributes:
        message_ttl: milliseconds that a message may stay ready.
        expires: milliseconds that the queue may stay unused.
        max_length: ready messages.
        max_length_bytes: octets of ready bodies.
        overflow: ``drop-head``, ``reject-publish`` or ``reject-publish-dlx``.
        dead_letter_strategy: ``at-most-once`` or ``at-least-once``.
        dead_letter_exchange, dead_letter_routing_key: where messages go that expire, overflow or are rejected.
        single_active_consumer: whether one consumer at a time is served.
        delivery_limit: how often a message may come back before it is dead-lettered; None if none is set, below 0 as
            often as it likes.
        max_age: seconds that a stream keeps messages.
        segment_bytes: octets of a stream's segment.
        consumer_timeout: milliseconds that a delivery may wait for its acknowledgement.
        delayed_retry_type: which messages that come back rest first: ``disabled``, ``all``, ``failed`` or ``returned``.
        delayed_retry_min, delayed_retry_max: milliseconds that they rest, the first time and at most.
        delayed_retry_multiplier: by which that grows each time; None where it grows by as much each time.
        ordered_retries: whether a message's routing key rests with it, also in a queue without slots.
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
    def of(cls, arguments: Mapping[str, Any], policy: Mapping[str, Any] = NO_POLICY) -> "Limits":
        """Read validated declaration arguments and the policy definition in force.

        Of two numbers the lower one counts, but a limit before none (a delivery limit below 0); else what was declared.
        """
        if not (arguments or policy):
            return NO_LIMITS
        known = {POLICY_KEYS[key]: _read(POLICY_KEYS[key], policy[key]) for key in policy if key in POLICY_KEYS}
        for key in arguments:
            if (name := ARGUMENTS.get(key)) is not None:
                if (declared := _read(name, arguments[key])) is None:
                    continue
                known[name] = _lower(declared, known[name]) if name in NUMBERS and name in known else declared
        return cls(**known)

    @property
    def has_length(self) -> bool:
        """True if the length is limited."""
        return self.max_length is not None or self.max_length_bytes is not None

    @property
    def delays_retries(self) -> bool:
        """True if returned messages may have to rest before the next try."""
        return self.delayed_retry_type != "disabled" and self.delayed_retry_min is not None

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


LONGEST_RETRY = 10 * 365 * 24 * 3600 * 1000
"""Maximum rest of a message, in milliseconds."""

MOST_DOUBLINGS = 64
"""Maximum number of multiplications of a delay: the delay is at the maximum by then."""

NO_LIMITS = Limits()
"""Limits of most queues, as a shared object."""


def _lower(declared: int, by_policy: int) -> int:
    """Return the stricter limit; below 0 means unlimited."""
    return max(declared, by_policy) if min(declared, by_policy) < 0 else min(declared, by_policy)


def _read(name: str, value: Any) -> Any:
    if name == "consumer_timeout":
        return timeout_of(value)
    return seconds_of(value) if name == "max_age" else value


def timeout_of(value: object) -> int | None:
    """Return the acknowledgement timeout of a delivery in milliseconds; None for an invalid value, which is ignored."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def seconds_of(age: str) -> int | None:
    """Parse an age such as ``7D`` or ``1h`` (positive number of Y, M, D, h, m or s) to seconds; None if invalid."""
    number, unit = age[:-1], SECONDS.get(age[-1:])
    if unit is None or not number.isascii() or not number.isdigit():
        return None
    return int(number.lstrip("0")[:15] or 0) * unit or None  # what has more digits is for ever all the same


SECONDS = {"Y": 365 * 86400, "M": 30 * 86400, "D": 86400, "h": 3600, "m": 60, "s": 1}

CONSUMER_TIMEOUT = "x-consumer-timeout"

ARGUMENTS = {
    "x-message-ttl": "message_ttl",
    "x-expires": "expires",
    "x-max-length": "max_length",
    "x-max-length-bytes": "max_length_bytes",
    "x-overflow": "overflow",
    "x-dead-letter-exchange": "dead_letter_exchange",
    "x-dead-letter-routing-key": "dead_letter_routing_key",
    "x-dead-letter-strategy": "dead_letter_strategy",
    "x-single-active-consumer": "single_active_consumer",
    "x-delivery-limit": "delivery_limit",
    "x-max-age": "max_age",
    "x-stream-max-segment-size-bytes": "segment_bytes",
    CONSUMER_TIMEOUT: "consumer_timeout",
    "x-delayed-retry-type": "delayed_retry_type",
    "x-delayed-retry-min": "delayed_retry_min",
    "x-delayed-retry-max": "delayed_retry_max",
    "x-delayed-retry-multiplier": "delayed_retry_multiplier",
    "x-ordered-retries": "ordered_retries",
}

NUMBERS = frozenset(
    {
        "message_ttl",
        "expires",
        "max_length",
        "max_length_bytes",
        "delivery_limit",
        "max_age",
        "segment_bytes",
        "consumer_timeout",
    }
)

DECLARED_ONLY = frozenset({"x-single-active-consumer", "x-ordered-retries"})

POLICY_KEYS = {
    argument.removeprefix("x-"): name for argument, name in ARGUMENTS.items() if argument not in DECLARED_ONLY
}
"""Settings by policy key. As in RabbitMQ, no queue policy sets the single active consumer."""
