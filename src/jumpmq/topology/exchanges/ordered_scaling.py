"""The declare argument ``ordered-scaling`` keeps the order of each key's messages when a hash exchange's bindings
change.

A key may move to a new queue. Its messages wait in the new queue until the previous queue has no more messages of the
key (:mod:`jumpmq.queues.fences`).
"""

from jumpmq.amqp import erlang
from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.queues import QUEUE_TYPES
from jumpmq.topology.bindings import Binding
from jumpmq.topology.definitions import ExchangeDefinition
from jumpmq.topology.exchanges.base import Exchange


def ordered_scaling(definition: ExchangeDefinition) -> bool:
    """Return the argument's value; False if absent.

    Raises:
        PreconditionFailed: the value is not a boolean.
    """
    field = definition.arguments.get("ordered-scaling")
    if field is None:
        return False
    if not isinstance(field.value, bool):
        subject = f"exchange '{definition.name}' in vhost '{definition.vhost}'"
        raise PreconditionFailed(
            f"invalid type '{erlang.TYPE_NAMES[field.type]}' for arg 'ordered-scaling' in {subject}"
        )
    return field.value


def require_fenceable(exchange: Exchange, binding: Binding, queue_type: str | None) -> None:
    """Refuse a binding to a destination that cannot hold messages back, or does not know the keys of its messages.

    Raises:
        PreconditionFailed: the destination is such an exchange or queue.
    """
    holds_back = queue_type is not None and QUEUE_TYPES[queue_type].holds_back
    if holds_back or not ordered_scaling(exchange.definition):
        return
    what = "another exchange" if queue_type is None else f"a queue of type '{queue_type}'"
    raise PreconditionFailed(
        f"exchange '{exchange.name}' in vhost '{exchange.vhost}' with ordered-scaling cannot be bound to {what}: "
        "it has to hold messages back"
    )
