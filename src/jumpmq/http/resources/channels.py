"""``/api/channels``."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.errors import NotFound
from jumpmq.broker.channel import Channel
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.answers import answer_list, answer_object
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.resources import connections
from jumpmq.http.resources.consumers import shown as shown_consumer


async def all_channels(request: Request) -> Response:
    """``GET /api/channels``: the open channels; without a monitoring tag, the user's own."""
    return await answer_list(request, _visible(request), shown)


async def channels_of_host(request: Request) -> Response:
    """``GET /api/vhosts/{vhost}/channels``: those of one virtual host."""
    host = requested.virtual_host(request)
    return await answer_list(request, [one for one in _visible(request) if one.connection.vhost is host], shown)


async def channels_of_connection(request: Request) -> Response:
    """``GET /api/connections/{connection}/channels``: those of one connection."""
    connection = connections.named(request)
    return await answer_list(request, list(connection.channels.values()), shown)


async def one_channel(request: Request) -> Response:
    """``GET /api/channels/{channel}``: one channel, with its consumers."""
    name = requested.name(request, "channel")
    for channel in [channel for one in connections.opened(request) for channel in one.channels.values()]:
        if channel.name == name:
            connections.require_own(request, channel.connection, "monitoring", "administrator")
            consumers = [shown_consumer((one.queue, one)) for one in channel.consumers.values()]
            return answer_object(request, shown(channel) | {"consumer_details": consumers})
    raise NotFound(f"no channel '{name}'")


def _visible(request: Request) -> list[Channel]:
    return [channel for one in connections.visible(request) for channel in one.channels.values()]


def shown(channel: Channel) -> dict[str, Any]:
    """A channel as RabbitMQ's management API shows one."""
    connection = channel.connection
    return {
        "name": channel.name,
        "number": channel.number,
        "user": connection.user,
        "vhost": connection.vhost.name,
        "node": connection.node,
        "state": "running",
        "confirm": channel.confirms is not None,
        "transactional": channel.transaction is not None,
        "consumer_count": len(channel.consumers),
        "messages_unacknowledged": len(channel.unacknowledged),
        "prefetch_count": channel.consumer_prefetch,
        "global_prefetch_count": channel.prefetch,
        "connection_details": {
            "name": connection.name,
            "peer_host": connection.peer_host,
            "peer_port": connection.peer_port,
        },
    }


ROUTES = [
    Endpoint("GET", "/api/channels", all_channels),
    Endpoint("GET", "/api/vhosts/{vhost}/channels", channels_of_host),
    Endpoint("GET", "/api/connections/{connection}/channels", channels_of_connection),
    Endpoint("GET", "/api/channels/{channel}", one_channel),
]
