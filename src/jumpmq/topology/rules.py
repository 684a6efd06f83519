"""Rules shared by several changes and requests; the texts are RabbitMQ's."""

from __future__ import annotations

from collections.abc import Mapping

from jumpmq.amqp.errors import AccessRefused, PreconditionFailed
from jumpmq.topology import limits
from jumpmq.topology.bindings import Binding
from jumpmq.topology.exchanges import Exchange
from jumpmq.topology.vhost import VirtualHost

RESERVED_PREFIX = "amq."


def passive_exchange(vhost: VirtualHost, name: str) -> Exchange:
    """Return the exchange for a passive declaration.

    Raises:
        AccessRefused: the default exchange cannot be declared, not even passively.
            NotFound: there is no such exchange.
    """
    refuse_default_exchange(name)
    return vhost.exchange(name)


def refuse_default_exchanges(binding: Binding) -> None:
    """Refuse a binding of the default exchange.

    Raises:
        AccessRefused: the binding is one of the default exchange.
    """
    refuse_default_exchange(binding.source)
    if binding.kind == "exchange":
        refuse_default_exchange(binding.destination)


def refuse_default_exchange(name: str) -> None:
    """
    Raises: AccessRefused: the name is that of the default exchange.
    """
    if not name:
        raise AccessRefused("operation not permitted on the default exchange")


def refuse_reserved(kind: str, name: str) -> None:
    """
    Raises: AccessRefused: the name of the queue or exchange is reserved for the broker.
    """
    if name.startswith(RESERVED_PREFIX):
        raise AccessRefused(f"{kind} name '{name}' contains reserved prefix 'amq.*'")


def refuse_beyond_queue_limit(vhost: VirtualHost, name: str) -> None:
    """
    Raises: PreconditionFailed: with one more queue the virtual host would have more than its limit.
    """
    limit = limits.reached(vhost.limits, "max-queues", len(vhost.declared))
    if limit is not None:
        raise PreconditionFailed(
            f"cannot declare queue '{name}': queue limit in vhost '{vhost.name}' ({limit}) is reached"
        )


def refuse_forgotten(forgotten: Mapping[int, str], home: int) -> None:
    """
    Raises: PreconditionFailed: the home was forgotten, with its node.
    """
    if (node := forgotten.get(home)) is not None:
        raise PreconditionFailed(f"home {home} was forgotten with node '{node}': its number is not used again")
