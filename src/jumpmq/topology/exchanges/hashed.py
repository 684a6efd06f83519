"""The declare arguments ``hash-header`` and ``hash-property`` of hash exchanges: what is hashed in place of the routing
key."""

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.topology.definitions import ExchangeDefinition
from jumpmq.topology.exchanges.base import string_argument

PROPERTIES = ("message_id", "correlation_id", "timestamp")


def hashed(definition: ExchangeDefinition) -> tuple[str, str] | None:
    """``("header", NAME)`` or ``("property", NAME)``; None for the routing key.

    Raises:
        PreconditionFailed: the arguments name both, or a property that is not hashed, or no string.
    """
    header, name = string_argument(definition, "hash-header"), string_argument(definition, "hash-property")
    if header is not None and name is not None:
        raise PreconditionFailed("hash-header and hash-property are mutually exclusive")
    if header is not None:
        return "header", header
    if name is not None and name not in PROPERTIES:
        raise PreconditionFailed(f"Unsupported property: {name}")
    return None if name is None else ("property", name)
