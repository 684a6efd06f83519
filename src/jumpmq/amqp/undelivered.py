"""What is said of a message that a publisher's broker would not take, where that goes to an exchange for such."""

from __future__ import annotations

from jumpmq.amqp.fields import Field
from jumpmq.amqp.properties import Properties

UNROUTABLE = "unroutable"
FULL = "full"
"""Reasons: the message reached no queue; a queue was full and refused it."""

_HEADERS = ("x-undelivered-exchange", "x-undelivered-reason")

_COPIES = ("CC", "BCC")


def undelivered(properties: bytes, exchange: str, reason: str) -> bytes:
    """The properties of a message that could not be published, for where it goes instead.

    The headers ``x-undelivered-exchange`` and ``x-undelivered-reason`` are added; it goes to its routing key alone.

    Args:
        properties: as they would have been published, well-formed.
        exchange: where it was published to.
    """
    found = Properties.parse(properties)
    kept = [field for field in found.headers or [] if field.name not in (*_HEADERS, *_COPIES)]
    said = zip(_HEADERS, (exchange, reason), strict=True)
    found.headers = [*kept, *(Field(name, "S", value) for name, value in said)]
    return found.encode()
