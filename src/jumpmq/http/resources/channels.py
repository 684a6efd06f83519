"""``/api/channels``."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.broker.figures.values import ChannelFigures
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import owned
from jumpmq.http.plumbing.answers import answer_list, answer_object
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.resources import connections
from jumpmq.http.resources.consumers import shown as shown_consumer
from jumpmq.http.samples import add_samples


async def all_channels(request: Request) -> Response:
    """``GET /api/channels``: the open channels; without a monitoring tag, the user's own."""
    return await _answer(request, await _visible(request))


async def channels_of_host(request: Request) -> Response:
    """``GET /api/vhosts/{vhost}/channels``: channels of a virtual host."""
    host = requested.virtual_host(request)
    return await _answer(request, [one for one in await _visible(request) if one.peer.vhost == host.name])


async def channels_of_connection(request: Request) -> Response:
    """``GET /api/connections/{connection}/channels``: channels of a connection."""
    connection = await connections.named(request)
    return await _answer(request, await requested.broker(request).figures.channels_of(connection.id))


async def one_channel(request: Request) -> Response:
    """``GET /api/channels/{channel}``: a channel, with consumers."""
    channel = await named(request)
    consumers = await requested.broker(request).figures.consumers_of_channel(*channel.id)
    details = {"consumer_details": [shown_consumer(request, one) for one in consumers]}
    return answer_object(request, shown(request, channel) | details)


async def named(request: Request) -> ChannelFigures:
    """Return the open channel named in the path.

    Raises:
        NotFound, BadRequest: as for :func:`connections.only`.
        Unauthorized: the channel belongs to another user, and the user has no monitoring tag.
    """
    name = requested.name(request, "channel")
    found = await requested.broker(request).figures.channels_named(name)
    channel = connections.only(request, f"channel '{name}'", found)
    connections.require_own(request, channel.peer, "monitoring", "administrator")
    return channel


async def _visible(request: Request) -> list[ChannelFigures]:
    found = await requested.broker(request).figures.channels()
    user, principal = requested.user(request), requested.principal(request)
    return owned(user, principal, found, lambda channel: channel.peer.user_identity)


async def _answer(request: Request, channels: list[ChannelFigures]) -> Response:
    return await answer_list(request, channels, lambda channel: shown(request, channel))


def shown(request: Request, channel: ChannelFigures) -> dict[str, Any]:
    """Return a channel in the format of RabbitMQ's management API."""
    peer, rates = channel.peer, request.app.state.rates
    found = {
        "name": channel.name,
        "number": channel.number,
        "user": peer.user,
        "user_who_performed_action": peer.user,
        "vhost": peer.vhost,
        "node": peer.node,
        "state": "running",
        "confirm": channel.confirms,
        "transactional": channel.transactional,
        "consumer_count": channel.consumers,
        "messages_unacknowledged": channel.unacknowledged,
        "messages_unconfirmed": channel.unconfirmed,
        "messages_uncommitted": channel.uncommitted,
        "acks_uncommitted": channel.acks_uncommitted,
        "message_stats": rates.of_channel(channel),
        "idle_since": rates.idle_since(channel),
        "prefetch_count": channel.prefetch,
        "global_prefetch_count": channel.global_prefetch,
        "connection_details": connections.details(peer),
    }
    return add_samples(request, found, lambda: request.app.state.history.of("channel", channel.name))


ROUTES = [
    Endpoint("GET", "/api/channels", all_channels),
    Endpoint("GET", "/api/vhosts/{vhost}/channels", channels_of_host),
    Endpoint("GET", "/api/connections/{connection}/channels", channels_of_connection),
    Endpoint("GET", "/api/channels/{channel}", one_channel),
]
