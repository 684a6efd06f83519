"""What a queue was declared with, as values: the ``x-`` arguments that a queue acts on (RabbitMQ, "Queues")."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Limits:
    """The optional arguments in force on a queue; None where one is absent.

    Attributes:
        message_ttl: milliseconds that a message may stay ready.
        expires: milliseconds that the queue may stay unused.
        max_length: ready messages.
        max_length_bytes: octets of ready bodies.
        overflow: ``drop-head``, ``reject-publish`` or ``reject-publish-dlx``.
        dead_letter_exchange, dead_letter_routing_key: where messages go that expire, overflow or are rejected.
        single_active_consumer: whether one consumer at a time is served.
    """

    message_ttl: int | None = None
    expires: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: str = "drop-head"
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    single_active_consumer: bool = False

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> "Limits":
        """Read them from declare arguments, which are taken as checked."""
        known = {name: arguments[key] for key, name in ARGUMENTS.items() if key in arguments}
        return cls(**known)


ARGUMENTS = {
    "x-message-ttl": "message_ttl",
    "x-expires": "expires",
    "x-max-length": "max_length",
    "x-max-length-bytes": "max_length_bytes",
    "x-overflow": "overflow",
    "x-dead-letter-exchange": "dead_letter_exchange",
    "x-dead-letter-routing-key": "dead_letter_routing_key",
    "x-single-active-consumer": "single_active_consumer",
}
