"""``/api/exchanges/{vhost}/{exchange}/shards``: the shards of an exchange at a glance. JumpMQ's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer_list
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.topology import VirtualHost
from jumpmq.topology.definitions import QueueDefinition

if TYPE_CHECKING:
    from jumpmq.broker import Broker


async def shards(request: Request) -> Response:
    """``GET /api/exchanges/{vhost}/{exchange}/shards``: messages, consumers and skew of each shard.

    Shards that are left of an exchange that is gone are shown too.
    """
    host, name = requested.virtual_host(request), requested.exchange_name(request)
    found = await shards_of(requested.broker(request), host, name)
    if not found:
        requested.exchange(request)
    return await answer_list(request, found, shown, ("number",))


class Shard(NamedTuple):
    """One shard, at a glance: as :class:`jumpmq.topology.Shard`, wherever its home is."""

    queue: QueueDefinition
    number: int
    messages: int
    consumers: int
    share: float
    skew: float


async def shards_of(broker: Broker, host: VirtualHost, exchange: str) -> list[Shard]:
    """The shards of an exchange on this node in order, also those left from when there were more."""
    declared = host.declared_shards_of(exchange, broker.node)
    figures = await broker.figures.queues([one.definition for _, one in declared])
    found = [(number, one, told) for (number, one), told in zip(declared, figures, strict=True) if told is not None]
    total = sum(told.ready + told.unacknowledged for _, _, told in found)
    shards = []
    for number, one, told in found:
        messages = told.ready + told.unacknowledged
        share = messages / total if total else 0.0
        shards.append(Shard(one.definition, number, messages, told.consumers, share, share * len(found)))
    return shards


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


ROUTES = [Endpoint("GET", "/api/exchanges/{vhost}/{exchange}/shards", shards, access=Access.PLANNING)]
