"""``/api/exchanges/{vhost}/{exchange}/shards``: the shards of an exchange at a glance. JumpMQ's own."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.http import request as of
from jumpmq.http.access import Access
from jumpmq.http.json import json_list
from jumpmq.http.operation import Operation
from jumpmq.topology import Shard


async def shards(request: Request) -> Response:
    """``GET /api/exchanges/{vhost}/{exchange}/shards``: messages, consumers and skew of each shard.

    Shards that are left of an exchange that is gone are shown too.
    """
    host, name = of.virtual_host(request), of.exchange_name(request)
    found = of.broker_of(request).topology.sharding.shards(host, name)
    if not found:
        of.exchange(request)
    return await json_list(request, found, shown, ("number",))


def shown(shard: Shard) -> dict[str, Any]:
    """A shard as JSON; ``share`` and ``skew`` are numbers."""
    return {
        "vhost": shard.queue.vhost,
        "name": shard.queue.name,
        "number": shard.number,
        "messages": shard.messages,
        "consumers": shard.consumers,
        "share": round(shard.share, 4),
        "skew": round(shard.skew, 4),
    }


ROUTES = [Operation("GET", "/api/exchanges/{vhost}/{exchange}/shards", shards, access=Access.ADMINISTRATOR)]
