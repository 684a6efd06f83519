"""``/api/exchanges/{vhost}/{exchange}/key``: route and messages of a key. JumpMQ's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.errors import NotFound
from jumpmq.hashing import functions, jump, jump64, modulus, murmur2, murmur3, phash2, phash2_list, xxh64
from jumpmq.hashing.outline import RingOutline
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.resources import consumers
from jumpmq.http.resources.ring_changes import destination_of
from jumpmq.http.ring_counts import together
from jumpmq.http.schema.shapes import TEXT, Shape, whole
from jumpmq.topology import Exchange, VirtualHost
from jumpmq.topology.exchanges import HASH_EXCHANGES, ConsistentHashExchange, ModulusHashExchange
from jumpmq.topology.exchanges.placement import ModulusPlacement

if TYPE_CHECKING:
    from jumpmq.broker import Broker

SHOWN_CONSUMERS = 20
MAX_DESTINATIONS = 1000
MAX_BOUND = 20_000
"""Maximum number of destinations of an exchange for a preview with another number of destinations."""

MAX_HOPS = 8
"""Maximum number of hash exchanges in a row through which a key is followed."""

LONGEST_KEY = 255
"""Maximum length of a remembered key in octets, for lookups among the frequent keys."""

_HASHES: dict[functions.HashFunction, Callable[[bytes], int]] = {
    "phash2": phash2,
    "xxh64": xxh64,
    "murmur2": murmur2,
    "murmur3": murmur3,
}

QUERY = Shape({"key": TEXT, "destinations": whole(MAX_DESTINATIONS)}, required=("key",))
"""Shape of the query."""


async def follow(request: Request) -> Response:
    """``GET /api/exchanges/{vhost}/{exchange}/key?key=KEY&destinations=N``: route of a key: hash, bucket, destination,
    and the queue with node, consumers and readers.

    A key is the hashed value: a routing key, or the value of a header or property. ``traffic`` is the key's share of
    the last minutes' messages; null unless the key is frequent. With ``destinations``, ``then`` has the route of the
    key for that number of destinations.
    """
    exchange, host = requested.exchange(request), requested.virtual_host(request)
    query = QUERY.read(dict[str, Any](request.query_params))
    if not isinstance(exchange, HASH_EXCHANGES):
        raise NotFound(f"exchange '{exchange.name}' in vhost '{host.name}' hashes no keys: its type is {exchange.type}")
    key = query["key"].encode()
    hops = _hops(host, exchange, key)
    found = {"vhost": host.name, "exchange": exchange.name, "key": query["key"], **hops[0]}
    found["hops"] = hops
    found["traffic"] = await _traffic(requested.broker(request), exchange, key)
    found["then"] = None
    if "destinations" in query:
        if _size(exchange) > MAX_BOUND:
            raise BadRequest(f"the exchange has more than {MAX_BOUND} destinations")
        found["then"] = await asyncio.to_thread(_then, _state(exchange), key, query["destinations"])
    return answer(found | {"queue": await _queue(request, host, hops[-1]["destination"])})


def _hops(host: VirtualHost, exchange: Exchange, key: bytes) -> list[dict[str, Any]]:
    """Return the hash exchanges on the route of a key, in order. The last hop leads to a queue, if the key reaches
    one.
    """
    hops: list[dict[str, Any]] = []
    while isinstance(exchange, HASH_EXCHANGES) and len(hops) < MAX_HOPS:
        hops.append(_hop(exchange, key))
        label = hops[-1]["destination"]
        kind, name = destination_of(label) if label is not None else ("queue", "")
        if kind == "queue" or name not in host.exchanges:
            break
        exchange = host.exchanges[name]
    return hops


def _hop(exchange: ConsistentHashExchange | ModulusHashExchange, key: bytes) -> dict[str, Any]:
    found = {"exchange": exchange.name, "type": exchange.type, "hashed": " ".join(exchange.hashed or ("routing key",))}
    if isinstance(exchange, ModulusHashExchange):
        names = exchange.names
        bucket = modulus([key], len(names), exchange.function) if names else -1
        return found | {
            "destination": names[bucket] if names else None,
            "hash": phash2_list([key]) if exchange.function == "phash2" else _HASHES[exchange.function](key),
            "bucket": bucket,
            "buckets": len(names),
            "retired": False,
        }
    ring = exchange.ring
    total = ring.buckets + sum(count for _, count in ring.retired)
    number = _HASHES[ring.function](key)
    bucket = -1 if not total else (jump if ring.function == "phash2" else jump64)(number, total)
    is_retired = any(first <= bucket < first + count for first, count in ring.retired)
    return found | {
        "destination": ring.route(key),
        "hash": number,
        "bucket": bucket,
        "buckets": total,
        "retired": is_retired,
    }


def _size(exchange: ConsistentHashExchange | ModulusHashExchange) -> int:
    return len(exchange.ring) if isinstance(exchange, ConsistentHashExchange) else len(exchange.names)


def _state(exchange: ConsistentHashExchange | ModulusHashExchange) -> dict[str, Any] | ModulusPlacement:
    return exchange.ring.state() if isinstance(exchange, ConsistentHashExchange) else exchange.placement()


def _then(state: dict[str, Any] | ModulusPlacement, key: bytes, count: int) -> dict[str, Any]:
    """Return the route of a key with ``count`` destinations. Added destinations are called ``new 1`` and so on; with
    fewer destinations, those bound last are removed.
    """
    if isinstance(state, ModulusPlacement):
        names = [*state.names[:count], *(f"new {number}" for number in range(1, count - len(state.names) + 1))]
        label = names[modulus([key], len(names), state.function)] if names else None
        return {"destinations": count, "destination": label}
    ring = RingOutline.restore(state)  # without the buckets of a HashRing
    names, weights = list(ring.destinations), sorted(ring.destinations.values())
    for name in reversed(names[count:]):
        ring.remove(name)
    for number in range(1, count - len(names) + 1):
        ring.add(f"new {number}", weights[len(weights) // 2] if weights else 1)
    import pyarrow as pa  # imported here, to save 45 MB in an idle broker

    label = ring.route_array(pa.array([key], pa.binary()))[0].as_py() if len(ring) else None
    return {"destinations": count, "destination": label}


async def _traffic(
    broker: Broker, exchange: ConsistentHashExchange | ModulusHashExchange, key: bytes
) -> dict[str, Any] | None:
    if not isinstance(exchange, ConsistentHashExchange):
        return None
    parts = await broker.figures.ring_traffic(exchange.vhost, exchange.name)
    counts = together(parts, exchange.ring.names)
    if counts is None:
        return None
    frequent = next((one for one in counts.counted.frequent if one.key == key[:LONGEST_KEY]), None)
    if frequent is None or not counts.counted.noted:
        return None
    return {
        "since": counts.counted.since,
        "messages": frequent.messages,
        "share": round(frequent.messages / counts.counted.noted, 6),
        "error": round(frequent.error / counts.counted.noted, 6),
    }


async def _queue(request: Request, host: VirtualHost, label: str | None) -> dict[str, Any] | None:
    """Return the queue of a destination, with its readers; None if the destination is not a queue."""
    kind, name = destination_of(label or "")
    if label is None or kind != "queue" or name not in host.declared:
        return None
    broker, definition = requested.broker(request), host.declared[name].definition
    node = broker.topology.node_of(definition.home)
    figures = await broker.figures.queue(definition)
    if figures is None:
        return None
    seen = await broker.figures.consumers_of(definition, SHOWN_CONSUMERS)
    readers = [one for one in await broker.figures.readers() if (one.vhost, one.queue) == (host.name, name)]
    homes = broker.topology.nodes.get(node, [definition.home])
    return {
        "name": name,
        "type": figures.type,
        "node": node,
        "worker": homes.index(definition.home) + 1 if definition.home in homes else 1,
        "workers": len(homes),
        "state": figures.state,
        "messages_ready": figures.ready,
        "messages_unacknowledged": figures.unacknowledged,
        "consumers": figures.consumers,
        "consumer_details": [consumers.shown(request, one) for one in seen],
        "readers": [{"group": one.group, "alive": one.alive, "behind": one.ready} for one in readers],
        "waits_for": figures.status.get("fences", []),
    }


ROUTES = [Endpoint("GET", "/api/exchanges/{vhost}/{exchange}/key", follow, access=Access.MONITORING)]
