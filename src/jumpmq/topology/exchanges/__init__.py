"""The exchange types, a file per type: from a message to destinations."""

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.topology.definitions import ExchangeDefinition
from jumpmq.topology.exchanges.base import Destination, Exchange
from jumpmq.topology.exchanges.consistent_hash import ConsistentHashExchange
from jumpmq.topology.exchanges.deduplicating import DeduplicationExchange
from jumpmq.topology.exchanges.delayed import DELAYED_TYPE, DelayedMessageExchange, delayed_type, delaying
from jumpmq.topology.exchanges.direct import DirectExchange
from jumpmq.topology.exchanges.fanout import FanoutExchange
from jumpmq.topology.exchanges.headers import HeadersExchange
from jumpmq.topology.exchanges.holding import HoldingExchange
from jumpmq.topology.exchanges.local_random import LocalRandomExchange
from jumpmq.topology.exchanges.modulus_hash import ModulusHashExchange
from jumpmq.topology.exchanges.random import RandomExchange
from jumpmq.topology.exchanges.topic import TopicExchange

__all__ = [
    "EXCHANGE_TYPES",
    "HASH_EXCHANGES",
    "ConsistentHashExchange",
    "Destination",
    "DirectExchange",
    "Exchange",
    "ModulusHashExchange",
    "TopicExchange",
    "exchange_type",
    "make_exchange",
]

_ALL: tuple[type[Exchange], ...] = (
    DirectExchange,
    FanoutExchange,
    TopicExchange,
    HeadersExchange,
    ConsistentHashExchange,
    ModulusHashExchange,
    RandomExchange,
    LocalRandomExchange,
    DelayedMessageExchange,
    DeduplicationExchange,
)
HASH_EXCHANGES = (ConsistentHashExchange, ModulusHashExchange)
"""Exchange types that send a key to a single destination."""
EXCHANGE_TYPES: dict[str, type[Exchange]] = {cls.type: cls for cls in _ALL}
"""Exchange types by name."""


def exchange_type(name: str) -> type[Exchange]:
    """Return the class of an exchange type.

    Raises:
        PreconditionFailed: there is no such type (406, as RabbitMQ 4.0; 503 before).
    """
    try:
        return EXCHANGE_TYPES[name]
    except KeyError:
        problem = "unknown" if name else "invalid"
        raise PreconditionFailed(f"{problem} exchange type '{name}'") from None


def make_exchange(definition: ExchangeDefinition) -> Exchange:
    """Return a declared exchange, without bindings.

    Raises:
        PreconditionFailed: unknown type, or arguments invalid for the type (406).
    """
    kind = exchange_type(definition.type)
    if kind is DelayedMessageExchange:
        kind = exchange_type(delayed_type(definition))
        if issubclass(kind, HoldingExchange):
            raise PreconditionFailed(
                f"Invalid argument, '{DELAYED_TYPE}' cannot be '{kind.type}': bind an exchange of that type behind"
            )
        kind = delaying(kind)
    return kind(definition)
