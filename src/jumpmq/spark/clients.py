"""Choice of the client for a broker: management API or AMQP."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from jumpmq.spark.client import Client
from jumpmq.spark.options import BrokerAddress

if TYPE_CHECKING:
    from jumpmq.spark.rabbitmq.client import AMQPClient

ReadingClient: TypeAlias = "Client | AMQPClient"


def client_of(broker: BrokerAddress, *, met: bool = False) -> ReadingClient:
    """Return a client that reads from the broker; ``met`` as in :class:`Client`.

    Raises:
        JumpMQError: the URL makes no sense.
    """
    if not broker.speaks_amqp:
        return Client(broker, met=met)
    from jumpmq.spark.rabbitmq.client import AMQPClient

    return AMQPClient(broker)
