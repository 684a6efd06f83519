"""The local random exchange, RabbitMQ's ``x-local-random``: to one bound queue of this node, each as likely.

For requests that the nearest of several servers may answer, each with a queue of its own.
"""

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.topology.bindings import Binding
from jumpmq.topology.exchanges.random import RandomExchange


class LocalRandomExchange(RandomExchange):
    """Only classic queues are bound, as others may have their leader on another node; the binding key must be empty."""

    type = "x-local-random"

    def check(self, binding: Binding, queue_type: str | None) -> None:
        if binding.key:
            key = binding.key.decode("utf-8", "replace")
            raise PreconditionFailed(f"Non empty binding '{key}' key not permitted")
        if queue_type is None:
            raise PreconditionFailed("Destination not found")
        if queue_type != "classic":
            raise PreconditionFailed(f"Queue type rabbit_{queue_type}_queue not valid for this exchange type")
