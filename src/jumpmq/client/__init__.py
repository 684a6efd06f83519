"""A blocking AMQP 0-9-1 client for moving messages in bulk. Needs the standard library and `amqp/` only."""

from jumpmq.client.address import AMQPAddress
from jumpmq.client.connection import AMQPConnection, Cancelled, ConnectionLost, RequestRefused

__all__ = ["AMQPAddress", "AMQPConnection", "Cancelled", "ConnectionLost", "RequestRefused"]
