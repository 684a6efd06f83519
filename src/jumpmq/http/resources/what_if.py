"""``/api/exchanges/{vhost}/{exchange}/ring/what-if``: what a change would move, before it is made. JumpMQ's own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from jumpmq.amqp.errors import NotFound, PreconditionFailed
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.access import Access
from jumpmq.http.plumbing.answers import answer
from jumpmq.http.plumbing.endpoint import Endpoint
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.resources.ring_changes import in_order, read_steps, require_destinations
from jumpmq.http.schema.shapes import OBJECTS, Shape, whole
from jumpmq.topology import Exchange
from jumpmq.topology.exchanges import ConsistentHashExchange
from jumpmq.topology.exchanges.modulus_hash import ModulusHashExchange
from jumpmq.topology.shards import MAX_SHARDS, shard_name

if TYPE_CHECKING:
    from jumpmq.topology.what_if import Outcome, Step, Way

SHAPE = Shape({"changes": OBJECTS, "shards": whole(MAX_SHARDS)})

SHOWN_MOVES = 100
MAX_DESTINATIONS = 20_000


async def what_if(request: Request) -> Response:
    """``POST /api/exchanges/{vhost}/{exchange}/ring/what-if``: the share of keys that changes would move; none is made.

    The body is ``{"changes": [{"destination": NAME, "weight": N}, ...]}``: to bind, to weigh, or with weight 0 to
    unbind; or ``{"shards": N}``: as many shards a node. The answer has the ``weights`` before and after, ``least``,
    what any method must move, and by way of removing (``minimal``, ``shift``; ``modulus`` for ``x-modulus-hash``) what
    is ``moved``, and from where to where. A destination that is not declared is a 404.
    """
    exchange = requested.exchange(request)
    body = await requested.shaped_body(request, SHAPE)
    steps = in_order(exchange, read_steps(body.get("changes", [])))
    require_destinations(requested.virtual_host(request), [name for name, weight in steps if weight])
    if "shards" in body:
        steps += _shards(request, exchange, body["shards"])
    if not steps and "shards" not in body:
        raise BadRequest("key 'changes' or 'shards' is missing")
    return answer(await _outcomes(exchange, steps))


def _shards(request: Request, exchange: Exchange, count: int) -> list[tuple[str, int]]:
    """The shards that would be bound; fewer than there are leave all bound, as a policy does."""
    broker, host = requested.broker(request), requested.virtual_host(request)
    settings = host.sharding(exchange)
    if settings is None:
        raise PreconditionFailed(f"exchange '{exchange.name}' in vhost '{exchange.vhost}' is not sharded")
    key = settings.routing_key
    weight = int(key) if key is not None and isinstance(exchange, ConsistentHashExchange) else 1
    bound = {binding.destination for binding in exchange.bindings}
    nodes = broker.topology.nodes
    names = [shard_name(exchange.name, node, number) for node in nodes for number in range(count)]
    return [(name, weight) for name in names if name not in bound]


async def _outcomes(exchange: Exchange, steps: Sequence[tuple[str, int]]) -> dict[str, Any]:
    from jumpmq.topology import what_if as computed

    if not isinstance(exchange, ConsistentHashExchange | ModulusHashExchange):
        raise NotFound(
            f"exchange '{exchange.name}' in vhost '{exchange.vhost}' spreads no keys: its type is {exchange.type}"
        )
    wanted = [computed.Step(*step) for step in steps]
    if isinstance(exchange, ConsistentHashExchange):
        before = dict(exchange.ring.destinations)
    else:
        before = dict.fromkeys(exchange.names, 1)
        wanted = [computed.Step(name, min(weight, 1)) for name, weight in wanted]
    try:
        after = computed.weights_after(before, wanted)
    except ValueError as error:
        raise BadRequest(str(error)) from None
    if max(len(before), len(after)) > MAX_DESTINATIONS:
        raise BadRequest(f"there are more than {MAX_DESTINATIONS} destinations")
    outcomes = await _computed(exchange, wanted, before, after)
    return {
        "vhost": exchange.vhost,
        "exchange": exchange.name,
        "removal": exchange.ring.removal if isinstance(exchange, ConsistentHashExchange) else "modulus",
        "keys": computed.SAMPLE,
        "weights": {"before": before, "after": after},
        "least": round(computed.least(before, after), 6),
        "outcomes": {way: _shown(outcome) for way, outcome in outcomes.items()},
    }


async def _computed(
    exchange: ConsistentHashExchange | ModulusHashExchange,
    steps: list[Step],
    before: dict[str, int],
    after: dict[str, int],
) -> dict[Way, Outcome]:
    """Computed in a thread, in which the kernel routes without hindering others."""
    from jumpmq.topology.what_if import modulus_outcomes, ring_outcomes

    if isinstance(exchange, ConsistentHashExchange):
        return await asyncio.to_thread(ring_outcomes, exchange.ring.state(), steps)
    order = exchange.names
    added = [name for name in after if name not in before]
    names = sorted([name for name in order if name in after] + added, key=_modulus_place)
    return await asyncio.to_thread(modulus_outcomes, order, names)


def _modulus_place(name: str) -> tuple[bool, bytes]:
    return not name.startswith("exchange:"), name.removeprefix("exchange:").encode()


def _shown(outcome: Outcome) -> dict[str, Any]:
    return {
        "moved": outcome.moved,
        "moves": [
            {"from": move.source, "to": move.target, "share": move.share} for move in outcome.moves[:SHOWN_MOVES]
        ],
        "other_moves": max(0, len(outcome.moves) - SHOWN_MOVES),
    }


ROUTES = [
    Endpoint(
        "POST",
        "/api/exchanges/{vhost}/{exchange}/ring/what-if",
        what_if,
        access=Access.PLANNING,
        shape=SHAPE,
    )
]
