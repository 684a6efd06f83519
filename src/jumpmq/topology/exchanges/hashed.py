"""Arguments of hash exchanges: ``hash-header`` and ``hash-property``, which replace the routing key, and
``hash-function``."""

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.hashing import functions
from jumpmq.topology.definitions import ExchangeDefinition
from jumpmq.topology.exchanges.base import string_argument

PROPERTIES = ("message_id", "correlation_id", "timestamp")


def hashed(definition: ExchangeDefinition) -> tuple[str, str] | None:
    """Return ``("header", NAME)`` or ``("property", NAME)``; None for the routing key.

    Raises:
        PreconditionFailed: both arguments are present, the property cannot be hashed, or a value is not a string.
    """
    header, name = string_argument(definition, "hash-header"), string_argument(definition, "hash-property")
    if header is not None and name is not None:
        raise PreconditionFailed("hash-header and hash-property are mutually exclusive")
    if header is not None:
        return "header", header
    if name is not None and name not in PROPERTIES:
        raise PreconditionFailed(f"Unsupported property: {name}")
    return None if name is None else ("property", name)


def hash_function(definition: ExchangeDefinition) -> functions.HashFunction:
    """Return the hash function in the argument ``hash-function``; by default RabbitMQ's.

    Raises:
        PreconditionFailed: there is no such function, or the argument is not a string.
    """
    name = string_argument(definition, "hash-function")
    try:
        return functions.hash_function("phash2" if name is None else name)
    except ValueError as error:
        raise PreconditionFailed(f"Unsupported hash-function: {error}") from None
