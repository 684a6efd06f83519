"""Headers of an undelivered message, added before its publish to the exchange for undelivered messages."""

from __future__ import annotations

from jumpmq.amqp.fields import Field
from jumpmq.amqp.properties import Properties

UNROUTABLE = "unroutable"
FULL = "full"
"""Reasons: no queue matched; a full queue refused the message."""

_HEADERS = ("x-undelivered-exchange", "x-undelivered-reason")

_COPIES = ("CC", "BCC")


def undelivered(properties: bytes, exchange: str, reason: str) -> bytes:
    """Return the properties of an undelivered message, for the exchange that receives the message instead.

    The headers ``x-undelivered-exchange`` and ``x-undelivered-reason`` are added, the headers CC and BCC removed: the
    message is routed by its routing key alone.

    Args:
        properties: the well-formed properties of the original publish.
        exchange: exchange of the original publish.
    """
    found = Properties.parse(properties)
    kept = [field for field in found.headers or [] if field.name not in (*_HEADERS, *_COPIES)]
    said = zip(_HEADERS, (exchange, reason), strict=True)
    found.headers = [*kept, *(Field(name, "S", value) for name, value in said)]
    return found.encode()
