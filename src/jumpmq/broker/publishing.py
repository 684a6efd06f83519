"""From a run of publishes to the queues: checks, routing, returns (AMQP 0-9-1, basic.publish)."""

import re
from typing import TYPE_CHECKING

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import NotImplementedByServer, PreconditionFailed
from jumpmq.amqp.events import Publish
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import EXPIRATION, HEADERS, REPLY_TO, USER_ID, Properties
from jumpmq.broker import direct_reply
from jumpmq.topology import VirtualHost

if TYPE_CHECKING:
    from jumpmq.broker.broker import Broker
    from jumpmq.broker.channel import Channel

EXAMINED = EXPIRATION | REPLY_TO | USER_ID
"""Properties that the broker acts on while publishing."""

MAX_EXPIRATION = 315_360_000_000
"""Milliseconds of ten years: RabbitMQ's limit, as measured."""

_INTEGER = re.compile(r"([+-]?[0-9]+)(.*)", re.DOTALL)


def check(channel: "Channel", run: Publish) -> None:
    """Whether the channel may publish the run.

    Raises:
        AMQPError: it may not, or a message is malformed.
    """
    if run.immediate:
        raise NotImplementedByServer("immediate=true")
    connection = channel.connection
    connection.check_permission("write", run.exchange)
    connection.vhost.publishable(run.exchange)
    if run.flags & EXAMINED:
        for message in run.messages:
            _examine(channel, message)


def publish(channel: "Channel", run: Publish) -> list[Message]:
    """Route a run and hand it to the queues; returns the messages that a queue refused."""
    check(channel, run)
    messages = run.messages
    if not run.exchange and channel.broker.reply_queues:
        messages = _deliver_answers(channel, messages)
    vhost = channel.connection.vhost
    routed = vhost.route(run.exchange, messages, plain=not run.flags & HEADERS)
    refused: list[Message] = []
    for queue, share in routed.queues.items():
        if run.flags & EXPIRATION:
            queue.expect_expiry()
        refused += queue.push(share)
    if run.mandatory and routed.unroutable:
        _return(channel, routed.unroutable)
    if routed.error is not None:
        raise routed.error
    return refused


def publish_one(broker: "Broker", user: str, vhost: VirtualHost, message: Message) -> bool:
    """Publish a message without a channel, as an operator does; returns whether a queue has taken it.

    Raises:
        AMQPError: the user may not, or the message is malformed.
    """
    broker.check_permission(user, vhost.name, "write", message.exchange)
    vhost.publishable(message.exchange)
    _check_properties(message, Properties.parse(message.properties), user)
    routed = vhost.route(message.exchange, [message])
    if routed.error is not None:
        raise routed.error
    refused: list[Message] = []
    for queue, share in routed.queues.items():
        if message.expires_at:
            queue.expect_expiry()
        refused += queue.push(share)
    return len(refused) < len(routed.queues)


def _examine(channel: "Channel", message: Message) -> None:
    properties = Properties.parse(message.properties)
    _check_properties(message, properties, channel.connection.user)
    if properties.reply_to == direct_reply.NAME:
        direct_reply.address(channel, message, properties)


def _check_properties(message: Message, properties: Properties, user: str) -> None:
    """Set the message's own expiry, and refuse properties that it may not have."""
    if properties.expiration is not None:
        message.expires_at = message.published_at + _expiration(properties.expiration) / 1000
    if properties.user_id is not None and properties.user_id != user:
        raise PreconditionFailed(f"user_id property set to '{properties.user_id}' but authenticated user was '{user}'")


def _expiration(text: str) -> int:
    found = _INTEGER.match(text)
    if found is None:
        raise PreconditionFailed(f"invalid expiration '{text}': no_integer")
    if found[2]:
        raise PreconditionFailed(f"invalid expiration '{text}': {{leftover_string,\"{found[2]}\"}}")
    milliseconds = int(found[1])
    if milliseconds < 0:
        raise PreconditionFailed(f"invalid expiration '{text}': {{value_negative,{milliseconds}}}")
    if milliseconds > MAX_EXPIRATION:
        raise PreconditionFailed(f"invalid expiration '{text}': {{value_too_big,{milliseconds}}}")
    return milliseconds


def _deliver_answers(channel: "Channel", messages: list[Message]) -> list[Message]:
    """Hand answers to the channels that asked; returns the other messages."""
    others = []
    for message in messages:
        reply_queue = None
        if message.routing_key.startswith(direct_reply.PREFIX):
            reply_queue = channel.broker.reply_queues.get(message.routing_key)
        if reply_queue is None:
            others.append(message)
        else:
            reply_queue.deliver([message])
    return others


def _return(channel: "Channel", messages: list[Message]) -> None:
    """``basic.return`` of messages that no queue took."""
    for message in messages:
        method = m.BasicReturn(312, "NO_ROUTE", message.exchange, message.routing_key)
        channel.connection.send_content(channel.number, method, message)
