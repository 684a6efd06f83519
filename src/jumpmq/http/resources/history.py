"""``/api/history``: samples over time of the broker, or of a queue, exchange, connection or channel. JumpMQ's own."""

from __future__ import annotations

from collections.abc import Hashable

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.errors import NotFound
from jumpmq.http.history import COARSE, COARSE_COUNT, History
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.resources import channels, connections

DEFAULT_SECONDS = 300
MAX_SECONDS = COARSE * COARSE_COUNT


async def of_broker(request: Request) -> Response:
    """``GET /api/history?seconds=300``: rates, backlog, memory and disk of the broker.

    Samples are a second apart; beyond ten minutes, a minute. ``at`` is in seconds since the epoch. ``events`` are
    changes that may affect the samples: a start, policies, moves of queues.
    """
    seconds, history = _seconds(request), _history(request)
    hosts = {host.name for host in requested.visible_hosts(request)}
    return answer(history.overall.shown(seconds) | {"events": history.events(seconds, hosts)})


async def of_host(request: Request) -> Response:
    """``GET /api/history/vhosts/{vhost}?seconds=300``: rates and backlog of a virtual host, with ``events``."""
    host, seconds, history = requested.virtual_host(request), _seconds(request), _history(request)
    return answer(history.of("overview", host.name).shown(seconds) | {"events": history.events(seconds, {host.name})})


async def of_queue(request: Request) -> Response:
    """``GET /api/history/queues/{vhost}/{queue}?seconds=300``: history of a queue, from the first request on.

    The fullest queues are followed without a request. Of all other queues with messages, a sample per minute is known.
    """
    queue, seconds, history = requested.queue_definition(request), _seconds(request), _history(request)
    track = history.of("queue", queue.vhost, queue.name)
    return answer(track.shown(seconds) | {"events": history.events(seconds, {queue.vhost}, queue.name)})


async def of_exchange(request: Request) -> Response:
    """``GET /api/history/exchanges/{vhost}/{exchange}?seconds=300``: publish rates of an exchange."""
    exchange = requested.exchange(request)
    return _answer(request, "exchange", exchange.vhost, exchange.name)


async def of_connection(request: Request) -> Response:
    """``GET /api/history/connections/{connection}?seconds=300``: octets and channels of a connection."""
    found = await connections.named(request)
    return _answer(request, "connection", found.peer.name, identity=found.id)


async def of_channel(request: Request) -> Response:
    """``GET /api/history/channels/{channel}?seconds=300``: messages of a channel."""
    found = await channels.named(request)
    return _answer(request, "channel", found.name, identity=found.id)


async def of_node(request: Request) -> Response:
    """``GET /api/history/nodes/{node}?seconds=300``: memory, disk, connections and processor time of a node."""
    name = requested.name(request, "node")
    track = _history(request).nodes.get(name)
    if track is None:
        raise NotFound(f"no node '{name}'")
    return answer(track.shown(_seconds(request)))


def _answer(request: Request, *subject: str, identity: Hashable = None) -> Response:
    return answer(_history(request).of(*subject, identity=identity).shown(_seconds(request)))


def _history(request: Request) -> History:
    found: History = request.app.state.history
    return found


def _seconds(request: Request) -> int:
    found = requested.number(request, "seconds", DEFAULT_SECONDS)
    if not 1 <= found <= MAX_SECONDS:
        raise BadRequest(f"'seconds' must be a whole number from 1 to {MAX_SECONDS}, not '{found}'")
    return found


ROUTES = [
    Endpoint("GET", "/api/history", of_broker, access=Access.MONITORING),
    Endpoint("GET", "/api/history/vhosts/{vhost}", of_host, access=Access.MONITORING),
    Endpoint("GET", "/api/history/nodes/{node}", of_node, access=Access.MONITORING),
    Endpoint("GET", "/api/history/queues/{vhost}/{queue}", of_queue),
    Endpoint("GET", "/api/history/exchanges/{vhost}/{exchange}", of_exchange),
    Endpoint("GET", "/api/history/connections/{connection}", of_connection),
    Endpoint("GET", "/api/history/channels/{channel}", of_channel),
]
