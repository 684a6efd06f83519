"""Many messages published at once, by who needs no channel for it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from jumpmq.amqp.errors import NoRoute, PreconditionFailed
from jumpmq.amqp.messages import Message, check_properties
from jumpmq.amqp.properties import EXPIRATION, USER_ID, Properties
from jumpmq.broker.channel.publishing import check_properties_of
from jumpmq.broker.routing import routing
from jumpmq.broker.security.authorization import Authorization
from jumpmq.topology import VirtualHost


class Addressed(NamedTuple):
    """A message, and the queue that it is for; None where its exchange decides."""

    queue: str | None
    message: Message


@dataclass
class Published:
    """What became of messages.

    Attributes:
        published: those that a queue has taken.
        unroutable: those that reached no queue, and are gone.
        refused: those that a queue refused, because it is full.
        copies: of them that queues were given.
    """

    published: int = 0
    unroutable: int = 0
    refused: int = 0
    copies: int = 0


def publish_many(
    authorization: Authorization, user: str, vhost: VirtualHost, messages: list[Addressed], *, drop_unroutable: bool
) -> Published:
    """Publish messages in their order.

    Args:
        drop_unroutable: whether messages that reach no queue are dropped; else none of all is published.

    Raises:
        NoRoute: a message reaches no queue.
        AMQPError: the user may not publish to an exchange, or it is not there, or a message is malformed.
    """
    flags = _examined(authorization, user, [one.message for one in messages])
    runs = [
        (queue, exchange, [one.message for one in run])
        for (queue, exchange), run in groupby(messages, lambda one: (one.queue, one.message.exchange))
    ]
    for queue, exchange, run in runs:
        _require_allowed(authorization, user, vhost, exchange if queue is None else "", run)
    if not drop_unroutable:
        _require_routes(vhost, runs, flags)
    result = Published()
    for queue, exchange, run in runs:
        if queue is None:
            pushed = routing.push(vhost, exchange, run, flags)
            if pushed.error is not None:
                raise pushed.error
            vhost.exchanges[exchange].published_in += len(run)
            vhost.exchanges[exchange].published_out += pushed.copies
            refused, missed = len({id(message) for message in pushed.refused}), len(pushed.unroutable)
            result.copies += pushed.copies
        elif queue in vhost.queues:
            refused, missed = len(routing.push_to(vhost.queues[queue], run, flags)), 0
            result.copies += len(run)
        else:
            refused, missed = 0, len(run)
        result.published += len(run) - refused - missed
        result.refused += refused
        result.unroutable += missed
    tally = vhost.past.channels
    tally.publish += len(messages)
    tally.routed += result.copies
    tally.drop_unroutable += result.unroutable
    return result


def _require_allowed(
    authorization: Authorization, user: str, vhost: VirtualHost, exchange: str, run: list[Message]
) -> None:
    authorization.require(user, vhost.name, "write", "exchange", exchange)
    keys = (message.routing_key for message in run)
    authorization.require_topics(user, vhost.publishable(exchange), "write", keys)


def _require_routes(vhost: VirtualHost, runs: list[tuple[str | None, str, list[Message]]], flags: int) -> None:
    """Refuse unless every message reaches a queue."""
    for queue, exchange, run in runs:
        if queue is not None and queue not in vhost.queues:
            raise NoRoute(f"no queue '{queue}' in vhost '{vhost.name}'")
        if queue is None and (missed := routing.unroutable(vhost, exchange, run, flags)):
            key = missed[0].routing_key.decode("utf-8", "replace")
            raise NoRoute(
                f"{len(missed)} messages to exchange '{exchange}' reach no queue, one of them with key '{key}'"
            )


def _examined(authorization: Authorization, user: str, messages: list[Message]) -> int:
    """Check the messages' properties, and make them persistent or not as these say; returns their flags, or-ed."""
    modes: dict[bytes, int] = {}
    flags = 0
    for message in messages:
        octets = message.properties
        mode = modes.get(octets)
        if mode is None:
            mode = check_properties(octets)
            if mode < 0:
                raise PreconditionFailed("the properties of a message are malformed")
            if len(modes) < 4096:
                modes[octets] = mode
            flags |= int.from_bytes(octets[:2])
        message.persistent = mode == 2
        if mode not in (0, 1, 2) or int.from_bytes(octets[:2]) & (EXPIRATION | USER_ID):
            check_properties_of(authorization, message, Properties.parse(octets), user)
    return flags
