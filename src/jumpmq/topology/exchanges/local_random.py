"""The local random exchange, RabbitMQ's ``x-local-random``: to a random bound queue of this node.

For requests that the nearest of several servers may answer, each with a queue of its own.
"""

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.topology.bindings import Binding
from jumpmq.topology.exchanges.random import RandomExchange


class LocalRandomExchange(RandomExchange):
    """Accepts only bindings of classic queues, as further types may have their leader on a remote node, with an empty
    binding key.
    """

    type = "x-local-random"

    def check(self, binding: Binding, queue_type: str | None) -> None:
        if binding.key:
            key = binding.key.decode("utf-8", "replace")
            raise PreconditionFailed(f"Non empty binding '{key}' key not permitted")
        if queue_type is None:
            raise PreconditionFailed("Destination not found")
        if queue_type != "classic":
            raise PreconditionFailed(f"Queue type rabbit_{queue_type}_queue not valid for this exchange type")
