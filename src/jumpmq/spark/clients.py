"""Which client reads from a broker: that of its management API, or AMQP."""

from __future__ import annotations

from jumpmq.spark.client import Client
from jumpmq.spark.options import Broker
from jumpmq.spark.rabbitmq.client import AMQPClient
from jumpmq.spark.rabbitmq.link import is_amqp

ReadingClient = Client | AMQPClient


def client_of(broker: Broker, *, met: bool = False) -> ReadingClient:
    """A client that reads from the broker; ``met`` as in :class:`Client`.

    Raises:
        JumpMQError: the URL makes no sense.
    """
    return AMQPClient(broker) if is_amqp(broker) else Client(broker, met=met)
