"""A blocking AMQP 0-9-1 client, as far as moving messages in bulk takes one: standard library and `amqp/` only."""

from jumpmq.client.address import AMQPAddress
from jumpmq.client.connection import AMQPConnection, Cancelled, ConnectionLost, RequestRefused

__all__ = ["AMQPAddress", "AMQPConnection", "Cancelled", "ConnectionLost", "RequestRefused"]
