"""``/api/channels``."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.errors import NotFound
from jumpmq.broker.channel.channel import Channel
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.answers import answer_list, answer_object
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.resources import connections
from jumpmq.http.resources.consumers import shown as shown_consumer
from jumpmq.http.samples import add_samples


async def all_channels(request: Request) -> Response:
    """``GET /api/channels``: the open channels; without a monitoring tag, the user's own."""
    return await _answer(request, _visible(request))


async def channels_of_host(request: Request) -> Response:
    """``GET /api/vhosts/{vhost}/channels``: those of one virtual host."""
    host = requested.virtual_host(request)
    return await _answer(request, [one for one in _visible(request) if one.connection.vhost is host])


async def channels_of_connection(request: Request) -> Response:
    """``GET /api/connections/{connection}/channels``: those of one connection."""
    connection = connections.named(request)
    return await _answer(request, list(connection.channels.values()))


async def one_channel(request: Request) -> Response:
    """``GET /api/channels/{channel}``: one channel, with its consumers."""
    channel = named(request)
    consumers = [shown_consumer((one.queue, one)) for one in channel.consumers.values()]
    return answer_object(request, shown(request, channel) | {"consumer_details": consumers})


def named(request: Request) -> Channel:
    """The open channel that the path names.

    Raises:
        NotFound: there is none of that name.
        Unauthorized: it is another's, and the user does not monitor.
    """
    name = requested.name(request, "channel")
    for channel in [channel for one in connections.opened(request) for channel in one.channels.values()]:
        if channel.name == name:
            connections.require_own(request, channel.connection, "monitoring", "administrator")
            return channel
    raise NotFound(f"no channel '{name}'")


def _visible(request: Request) -> list[Channel]:
    return [channel for one in connections.visible(request) for channel in one.channels.values()]


async def _answer(request: Request, channels: list[Channel]) -> Response:
    return await answer_list(request, channels, lambda channel: shown(request, channel))


def shown(request: Request, channel: Channel) -> dict[str, Any]:
    """A channel as RabbitMQ's management API shows one."""
    connection, rates = channel.connection, request.app.state.rates
    transaction = channel.transaction
    found = {
        "name": channel.name,
        "number": channel.number,
        "user": connection.user,
        "user_who_performed_action": connection.user,
        "vhost": connection.vhost.name,
        "node": connection.node,
        "state": "running",
        "confirm": channel.confirms is not None,
        "transactional": channel.transaction is not None,
        "consumer_count": len(channel.consumers),
        "messages_unacknowledged": len(channel.unacknowledged),
        "messages_unconfirmed": channel.confirms.unanswered if channel.confirms is not None else 0,
        "messages_uncommitted": transaction.published if transaction is not None else 0,
        "acks_uncommitted": transaction.claimed if transaction is not None else 0,
        "message_stats": rates.of_channel(channel),
        "idle_since": rates.idle_since(channel),
        "prefetch_count": channel.consumer_prefetch,
        "global_prefetch_count": channel.prefetch,
        "connection_details": connections.details(connection),
    }
    return add_samples(request, found, lambda: request.app.state.history.of(channel))


ROUTES = [
    Endpoint("GET", "/api/channels", all_channels),
    Endpoint("GET", "/api/vhosts/{vhost}/channels", channels_of_host),
    Endpoint("GET", "/api/connections/{connection}/channels", channels_of_connection),
    Endpoint("GET", "/api/channels/{channel}", one_channel),
]
