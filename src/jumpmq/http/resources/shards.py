"""``/api/exchanges/{vhost}/{exchange}/shards``: summary of an exchange's shards. JumpMQ's own."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer_list
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.shards import ShardSummary, shards_of


async def shards(request: Request) -> Response:
    """``GET /api/exchanges/{vhost}/{exchange}/shards``: node, messages, consumers and skew of each shard.

    ``of`` is the node in the shard's name, ``node`` the node that serves the shard. ``state`` is ``down`` if that node
    does not answer. Remaining shards of a deleted exchange are shown, too.
    """
    host, name = requested.virtual_host(request), requested.exchange_name(request)
    found = await shards_of(requested.broker(request), host, name)
    if not found:
        requested.exchange(request)
    return await answer_list(request, found, shown, ("of", "number"))


def shown(shard: ShardSummary) -> dict[str, Any]:
    """Return a shard as JSON; ``share`` and ``skew`` are numbers."""
    return {
        "vhost": shard.queue.vhost,
        "name": shard.queue.name,
        "of": shard.of,
        "number": shard.number,
        "node": shard.node,
        "state": "down" if shard.down else "running",
        "messages": shard.messages,
        "consumers": shard.consumers,
        "share": round(shard.share, 4),
        "skew": round(shard.skew, 4),
    }


ROUTES = [Endpoint("GET", "/api/exchanges/{vhost}/{exchange}/shards", shards, access=Access.PLANNING)]
