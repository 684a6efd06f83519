"""The firehose: published and delivered messages of a traced virtual host are copied to ``amq.rabbitmq.trace``.

A copy has the body of its message, the routing key ``publish.EXCHANGE`` or ``deliver.QUEUE``, and headers with the
other data (RabbitMQ, "Firehose"). Deliveries of streams are not copied, nor messages of this exchange itself.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Protocol

from jumpmq.amqp.errors import MethodSyntaxError
from jumpmq.amqp.fields import Field, typed
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import HEADERS, Properties
from jumpmq.broker.routing import routing
from jumpmq.broker.routing.sending import Sender
from jumpmq.broker.security.accounts import Principal
from jumpmq.queues import Queue
from jumpmq.topology import VirtualHost

EXCHANGE = "amq.rabbitmq.trace"


class TracedClient(Protocol):
    """A publisher or a recipient of deliveries."""

    name: str
    node: str
    user: Principal
    vhost: VirtualHost


class TracedChannel(Protocol):
    """The channel of a client."""

    number: int
    sender: Sender

    @property
    def connection(self) -> TracedClient:
        """Connection of the channel."""


def published(channel: TracedChannel, messages: Iterable[Message], routes: dict[Queue, list[Message]]) -> None:
    """Copy the messages published by a channel.

    Args:
        routes: the messages of each reached queue.
    """
    reached: defaultdict[int, list[str]] = defaultdict(list)
    for queue, share in routes.items():
        for message in share:
            reached[id(message)].append(queue.name)
    for message in messages:
        headers = [
            *_headers(channel, message),
            Field("connection", "S", channel.connection.name),
            Field("channel", "I", channel.number),
            Field("user", "S", channel.connection.user.name),
            Field("routed_queues", "A", [("S", queue) for queue in reached[id(message)]]),
        ]
        _copy(channel, f"publish.{message.exchange}", message, headers)


def delivered(channel: TracedChannel, queue: Queue, messages: Iterable[Message]) -> None:
    """Copy the messages delivered to a channel from a queue."""
    for message in messages:
        headers = [*_headers(channel, message), Field("redelivered", "I", int(message.redelivered))]
        _copy(channel, f"deliver.{queue.name}", message, headers)


def _headers(channel: TracedChannel, message: Message) -> list[Field]:
    connection = channel.connection
    return [
        Field("exchange_name", "S", message.exchange),
        Field("routing_keys", "A", [("S", message.routing_key.decode("utf-8", "replace"))]),
        Field("properties", "F", _properties(message)),
        Field("node", "S", connection.node),
        Field("vhost", "S", connection.vhost.name),
    ]


def _properties(message: Message) -> list[Field]:
    """Return the properties of a message, as a table."""
    try:
        properties = Properties.parse(message.properties)
    except MethodSyntaxError:
        return []
    values = {name: getattr(properties, name) for name in properties.__dataclass_fields__}
    return [
        Field(name, "F", value) if name == "headers" else Field(name, *typed(value))
        for name, value in values.items()
        if value is not None
    ]


def _copy(channel: TracedChannel, key: str, message: Message, headers: list[Field]) -> None:
    vhost = channel.connection.vhost
    exchange = vhost.exchanges.get(EXCHANGE)
    if exchange is None or message.exchange == EXCHANGE:
        return
    octets = key.encode()[:255]
    copy = Message(EXCHANGE, octets, Properties(headers=headers).encode(), message.body, False, time.time())
    routing.push(vhost, exchange, [copy], HEADERS, sender=channel.sender)
