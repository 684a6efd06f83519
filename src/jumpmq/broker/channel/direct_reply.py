"""Direct reply-to (RabbitMQ, "Direct Reply-to"): replies go directly to the requesting channel, without a queue.

A client consumes from the pseudo-queue ``amq.rabbitmq.reply-to`` and publishes requests with this name in ``reply-to``.
The broker replaces the name by an address of the channel. A message published to the address on the default exchange is
delivered to the channel, or returned as unroutable when the channel is gone.

In a broker with several homes, an address begins with the number of the channel's home: other homes send replies there.
"""

from typing import Protocol

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import NotFound, PreconditionFailed
from jumpmq.amqp.messages import Message, encode_deliveries
from jumpmq.amqp.properties import Properties
from jumpmq.broker.channel.client import ChannelClient
from jumpmq.broker.names import unique_name
from jumpmq.broker.routing.sending import Sender
from jumpmq.topology import Topology

NAME = "amq.rabbitmq.reply-to"
PREFIX = NAME.encode() + b"."


class ReplyChannel(Protocol):
    """A channel, as far as replies are concerned; see :class:`~jumpmq.broker.channel.channel.Channel`."""

    number: int
    next_delivery_tag: int
    reply_queue: "ReplyQueue | None"
    reply_queues: "dict[bytes, ReplyQueue]"
    sender: Sender
    topology: Topology

    @property
    def connection(self) -> ChannelClient: ...
    def send(self, method: m.Method) -> None: ...


class ReplyQueue:
    """A channel's pseudo-queue.

    Attributes:
        address: routing key of the consumer.
        tag: consumer tag of its deliveries.
    """

    def __init__(self, channel: ReplyChannel, tag: str) -> None:
        self.channel = channel
        self.tag = tag
        self.address = PREFIX + channel.sender.reply_prefix + unique_name().encode()
        channel.reply_queues[self.address] = self

    def close(self) -> None:
        """Remove the address: replies to it become unroutable."""
        self.channel.reply_queues.pop(self.address, None)

    def deliver(self, messages: list[Message]) -> None:
        """Deliver replies to the channel."""
        channel, first = self.channel, self.channel.next_delivery_tag
        channel.next_delivery_tag += len(messages)
        frame_max = channel.connection.frame_max
        channel.connection.send_deliveries(
            encode_deliveries(messages, channel.number, self.tag.encode(), first, frame_max)
        )


def home_of(channel: ReplyChannel, address: bytes) -> int | None:
    """Return the home named by an address of another home; None for any other address."""
    if not address.startswith(PREFIX):
        return None
    number = address[len(PREFIX) :].partition(b".")[0]
    home = int(number) if number.isdigit() and len(number) < 10 else 0
    return home if home in channel.topology.homes and home != channel.topology.home else None


def reply(channel: ReplyChannel, message: Message) -> bool:
    """Send a reply to the address in its routing key; return False if the address does not exist."""
    found = channel.reply_queues.get(message.routing_key)
    if found is not None:
        found.deliver([message])
        return True
    home = home_of(channel, message.routing_key)
    return home is not None and channel.sender.send_reply(home, message)


def declare(channel: ReplyChannel, name: str) -> None:
    """Answer the declaration of the pseudo-queue, which always exists, or of an address, which exists as long as its
    channel.

    Raises:
        NotFound: the address does not exist.
    """
    octets = name.encode(errors="surrogateescape")
    if name != NAME and octets not in channel.reply_queues and home_of(channel, octets) is None:
        raise NotFound(f"no queue '{name}' in vhost '{channel.connection.vhost.name}'")
    channel.send(m.QueueDeclareOk(name, 0, 1))


def consume(channel: ReplyChannel, tag: str, method: m.BasicConsume) -> None:
    """Consume from the pseudo-queue.

    Raises:
        PreconditionFailed: ``no_ack`` is not set, or the channel already consumes replies.
    """
    if not method.no_ack:
        raise PreconditionFailed("reply consumer cannot acknowledge")
    if channel.reply_queue is not None:
        raise PreconditionFailed("reply consumer already set")
    channel.reply_queue = ReplyQueue(channel, tag)
    if not method.no_wait:
        channel.send(m.BasicConsumeOk(tag))


def address(channel: ReplyChannel, message: Message, properties: Properties) -> None:
    """Replace the pseudo-queue's name in ``reply-to`` by the channel's own address.

    Raises:
        PreconditionFailed: the channel does not consume replies.
    """
    if properties.reply_to == NAME:
        if channel.reply_queue is None:
            raise PreconditionFailed("fast reply consumer does not exist")
        properties.reply_to = channel.reply_queue.address.decode()
        message.properties = properties.encode()
