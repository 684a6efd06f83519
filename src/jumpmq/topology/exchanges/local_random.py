"""The local random exchange, RabbitMQ's ``x-local-random``, routes each message to a random bound queue of this node.

The exchange is for requests to one of several servers. Each server has a queue on its own node, and the nearest server
answers.
"""

from jumpmq.amqp.errors import PreconditionFailed
from jumpmq.topology.bindings import Binding
from jumpmq.topology.exchanges.random import RandomExchange


class LocalRandomExchange(RandomExchange):
    """Accepts bindings of classic queues only, with an empty binding key. Queues of other types may have a remote
    leader.
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
