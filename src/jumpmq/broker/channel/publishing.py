"""Publishing a run of messages to queues: checks, routing, returns (AMQP 0-9-1, basic.publish)."""

import re
from typing import Protocol

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import AMQPError, NotImplementedByServer, PreconditionFailed
from jumpmq.amqp.events import Publish
from jumpmq.amqp.messages import Message
from jumpmq.amqp.properties import EXPIRATION, HEADERS, REPLY_TO, UNKNOWN_MODE, USER_ID, Properties
from jumpmq.broker.channel import direct_reply
from jumpmq.broker.routing import routing
from jumpmq.broker.routing.sending import NOWHERE, Sender
from jumpmq.broker.security.accounts import Principal
from jumpmq.broker.security.authorization import Authorization
from jumpmq.broker.telemetry import tracing
from jumpmq.broker.telemetry.spans import Spans
from jumpmq.queues import clock
from jumpmq.topology import VirtualHost
from jumpmq.topology.envelope import Envelope
from jumpmq.topology.exchanges import Exchange
from jumpmq.topology.tally import Tally

EXAMINED = EXPIRATION | REPLY_TO | USER_ID | UNKNOWN_MODE
"""Properties evaluated by the broker during publishing."""

MAX_EXPIRATION = 315_360_000_000
"""Maximum expiration, in milliseconds: ten years, RabbitMQ's limit, as measured."""

MAX_EXCHANGES = 100
"""Maximum number of exchanges with message counts per channel."""

_INTEGER = re.compile(r"([+-]?[0-9]+)(.*)", re.DOTALL)


class PublishingChannel(direct_reply.ReplyChannel, Protocol):
    """A channel, from the point of view of its publishes; see :class:`~jumpmq.broker.channel.channel.Channel`."""

    authorization: Authorization
    last_exchange: tuple[str, int, Exchange] | None
    published_to: dict[str, int]
    spans: Spans | None
    tally: Tally


def require_publishable(channel: PublishingChannel, run: Publish) -> None:
    """Refuse unless the channel may publish the whole run.

    Raises:
        AMQPError: the publish is not allowed, or a message is malformed.
    """
    _, error = _examined(channel, _require_exchange(channel, run), run)
    if error is not None:
        raise error
    # Read now: malformed headers must fail the publish, not the later commit.
    if run.flags & HEADERS:
        for message in run.messages:
            Envelope.opened(message)


def _require_exchange(channel: PublishingChannel, run: Publish) -> Exchange:
    if run.immediate:
        raise NotImplementedByServer("immediate=true")
    last, revision = channel.last_exchange, channel.topology.revision
    if last is not None and last[1] == revision and last[0] == run.exchange:
        return last[2]
    connection = channel.connection
    user = connection.user
    channel.authorization.require(user, connection.vhost.name, "write", "exchange", run.exchange)
    exchange = connection.vhost.publishable(run.exchange)
    if user.granted is None:  # a token may expire: each publish is checked
        channel.last_exchange = run.exchange, revision, exchange
    return exchange


def _examined(channel: PublishingChannel, exchange: Exchange, run: Publish) -> tuple[list[Message], AMQPError | None]:
    """Return the messages of a run up to the first malformed or refused message, with the error."""
    if run.flags & EXAMINED or channel.authorization.restricts_topics(channel.connection.user, exchange):
        for place, message in enumerate(run.messages):
            try:
                _examine(channel, exchange, message)
            except AMQPError as error:
                return run.messages[:place], error
    return run.messages, None


def publish(channel: PublishingChannel, run: Publish) -> routing.Pushed:
    """Route a run of messages and push them to queues.

    Raises:
        AMQPError: the publish is not allowed, or a message is malformed; the messages before it are published.
    """
    exchange = _require_exchange(channel, run)
    messages, error = _examined(channel, exchange, run)
    _count(channel, run.exchange, len(messages))
    if not run.exchange and (channel.reply_queues or channel.sender.reply_prefix):
        messages = _deliver_answers(channel, messages)
    pushed = routing.push(
        channel.connection.vhost, exchange, messages, run.flags, channel.tally, run.mandatory, channel.sender
    )
    if channel.connection.vhost.tracing:
        tracing.published(channel, messages, pushed.routes)
    if channel.spans is not None and run.flags & HEADERS:
        channel.spans.published(run.exchange, messages, pushed.routes)
    # Before an error closes the channel, and before the confirms: RabbitMQ sends basic.return before basic.ack.
    if run.mandatory and pushed.unroutable:
        _return(channel, pushed.unroutable)
    # The routing failed at an earlier message than the examination, so its error comes first.
    if (error := pushed.error or error) is not None:
        raise error
    return pushed


def _count(channel: PublishingChannel, exchange: str, messages: int) -> None:
    """Count the messages published to an exchange, for the channel's first exchanges."""
    counts = channel.published_to
    if exchange in counts:
        counts[exchange] += messages
    elif len(counts) < MAX_EXCHANGES:
        counts[exchange] = messages


def publish_one(
    authorization: Authorization,
    user: Principal,
    vhost: VirtualHost,
    message: Message,
    spans: Spans | None = None,
    sender: Sender = NOWHERE,
) -> routing.Pushed:
    """Publish a message without a channel, as an operator does.

    Raises:
        AMQPError: the user may not publish to the exchange, or the message is malformed.
    """
    authorization.require(user, vhost.name, "write", "exchange", message.exchange)
    exchange = vhost.publishable(message.exchange)
    properties = Properties.parse(message.properties)
    set_expiry(message, properties)
    authorization.require_publish(user, exchange, (message,))
    check_user_id(authorization, message, properties, user)
    flags = int.from_bytes(message.properties[:2])
    pushed = routing.push(vhost, message.exchange, [message], flags, vhost.past.channels, sender=sender)
    if pushed.error is not None:
        raise pushed.error
    if spans is not None:
        spans.published(message.exchange, [message], pushed.routes)
    return pushed


def _examine(channel: PublishingChannel, exchange: Exchange, message: Message) -> None:
    """Validate a message in RabbitMQ's order: reply address, expiration, topic, user."""
    properties = Properties.parse(message.properties)
    if properties.reply_to == direct_reply.NAME:
        direct_reply.address(channel, message, properties)
    set_expiry(message, properties)
    user = channel.connection.user
    channel.authorization.require_publish(user, exchange, (message,))
    check_user_id(channel.authorization, message, properties, user)


def set_expiry(message: Message, properties: Properties) -> None:
    """Set the message's own expiry.

    Raises:
        PreconditionFailed: the property `expiration` is not a valid number of milliseconds.
    """
    if properties.expiration is not None:
        message.expires_at = clock.now() + _expiration(properties.expiration) / 1000


def check_user_id(authorization: Authorization, message: Message, properties: Properties, user: Principal) -> None:
    """Refuse a message with the name of another user as its publisher.

    Raises:
        PreconditionFailed: the message names another user; or, reported first as in RabbitMQ, its headers are
            malformed.
    """
    if properties.user_id not in (None, user.name) and not authorization.may_impersonate(user):
        Envelope.opened(message)
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
        raise PreconditionFailed(f"invalid expiration '{text}': {{value_too_large,{milliseconds}}}")
    return milliseconds


def _deliver_answers(channel: PublishingChannel, messages: list[Message]) -> list[Message]:
    """Deliver replies to the requesting channels; return the remaining messages."""
    prefix = direct_reply.PREFIX
    return [one for one in messages if not (one.routing_key.startswith(prefix) and direct_reply.reply(channel, one))]


def _return(channel: PublishingChannel, messages: list[Message]) -> None:
    """Send ``basic.return`` for unroutable messages."""
    for message in messages:
        method = m.BasicReturn(312, "NO_ROUTE", message.exchange, message.routing_key)
        channel.connection.send_content(channel.number, method, message)
