"""The delayed message exchange, ``x-delayed-message`` of RabbitMQ's plugin: routes messages with ``x-delay`` later.

It routes as an exchange of the type in the argument ``x-delayed-type``, and is a subclass of that type. When a message
comes back, its header is negative, so that it is not delayed again.
"""

from functools import cache

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.amqp.messages import Message
from jumpmq.queues.delays import delay_of
from jumpmq.topology.definitions import ExchangeDefinition
from jumpmq.topology.exchanges.base import Exchange, string_argument
from jumpmq.topology.exchanges.holding import HoldingExchange

DELAYED_TYPE = "x-delayed-type"
"""Argument with the type of exchange for routing."""


class DelayedMessageExchange(HoldingExchange):
    """Mixin for exchanges of any type with delayed messages."""

    type = "x-delayed-message"
    queue_type = "delayed"
    queue_prefix = "amq.delayed."

    def holds(self, message: Message) -> bool:
        return delay_of(message) > 0


def delayed_type(definition: ExchangeDefinition) -> str:
    """Return the type of exchange for a delayed message exchange's routing.

    Raises:
        PreconditionFailed: the argument is missing.
    """
    named = string_argument(definition, DELAYED_TYPE)
    if named is None:
        raise PreconditionFailed(f"Invalid argument, '{DELAYED_TYPE}' must be an existing exchange type")
    return named


@cache
def delaying(kind: type[Exchange]) -> type[Exchange]:
    """Return the class of delaying exchanges of a type."""

    class Delaying(DelayedMessageExchange, kind):  # type: ignore[misc, valid-type]
        compared_arguments = (*kind.compared_arguments, DELAYED_TYPE)
        kept_on_replacement = kind.kept_on_replacement | {"held_queue"}

    Delaying.__name__ = Delaying.__qualname__ = f"Delayed{kind.__name__}"
    return Delaying
